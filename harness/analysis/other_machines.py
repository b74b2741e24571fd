"""Results of several machines, joined: a figure on another machine.

Machines are a random effect: a machine that you own is one more of their kind.  A figure's logarithm on machine i is
``mean + machine_i + process_ij``, both normal.  An interval is a prediction, of the figure that the same suite would
measure on another machine; it is exact for any share of variance, where machines have as many processes:
``mean ± t(K - 1) · s · sqrt(1 + 1 / K)``, with the mean and the standard deviation ``s`` over K machines.

A covariate is taken off first: the logarithm of the time of fixed processor work around the trials (the canary), or of
another system's same figure.  Its slope is 1: a machine twice as slow at the covariate is twice as slow.
A slope from four machines would cost one of three degrees of freedom; where it is not 1, the interval is wider, and
still right.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness import stats
from harness.analysis.axes import ComparisonGroup, comparison_group
from harness.analysis.table import Row, Validity
from harness.driver.records import Outcome
from harness.estimate import CONFIDENCE, Estimate
from harness.stats import Floats

# The figure of a row.
Read = Callable[[Row], float | None]

# Fewest machines for an interval: with three, Student's t is 4.3, and the interval says nothing.
MIN_MACHINES = 4

# Logarithms with a smaller variance are equal except for rounding.
_SAME = 1e-20


@dataclass(frozen=True)
class MachineRow:
    """A row of one machine.

    ``processes``: the rows of each of its processes alone.  ``work_s``: the seconds that fixed processor work took
    around its trials; ``None``: not measured.
    """

    row: Row
    processes: Sequence[Row] = ()
    work_s: float | None = None


@dataclass(frozen=True, eq=False)
class CellOfMachines:
    """A cell that several machines measured: the rows by origin.

    ``failed``: how it ended where it has no figures.
    """

    system: str
    profile: str
    group: ComparisonGroup
    rows: Mapping[str, MachineRow]
    failed: Mapping[str, str]

    @property
    def doubted(self) -> dict[str, str]:
        """Return the validity of the rows that are in doubt, by origin."""
        return {
            origin: each.row.validity.value
            for origin, each in self.rows.items()
            if each.row.validity is not Validity.CLEAN
        }


@dataclass(frozen=True)
class AcrossMachines:
    """A figure of a cell across machines.

    Args:
        machines: number of machines that have the figure.
        elsewhere: the figure on another machine, with its interval.
        share: share of the variance of a process's value that is between machines.
        work_s: median time of the fixed work; ``None``: it is not a covariate.
        at_work: the figure on another machine whose fixed work takes ``work_s``.
        explained_by_work: share of the variance between machines' values that the fixed work explains.
        times_reference: the figure divided by the reference system's, on another machine.
        explained_by_reference: share of that variance that the reference system explains.
    """

    machines: int
    elsewhere: Estimate
    share: Estimate
    work_s: float | None = None
    at_work: Estimate = Estimate(None)
    explained_by_work: float | None = None
    times_reference: Estimate = Estimate(None)
    explained_by_reference: float | None = None


def cells(
    rows: Iterable[Row], processes: Mapping[str, Sequence[Row]], work_s: Mapping[str, float]
) -> list[CellOfMachines]:
    """Return the cells of merged results, each with the rows of its machines.

    Args:
        rows: of all origins; those without an origin are left out.
        processes: rows of each process alone, by ``per_query_key``.
        work_s: seconds of fixed work, by ``per_query_key``.
    """
    found: dict[tuple[str, str, str, ComparisonGroup], dict[str, Row]] = defaultdict(dict)
    for row in rows:
        if row.origin is not None:
            found[row.suite, row.system, row.profile, comparison_group(row)].setdefault(row.origin, row)
    return [
        CellOfMachines(
            system,
            profile,
            group,
            {
                origin: MachineRow(row, processes.get(row.per_query_key, ()), work_s.get(row.per_query_key))
                for origin, row in by_origin.items()
                if row.outcome is Outcome.OK
            },
            {origin: row.outcome.value for origin, row in by_origin.items() if row.outcome is not Outcome.OK},
        )
        for (_, system, profile, group), by_origin in found.items()
    ]


def quickest(peers: Iterable[CellOfMachines], read: Read) -> CellOfMachines | None:
    """Return the quickest of the cells that most machines measured; a user can soon measure it too.

    Args:
        peers: cells that may be compared.
        read: returns the latency of a row.
    """
    known = [(-len(values), sum(values.values()), each) for each in peers if (values := _logs(each, read))]
    return min(known, key=lambda item: item[:2])[2] if known else None


def across(
    cell: CellOfMachines, read: Read, *, reference: CellOfMachines | None = None, by_work: bool = False
) -> AcrossMachines:
    """Return a figure of a cell across machines.

    Args:
        cell: the cell.
        read: returns the figure of a row; one that is not above 0 has no logarithm and is left out.
        reference: another cell whose same figure is a covariate.
        by_work: whether the time of the fixed work is a covariate.
    """
    values = _logs(cell, read)
    processes = [logs for each in cell.rows.values() if (logs := _of_processes(each.processes, read))]
    found = AcrossMachines(len(values), predicted(list(values.values())), machine_share(processes))
    work = {origin: math.log(each.work_s) for origin, each in cell.rows.items() if each.work_s}
    if by_work and len(pairs := _common(values, work)) >= MIN_MACHINES:
        work_s = math.exp(stats.median(pairs[:, 1]))
        per_second, share = beyond(pairs)
        found = replace(found, work_s=work_s, at_work=per_second.map(work_s.__mul__), explained_by_work=share)
    if reference is not None and reference is not cell:
        pairs = _common(values, _logs(reference, read))
        if len(pairs) >= MIN_MACHINES:
            times, share = beyond(pairs)
            found = replace(found, times_reference=times, explained_by_reference=share)
    return found


def predicted(logs: Sequence[float] | Floats) -> Estimate:
    """Return the median and the 95 % prediction interval of a figure on another machine.

    Args:
        logs: the logarithm of the figure of each machine.
    """
    from scipy.special import stdtrit

    machines = len(logs)
    if machines < MIN_MACHINES:
        return Estimate(None, reason=too_few(machines))
    mean, spread = float(np.mean(logs)), float(np.std(logs, ddof=1))
    reach = float(stdtrit(machines - 1, (1 + CONFIDENCE) / 2)) * spread * math.sqrt(1 + 1 / machines)
    return Estimate(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach))


def machine_share(logs: Sequence[Sequence[float]]) -> Estimate:
    """Return the share of the variance of a process's value that machines have, with its 95 % interval.

    The intraclass correlation of a one-way random effect, by analysis of variance, with the interval of its F ratio
    (Searle 1971, section 9.8); machines with other numbers of processes count by their mean number (ibid.).

    Args:
        logs: the logarithms of the figure, by machine and process.
    """
    from scipy.special import fdtri

    groups = [np.asarray(each) for each in logs]
    machines, total = len(groups), sum(map(len, groups))
    if machines < MIN_MACHINES:
        return Estimate(None, reason=too_few(machines))
    if total == machines:
        return Estimate(None, reason="one process on each machine cannot show the variance between processes")
    each = (total - sum(len(group) ** 2 for group in groups) / total) / (machines - 1)
    grand = float(np.concatenate(groups).mean())
    between = sum(len(group) * (float(group.mean()) - grand) ** 2 for group in groups) / (machines - 1)
    within = sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / (total - machines)
    if within < _SAME:
        same = Estimate(None, reason="all processes of a machine have the same value")
        return same if between < _SAME else Estimate(1.0)

    def share(ratio: float) -> float:
        return max(0.0, (ratio - 1) / (ratio - 1 + each))

    ratio, tail = between / within, (1 - CONFIDENCE) / 2
    upper, lower = (float(fdtri(machines - 1, total - machines, 1 - p)) for p in (tail, 1 - tail))
    return Estimate(share(ratio), share(ratio / upper), share(ratio / lower))


def beyond(pairs: Floats) -> tuple[Estimate, float | None]:
    """Return the prediction of a figure divided by a covariate, and the share of variance that the covariate explains.

    Args:
        pairs: logarithms of the figure and of the covariate of each machine; shape (machines, 2).
    """
    rest, whole = pairs[:, 0] - pairs[:, 1], float(np.var(pairs[:, 0]))
    return predicted(rest), 1 - float(np.var(rest)) / whole if whole > _SAME else None


def too_few(machines: int) -> str:
    """Return why this few machines give no interval."""
    are = "is" if machines == 1 else "are"
    return f"an interval for another machine needs {MIN_MACHINES} machines, and there {are} {machines}"


def _logs(cell: CellOfMachines, read: Read) -> dict[str, float]:
    values = {origin: read(each.row) for origin, each in cell.rows.items()}
    return {origin: math.log(value) for origin, value in values.items() if value is not None and value > 0}


def _of_processes(rows: Iterable[Row], read: Read) -> list[float]:
    return [math.log(value) for row in rows if (value := read(row)) is not None and value > 0]


def _common(values: Mapping[str, float], others: Mapping[str, float]) -> Floats:
    """Return the pairs of the machines that have both; shape (machines, 2)."""
    return np.array([(value, others[origin]) for origin, value in values.items() if origin in others]).reshape(-1, 2)

"""The CO2e of a row's queries: measured CPU time, or joules of CPU packages and GPUs, times dated factors.  Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.analysis.table import Carbon, Row
from harness.estimate import Estimate
from harness.pricing import carbon, cost
from harness.pricing.carbon import CarbonRates, QueryWork


def of_row(row: Row, rates: CarbonRates | None, architecture: str | None) -> Carbon:
    """Return the grams of CO2e of a million queries, or the reason why they are missing.

    The factors alone make the range.  Intervals of the measured times are left out: they are narrower by far.

    Args:
        row: measured.
        rates: the factors and the grid; ``None``: none are stored.
        architecture: of the machine that measured.
    """
    if rates is None:
        return _missing("no carbon factors are stored; add some (docs/reference/prices.md)")
    if rates.grid is None:
        return _missing(rates.reason)
    work = query_work(row)
    if isinstance(work, str):
        return _missing(work)
    measured = work.package_j is not None
    names = rates.processors(str(row.machine.cpu_model), architecture or "") if row.machine and not measured else ()
    if not names and not measured:
        return _missing(f"the factors of {rates.factors.date} have no processor of its architecture")
    cases = carbon.grams_per_million(work, rates.factors, rates.grid, names)
    low, high = min(cases), max(cases)
    return Carbon(
        # Between ends that a factor divides and multiplies, the middle is the geometric one.
        grams=Estimate(math.sqrt(low * high), low, high),
        cpu_measured=measured,
        gpu_measured=work.gpu_j > 0,
        processors=names,
        cases=cases,
        date=rates.factors.date,
        grid=rates.grid.name,
        grams_per_kwh=rates.grid.grams_per_kwh,
    )


def query_work(row: Row) -> QueryWork | str:
    """Return the work of a mean query, or the reason why it is not known."""
    cpu_s, machine_s = row.cpu.of_system_s, _machine_s(row)
    if row.machine is None:
        return "harness does not know its machine" if row.isolation.attached else "the row was not measured here"
    if cpu_s.value is None:
        return cpu_s.reason or "the CPU time of a query was not measured"
    if machine_s is None:
        return "the time of a query was not measured"
    gpu_j = 0.0
    if row.gpus:
        energy_j, queries = row.resources.gpu_energy_j, (row.queries or 0) * (row.trials or 0)
        if energy_j is None or not queries or row.scenario == "server":
            return "the energy of its GPUs is not known for a query; measure scenario single_stream or offline"
        gpu_j = energy_j / queries
    return QueryWork(cpu_s.value, machine_s, row.cpus, row.memory_bytes / cost.GIB, gpu_j, row.cpu.package_j.value)


def _machine_s(row: Row) -> float | None:
    """Return the seconds that the machine is rented for a query, as the row's cost model has them."""
    if row.scenario == "single_stream":
        return row.latency.mean_s.value
    return 1 / row.throughput_qps.value if row.throughput_qps.value else None


def _missing(reason: str) -> Carbon:
    return Carbon(grams=Estimate(None, reason=reason))


def least(rows: Sequence[Row]) -> Row | None:
    """Return the row with the least CO2e of several; ``None``: the factors cannot tell which it is."""
    known = [row for row in rows if row.carbon.grams.value is not None]
    first = min(known, key=lambda row: row.carbon.grams.value or 0.0, default=None)
    others = [row for row in known if row is not first]
    certain = first is not None and all(ratio(first, other)[0] > 1 for other in others)
    return first if others and certain else None


def ratio(row: Row, other: Row) -> tuple[float, float]:
    """Return the least and the most CO2e of another row as a multiple of a row's; both rows have an estimate.

    Rows of one machine share their factors, so that each case is compared with the same one.  Factors of different
    machines, and measured and estimated joules, have nothing to do with each other: the ends of one are compared with
    the opposite ends of the other.
    """
    ours, theirs = row.carbon.cases, other.carbon.cases
    if _factors(row) == _factors(other):
        ratios = [its / mine for mine, its in zip(ours, theirs, strict=True)]
        return min(ratios), max(ratios)
    return min(theirs) / max(ours), max(theirs) / min(ours)


def _factors(row: Row) -> tuple[object, ...]:
    """Return what the factors of a row follow from: its machine, and whether the joules of its CPUs were measured."""
    machine = row.machine
    if machine is None:
        return ()
    same = (machine.cpu_model, machine.architecture, machine.instance_type, machine.host_cpus)
    return (*same, row.carbon.cpu_measured)

"""Measure the null system on this machine: what harness adds to a query, and how far the machine can be trusted.

One row runs from plan to report in a temporary folder: the latencies of the null system, and the canary around each
trial.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import config, filesystem
from harness.analysis.table import Cause, Row, Validity
from harness.analysis.validity.findings import trials_s
from harness.commands import quoted
from harness.driver.records import Outcome
from harness.errors import HarnessError
from harness.experiments.calibration import fixtures
from harness.experiments.calibration.cases import Case, Group
from harness.experiments.calibration.known_values import Clean
from harness.jobs.inputs import RunOptions
from harness.launch import launchers
from harness.launch.checks import Check, Level, warn_if
from harness.launch.doctor import MAX_SPREAD, canary_spreads
from harness.launch.images import catalog
from harness.launch.images.systems import System
from harness.progress import NOWHERE, show_progress, task
from harness.report.checks import checks_document
from harness.report.document import Escape, Grid, ReportDocument, Section, bounded, number
from harness.results.schema import NULL_SYSTEM, CanaryReading, Result
from harness.stats import median

_QUERIES, _TRIALS, _WARMUP = 2000, 5, 64
# A few seconds: warm-up is one pass, since the system does nothing that could warm up.
_GROUP = Group(
    "doctor",
    (Case(NULL_SYSTEM, Clean()),),
    _QUERIES,
    {
        "trials": _TRIALS,
        "warmup_queries": _WARMUP,
        "warmup_cap": _WARMUP,
        "repeats": 0,
        "load_timeout_s": 30,
        "job_timeout_s": 60,
    },
)
_TONES = {Level.OK: "", Level.WARN: "doubtful", Level.FAIL: "bad"}
_WORKS = {Level.OK: "yes", Level.WARN: "in part", Level.FAIL: "no"}
_AGAIN = "end other work on this machine, then run `harness doctor` again"


@dataclass(frozen=True)
class NullRow:
    """The null system's row, the results of its jobs, and the seconds that all took."""

    launcher: str
    row: Row
    results: tuple[Result, ...]
    wall_s: float

    @property
    def checks(self) -> tuple[Check, ...]:
        """Overhead, speed of the machine, other work, and the smallest difference that can be trusted."""
        latency = self.row.latency
        overhead = f"{bounded(latency.mean_s, 1e6)} µs a query, p95 {number(latency.p95_s.value, 1e6)} µs"
        return (
            Check(Level.OK, "overhead", overhead),
            *(self._speed(kind) for kind in self.spreads),
            self._other_work(),
            self._trust(),
        )

    @property
    def readings(self) -> tuple[CanaryReading, ...]:
        """The canary's readings before and after each trial."""
        return tuple(reading for result in self.results for reading in result.observed.canary)

    @property
    def spreads(self) -> dict[str, float]:
        """By how much the slowest of these readings exceeds the fastest (:func:`canary_spreads`)."""
        return canary_spreads(self.readings)

    @property
    def trial_range_s(self) -> float:
        """Difference of the slowest and the fastest trial's mean latency."""
        means = self.row.latency.trial_means_s
        return max(means) - min(means)

    @property
    def disturbances(self) -> tuple[str, ...]:
        """Facts that put the row in doubt."""
        return tuple(fact for _, fact in self._doubts)

    @property
    def numbers(self) -> dict[str, Any]:
        """The measured numbers for programs."""
        mean, p95 = self.row.latency.mean_s, self.row.latency.p95_s
        return {
            "launcher": self.launcher,
            "isolation": self.row.isolation.name,
            "wall_s": self.wall_s,
            "mean_s": mean.value,
            "mean_s_low": mean.low,
            "mean_s_high": mean.high,
            "p95_s": p95.value,
            "trial_range_s": self.trial_range_s,
            "canary_cpu_s": median([reading.cpu_s for reading in self.readings]),
            "canary_memory_s": median([reading.memory_s for reading in self.readings]),
            "canary_cpu_spread": self.spreads["CPU"],
            "canary_memory_spread": self.spreads["memory"],
            "validity": self.row.validity.value,
            "disturbances": list(self.disturbances),
        }

    @property
    def _doubts(self) -> list[tuple[Cause, str]]:
        doubts = (finding for finding in self.row.findings if finding.validity is not Validity.CLEAN)
        return [(finding.cause, finding.text.partition("; ")[0]) for finding in doubts]

    def _speed(self, kind: str) -> Check:
        times = [reading.cpu_s if kind == "CPU" else reading.memory_s for reading in self.readings]
        spread = self.spreads[kind]
        fact = f"{number(median(times), 1e3)} ms for fixed work, {len(times)} readings within {_percent(spread)}"
        return warn_if(spread > MAX_SPREAD, f"{kind} speed", fact, _AGAIN)

    def _other_work(self) -> Check:
        # The speeds have lines of their own.
        if others := [fact for cause, fact in self._doubts if cause is not Cause.CANARY]:
            return Check(Level.WARN, "other work", "; ".join(others), _AGAIN)
        unjudged = any(finding.cause is Cause.COUNTERS for finding in self.row.findings)
        fact = f"none found in {sum(map(trials_s, self.results)):.2f} s of trials"
        return Check(Level.OK, "other work", fact + (", of which the counters miss some" if unjudged else ""))

    def _trust(self) -> Check:
        kind, share = max(self.spreads.items(), key=lambda pair: pair[1])
        fact = (
            f"the machine may cause a latency difference below {_percent(share)}, as its {kind} speed varied that much;"
            f" harness may cause one below {number(self.trial_range_s, 1e6)} µs, as trials of the null system varied"
            " that much"
        )
        return warn_if(share > MAX_SPREAD or bool(self.disturbances), "trust", fact, _AGAIN)


def measure(names: Sequence[str]) -> tuple[NullRow | None, tuple[Check, ...]]:
    """Measure the null system by the first of some launchers that can; takes seconds, leaves nothing.

    Args:
        names: launchers, the best first.

    Returns:
        the row, None if no launcher could measure it; and a check for each launcher that could not.
    """
    failures = {}
    measured = None
    for name in names:
        try:
            measured = _measured(name)
            break
        except HarnessError as error:
            failures[name] = str(error)
    level, end = (Level.FAIL, "") if measured is None else (Level.WARN, f"; {measured.launcher} did")
    return measured, tuple(
        Check(level, "null system", f"{name} could not measure it: {why}{end}", _closer(name))
        for name, why in failures.items()
    )


def _closer(launcher: str) -> str:
    return f"{quoted('conformance', NULL_SYSTEM, launcher=launcher)} shows more"


def _measured(name: str) -> NullRow:
    """Measure the row by one launcher.

    Raises:
        HarnessError: the launcher cannot run it, or the row lacks figures or the canary's readings.
    """
    started, system = time.monotonic(), catalog.system(NULL_SYSTEM)
    with (
        filesystem.temporary_folder("doctor") as folder,
        closing(launchers.open_launcher(name, _cache(name, system, folder / "cache"))) as launcher,
        task(f"{NULL_SYSTEM} by {name}"),
    ):
        launcher.check()
        launcher.prepare(system)
        with show_progress(NOWHERE):
            dataset = fixtures.dataset(folder / "data", folder / "cache")
        options = RunOptions(folder / "results", folder / "cache", folder)
        jobs, (row,) = fixtures.run_group(_GROUP, system, dataset, options, launcher)
    if row.outcome is not Outcome.OK:
        raise HarnessError(f"{NULL_SYSTEM} ended {row.outcome.value}: {row.detail}")
    measured = NullRow(name, row, tuple(job.result for job in jobs), time.monotonic() - started)
    if not measured.readings:
        raise HarnessError("its jobs have no readings of the machine's speed")
    return measured


def _cache(name: str, system: System, empty: Path) -> Path:
    """Return the user's cache if the launcher finds the system there, as a machine without a network needs it."""
    with suppress(HarnessError), closing(launchers.open_launcher(name, config.cache_folder())) as launcher:
        if launcher.find(system) is not None:
            return launcher.cache
    return empty


def doctor_document(checks: Sequence[Check], usable: Sequence[Check], measured: NullRow | None) -> ReportDocument:
    """Return the report on a machine: its checks, its launchers, and the null system's row if it was measured.

    Args:
        checks: checks of the machine and of the measurement.
        usable: a check for each launcher; a failed one cannot run jobs here.
        measured: the row.
    """
    plain, found = checks_document(checks), measured.checks if measured else ()
    said = {check.remedy for check in checks}

    def tables(escape: Escape) -> Iterator[Section]:
        rows = [(each, escape(each.what), _WORKS[each.level], escape(_details(each, said))) for each in usable]
        yield Section(grids=(_grid(("launcher", "works", "as, or what it lacks"), rows),))
        if measured:
            *figures, trust = found
            head = (f"{NULL_SYSTEM} system", f"by {measured.launcher}, in {measured.wall_s:.0f} s")
            grid = _grid(head, [(each, escape(each.what), escape(each.fact)) for each in figures])
            yield Section(grids=(grid,), notes=(f"{trust.level.value:<4}  {escape(trust.text)}",))

    def content() -> dict[str, Any]:
        listed = {"launchers": checks_document(usable).content()["checks"]}
        return {**plain.content(), **listed, "null": measured.numbers if measured else None}

    named = [replace(check, what=f"launcher {check.what}") for check in usable]
    return replace(
        plain,
        sections=lambda escape: (*plain.sections(escape), *tables(escape)),
        lines=checks_document([*checks, *named, *found]).lines,
        content=content,
        answer=lambda escape: (*(plain.answer or plain.sections)(escape), *tables(escape)),
    )


def _grid(head: tuple[str, ...], rows: Sequence[tuple[Check, *tuple[str, ...]]]) -> Grid:
    """Return a table whose rows have the tones of their checks."""
    cells, tones = tuple(row[1:] for row in rows), tuple(_TONES[row[0].level] for row in rows)
    return Grid("", head, (False,) * len(head), cells, tones=tones)


def _details(check: Check, said: Container[str]) -> str:
    """Return what a launcher does or lacks, with the remedy unless it is ``said`` above."""
    if not check.remedy:
        return check.fact
    return f"{check.fact}; {'see above' if check.remedy in said else check.remedy}"


def _percent(share: float) -> str:
    return f"{100 * share:.{1 if share < 0.1 else 0}f} %"

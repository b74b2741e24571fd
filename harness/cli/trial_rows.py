"""Rows that `harness run` shows while it measures: after the first and the last trial of each cell."""

from __future__ import annotations

import logging
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from harness.analysis.table import Row
from harness.cli.stored_results import StoredResults
from harness.driver.records import Outcome
from harness.errors import HarnessError
from harness.evaluation import measure_names
from harness.jobs.inputs import RunCallbacks
from harness.jobs.suite import Suite
from harness.report.row_lines import disturbances, row_line
from harness.results.reader import StoredJob
from harness.results.schema import NULL_SYSTEMS, Cell

log = logging.getLogger(__name__)


class TrialRows(RunCallbacks):
    """Callbacks that show each row after its first and last trial, and at once what disturbed it, each remedy once."""

    def __init__(self, suite: Suite, cache: Path) -> None:
        self._stored = StoredResults(Path(suite.name), cache, suite.measures)
        self._several = len(suite.datasets) > 1
        self._machine = suite.named_machine
        self._jobs: dict[Cell, dict[int, StoredJob]] = defaultdict(dict)
        self._given: set[str] = set()  # several causes have one remedy

    def stored(self, job: StoredJob) -> None:
        """Show the row of the job's cell, of the trials that this run has stored so far."""
        spec = job.result.spec
        if job.result.outcome is not Outcome.OK or spec.cell.system in NULL_SYSTEMS:
            return
        jobs = self._jobs[spec.cell]
        again = spec.job in jobs  # a noisy cell is measured again
        jobs[spec.job] = job
        with suppress(HarnessError):  # the table at the end says what is wrong
            row = self._row([*jobs.values()])
            if not again and len(jobs) in (1, spec.jobs):
                log.info("  %s", row_line(row, len(jobs), spec.jobs, dataset=self._several))
            for advice, text in disturbances(row, dataset=self._several):
                if advice not in self._given:
                    self._given.add(advice)
                    log.info("  %s", text)

    def _row(self, jobs: list[StoredJob]) -> Row:
        from harness.analysis.evaluate_job import JobEvaluator  # late: a run that is done needs neither
        from harness.analysis.rows import build_rows

        measures = self._stored.measures or measure_names.DEFAULT
        (row,) = build_rows(jobs, JobEvaluator(measures[:1])).table.rows
        return self._stored.pricing()(replace(row, told=self._machine))

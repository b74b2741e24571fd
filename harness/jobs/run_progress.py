"""Progress of a run: its bar, a line for each finished cell, and what is kept where the run is stopped."""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from harness.driver.records import Outcome
from harness.errors import EngineError
from harness.jobs.plan import Planned
from harness.progress import Progress, TimeLeft, duration, silent, task
from harness.results.schema import Cell, Result, system_words

log = logging.getLogger(__name__)


class RunProgress:
    """Progress of a run: a bar with the time left, and a line for each finished cell and each unexpected outcome.

    Args:
        todo: the jobs to run.
        before: the number of jobs that are stored from before.
        kept: what a job is that ended, in the plural.
        resumes: whether the same command goes on with the jobs that are left.
    """

    def __init__(
        self, todo: Sequence[Planned], before: int, kept: str = "jobs are stored", *, resumes: bool = True
    ) -> None:
        self._before, self._kept, self._resumes = before, kept, resumes
        self._left = TimeLeft(job.cell for job in todo if not job.cannot)
        self._jobs, self._ended = len(todo), 0
        self._waiting = Counter(job.cell for job in todo)
        self._as_expected: dict[Cell, list[Result]] = defaultdict(list)
        self._measuring = False
        self._step: Progress = silent

    @contextmanager
    def bar(self, title: str) -> Iterator[None]:
        """Show a bar with the jobs that ended, of all; where the run is stopped, say what is kept.

        Raises:
            EngineError: the engine is gone; the message says what is kept.
        """
        try:
            with task(title, line=False, left=self._time_left) as self._step:
                self._step(0, self._jobs)
                yield
        except EngineError as error:
            then = "to go on" if self._resumes else "again: --fresh measures all jobs anew"
            go_on = f". {kept}; then run the same command {then}" if (kept := self._stored()) else ""
            raise EngineError(f"{error}{go_on}") from error
        except KeyboardInterrupt:
            if kept := self._stored():
                log.info(f"  {kept}")
            raise
        finally:
            self._step = silent

    def _stored(self) -> str:
        """Return how many jobs are kept; nothing for a single job."""
        total = self._before + self._jobs
        return f"{self._before + self._ended} of {total} {self._kept}" if total > 1 else ""

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Show the time left while only jobs run: how long images and indexes still take is not known."""
        self._measuring = True
        yield
        self._measuring = False

    def _time_left(self) -> str:
        return self._left.text() if self._measuring else ""

    @contextmanager
    def timed(self, job: Planned) -> Iterator[None]:
        """Time a job."""
        started = time.monotonic()
        self._left.begins()
        yield
        if not job.cannot:
            self._left.ended(job.cell, time.monotonic() - started)

    def report(self, job: Planned, result: Result) -> None:
        """Log a line for the job if its outcome is unexpected, and one for its cell if this was its last job."""
        self._ended += 1
        self._step(self._ended, self._jobs)
        self._waiting[job.cell] -= 1
        if result.outcome is job.expected:
            self._as_expected[job.cell].append(result)
        else:
            log.info(line(self._ended, self._jobs, [result], job.expected))
        if not self._waiting[job.cell] and self._as_expected[job.cell]:
            log.info(line(self._ended, self._jobs, self._as_expected[job.cell], job.expected))


def cell_name(cell: Cell) -> str:
    """Return a cell's system, dataset, hardware profile, and its scenario if that is not the usual one."""
    scenario = "" if cell.scenario == "single_stream" else f" {cell.scenario}"
    return f"{system_words(cell.system)} {cell.dataset} {cell.profile}{scenario}"


def trials_of(results: Sequence[Result]) -> str:
    """Name a cell, and count the trials if the cell has more."""
    spec, trials = results[0].spec, len({result.spec.job for result in results})
    part = f" ({trials} of {spec.jobs} trials)" if trials < spec.jobs else ""
    return cell_name(spec.cell) + part


def reason_of(result: Result, expected: Outcome) -> str:
    """Return a job's detail, else the outcome that its suite expects."""
    return str(result.detail or "") or f"the suite expects {expected.value}; change its [[expect]]"


def line(number: int, total: int, results: Sequence[Result], expected: Outcome) -> str:
    """Return the line about the end of a job, or of several jobs of a cell that ended alike."""
    result, count, spec = results[0], len(results), results[0].spec
    trials = f" {count} trials" if count > 1 else f" trial {spec.job + 1}/{spec.jobs}" if spec.jobs > 1 else ""
    text = f"  [{number}/{total} jobs] {cell_name(spec.cell)}{trials}: {result.outcome.value}"
    if result.outcome is expected and expected is not Outcome.OK:
        text += " (foreseen)"
    if result.outcome is not expected or result.detail:
        text += f": {reason_of(result, expected)}"
    return f"{text}  [{duration(sum(result.wall_s for result in results))}]"

"""Pool the jobs of one cell whose environments agree."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.analysis.validity.findings import again
from harness.driver.records import Outcome
from harness.results import attempts
from harness.results.reader import StoredJob
from harness.results.schema import Environment, Result
from harness.untrusted import ForeignText, raw_text


@dataclass(frozen=True)
class Pool:
    """The attempts that a cell's row shows, in the order of their job numbers; at least one.

    ``outcome`` is the first failure, else ``ok``; only ``ok`` jobs give numbers.  ``missing`` counts the cell's jobs
    that are not stored or were measured in another environment.  ``measured_again`` counts the jobs that a newer,
    unfinished measurement has stored, which the row does not show.
    """

    jobs: tuple[StoredJob, ...]
    outcome: Outcome
    detail: ForeignText | None
    missing: int
    notes: tuple[str, ...]
    measured_again: int = 0

    @property
    def results(self) -> tuple[Result, ...]:
        """The records of the jobs."""
        return tuple(job.result for job in self.jobs)

    @property
    def lead(self) -> StoredJob:
        """The job that represents the row: the first with the row's outcome."""
        return next(job for job in self.jobs if job.result.outcome is self.outcome)


def pool(stored: Iterable[StoredJob], keys: Collection[str] | None = None) -> Pool:
    """Choose the attempts of a cell and pool the attempts of one machine, whichever harness measured them.

    Args:
        stored: jobs of one cell and isolation, at least one.
        keys: as in :func:`harness.results.attempts.choose`.
    """
    tries = list(stored)
    shown, notes = attempts.choose(tries, keys)
    failed = [job for job in shown if job.result.outcome is not Outcome.OK]
    if failed:
        outcome, detail = _failure(failed)
        return Pool(shown, outcome, detail, shown[0].result.spec.jobs - len(shown), notes)
    newest = max(shown, key=attempts.started).result.environment.machine
    kept = tuple(job for job in shown if job.result.environment.machine == newest)
    refused = tuple(_refused(shown, newest))
    spec = kept[0].result.spec
    versions = sorted({job.result.environment.harness_version for job in kept})
    if versions[1:]:
        ends = f"{_quoted(versions[0])} to {_quoted(versions[-1])}"
        notes = (*notes, f"measured by {len(versions)} versions of harness ({ends}), whose drivers time alike")
    again = attempts.measured_again(shown, tries)
    return Pool(kept, Outcome.OK, kept[0].result.detail, spec.jobs - len(kept), (*notes, *refused), again)


def _failure(failed: Sequence[StoredJob]) -> tuple[Outcome, ForeignText | None]:
    """Return the first failure's outcome, with the count of failed jobs unless all failed alike."""
    first = failed[0].result
    ends = {(job.result.outcome, job.result.detail) for job in failed}
    if len(failed) == first.spec.jobs and len(ends) == 1:
        return first.outcome, first.detail
    same = sum(job.result.outcome is first.outcome for job in failed)
    others = len(failed) - same
    more = f", {others} otherwise not ok" if others else ""
    unit = attempts.unit(first.spec)
    text = f"{same} of {first.spec.jobs} {unit}s ended {first.outcome.value}{more}"
    return first.outcome, ForeignText(f"{text}: {first.detail}" if first.detail else text)


def _refused(shown: Sequence[StoredJob], newest: Environment) -> Iterator[str]:
    """Note jobs of another environment, with the values that differ."""
    spec = shown[0].result.spec
    others = Counter(machine for job in shown if (machine := job.result.environment.machine) != newest)
    for environment, count in others.items():
        values = ", ".join(
            f"{name} {_quoted(theirs)} against {_quoted(getattr(newest, name))}"
            for name, theirs in vars(environment).items()
            if theirs != getattr(newest, name)
        )
        were = "was" if count == 1 else "were"
        yield (
            f"{count} of {spec.jobs} {attempts.unit(spec)}s {were} measured in another environment ({values}): "
            f"not pooled; {again(spec.cell)}"
        )


def _quoted(value: object) -> str:
    return json.dumps(value, default=raw_text)

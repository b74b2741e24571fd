"""Stored jobs of one cell -> for each of its job numbers the attempt that is shown, and what to say of the others.

A cell takes ``spec.jobs`` container lives; each may have been tried several times.  Attempts at the same job are never
pooled.  Those whose specs differ in more than job number and repetition measured different things: only one spec's
attempts are chosen from.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from harness.errors import FileError
from harness.records import Isolation, Outcome, digest
from harness.results.schema import Cell, Result, ResultSpec

# What attempts may differ in, in a reader's words; every other key of the spec is "parameters".
_DIFFERENCES = {
    "image_digest": "image",
    "corpus_sha256": "corpus",
    "index_key": "index",
    "sample_sha256": "query sample",
    "sample_size": "query sample",
    "qrels_sha256": "judgements",
    "protocol": "protocol",
    "trials": "protocol",
    "jobs": "protocol",
    "repeats": "protocol",
    "scenario_params": "scenario",
    "warmup_queries": "protocol",
    "warmup_cap": "protocol",
    "warmup_sha256": "warm-up queries",
    "k": "hits asked for",
    "seed": "seed",
    "envelope": "envelope",
    "instance_type": "instance type",
}


class Job(Protocol):
    """A stored job, as ``harness.results.store`` reads it."""

    @property
    def folder(self) -> Path: ...  # noqa: D102
    @property
    def result(self) -> Result: ...  # noqa: D102
    @property
    def origin(self) -> str | None: ...  # noqa: D102
    @property
    def run_path(self) -> Path | None: ...  # noqa: D102
    def samples(self) -> Any: ...  # noqa: D102
    def qrels_path(self) -> Path: ...  # noqa: D102
    def sample_ids(self) -> tuple[str, ...]: ...  # noqa: D102


AnyJob = TypeVar("AnyJob", bound=Job)


class CellKey(NamedTuple):
    """Key that the jobs of a row share."""

    cell: Cell
    isolation: Isolation
    origin: str | None


def jobs_by_cell(jobs: Iterable[AnyJob]) -> dict[CellKey, list[AnyJob]]:
    """Jobs that may be attempts at one another, in the order given."""
    places: dict[CellKey, list[AnyJob]] = defaultdict(list)
    for job in jobs:
        places[CellKey(job.result.spec.cell, job.result.spec.isolation, job.origin)].append(job)
    return places


def choose(
    attempts: Iterable[AnyJob], keys: Collection[str] | None = None
) -> tuple[tuple[AnyJob, ...], tuple[str, ...]]:
    """The attempts that are shown, one for each job number that has any, ascending; and notes on all that they hide.

    The attempt that started last decides the spec: a change of image or protocol is never answered with results from
    before it.  Within that spec and job number, repetitions tell the age: it is the newest that ended ``ok``, else the
    newest.  An attempt named in ``keys`` comes first.

    Args:
        attempts: stored jobs of one cell and isolation, at least one, in any order.
        keys: job keys that somebody asked for, e.g. those that a plan refers to.

    Raises:
        FileError: a result's start time cannot be read.
    """
    ordered = sorted(attempts, key=_started)
    wanted = [job for job in ordered if keys is not None and job.result.key in keys]
    numbered: dict[int, list[AnyJob]] = defaultdict(list)
    for job in _of_spec(ordered, (wanted or ordered)[-1]):
        numbered[job.result.spec.job].append(job)
    shown, notes, several = [], [], []
    for _, same in sorted(numbered.items()):
        same.sort(key=lambda job: job.result.spec.repetition)  # a clock may have gone back
        asked = [job for job in same if job in wanted]
        finished = [job for job in same if job.result.outcome is Outcome.OK]
        this = (asked or finished or same)[-1]
        shown.append(this)
        notes += [f"{_which(this)}{note}" for note in (*_newer(this, same), *_earlier(this, same))]
        if this in finished and len(finished) > 1:
            several.append((len(finished), this is finished[-1]))
    return tuple(shown), (*notes, *_repeated(several, shown[0].result.spec.jobs), *_others(shown[0], ordered))


def started(job: Job) -> datetime.datetime:
    """When a job started.

    Raises:
        FileError: its start time cannot be read.
    """
    return _started(job)[0]


def _which(job: Job) -> str:
    """Names one of several jobs of a cell."""
    spec = job.result.spec
    return f"{unit(spec)} {spec.job + 1} of {spec.jobs}: " if spec.jobs > 1 else ""


def unit(spec: ResultSpec) -> str:
    """Return the name of one job of a cell: with one trial each, a trial."""
    return "trial" if spec.trials == 1 else "job"


def _of_spec(ordered: Sequence[AnyJob], job: AnyJob) -> list[AnyJob]:
    """The repetitions of what ``job`` measured."""
    identity = _identity(job)
    return [other for other in ordered if _identity(other) == identity]


def _identity(job: Job) -> str:
    return digest(replace(job.result.spec, repetition=0, job=0))


def _started(job: Job) -> tuple[datetime.datetime, int, str]:
    """Sorts attempts by age; equal times fall back on repetition and key."""
    result = job.result
    try:
        started = datetime.datetime.fromisoformat(result.started_at)
    except ValueError as error:
        raise FileError(f"{job.folder}: started_at {result.started_at!r} is no ISO time; mend result.json") from error
    if started.tzinfo is None:
        started = started.replace(tzinfo=datetime.UTC)
    return started, result.spec.repetition, result.key


def _newer(shown: Job, same: Sequence[Job]) -> Iterator[str]:
    """Describe later attempts at the same spec that are not shown."""
    last = f"the last {shown.result.outcome.value} is shown"
    for job in same[_place(shown, same) + 1 :]:
        result = job.result
        if result.outcome is not shown.result.outcome:
            detail = f" ({result.detail})" if result.detail else ""
            yield f"newer attempt ended {result.outcome.value} on {result.started_at}{detail}; {last}"


def _earlier(shown: Job, same: Sequence[Job]) -> Iterator[str]:
    """A failure that was asked for by its key hides what went well before it."""
    before = [job.result for job in same[: _place(shown, same)] if job.result.outcome is Outcome.OK]
    outcome = shown.result.outcome
    if before and outcome is not Outcome.OK:
        yield f"earlier attempt ended ok on {before[-1].started_at}; the newer {outcome.value} is shown"


def _place(shown: Job, same: Sequence[Job]) -> int:
    return next(place for place, job in enumerate(same) if job is shown)


def _repeated(several: Sequence[tuple[int, bool]], jobs: int) -> Iterator[str]:
    """Describe job numbers with several good attempts: how many, and whether the newest is shown."""
    if not several:
        return
    results = sum(count for count, _ in several)
    which = "the newest" if all(newest for _, newest in several) else "one"
    if jobs == 1:
        yield f"{which} of {results} ok results of this cell; not pooled"
    else:
        yield f"{results} ok results for {len(several)} of {jobs} trials: {which} of each is shown"


def _others(shown: Job, ordered: Sequence[Job]) -> Iterator[str]:
    found = [differences for job in ordered if (differences := _differences(shown, job))]
    if found:
        what = ", ".join(sorted(set().union(*found)))
        count = "1 result of another spec" if len(found) == 1 else f"{len(found)} results of other specs"
        yield f"{count} ({what}) {'is' if len(found) == 1 else 'are'} stored beside; not pooled"


def _differences(one: Job, other: Job) -> set[str]:
    """In what two attempts differ apart from job number and repetition."""
    first, second = one.result.spec, other.result.spec
    return {
        _DIFFERENCES.get(item.name, "parameters")
        for item in fields(first)
        if item.name not in ("repetition", "job") and getattr(first, item.name) != getattr(second, item.name)
    }

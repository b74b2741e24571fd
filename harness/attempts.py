"""Several stored jobs of one cell -> the one that is shown, and what to say of the others.

Attempts are never pooled: each is a container life of its own.  Those whose specs differ in more than the repetition
measured different things: only one spec's attempts are chosen from.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from harness.errors import FileError
from harness.records import Outcome, Result, digest

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
    "warmup_queries": "protocol",
    "warmup_cap": "protocol",
    "warmup_sha256": "warm-up queries",
    "k": "hits asked for",
    "seed": "seed",
    "envelope": "envelope",
}


class Job(Protocol):
    """A stored job, as ``harness.store`` reads it."""

    @property
    def folder(self) -> Path: ...  # noqa: D102
    @property
    def result(self) -> Result: ...  # noqa: D102
    @property
    def run_path(self) -> Path | None: ...  # noqa: D102
    def samples(self) -> Any: ...  # noqa: D102
    def qrels_path(self) -> Path: ...  # noqa: D102
    def sample_ids(self) -> tuple[str, ...]: ...  # noqa: D102


AnyJob = TypeVar("AnyJob", bound=Job)


def choose(attempts: Iterable[AnyJob], keys: Collection[str] | None = None) -> tuple[AnyJob, tuple[str, ...]]:
    """The attempt that is shown, and notes on all that it hides.

    The newest attempt decides the spec: a change of image or protocol is never answered with results from before it.
    Within that spec it is the newest that ended ``ok``, else the newest.  An attempt named in ``keys`` comes first.

    Args:
        attempts: stored jobs of one cell and isolation, at least one, in any order.
        keys: job keys that somebody asked for, e.g. those that a plan refers to.

    Raises:
        FileError: a result's start time cannot be read.
    """
    ordered = sorted(attempts, key=_started)
    wanted = [job for job in ordered if keys is not None and job.result.key in keys]
    same = _of_spec(ordered, (wanted or ordered)[-1])
    finished = [job for job in same if job.result.outcome is Outcome.OK]
    shown = (wanted or finished or same)[-1]
    notes = (*_newer(shown, same), *_earlier(shown, same), *_repeated(shown, finished), *_others(shown, ordered))
    return shown, notes


def _of_spec(ordered: Sequence[AnyJob], job: AnyJob) -> list[AnyJob]:
    """The repetitions of what ``job`` measured."""
    identity = _identity(job)
    return [other for other in ordered if _identity(other) == identity]


def _identity(job: Job) -> str:
    return digest(replace(job.result.spec, repetition=0))


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
    """What became of later attempts at the same spec that are not shown."""
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


def _repeated(shown: Job, finished: Sequence[Job]) -> Iterator[str]:
    if shown in finished and len(finished) > 1:
        which = "the newest" if shown is finished[-1] else "one"
        yield f"{which} of {len(finished)} ok results of this cell; not pooled"


def _others(shown: Job, ordered: Sequence[Job]) -> Iterator[str]:
    found = [differences for job in ordered if (differences := _differences(shown, job))]
    if found:
        what = ", ".join(sorted(set().union(*found)))
        count = "1 result of another spec" if len(found) == 1 else f"{len(found)} results of other specs"
        yield f"{count} ({what}) {'is' if len(found) == 1 else 'are'} stored beside; not pooled"


def _differences(one: Job, other: Job) -> set[str]:
    """In what two attempts differ apart from the repetition."""
    first, second = one.result.spec, other.result.spec
    return {
        _DIFFERENCES.get(item.name, "parameters")
        for item in fields(first)
        if item.name != "repetition" and getattr(first, item.name) != getattr(second, item.name)
    }

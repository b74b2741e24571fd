"""Several stored jobs of one cell -> the one that is shown, and what to say of the others.

Attempts are never pooled: each is a container life of its own, and some differ in what they measured.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol, TypeVar

from harness.errors import FileError
from harness.records import Outcome, Result

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
    "warmup_sha256": "warm-up queries",
    "k": "hits asked for",
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


def choose(attempts: Iterable[AnyJob]) -> tuple[AnyJob, tuple[str, ...]]:
    """The newest attempt that ended ``ok``, else the newest; and notes on all that it hides.

    Args:
        attempts: stored jobs of one cell and isolation, at least one, in any order.

    Raises:
        FileError: a result's start time cannot be read.
    """
    ordered = sorted(attempts, key=_started)
    finished = [job for job in ordered if job.result.outcome is Outcome.OK]
    shown = (finished or ordered)[-1]
    return shown, _notes(shown, ordered)


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


def _notes(shown: Job, ordered: Sequence[Job]) -> tuple[str, ...]:
    notes = []
    for job in ordered[ordered.index(shown) + 1 :]:
        result = job.result
        detail = f" ({result.detail})" if result.detail else ""
        notes.append(f"newer attempt ended {result.outcome.value} on {result.started_at}{detail}; the last ok is shown")
    repeated = [job for job in ordered if job.result.outcome is Outcome.OK and not _differences(shown, job)]
    if len(repeated) > 1:
        notes.append(f"the newest of {len(repeated)} ok results of this cell; not pooled")
    others = [differences for job in ordered if (differences := _differences(shown, job))]
    if others:
        what = ", ".join(sorted(set().union(*others)))
        notes.append(f"other stored results of this cell that differ in {what}: {len(others)}; not pooled")
    return tuple(notes)


def _differences(one: Job, other: Job) -> set[str]:
    """In what two attempts differ apart from the repetition."""
    first, second = one.result.spec, other.result.spec
    return {
        _DIFFERENCES.get(item.name, "parameters")
        for item in fields(first)
        if item.name != "repetition" and getattr(first, item.name) != getattr(second, item.name)
    }

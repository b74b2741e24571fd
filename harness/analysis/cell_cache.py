"""What was computed of cells and still holds, so that one more stored job costs one more cell and not all of them.

A cell's row, less its verdict, is made of that cell's files alone.  The verdict looks at the whole of the results (the
machine's usual speed), so it is made anew from the facts that are kept here.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from harness.analysis.table import Measurements, Row, per_query_key
from harness.analysis.validity.sample_checks import SampleFacts
from harness.errors import FileError
from harness.evaluation.per_query import PerQuery
from harness.results.attempts import Job


@dataclass(frozen=True)
class Remembered:
    """A cell of finished jobs: its row less what the verdict adds, what verdicts need, and its values by query."""

    row: Row
    facts: SampleFacts | None
    disagreements: int | None
    queries: PerQuery


@dataclass(frozen=True)
class Computed:
    """What verdicts need of a row, named as its values by query are; the jobs of its cell."""

    name: str
    jobs: tuple[Job, ...]
    facts: SampleFacts | None
    disagreements: int | None


class Made(NamedTuple):
    """Rows, what they are made of by query, and what their verdicts are made of."""

    rows: Measurements
    queries: tuple[PerQuery, ...]
    cells: tuple[Computed, ...] = ()


# Jobs of a cell -> what is remembered of it.
Recall = Callable[[Sequence[Job]], Remembered | None]


def nothing(_jobs: Sequence[Job]) -> None:
    """No memory."""


@dataclass(frozen=True)
class _Line:
    """A cell in the file: the stamp of what it was made of, its name, and what verdicts need."""

    stamp: str
    name: str
    facts: SampleFacts | None
    disagreements: int | None


@functools.cache
def _adapter() -> TypeAdapter[list[_Line]]:
    return TypeAdapter(list[_Line])


def stamp(jobs: Iterable[Job], code: str) -> str | None:
    """Changes when the code does, or any file that a cell's row is made of; ``None``: one cannot be looked at."""
    lines = []
    try:
        for job in jobs:
            lines.append(f"origin {job.origin}")
            inputs = (job.qrels_path(), job.folder.parents[4] / "samples" / f"{job.result.spec.sample_sha256}.json")
            for path in (*job.folder.iterdir(), *inputs):
                found = path.lstat()
                lines.append(f"{path} {found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}")
    except (OSError, FileError):
        return None
    text = "\n".join((code, *sorted(lines)))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def dump(cells: Iterable[Computed], code: str) -> bytes:
    """What is kept of cells, beside their rows."""
    lines = [
        _Line(found, cell.name, cell.facts, cell.disagreements)
        for cell in cells
        if (found := stamp(cell.jobs, code)) is not None
    ]
    return _adapter().dump_json(lines, exclude_defaults=True)


def recall(body: bytes, rows: Measurements, queries: Mapping[str, PerQuery], code: str) -> Recall:
    """A memory of what :func:`dump` wrote and what was kept with it.

    Args:
        body: what it wrote.
        rows: all rows that were made then.
        queries: their values by query.
        code: names the code that reads them now.
    """
    try:
        lines = {line.stamp: line for line in _adapter().validate_json(body)}
    except ValidationError:
        return nothing
    by_name = {per_query_key(row): row for row in rows.rows}

    def find(jobs: Sequence[Job]) -> Remembered | None:
        line = lines.get(stamp(jobs, code) or "")
        if line is None or line.name not in by_name or line.name not in queries:
            return None
        row = by_name[line.name]
        said = len(row.findings)  # a verdict's sentences stand last
        row = replace(row, findings=(), notes=row.notes[: len(row.notes) - said])
        return Remembered(row, line.facts, line.disagreements, queries[line.name])

    return find

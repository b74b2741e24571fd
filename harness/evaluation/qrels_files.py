"""A file of judgements that somebody gave: what it holds, and what is to be told of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.errors import FileError
from harness.evaluation import trec
from harness.evaluation.trec import Lines, Qrels
from harness.evaluation.trec_parser import Progress

_BELOW = "no more relevant than 0 (Bpref and infAP take such as not judged)"


@dataclass(frozen=True)
class Given:
    """The judgements; ``remarks`` are sentences about them, which every command that reads such a file says."""

    qrels: Qrels
    remarks: tuple[str, ...]


def read(path: Path, progress: Progress | None = None, *, called: str | None = None) -> Given:
    """Read judgements that others made.

    Args:
        path: of the file.
        progress: told how far it is read.
        called: what remarks call the file; its path by default.

    Raises:
        FileError: as :func:`harness.evaluation.trec.read_judgements`, or there is none in it.
    """
    found = trec.read_judgements(path, progress)
    if not found.qrels:
        raise FileError(f"{path}: holds no judgements; name a file with lines 'query iteration document relevance'")
    return Given(found.qrels, (below_zero(called or str(path), found.below),) if found.below else ())


def of_grades(grades: Iterable[int]) -> Iterator[str]:
    """The same of judgements that were stored: how many of those that count are below 0."""
    below = sum(grade < 0 for grade in grades)
    if below:
        yield f"{below:,} grade{'s are' if below > 1 else ' is'} below 0: {_BELOW}"


def below_zero(called: str, lines: Lines) -> str:
    """What grades below 0 mean, and where the first stands."""
    place = f"{called}:{lines.first}"
    many = f"{lines.count:,} grades are below 0, the first in {place}"
    what = f"1 grade is below 0, in {place}" if lines.count == 1 else many
    return f"{what}: {_BELOW}"

"""Judgements and what people judged since -> one file of judgements, and beside it a record of how it came about.

A merge gives its judgements a number of their own, the second column of a TREC qrels file, which trec_eval and all
others skip.  :mod:`harness.evaluation.qrels_provenance` says what each number was.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import filesystem
from harness.errors import FileError, UsageError
from harness.evaluation import input_files, qrels_files, qrels_provenance, trec
from harness.evaluation.pool_files import Judged
from harness.evaluation.qrels_provenance import Conflict, Merge
from harness.evaluation.trec import Lines

CONFLICTS = ("refuse", "keep", "override")
_SHOWN = 3
_COMMENT = "#"


@dataclass(frozen=True)
class Line:
    """A judgement as its file has it."""

    place: str
    query_id: str
    iteration: str
    doc_id: str
    grade: int


@dataclass(frozen=True)
class Merged:
    """The lines of both files, as TREC has them, and what the merge did."""

    content: bytes
    merge: Merge


def read_lines(path: Path) -> tuple[Line, ...]:
    """The judgements of a TREC qrels file in its order; one that stands twice is taken once.

    Raises:
        FileError: as :func:`harness.evaluation.trec.read_qrels`.
    """
    trec.read_qrels(path)  # so that every line is as it must be
    found: dict[tuple[str, str], Line] = {}
    with input_files.opened(path) as (_, stream):
        for number, text in enumerate(stream, start=1):
            # ASCII white space only, as there: other kinds may stand inside an id.
            fields = [field.decode("utf-8") for field in text.removeprefix(codecs.BOM_UTF8).split()]
            if fields and fields[0] != _COMMENT:
                query, iteration, document, grade = fields
                found.setdefault((query, document), Line(f"{path}:{number}", query, iteration, document, int(grade)))
    return tuple(found.values())


def read_comments(path: Path) -> tuple[str, ...]:
    """Comment lines of a TREC qrels file, in their order."""
    with input_files.opened(path) as (_, stream):
        found = (text.removeprefix(codecs.BOM_UTF8).rstrip() for text in stream)
        return tuple(text.decode("utf-8") for text in found if text.split()[:1] == [_COMMENT.encode()])


def as_judged(path: Path) -> tuple[Judged, ...]:
    """A TREC qrels file as what people judged, whose grades are 0 or more, as those of a pool that was filled in.

    Raises:
        FileError: as :func:`read_lines`, there is no judgement, or a grade is below 0; names file and line.
    """
    lines = read_lines(path)
    if not lines:
        raise FileError(f"{path}: holds no judgements; name a pool that was filled in, or a TREC file of judgements")
    for line in lines:
        if line.grade < 0:
            raise FileError(
                f"{line.place}: grade {line.grade} is below 0; write 0 (not relevant), or remove the line if nobody "
                "judged it"
            )
    return tuple(Judged(line.place, line.query_id, line.doc_id, line.grade) for line in lines)


def remarks(path: Path, lines: Sequence[Line]) -> tuple[str, ...]:
    """What is to be told of judgements that others are added to."""
    below = [line for line in lines if line.grade < 0]
    if not below:
        return ()
    first = int(below[0].place.rpartition(":")[2])
    return (qrels_files.below_zero(str(path), Lines(len(below), first)),)


def merge(
    base: Sequence[Line],
    judged: Sequence[Judged],
    conflicts: str,
    *,
    before: str,
    source: str,
    date: str,
    file: Path,
    earlier: Sequence[Merge] = (),
    comments: Sequence[str] = (),
) -> Merged:
    """Add judgements to others.

    Args:
        base: judgements that there are.
        judged: what people judged since.
        conflicts: what becomes of a pair that both judge in two ways: ``refuse``, ``keep`` or ``override``.
        before: SHA-256 of the file of ``base``.
        source: who judged.
        date: now.
        file: holds ``judged``.
        earlier: merges that made ``base``; no number comes twice.
        comments: lines that stand above the judgements.

    Raises:
        UsageError: there are conflicts, and they are refused.
    """
    known = {(line.query_id, line.doc_id): line for line in base}
    given = [each for each in judged if each.grade is not None]
    differing = {
        (each.query_id, each.doc_id): (line, each)
        for each in given
        if (line := known.get((each.query_id, each.doc_id))) is not None and line.grade != each.grade
    }
    if differing and conflicts == "refuse":
        raise UsageError(_refused(list(differing.values())))
    number = _next(base, earlier)
    new = sorted((each for each in given if (each.query_id, each.doc_id) not in known), key=_pair)
    instead = {pair: each for pair, (_, each) in differing.items()} if conflicts == "override" else {}
    lines = (*comments, *(_kept(line, instead, number) for line in base), *(_new(each, number) for each in new))
    done = Merge(
        iteration=number,
        source=source,
        date=date,
        file=file.name,
        file_sha256=_sha256(file.read_bytes()),
        before=before,
        after="",
        added=len(new),
        same=len(given) - len(new) - len(differing),
        unfilled=len(judged) - len(given),
        conflicts=tuple(
            Conflict(query, document, line.grade, each.grade or 0)
            for (query, document), (line, each) in sorted(differing.items())
        ),
        resolved=conflicts,
    )
    return Merged("".join(f"{line}\n" for line in lines).encode("utf-8"), done)


def _kept(line: Line, instead: Mapping[tuple[str, str], Judged], number: int) -> str:
    """A judgement that there was, or what takes its place."""
    other = instead.get((line.query_id, line.doc_id))
    return f"{line.query_id} {line.iteration} {line.doc_id} {line.grade}" if other is None else _new(other, number)


def _new(each: Judged, number: int) -> str:
    return f"{each.query_id} {number} {each.doc_id} {each.grade or 0}"


def _next(base: Sequence[Line], earlier: Sequence[Merge]) -> int:
    """A number that no judgement and no merge has yet."""
    numbers = [int(line.iteration) for line in base if line.iteration.isdecimal()]
    return 1 + max((*numbers, *(each.iteration for each in earlier)), default=0)


def _pair(each: Judged) -> tuple[str, str]:
    return each.query_id, each.doc_id


def _refused(differing: Sequence[tuple[Line, Judged]]) -> str:
    named = "; ".join(
        f"{each.place}: {each.query_id!r}, document {each.doc_id!r}: {each.grade}; {line.place}: {line.grade}"
        for line, each in differing[:_SHOWN]
    )
    more = f" and {len(differing) - _SHOWN:,} more" if len(differing) > _SHOWN else ""
    return (
        f"{len(differing):,} grades differ from those that there are: {named}{more}; say --conflicts keep or override"
    )


def write(path: Path, made: Merged, earlier: Sequence[Merge]) -> Merge:
    """Write the judgements and, beside them, their provenance; both whole or absent.

    Args:
        path: of the judgements; gzipped where its name ends so.
        made: what :func:`merge` gave.
        earlier: provenance of what was merged into.

    Returns:
        What the merge did, with the hash of what was written.
    """
    content = gzip.compress(made.content, mtime=0) if path.suffix == ".gz" else made.content
    done = replace(made.merge, after=_sha256(content))
    with filesystem.atomic_write(qrels_provenance.place(path)) as record, filesystem.atomic_write(path) as judgements:
        record.write_text(qrels_provenance.lines((*earlier, done)), encoding="utf-8")
        judgements.write_bytes(content)
    return done


def sha256_of(path: Path) -> str:
    """Names the content of a file."""
    try:
        return filesystem.sha256(path)
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}; name a file of judgements") from error


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def describe(lines: Sequence[Line]) -> dict[str, Any]:
    """Counts: of judgements by grade, and of judged and relevant documents a query."""
    grades = Counter(line.grade for line in lines)
    judged = Counter(line.query_id for line in lines)
    relevant = Counter(line.query_id for line in lines if line.grade > 0)
    return {
        "judgements": len(lines),
        "queries": len(judged),
        "grades": {str(grade): count for grade, count in sorted(grades.items())},
        "judged_per_query": _spread([judged[query] for query in judged]),
        "relevant_per_query": _spread([relevant[query] for query in judged]),
    }


def _spread(counts: Sequence[int]) -> dict[str, float] | None:
    if not counts:
        return None
    return {
        "least": min(counts),
        "median": statistics.median(counts),
        "mean": round(statistics.fmean(counts), 3),
        "most": max(counts),
    }

"""Add judgements to a qrels file, and record each merge beside it, as ``<file>.provenance.jsonl``.

A merge marks its judgements with a number, the iteration: the second column of a TREC qrels file, which trec_eval and
all others skip.  The record says of each iteration who judged, when, from which file, and what it changed.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import hashlib
import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from harness import filesystem
from harness.errors import FileError, UsageError
from harness.evaluation import trec, trec_lines
from harness.evaluation.pool import GradedPair
from harness.evaluation.trec import FlaggedLines

_MAX_NAMED = 3
_COMMENT = "#"
_PROVENANCE_SUFFIX = ".provenance.jsonl"
# Version of a line of provenance.  History:
#   1  first version
_PROVENANCE_VERSION = 1


@dataclass(frozen=True)
class QrelsLine:
    """Judgement as its file has it."""

    place: str
    query_id: str
    iteration: str
    doc_id: str
    grade: int


@dataclass(frozen=True)
class Conflict:
    """Pair with different grades in the two files."""

    query_id: str
    doc_id: str
    before: int
    given: int


@dataclass(frozen=True)
class MergeRecord:
    """Line of provenance: one merge.

    ``before`` and ``after`` are the SHA-256 of the qrels files.  ``unfilled`` counts pairs without a grade, ``same``
    pairs that had the same grade before.
    """

    iteration: int
    source: str
    date: str
    file: str
    file_sha256: str
    before: str
    after: str
    added: int
    same: int
    unfilled: int
    conflicts: tuple[Conflict, ...]
    resolved: str


@dataclass(frozen=True)
class MergedQrels:
    """Content of the merged qrels file, and the record of the merge."""

    content: bytes
    record: MergeRecord


def read_lines(path: Path) -> tuple[QrelsLine, ...]:
    """Read the lines of a TREC qrels file in its order; take a repeated pair once.

    Raises:
        FileError: as :func:`harness.evaluation.trec.read_qrels`.
    """
    trec.read_qrels(path)  # checks every line
    lines: dict[tuple[str, str], QrelsLine] = {}
    with trec_lines.open_input(path) as (_, stream):
        for number, text in enumerate(stream, start=1):
            # bytes.split: only ASCII white space separates fields.
            fields = [field.decode("utf-8") for field in text.removeprefix(codecs.BOM_UTF8).split()]
            if fields and fields[0] != _COMMENT:
                query, iteration, document, grade = fields
                line = QrelsLine(f"{path}:{number}", query, iteration, document, int(grade))
                lines.setdefault((query, document), line)
    return tuple(lines.values())


def read_comments(path: Path) -> tuple[str, ...]:
    """Read the comment lines of a TREC qrels file."""
    with trec_lines.open_input(path) as (_, stream):
        lines = (text.removeprefix(codecs.BOM_UTF8).rstrip() for text in stream)
        return tuple(text.decode("utf-8") for text in lines if text.split()[:1] == [_COMMENT.encode()])


def read_graded_qrels(path: Path) -> tuple[GradedPair, ...]:
    """Read a TREC qrels file as new judgements, with grades of 0 or more as in a pool.

    Raises:
        FileError: as :func:`read_lines`, the file is empty, or a grade is below 0; names file and line.
    """
    lines = read_lines(path)
    if not lines:
        raise FileError(f"{path}: has no judgements; name a pool with grades, or a TREC qrels file")
    for line in lines:
        if line.grade < 0:
            raise FileError(
                f"{line.place}: grade {line.grade} is below 0; write 0 (not relevant), or remove the line if nobody "
                "judged it"
            )
    return tuple(GradedPair(line.place, line.query_id, line.doc_id, line.grade) for line in lines)


def base_notes(path: Path, lines: Sequence[QrelsLine]) -> tuple[str, ...]:
    """Return notes on the qrels that judgements are added to."""
    negative = [line for line in lines if line.grade < 0]
    if not negative:
        return ()
    first = int(negative[0].place.rpartition(":")[2])
    return (trec.negative_line_note(str(path), FlaggedLines(len(negative), first)),)


def merge_qrels(
    base: Sequence[QrelsLine],
    pairs: Sequence[GradedPair],
    conflicts: str,
    *,
    before: str,
    source: str,
    date: str,
    file: Path,
    earlier: Sequence[MergeRecord] = (),
    comments: Sequence[str] = (),
) -> MergedQrels:
    """Add judgements to others.

    Args:
        base: existing judgements.
        pairs: new judgements.
        conflicts: treatment of pairs with another grade in ``base``: ``refuse``, ``keep`` or ``override``.
        before: SHA-256 of the file of ``base``.
        source: who judged.
        date: now.
        file: file of ``pairs``.
        earlier: merges into ``base``; the iteration is new to them.
        comments: lines to write above the judgements.

    Raises:
        UsageError: there are conflicts, and they are refused.
    """
    existing = {(line.query_id, line.doc_id): line for line in base}
    graded = [pair for pair in pairs if pair.grade is not None]
    differing = {
        _ids(pair): (line, pair)
        for pair in graded
        if (line := existing.get(_ids(pair))) is not None and line.grade != pair.grade
    }
    if differing and conflicts == "refuse":
        raise _conflict_error(list(differing.values()))
    iteration = _next_iteration(base, earlier)
    new = sorted((pair for pair in graded if _ids(pair) not in existing), key=_ids)
    overrides = {ids: pair for ids, (_, pair) in differing.items()} if conflicts == "override" else {}
    lines = (
        *comments,
        *(_base_line(line, overrides, iteration) for line in base),
        *(_new_line(pair, iteration) for pair in new),
    )
    record = MergeRecord(
        iteration=iteration,
        source=source,
        date=date,
        file=file.name,
        file_sha256=_sha256(file.read_bytes()),
        before=before,
        after="",
        added=len(new),
        same=len(graded) - len(new) - len(differing),
        unfilled=len(pairs) - len(graded),
        conflicts=tuple(
            Conflict(query, document, line.grade, pair.grade or 0)
            for (query, document), (line, pair) in sorted(differing.items())
        ),
        resolved=conflicts,
    )
    return MergedQrels("".join(f"{line}\n" for line in lines).encode("utf-8"), record)


def _ids(pair: GradedPair) -> tuple[str, str]:
    return pair.query_id, pair.doc_id


def _base_line(line: QrelsLine, overrides: Mapping[tuple[str, str], GradedPair], iteration: int) -> str:
    override = overrides.get((line.query_id, line.doc_id))
    if override is not None:
        return _new_line(override, iteration)
    return f"{line.query_id} {line.iteration} {line.doc_id} {line.grade}"


def _new_line(pair: GradedPair, iteration: int) -> str:
    return f"{pair.query_id} {iteration} {pair.doc_id} {pair.grade or 0}"


def _next_iteration(base: Sequence[QrelsLine], earlier: Sequence[MergeRecord]) -> int:
    """Return a number that no judgement and no merge has yet."""
    numbers = [int(line.iteration) for line in base if line.iteration.isdecimal()]
    return 1 + max((*numbers, *(record.iteration for record in earlier)), default=0)


def _conflict_error(differing: Sequence[tuple[QrelsLine, GradedPair]]) -> UsageError:
    named = "; ".join(
        f"{pair.place}: {pair.query_id!r}, document {pair.doc_id!r}: {pair.grade}; {line.place}: {line.grade}"
        for line, pair in differing[:_MAX_NAMED]
    )
    more = f" and {len(differing) - _MAX_NAMED:,} more" if len(differing) > _MAX_NAMED else ""
    return UsageError(
        f"{len(differing):,} grades differ from the existing ones: {named}{more}; use --conflicts keep or override"
    )


def write_merged(path: Path, merged: MergedQrels, earlier: Sequence[MergeRecord]) -> MergeRecord:
    """Write the qrels (gzipped if the path ends in .gz) and their provenance, both or neither.

    Returns:
        The record of the merge, with the hash of the written file.
    """
    content = gzip.compress(merged.content, mtime=0) if path.suffix == ".gz" else merged.content
    record = replace(merged.record, after=_sha256(content))
    with filesystem.atomic_write(provenance_path(path)) as provenance, filesystem.atomic_write(path) as judgements:
        provenance.write_text(_render_provenance((*earlier, record)), encoding="utf-8")
        judgements.write_bytes(content)
    return record


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file of judgements."""
    try:
        return filesystem.sha256(path)
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}; name a file of judgements") from error


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def provenance_path(path: Path) -> Path:
    """Return the path of the provenance of a qrels file."""
    return path.with_name(path.name + _PROVENANCE_SUFFIX)


def read_provenance(path: Path) -> tuple[MergeRecord, ...]:
    """Read the merges into a qrels file, the first one first.

    Raises:
        FileError: the record is damaged.
    """
    provenance, records = provenance_path(path), []
    with contextlib.suppress(FileNotFoundError):
        for number, line in enumerate(provenance.read_bytes().splitlines(), start=1):
            try:
                raw = json.loads(line)
                if raw.pop("version") != _PROVENANCE_VERSION:
                    raise ValueError("another version")
                raw["conflicts"] = tuple(Conflict(**conflict) for conflict in raw["conflicts"])
                records.append(MergeRecord(**raw))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise FileError(
                    f"{provenance}:{number}: not provenance that this harness reads ({error}); restore or move it"
                ) from error
    return tuple(records)


def _render_provenance(records: Sequence[MergeRecord]) -> str:
    return "".join(json.dumps({"version": _PROVENANCE_VERSION, **asdict(record)}) + "\n" for record in records)


def outside_edits(records: Sequence[MergeRecord], sha256: str) -> tuple[int, ...]:
    """Return the iterations after which another program changed the file; ``sha256`` is its present hash."""
    following = [*(record.before for record in records[1:]), sha256]
    return tuple(record.iteration for record, hash in zip(records, following, strict=False) if record.after != hash)


def describe_qrels(lines: Sequence[QrelsLine]) -> dict[str, Any]:
    """Count judgements by grade, and judged and relevant documents per query."""
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

"""Add judgements to a qrels file, and record each merge next to it, in ``<file>.provenance.jsonl``.

A merge marks its judgements with a number in the second column of a TREC qrels file, the iteration, which trec_eval and
other readers skip.  The record names for each iteration the judge, the date, the file, and the changes.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import json
import os
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from harness import filesystem, stats
from harness.errors import FileError, UsageError, listed
from harness.evaluation import trec, trec_lines
from harness.evaluation.packages import Review
from harness.evaluation.pool import GradedPair
from harness.untrusted import parse_json, read_whole, reading

_MAX_NAMED = 3
_PROVENANCE_SUFFIX = ".provenance.jsonl"
# Version of a line of provenance.  History:
#   1  first version
_PROVENANCE_VERSION = 1
# More than thousands of merges have.
_MOST_PROVENANCE_BYTES = 64 << 20


@dataclass(frozen=True)
class Conflict:
    """Pair with different grades in the two files."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid", defer_build=True)

    query_id: str
    doc_id: str
    before: int
    given: int


@dataclass(frozen=True)
class MergeRecord:
    """Line of provenance: one merge.

    ``before`` and ``after`` are the SHA-256 of the qrels files.  ``unfilled`` counts pairs without a grade, ``same``
    pairs that had the same grade before.  ``reviews``: of a package, by its reviewers (none: it was not checked).
    """

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid", defer_build=True)

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
    reviews: tuple[Review, ...] = ()

    def summary(self) -> str:
        """Return the counts as a person reads them."""
        counts = f"{self.added:,} added, {self.same:,} the same as before, {self.unfilled:,} not filled in"
        kept = "new" if self.resolved == "override" else "old"
        return f"{counts}, {len(self.conflicts):,} differ ({kept} grades stand)" if self.conflicts else counts


_RECORD = TypeAdapter(MergeRecord)


@dataclass(frozen=True)
class BaseQrels:
    """Judgements to add to, each with a grade; the comments above them, and the merges into them, the first one first.

    ``sha256``: of their file.  ``notes``: sentences about it.
    """

    lines: tuple[GradedPair, ...]
    sha256: str
    comments: tuple[str, ...] = ()
    merges: tuple[MergeRecord, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def changed_after(self) -> tuple[int, ...]:
        """The iterations after which another program changed the file."""
        following = [*(record.before for record in self.merges[1:]), self.sha256]
        return tuple(
            record.iteration for record, sha256 in zip(self.merges, following, strict=False) if record.after != sha256
        )


@dataclass(frozen=True)
class MergedQrels:
    """Content of the merged qrels file, and the records of all merges, the last one without the file's hash."""

    content: bytes
    merges: tuple[MergeRecord, ...]


def read_base(path: Path) -> BaseQrels:
    """Read a TREC qrels file in the order of its lines, with its provenance; take a repeated pair once.

    Raises:
        FileError: as :func:`harness.evaluation.trec.read_qrels`, or the provenance is damaged.
    """
    notes = trec.read_noted_qrels(path).notes  # checks every line
    lines: dict[tuple[str, str], GradedPair] = {}
    comments = []
    layout = trec.QRELS
    with trec_lines.open_input(path) as (_, stream):
        for number, raw in enumerate(stream, start=1):
            line = raw.removeprefix(codecs.BOM_UTF8).rstrip()
            if number == 1 and (headed := layout.below(line)):
                layout = headed
                continue
            # bytes.split: only ASCII white space separates fields.
            fields = [field.decode("utf-8") for field in line.split()]
            if fields[:1] == ["#"]:
                comments.append(line.decode("utf-8"))
            elif fields:
                query, document, grade = fields[0], fields[layout.document], trec_lines.parse_grade(fields[-1].encode())
                pair = GradedPair(f"{path}:{number}", query, document, grade, fields[1] if len(fields) == 4 else "0")
                lines.setdefault((query, document), pair)
    return BaseQrels(tuple(lines.values()), filesystem.sha256(path), tuple(comments), _read_provenance(path), notes)


def read_graded_qrels(path: Path) -> tuple[GradedPair, ...]:
    """Read a TREC qrels file as new judgements, with grades of 0 or more as in a pool.

    Raises:
        FileError: as :func:`read_base`, the file is empty, or a grade is below 0; names file and line.
    """
    pairs = read_base(path).lines
    if not pairs:
        raise FileError(f"{path}: has no judgements; name a pool with grades, or a TREC qrels file")
    for pair in pairs:
        if (pair.grade or 0) < 0:
            raise FileError(f"{pair.place}: grade {pair.grade} is below 0; write 0 (not relevant), or remove the line")
    return pairs


def merge_qrels(
    base: BaseQrels,
    pairs: Sequence[GradedPair],
    conflicts: str,
    *,
    source: str,
    date: str,
    file: Path,
    reviews: tuple[Review, ...] = (),
) -> MergedQrels:
    """Add judgements to others.

    Args:
        base: existing judgements.
        pairs: new judgements.
        conflicts: treatment of pairs with another grade in ``base``: ``refuse``, ``keep`` or ``override``.
        source: who judged.
        date: now.
        file: file of ``pairs``.
        reviews: of ``pairs``, for the record.

    Raises:
        UsageError: there are conflicts, and they are refused.
    """
    existing = {_ids(line): line for line in base.lines}
    iteration = _next_iteration(base)
    graded = {_ids(pair): replace(pair, iteration=str(iteration)) for pair in pairs if pair.grade is not None}
    new = [graded[ids] for ids in sorted(graded.keys() - existing.keys())]
    differing = {ids: pair for ids, pair in graded.items() if ids in existing and existing[ids].grade != pair.grade}
    if differing and conflicts == "refuse":
        raise _conflict_error([(existing[ids], pair) for ids, pair in differing.items()])
    overrides = differing if conflicts == "override" else {}
    lines = [*(overrides.get(ids, line) for ids, line in existing.items()), *new]
    content = [*base.comments, *(f"{line.query_id} {line.iteration} {line.doc_id} {line.grade}" for line in lines)]
    record = MergeRecord(
        iteration=iteration,
        source=source,
        date=date,
        file=file.name,
        file_sha256=filesystem.sha256(file),
        before=base.sha256,
        after="",
        added=len(new),
        same=len(graded) - len(new) - len(differing),
        unfilled=len(pairs) - len(graded),
        conflicts=tuple(
            Conflict(*ids, existing[ids].grade or 0, pair.grade or 0) for ids, pair in sorted(differing.items())
        ),
        resolved=conflicts,
        reviews=reviews,
    )
    return MergedQrels("".join(f"{line}\n" for line in content).encode("utf-8"), (*base.merges, record))


def _ids(pair: GradedPair) -> tuple[str, str]:
    return pair.query_id, pair.doc_id


def _next_iteration(base: BaseQrels) -> int:
    """Return a number that no judgement and no merge has yet."""
    numbers = [int(line.iteration) for line in base.lines if re.fullmatch("[0-9]{1,18}", line.iteration)]
    return 1 + max((*numbers, *(record.iteration for record in base.merges)), default=0)


def _conflict_error(differing: Sequence[tuple[GradedPair, GradedPair]]) -> UsageError:
    named = [
        f"{pair.place}: {pair.query_id!r}, document {pair.doc_id!r}: {pair.grade}; {line.place}: {line.grade}"
        for line, pair in differing
    ]
    first = listed(named, _MAX_NAMED, separator="; ")
    return UsageError(f"{len(differing):,} existing grades differ: {first}; use --conflicts keep or override")


def write_merged(path: Path, merged: MergedQrels) -> MergeRecord:
    """Write the qrels (gzipped if the path ends in .gz) and their provenance, both or neither.

    Returns:
        The record of the merge, with the hash of the written file.
    """
    content = gzip.compress(merged.content, mtime=0) if path.suffix == ".gz" else merged.content
    record = replace(merged.merges[-1], after=hashlib.sha256(content).hexdigest())
    records = ({"version": _PROVENANCE_VERSION, **asdict(merge)} for merge in (*merged.merges[:-1], record))
    with filesystem.atomic_write(provenance_path(path)) as provenance, filesystem.atomic_write(path) as judgements:
        provenance.write_text("".join(f"{json.dumps(line)}\n" for line in records), encoding="utf-8")
        judgements.write_bytes(content)
    return record


def provenance_path(path: Path) -> Path:
    """Return the path of the provenance of a qrels file."""
    return path.with_name(path.name + _PROVENANCE_SUFFIX)


def _read_provenance(path: Path) -> tuple[MergeRecord, ...]:
    """Read the merges into a qrels file; raise FileError if the record is damaged."""
    provenance, records = provenance_path(path), []
    if not os.path.lexists(provenance):
        return ()
    remedy = "restore or move it"
    with reading(provenance, remedy):
        content = read_whole(provenance, _MOST_PROVENANCE_BYTES)
    for number, line in enumerate(content.splitlines(), start=1):
        with reading(f"{provenance}:{number}", remedy, damage=(ValueError, TypeError, KeyError, AttributeError)):
            raw = parse_json(line)
            if raw.pop("version") != _PROVENANCE_VERSION:
                raise ValueError("another version")
            records.append(_RECORD.validate_json(json.dumps(raw)))
    return tuple(records)


def describe_qrels(lines: Sequence[GradedPair]) -> dict[str, Any]:
    """Count judgements by grade, and judged and relevant documents per query."""
    grades = Counter(line.grade or 0 for line in lines)
    judged = Counter(line.query_id for line in lines)
    relevant = Counter(line.query_id for line in lines if (line.grade or 0) > 0)
    return {
        "judgements": len(lines),
        "queries": len(judged),
        "grades": {str(grade): count for grade, count in sorted(grades.items())},
        "judged_per_query": _spread(judged.values()),
        "relevant_per_query": _spread([relevant[query] for query in judged]),
    }


def _spread(counts: Iterable[int]) -> dict[str, float] | None:
    ordered = sorted(counts)
    if not ordered:
        return None
    return {
        "least": ordered[0],
        "median": stats.median(ordered),
        "mean": round(statistics.fmean(ordered), 3),
        "most": ordered[-1],
    }

"""Read TREC runs and qrels."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import FileError
from harness.evaluation import trec_lines
from harness.evaluation.answer_recall import AnswerDepths
from harness.evaluation.trec_lines import LineLayout, NumberColumn
from harness.progress import Progress
from harness.untrusted import FileLimits

# query id -> document id -> relevance
Qrels = dict[str, dict[str, int]]

_RANK = NumberColumn("rank", 3, "q", trec_lines.parse_integer)
_RUN = "query Q0 document rank score tag"
_RANKED = LineLayout(_RUN, 0, 2, (_RANK, NumberColumn("score", 4, "d", trec_lines.parse_score)))
_SCORE = NumberColumn("score", 4, "f", trec_lines.parse_score_32)
_SCORED = LineLayout(_RUN, 0, 2, (_SCORE,), tail=(_RANK, _SCORE))
_QRELS = LineLayout(
    "query iteration document relevance", 0, 2, (NumberColumn("relevance", 3, "q", trec_lines.parse_grade),)
)
# Most lines of stored files; the caller may know a lower limit for its run.
_MAX_HITS, _MAX_JUDGEMENTS = 20_000_000, 5_000_000
_NEGATIVE = "no more relevant than 0 (Bpref and infAP treat them as unjudged)"


@dataclass(frozen=True)
class FlaggedLines:
    """Lines of a file that its user should know of: their count, and the number of the first."""

    count: int
    first: int


@dataclass(frozen=True)
class Run:
    """TREC run: query id -> document ids, best first.  ``tied_queries`` have equal scores.

    ``lines``: each query's first line in the file.  ``depths``: the depth of answers in the texts of the hits, where
    answers decide relevance and it was stored.  ``longer``: lines with more than six fields.
    """

    rankings: dict[str, tuple[str, ...]]
    tied_queries: tuple[str, ...]
    lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    depths: AnswerDepths | None = field(default=None, compare=False, repr=False)
    longer: FlaggedLines | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class QrelsFile:
    """Qrels that a user named, and notes about them for every command that reads such a file."""

    qrels: Qrels
    notes: tuple[str, ...]


def read_run(path: Path, max_hits: int = _MAX_HITS) -> Run:
    """Read a stored run, plain or gzipped, in the order of its ranks: the ranking that was timed.

    Raises:
        FileError: the file is missing, damaged, not regular or too long; a line is malformed; a query has a document
            or rank twice, or a better score at a worse rank.  Names file and line.
    """
    rankings: dict[str, tuple[str, ...]] = {}
    tied, lines, faults = [], {}, []
    for query, entries in _by_query(path, _RANKED, bound=FileLimits(min(max_hits, _MAX_HITS))):
        documents, (ranks, scores) = entries.documents, entries.numbers
        if len(set(documents)) < len(documents) or len(set(ranks)) < len(ranks):
            faults.append(_duplicate(query, entries))
            continue
        order = sorted(range(len(ranks)), key=ranks.__getitem__)
        for better, worse in itertools.pairwise(order):
            if scores[worse] > scores[better]:
                text = f"{documents[worse]!r} scores {scores[worse]}, more than the {scores[better]} ranked above it"
                faults.append((entries.lines[worse], f"{text}; correct one"))
                break
        if len(set(scores)) < len(scores):
            tied.append(query)
        rankings[query] = tuple([documents[index] for index in order])
        lines[query] = entries.lines[0]
    _refuse(path, faults)
    return Run(rankings, tuple(sorted(tied)), lines)


def read_scored_run(path: Path, progress: Progress | None = None) -> Run:
    """Read a run as trec_eval does: in the order of its scores, whatever its ranks.

    Scores have 32 bits; documents of equal score are ordered by id, the bytewise largest first.  Fields after the
    sixth belong to the tag.

    Raises:
        FileError: the file is missing or damaged, a line is malformed, or a query has a document twice; names file
            and line.
    """
    rankings: dict[str, tuple[str, ...]] = {}
    tied, lines, faults = [], {}, []
    longer: list[FlaggedLines] = []
    for query, entries in _by_query(path, _SCORED, progress, longer):
        documents, (scores,) = entries.documents, entries.numbers
        if len(set(documents)) < len(documents):
            faults.append(_duplicate(query, entries))
            continue
        # Code points sort as their UTF-8 bytes do.
        rankings[query] = tuple([document for _, document in sorted(zip(scores, documents, strict=True), reverse=True)])
        if len(set(scores)) < len(scores):
            tied.append(query)
        lines[query] = entries.lines[0]
    _refuse(path, faults)
    return Run(rankings, tuple(sorted(tied)), lines, longer=_sum_lines(longer))


def read_qrels(path: Path, progress: Progress | None = None) -> Qrels:
    """Read TREC qrels (``query iteration document relevance``), plain or gzipped.

    Raises:
        FileError: the file is missing or damaged, a line is malformed, or a document has two grades.
    """
    return _read_qrels(path, progress)[0]


def read_qrels_file(path: Path, progress: Progress | None = None, *, name: str | None = None) -> QrelsFile:
    """Read qrels that a user named; ``name`` stands for the file in notes, its path by default.

    Raises:
        FileError: as :func:`read_qrels`, or the file has no judgements.
    """
    qrels, negative = _read_qrels(path, progress)
    if not qrels:
        raise FileError(f"{path}: has no judgements; name a file with lines 'query iteration document relevance'")
    return QrelsFile(qrels, (negative_line_note(name or str(path), negative),) if negative else ())


def read_stored_qrels(path: Path) -> Qrels:
    """Read qrels that are stored with results: a regular file of limited size."""
    return _read_qrels(path, bound=FileLimits(_MAX_JUDGEMENTS))[0]


@dataclass
class QrelsCache:
    """Reader of stored qrels that reads each file once, even a damaged one: many jobs name it."""

    _known: dict[Path, Qrels | str] = field(default_factory=dict)

    def __call__(self, path: Path) -> Qrels:
        """Return what :func:`read_stored_qrels` does."""
        if path not in self._known:
            try:
                self._known[path] = read_stored_qrels(path)
            except FileError as error:
                self._known[path] = str(error)
        qrels = self._known[path]
        if isinstance(qrels, str):
            raise FileError(qrels)
        return qrels


def negative_line_note(name: str, lines: FlaggedLines) -> str:
    """Return a note on the lines of a qrels file with negative grades."""
    where = f"{name}:{lines.first}"
    count = f"1 grade is below 0, in {where}"
    return f"{count if lines.count == 1 else f'{lines.count:,} grades are below 0, the first in {where}'}: {_NEGATIVE}"


def negative_grade_notes(grades: Iterable[int]) -> Iterator[str]:
    """Yield a note on negative grades of stored judgements, if there are any."""
    negative = sum(grade < 0 for grade in grades)
    if negative:
        yield f"{negative:,} grade{'s are' if negative > 1 else ' is'} below 0: {_NEGATIVE}"


@dataclass
class _QueryLines:
    """All lines of one query, in the file's order."""

    documents: list[str]
    numbers: tuple[array[Any], ...]
    lines: array[int]


# Number of a wrong line, and its fault.
_Fault = tuple[int, str]


def _read_qrels(
    path: Path, progress: Progress | None = None, bound: FileLimits | None = None
) -> tuple[Qrels, FlaggedLines | None]:
    """Return the judgements, and the lines with negative grades."""
    qrels: Qrels = {}
    faults = []
    negative: list[FlaggedLines] = []
    for query, entries in _by_query(path, _QRELS, progress, bound=bound):
        (grades,) = entries.numbers
        judged = qrels[query] = dict(zip(entries.documents, grades, strict=True))
        if len(judged) < len(grades):
            faults += _contradiction(query, entries)
        if min(grades) < 0:
            lines = [line for line, grade in zip(entries.lines, grades, strict=True) if grade < 0]
            negative.append(FlaggedLines(len(lines), lines[0]))
    _refuse(path, faults)
    return qrels, _sum_lines(negative)


def _sum_lines(parts: Sequence[FlaggedLines]) -> FlaggedLines | None:
    return FlaggedLines(sum(part.count for part in parts), min(part.first for part in parts)) if parts else None


def _by_query(
    path: Path,
    layout: LineLayout,
    progress: Progress | None = None,
    longer: list[FlaggedLines] | None = None,
    bound: FileLimits | None = None,
) -> Iterator[tuple[str, _QueryLines]]:
    """Yield each query with its lines, in the order of first lines; forget each one when it is yielded.

    Lines with further fields are added to ``longer``.
    """
    queries: dict[bytes, _QueryLines] = {}
    for block in trec_lines.read_blocks(path, layout, progress, bound):
        if block.longer and longer is not None:
            longer.append(FlaggedLines(len(block.longer), block.longer[0]))
        lines = array("q", block.lines)
        start = 0
        for query, group in itertools.groupby(block.queries):
            part = slice(start, start := start + len(list(group)))
            entries = queries.get(query)
            if entries is None:
                numbers = tuple(column[part] for column in block.numbers)
                queries[query] = _QueryLines(list(block.documents[part]), numbers, lines[part])
                continue
            entries.documents += block.documents[part]
            entries.lines += lines[part]
            for whole, column in zip(entries.numbers, block.numbers, strict=True):
                whole.extend(column[part])
    for query in list(queries):
        yield query.decode(), queries.pop(query)


def _duplicate(query: str, entries: _QueryLines) -> _Fault:
    """Return the first line whose document or rank is on an earlier line of its query."""
    ranks = entries.numbers[0] if len(entries.numbers) > 1 else None
    documents: set[str] = set()
    used: set[int] = set()
    for index, document in enumerate(entries.documents):
        if document in documents or (ranks is not None and ranks[index] in used):
            what = f"document {document!r}" + (f" or rank {ranks[index]}" if ranks is not None else "")
            return entries.lines[index], f"{what} appears twice in query {query!r}; remove one"
        documents.add(document)
        if ranks is not None:
            used.add(ranks[index])
    raise AssertionError(query)


def _contradiction(query: str, entries: _QueryLines) -> list[_Fault]:
    """Return the first line with another grade than an earlier line; a repeated grade is harmless."""
    judged: dict[str, int] = {}
    for document, grade, line in zip(entries.documents, entries.numbers[0], entries.lines, strict=True):
        if judged.setdefault(document, grade) != grade:
            return [(line, f"{document!r} has two grades for query {query!r}; remove one line")]
    return []


def _refuse(path: Path, faults: Sequence[_Fault]) -> None:
    if faults:
        line, what = min(faults)
        raise FileError(f"{path}:{line}: {what}")

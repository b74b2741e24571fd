"""Read TREC runs and qrels."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.errors import FileError
from harness.evaluation import trec_lines
from harness.evaluation.answer_recall import AnswerDepths
from harness.evaluation.trec_lines import LineBlock, LineLayout, NumberColumn
from harness.progress import Progress
from harness.untrusted import FileLimits

# query id -> document id -> relevance
Qrels = dict[str, dict[str, int]]

_RUN = ("query", "Q0", "document", "rank", "score", "tag")
_RANK = NumberColumn("rank", 3, "q", trec_lines.parse_integer)
_SCORE = NumberColumn("score", 4, "f", trec_lines.parse_score_32)
_RANKED = LineLayout(_RUN, (_RANK, NumberColumn("score", 4, "d", trec_lines.parse_score)))
_SCORED = LineLayout(_RUN, (_SCORE,), tail=(_RANK, _SCORE))
_EXACT = LineLayout(_RUN, (NumberColumn("score", 4, "d", trec_lines.parse_score),), tail=(_RANK, _SCORE))
_RELEVANCE = NumberColumn("relevance", 3, "q", trec_lines.parse_grade)
_JUDGEMENT = ("query", "iteration", "document", "relevance")
# BEIR's columns, and TREC's below a header, as tables are exported.
_BEIR = LineLayout(("query-id", "corpus-id", "score"), (replace(_RELEVANCE, column=2),), document=1)
QRELS = LineLayout(
    _JUDGEMENT,
    (_RELEVANCE,),
    headed=(_BEIR, LineLayout(_JUDGEMENT, (_RELEVANCE,))),
    header=frozenset({b"score", b"relevance", b"rel", b"grade", b"label"}),
)
# Most lines of stored files; the caller may know a lower limit for its run.
_MAX_HITS, _MAX_JUDGEMENTS = 20_000_000, 5_000_000
_NEGATIVE = "no more relevant than 0 (Bpref and infAP treat them as unjudged)"


@dataclass(frozen=True)
class Run:
    """TREC run: query id -> document ids, best first.  ``tied_queries`` have equal scores.

    ``lines``: each query's first line in the file.  ``depths``: the depth of answers in the texts of the hits, where
    answers decide relevance and it was stored.
    """

    rankings: dict[str, tuple[str, ...]]
    tied_queries: tuple[str, ...]
    lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    depths: AnswerDepths | None = field(default=None, compare=False, repr=False)


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
    return _read_run(path, _RANKED, bound=FileLimits(min(max_hits, _MAX_HITS)))


def read_scored_run(path: Path, progress: Progress | None = None) -> Run:
    """Read a run as trec_eval does: in the order of its scores; its ranks do not count.

    Scores have 32 bits; documents of equal score are ordered by id, the bytewise largest first.  Fields after the
    sixth belong to the tag.

    Raises:
        FileError: the file is missing or damaged, a line is malformed, or a query has a document twice; names file
            and line.
    """
    return _read_run(path, _SCORED, progress)


def read_scores(path: Path) -> dict[str, dict[str, float]]:
    """Read the scores of a run, in 64 bits, by query and document; raise FileError as :func:`read_scored_run`."""
    scores: dict[str, dict[str, float]] = {}
    faults = []
    for query, block in _by_query(path, _EXACT):
        scores[query] = dict(zip(block.documents, block.numbers[0], strict=True))
        if len(scores[query]) < len(block.documents):
            faults.append(_duplicate(query, block))
    _refuse(path, faults)
    return scores


def _read_run(path: Path, layout: LineLayout, progress: Progress | None = None, bound: FileLimits | None = None) -> Run:
    run, tied, lines, faults = Run({}, ()), [], {}, []
    for query, block in _by_query(path, layout, progress, bound):
        documents, (*ranks, scores) = block.documents, block.numbers
        if any(len(set(column)) < len(column) for column in (documents, *ranks)):
            faults.append(_duplicate(query, block))
            continue
        if ranks:
            order = sorted(range(len(documents)), key=ranks[0].__getitem__)
            faults += _inversion(block, order)
            run.rankings[query] = tuple([documents[index] for index in order])
        else:
            # Code points sort as their UTF-8 bytes do.
            ordered = sorted(zip(scores, documents, strict=True), reverse=True)
            run.rankings[query] = tuple([document for _, document in ordered])
        if len(set(scores)) < len(scores):
            tied.append(query)
        lines[query] = block.lines[0]
    _refuse(path, faults)
    return replace(run, tied_queries=tuple(sorted(tied)), lines=lines)


def read_qrels(path: Path, bound: FileLimits | None = None) -> Qrels:
    """Read qrels as :func:`read_noted_qrels` does; ``bound`` limits a stored file."""
    return read_noted_qrels(path, bound=bound).qrels


def read_noted_qrels(
    path: Path, progress: Progress | None = None, *, name: str | None = None, bound: FileLimits | None = None
) -> QrelsFile:
    """Read qrels, plain or compressed: TREC's (``query iteration document relevance``), or BEIR's with their header.

    Notes on negative grades and on lines that repeat others call the file ``name``, by default its path.

    Raises:
        FileError: the file is missing or damaged, a line is malformed, or a document has two grades.
    """
    qrels: Qrels = {}
    negative: list[int] = []
    repeated: list[int] = []
    faults: list[_Fault] = []
    for query, block in _by_query(path, QRELS, progress, bound):
        (grades,) = block.numbers
        judged = qrels[query] = dict(zip(block.documents, grades, strict=True))
        if len(judged) < len(grades):
            faults += _contradiction(query, block, repeated)
        if min(grades) < 0:
            negative += [line for line, grade in zip(block.lines, grades, strict=True) if grade < 0]
    _refuse(path, faults)
    name = name or str(path)
    notes = (
        *_flagged(name, negative, "1 grade is below 0", "grades are below 0", _NEGATIVE),
        *_flagged(
            name, repeated, "1 line repeats an earlier one", "lines repeat earlier ones", "each judgement counts once"
        ),
    )
    return QrelsFile(qrels, notes)


def judgement_rows(path: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield (place, query, document, grade) of qrels in the order of their lines, as :func:`read_qrels` reads them."""
    for block in trec_lines.read_blocks(path, QRELS):
        for query, document, grade, line in zip(
            block.queries, block.documents, block.numbers[0], block.lines, strict=True
        ):
            yield f"{path}: line {line}", query.decode("utf-8"), document, str(grade)


def read_qrels_file(path: Path, progress: Progress | None = None, *, name: str | None = None) -> QrelsFile:
    """Read qrels that a user named; raise FileError as :func:`read_noted_qrels`, or if there are no judgements."""
    file = read_noted_qrels(path, progress, name=name)
    if not file.qrels:
        raise FileError(f"{path}: has no judgements; name a file with lines 'query iteration document relevance'")
    return file


def read_stored_qrels(path: Path) -> Qrels:
    """Read qrels that are stored with results: a regular file of limited size."""
    return read_qrels(path, bound=FileLimits(_MAX_JUDGEMENTS))


def _flagged(name: str, lines: Sequence[int], one: str, several: str, more: str) -> Iterator[str]:
    """Yield a note on suspicious lines, if there are any."""
    if lines:
        where = f"{name}:{min(lines)}"
        text = f"{one}, in {where}" if len(lines) == 1 else f"{len(lines):,} {several}, the first in {where}"
        yield f"{text}: {more}"


def negative_grade_notes(qrels: Qrels, queries: Iterable[str]) -> Iterator[str]:
    """Yield a note on negative grades of stored judgements of these queries, if there are any."""
    negative = sum(grade < 0 for query in queries for grade in qrels.get(query, {}).values())
    if negative:
        yield f"{negative:,} grade{'s are' if negative > 1 else ' is'} below 0: {_NEGATIVE}"


# Number of a wrong line, and its fault.
_Fault = tuple[int, str]


def _by_query(
    path: Path, layout: LineLayout, progress: Progress | None = None, bound: FileLimits | None = None
) -> Iterator[tuple[str, LineBlock]]:
    """Yield each query with its lines, in the order of first lines; forget each one when it is yielded."""
    queries: dict[bytes, LineBlock] = {}
    for block in trec_lines.read_blocks(path, layout, progress, bound):
        start = 0
        for query, group in itertools.groupby(block.queries):
            lines = block.part(slice(start, start := start + len(list(group))))
            if (earlier := queries.setdefault(query, lines)) is not lines:
                earlier.extend(lines)
    for query in list(queries):
        yield query.decode(), queries.pop(query)


def _duplicate(query: str, block: LineBlock) -> _Fault:
    """Return the first line whose document or rank is on an earlier line of its query."""
    columns = (block.documents, *block.numbers[:-1])  # scores are last
    known: list[set[Any]] = [set() for _ in columns]
    for line, *values in zip(block.lines, *columns, strict=True):
        if any(value in earlier for value, earlier in zip(values, known, strict=True)):
            what = " or rank ".join((f"document {values[0]!r}", *map(str, values[1:])))
            return line, f"{what} appears twice in query {query!r}; remove one"
        for value, earlier in zip(values, known, strict=True):
            earlier.add(value)
    raise AssertionError(query)


def _inversion(block: LineBlock, order: Sequence[int]) -> list[_Fault]:
    """Return the best rank with a better score than the rank above it, if any."""
    documents, scores = block.documents, block.numbers[1]
    for better, worse in itertools.pairwise(order):
        if scores[worse] > scores[better]:
            text = f"{documents[worse]!r} scores {scores[worse]}, more than the {scores[better]} ranked above it"
            return [(block.lines[worse], f"{text}; correct one")]
    return []


def _contradiction(query: str, block: LineBlock, repeated: list[int]) -> list[_Fault]:
    """Return the first line with another grade than an earlier line; a repeated grade is harmless."""
    judged: dict[str, int] = {}
    for document, grade, line in zip(block.documents, block.numbers[0], block.lines, strict=True):
        if document in judged and judged[document] == grade:
            repeated.append(line)
        elif judged.setdefault(document, grade) != grade:
            return [(line, f"{document!r} has two grades for query {query!r}; remove one line")]
    return []


def _refuse(path: Path, faults: Sequence[_Fault]) -> None:
    if faults:
        line, what = min(faults)
        raise FileError(f"{path}:{line}: {what}")

"""TREC runs and judgements, as files have them."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import FileError
from harness.evaluation import trec_parser
from harness.evaluation.answer_recall import Depths
from harness.evaluation.trec_parser import Layout, Number, Progress
from harness.untrusted import FileLimits

# query id -> document id -> relevance
Qrels = dict[str, dict[str, int]]

_RANK = Number("rank", 3, "q", trec_parser.whole)
_RUN = "query Q0 document rank score tag"
_RANKED = Layout(_RUN, 0, 2, (_RANK, Number("score", 4, "d", trec_parser.score)))
_SCORE = Number("score", 4, "f", trec_parser.score_32)
_SCORED = Layout(_RUN, 0, 2, (_SCORE,), tail=(_RANK, _SCORE))
# The most lines of stored files: those of runs are up to whoever knows what was asked for.
_MOST_HITS, _MOST_JUDGEMENTS = 20_000_000, 5_000_000
_JUDGED = Layout("query iteration document relevance", 0, 2, (Number("relevance", 3, "q", trec_parser.grade),))


@dataclass(frozen=True)
class Lines:
    """Lines of a file that are taken, and that somebody should know of: how many, and the number of the first."""

    count: int
    first: int


@dataclass(frozen=True)
class Run:
    """A TREC run: query id -> document ids, best first.  ``tied_queries`` hold equal scores somewhere.

    ``lines`` says where in its file each query begins; ``depths`` how deep in the texts of its hits answers stand,
    where the run was judged by answers and that was stored; ``longer`` which lines have more than six fields.
    """

    rankings: dict[str, tuple[str, ...]]
    tied_queries: tuple[str, ...]
    lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    depths: Depths | None = field(default=None, compare=False, repr=False)
    longer: Lines | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Judgements:
    """A file of judgements; ``below`` says which lines have grades below 0."""

    qrels: Qrels
    below: Lines | None


@dataclass
class _Entries:
    """All lines of one query, in the file's order."""

    documents: list[str]
    numbers: tuple[array[Any], ...]
    lines: array[int]


# The line that is wrong, and what is.
_Wrong = tuple[int, str]


def read_run(path: Path, most_hits: int = _MOST_HITS) -> Run:
    """Read a TREC run (``query Q0 document rank score tag``), plain or gzipped; ranks decide the order.

    This is how harness reads what it has stored: the ranking that was timed.

    Raises:
        FileError: the file is missing or damaged, a line is malformed, a document or rank stands twice in a
            query, or a worse rank has a better score; names file and line.  Or it is no regular file, or has more lines
            than make sense.
    """
    rankings: dict[str, tuple[str, ...]] = {}
    tied, lines, wrong = [], {}, []
    for query, entries in _by_query(path, _RANKED, bound=FileLimits(min(most_hits, _MOST_HITS))):
        documents, (ranks, scores) = entries.documents, entries.numbers
        if len(set(documents)) < len(documents) or len(set(ranks)) < len(ranks):
            wrong.append(_twice(query, entries))
            continue
        order = sorted(range(len(ranks)), key=ranks.__getitem__)
        for better, worse in itertools.pairwise(order):
            if scores[worse] > scores[better]:
                said = f"{documents[worse]!r} scores {scores[worse]}, more than the {scores[better]} ranked above it"
                wrong.append((entries.lines[worse], f"{said}; mend one"))
                break
        if len(set(scores)) < len(scores):
            tied.append(query)
        rankings[query] = tuple([documents[place] for place in order])
        lines[query] = entries.lines[0]
    _refuse(path, wrong)
    return Run(rankings, tuple(sorted(tied)), lines)


def read_scored_run(path: Path, progress: Progress | None = None) -> Run:
    """Read a TREC run as trec_eval does: scores decide the order, ranks play no part and are not looked at.

    Scores are kept in 32 bits; equal ones are ordered by document id, the bytewise largest first.  Fields behind the
    sixth are of the tag.

    Raises:
        FileError: the file is missing or damaged, a line is malformed, or a document stands twice in a query; names
            file and line.
    """
    rankings: dict[str, tuple[str, ...]] = {}
    tied, lines, wrong = [], {}, []
    longer: list[Lines] = []
    for query, entries in _by_query(path, _SCORED, progress, longer):
        documents, (scores,) = entries.documents, entries.numbers
        if len(set(documents)) < len(documents):
            wrong.append(_twice(query, entries))
            continue
        # Code points are ordered as the bytes of their UTF-8 are.
        rankings[query] = tuple([document for _, document in sorted(zip(scores, documents, strict=True), reverse=True)])
        if len(set(scores)) < len(scores):
            tied.append(query)
        lines[query] = entries.lines[0]
    _refuse(path, wrong)
    return Run(rankings, tuple(sorted(tied)), lines, longer=_together(longer))


def read_qrels(path: Path, progress: Progress | None = None) -> Qrels:
    """The judgements alone of what :func:`read_judgements` reads."""
    return read_judgements(path, progress).qrels


def read_stored_qrels(path: Path) -> Qrels:
    """As :func:`read_qrels`, of a file that lies with results: a regular one within bounds."""
    return read_judgements(path, bound=FileLimits(_MOST_JUDGEMENTS)).qrels


@dataclass
class StoredQrels:
    """Reads each file of stored judgements once, also one that cannot be read: many jobs name it."""

    _known: dict[Path, Qrels | str] = field(default_factory=dict)

    def __call__(self, path: Path) -> Qrels:
        """As :func:`read_stored_qrels`."""
        if path not in self._known:
            try:
                self._known[path] = read_stored_qrels(path)
            except FileError as error:
                self._known[path] = str(error)
        found = self._known[path]
        if isinstance(found, str):
            raise FileError(found)
        return found


def read_judgements(path: Path, progress: Progress | None = None, bound: FileLimits | None = None) -> Judgements:
    """Read TREC judgements (``query iteration document relevance``), plain or gzipped.

    Raises:
        FileError: the file is missing or damaged, a line is malformed, or a document is judged in two ways; or it is
            beyond its bound.
    """
    qrels: Qrels = {}
    wrong = []
    below: list[Lines] = []
    for query, entries in _by_query(path, _JUDGED, progress, bound=bound):
        (grades,) = entries.numbers
        judged = qrels[query] = dict(zip(entries.documents, grades, strict=True))
        if len(judged) < len(grades):
            wrong += _contradiction(query, entries)
        if min(grades) < 0:
            lines = [line for line, grade in zip(entries.lines, grades, strict=True) if grade < 0]
            below.append(Lines(len(lines), lines[0]))
    _refuse(path, wrong)
    return Judgements(qrels, _together(below))


def _together(parts: Sequence[Lines]) -> Lines | None:
    return Lines(sum(each.count for each in parts), min(each.first for each in parts)) if parts else None


def _by_query(
    path: Path,
    layout: Layout,
    progress: Progress | None = None,
    longer: list[Lines] | None = None,
    bound: FileLimits | None = None,
) -> Iterator[tuple[str, _Entries]]:
    """Each query with its lines, in the order of their first ones; what is given is forgotten here.

    ``longer`` is told which lines have further fields.
    """
    found: dict[bytes, _Entries] = {}
    for block in trec_parser.blocks(path, layout, progress, bound):
        if block.longer and longer is not None:
            longer.append(Lines(len(block.longer), block.longer[0]))
        lines = array("q", block.lines)
        start = 0
        for query, group in itertools.groupby(block.queries):
            part = slice(start, start := start + len(list(group)))
            entries = found.get(query)
            if entries is None:
                numbers = tuple(column[part] for column in block.numbers)
                found[query] = _Entries(list(block.documents[part]), numbers, lines[part])
                continue
            entries.documents += block.documents[part]
            entries.lines += lines[part]
            for whole, column in zip(entries.numbers, block.numbers, strict=True):
                whole.extend(column[part])
    for query in list(found):
        yield query.decode(), found.pop(query)


def _twice(query: str, entries: _Entries) -> _Wrong:
    """The first line whose document, or rank where there is one, stands in an earlier one."""
    ranks = entries.numbers[0] if len(entries.numbers) > 1 else None
    documents: set[str] = set()
    used: set[int] = set()
    for place, document in enumerate(entries.documents):
        if document in documents or (ranks is not None and ranks[place] in used):
            what = f"document {document!r}" + (f" or rank {ranks[place]}" if ranks is not None else "")
            return entries.lines[place], f"{what} stands twice in query {query!r}; remove one"
        documents.add(document)
        if ranks is not None:
            used.add(ranks[place])
    raise AssertionError(query)


def _contradiction(query: str, entries: _Entries) -> list[_Wrong]:
    """The first line that judges a document in another way than an earlier one; the same again is no harm."""
    judged: dict[str, int] = {}
    for document, grade, line in zip(entries.documents, entries.numbers[0], entries.lines, strict=True):
        if judged.setdefault(document, grade) != grade:
            return [(line, f"{document!r} is judged in two ways for query {query!r}; remove one line")]
    return []


def _refuse(path: Path, wrong: Sequence[_Wrong]) -> None:
    if wrong:
        line, what = min(wrong)
        raise FileError(f"{path}:{line}: {what}")

"""TREC runs and judgements, as files have them."""

from __future__ import annotations

import gzip
import itertools
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.errors import FileError

# query id -> document id -> relevance
Qrels = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Run:
    """A TREC run: query id -> document ids, best first.  ``tied_queries`` hold equal scores somewhere."""

    rankings: dict[str, tuple[str, ...]]
    tied_queries: tuple[str, ...]


def read_run(path: Path) -> Run:
    """Read a TREC run (``query Q0 document rank score tag``), plain or gzipped; ranks decide the order.

    Raises:
        FileError: the file is missing or damaged, a line is malformed, a document or rank stands twice in a
            query, or a worse rank has a better score; names file and line.
    """
    hits: dict[str, dict[int, tuple[str, float, str]]] = {}
    seen: set[tuple[str, str]] = set()
    for place, fields in _lines(path, 6, "query Q0 document rank score tag"):
        query, _, document, rank_text, score_text, _ = fields
        rank = _whole(place, rank_text, "rank")
        try:
            score = float(score_text)
        except ValueError:
            score = math.nan
        if not math.isfinite(score):
            raise FileError(f"{place}: score {score_text!r} is no finite number; mend or remove the line")
        if (query, document) in seen or rank in hits.get(query, {}):
            raise FileError(
                f"{place}: document {document!r} or rank {rank} stands twice in query {query!r}; remove one"
            )
        seen.add((query, document))
        hits.setdefault(query, {})[rank] = (document, score, place)
    rankings, tied = {}, []
    for query, by_rank in hits.items():
        ordered = [by_rank[rank] for rank in sorted(by_rank)]
        for (_, better, _), (document, score, place) in itertools.pairwise(ordered):
            if score > better:
                raise FileError(
                    f"{place}: {document!r} scores {score}, more than the {better} ranked above it; mend one"
                )
        if len({score for _, score, _ in ordered}) < len(ordered):
            tied.append(query)
        rankings[query] = tuple(document for document, _, _ in ordered)
    return Run(rankings, tuple(sorted(tied)))


def read_qrels(path: Path) -> Qrels:
    """Read TREC judgements (``query iteration document relevance``), plain or gzipped.

    Raises:
        FileError: the file is missing or damaged, a line is malformed, or a document is judged in two ways.
    """
    qrels: Qrels = {}
    for place, (query, _, document, text) in _lines(path, 4, "query iteration document relevance"):
        relevance = _whole(place, text, "relevance")
        if qrels.setdefault(query, {}).setdefault(document, relevance) != relevance:
            raise FileError(f"{place}: {document!r} is judged in two ways for query {query!r}; remove one line")
    return qrels


def _whole(place: str, text: str, what: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise FileError(f"{place}: {what} {text!r} is no whole number; mend or remove the line") from None


def _lines(path: Path, count: int, layout: str) -> Iterator[tuple[str, list[str]]]:
    """Fields of each line that is not empty, with its place, ``<file>:<line>``."""
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                # ASCII white space only: other kinds may stand inside an id.
                fields = [field.decode("utf-8") for field in line.split()]
                if fields and len(fields) != count:
                    raise FileError(f"{path}:{number}: {len(fields)} fields, must be {count} ({layout}); mend the line")
                if fields:
                    yield f"{path}:{number}", fields
    except FileNotFoundError:
        raise FileError(f"{path}: no such file; measure again or restore it") from None
    except UnicodeDecodeError as error:
        raise FileError(f"{path}:{number}: not UTF-8: {error}; mend the line") from error
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"{path}: damaged after line {number}: {error}; restore it or measure again") from error

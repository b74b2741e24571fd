"""A stored run and its judgements -> effectiveness measures; every value is computed by ir_measures.

The ranking that is judged is the ranking that was timed.  ir_measures' providers order a run by score and break
equal scores by document id, one upwards (RR@k), one downwards (nDCG@k).  So they are given scores made from
the run's own ranks: the same values wherever scores differ, and one ranking for all measures where they do not.
"""

from __future__ import annotations

import gzip
import itertools
import math
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import FileError, UsageError
from harness.result import JUDGED_HITS

DEFAULT_MEASURES = ("RR@10", "Success@10", "nDCG@10")

# Measures without a cutoff that look at what was retrieved as a set, or at the judgements alone: no deeper ranks exist
# for them.
_OF_THE_SET = frozenset({"Judged", "NumQ", "NumRel", "NumRelRet", "NumRet", "SetAP", "SetF", "SetP", "SetR", "SetRelP"})

# Measures that need no more than the relevance of each document that was retrieved.
_OF_HITS_ALONE = frozenset({"RR", "Success", "P", "SetP", "RBP", "NumRet", "NumQ"})
_UNKNOWN = "needs all relevant documents; only those retrieved were judged, by the answers in their texts"

# query id -> document id -> relevance
Qrels = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Run:
    """A TREC run: query id -> document ids, best first.  ``tied_queries`` hold equal scores somewhere."""

    rankings: dict[str, tuple[str, ...]]
    tied_queries: tuple[str, ...]


@dataclass(frozen=True)
class Evaluation:
    """Measures over the judged queries of a sample.

    ``values`` maps each measure, as ir_measures writes it, to its aggregate over ``queries`` queries (``None`` when
    none is judged, or where ``reasons`` says why not).  ``unjudged`` queries of the sample are left out of it;
    ``without_hits`` are judged and count 0.  ``per_query`` maps each measure to the value of each judged query;
    ``means`` are the measures whose aggregate is the mean of those.
    """

    values: dict[str, float | None]
    queries: int
    unjudged: tuple[str, ...]
    without_hits: tuple[str, ...]
    tied_queries: tuple[str, ...]
    reasons: dict[str, str] = field(default_factory=dict)
    per_query: dict[str, dict[str, float]] = field(default_factory=dict)
    means: frozenset[str] = frozenset()


def parse_measures(names: Iterable[str]) -> tuple[Any, ...]:
    """Measures from their names, e.g. ``"nDCG@10"`` or ``"RR(rel=2)@10"``; one that stands twice is taken once.

    Raises:
        UsageError: a name is not known to ir_measures, or nothing installed can compute it.
    """
    import ir_measures

    parsed = []
    for name in names:
        try:
            with warnings.catch_warnings():
                # ir_measures 0.4.3 reads measures with parts of ast that newer Pythons deprecate.
                warnings.simplefilter("ignore", DeprecationWarning)
                measure = ir_measures.parse_measure(name)
            supported = ir_measures.DefaultPipeline.supports(measure)  # type: ignore[no-untyped-call]
        except (ValueError, NameError, KeyError, AssertionError) as error:
            raise UsageError(
                f"unknown measure {name!r} ({error}); write it as ir_measures does, e.g. nDCG@10, RR@10, AP(rel=2)@100"
            ) from error
        if not supported:
            raise UsageError(f"measure {name!r} cannot be computed by what is installed; see ir_measures' providers")
        parsed.append(measure)
    return tuple(dict.fromkeys(parsed))


def cutoff(measure: Any) -> int | None:
    """The rank down to which a measure looks, or ``None`` if it has none."""
    value = measure.params.get("cutoff")
    return value if isinstance(value, int) else None


def looks_deeper(measure: Any, k: int) -> bool:
    """Whether a measure asks for ranks below ``k``; one without a cutoff goes down the whole ranking."""
    depth = cutoff(measure)
    return measure.NAME not in _OF_THE_SET if depth is None else depth > k


def of_hits_alone(path: Path) -> bool:
    """Whether a file of judgements holds a run's own hits and nothing of what the run did not find."""
    return path.name == JUDGED_HITS


def evaluate(
    run: Run, qrels: Qrels, sample_ids: Sequence[str], measures: Sequence[Any], *, hits_alone: bool = False
) -> Evaluation:
    """Judge a run over a query sample.

    Args:
        run: rankings; a query of the sample that it lacks got no hits and counts 0.
        qrels: judgements; those of queries outside the sample play no part.
        sample_ids: the sample that was timed.
        measures: as :func:`parse_measures` gives them.
        hits_alone: see :func:`of_hits_alone`.  All queries are judged then, and measures that need all relevant
            documents (nDCG, R, AP ...) have no value.

    Raises:
        UsageError: the run holds a query that is not in the sample.
    """
    import ir_measures

    strangers = sorted(set(run.rankings) - set(sample_ids))
    if strangers:
        raise UsageError(f"the run holds {len(strangers)} queries that are not in the sample, e.g. {strangers[0]!r}")
    judged = {query: qrels[query] for query in sorted(set(sample_ids)) if qrels.get(query)}
    if hits_alone:
        # No document has the empty id: a query without hits is judged, and has found nothing.
        judged = {query: qrels.get(query) or {"": 0} for query in sorted(set(sample_ids))}
    reasons = {str(each): _UNKNOWN for each in measures if hits_alone and each.NAME not in _OF_HITS_ALONE}
    known = [each for each in measures if str(each) not in reasons]
    scores = {
        query: {document: float(-rank) for rank, document in enumerate(run.rankings[query])}
        for query in judged
        if run.rankings.get(query)
    }
    values: dict[str, float | None] = {str(measure): None for measure in measures}
    per_query: dict[str, dict[str, float]] = {}
    if judged and known:
        found: Any = ir_measures.calc(known, judged, scores)
        values |= {str(measure): float(found.aggregated[measure]) for measure in known}
        for metric in found.per_query:
            per_query.setdefault(str(metric.measure), {})[metric.query_id] = float(metric.value)
    return Evaluation(
        values=values,
        queries=len(judged),
        unjudged=tuple(sorted(set(sample_ids) - set(judged))),
        without_hits=tuple(sorted(set(judged) - set(scores))),
        tied_queries=tuple(query for query in run.tied_queries if query in judged),
        reasons=reasons,
        per_query=per_query,
        means=frozenset(str(each) for each in known if isinstance(each.aggregator(), ir_measures.measures.MeanAgg)),
    )


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

"""Pool unjudged documents for judging; write the pool as a table or JSON lines; read it back with grades.

A pool has the unjudged documents that any run ranks high.  A hash of the seed and of the pair's ids decides the order,
so that it reveals no system, rank or score, and a further run moves no pair.  An ensemble of rerankers may choose which
pairs of a deep pool to judge (Qiu et al. 2022, section 2.3).

Tables are csv's dialect ``excel-tab``.  Each text is one printable line, with an apostrophe before what a spreadsheet
would take for a formula.  JSON lines keep texts as they are.  A spreadsheet may also rewrite ids (``007`` becomes 7):
the column ``pair`` has a hash of both ids, so that it shows.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from harness.errors import FileError, UsageError, counted
from harness.evaluation import trec_lines
from harness.evaluation.judged_runs import JudgedRuns, UnjudgedHits, count_unjudged
from harness.untrusted import FORMULA_SIGNS, decode, is_formula, one_line, reading, reason_of

COLUMNS = ("pair", "query_id", "query", "doc_id", "title", "document", "grade")
_REQUIRED = ("query_id", "doc_id", "grade")
# Bytes of both ids: a TREC file has no line of more than 1 MiB.
_MAX_ID_BYTES = 1 << 16
_MOST_BYTES = 128 << 20  # of a file of grades
_GRADE = re.compile("[0-9]{1,4}", flags=re.ASCII)


@dataclass(frozen=True)
class JudgingPool:
    """Pairs of query and document in the order of judging; ``judged`` more pairs are judged already.

    ``queries`` maps ids to texts.  ``systems`` counts each system's unjudged hits, for the user and not for assessors.
    ``candidates`` counts the pairs that an ensemble chose from (0: all are in the pool).
    """

    pairs: tuple[tuple[str, str], ...]
    queries: dict[str, str]
    judged: int
    systems: tuple[tuple[str, UnjudgedHits], ...]
    depth: int
    candidates: int = 0

    @property
    def queries_to_judge(self) -> int:
        """Number of queries with a pair to judge."""
        return len({query for query, _ in self.pairs})


@dataclass(frozen=True)
class Ensemble:
    """Rerankers that choose a query's ``keep`` best documents by the mean of their scores.

    ``scores``: by reranker, query and document.  Scores should have one scale: the mean takes them as they are.
    """

    scores: Mapping[str, Mapping[str, Mapping[str, float]]]
    keep: int

    def choose(self, candidates: Mapping[str, Collection[str]]) -> dict[str, set[str]]:
        """Return the chosen documents of each query; of equal means, those whose id comes first.

        Raises:
            UsageError: a reranker lacks a score.
        """
        for name, scores in self.scores.items():
            lacking = [
                (query, document)
                for query, documents in candidates.items()
                for document in documents
                if document not in scores.get(query, {})
            ]
            if lacking:
                query, document = min(lacking)
                total = sum(map(len, candidates.values()))
                raise UsageError(
                    f"reranker {name} has no score for {len(lacking):,} of {total:,} candidates, e.g. query {query!r}, "
                    f"document {document!r}; let it score all that --candidates writes"
                )

        def mean(query: str, document: str) -> float:
            return math.fsum(scores[query][document] for scores in self.scores.values()) / len(self.scores)

        return {
            query: set(sorted(documents, key=lambda document: (-mean(query, document), document))[: self.keep])
            for query, documents in candidates.items()
        }


def pool_candidates(samples: Sequence[JudgedRuns], depth: int) -> dict[str, set[str]]:
    """Return the documents among the first ``depth`` hits of all runs, judged or not, by query.

    Raises:
        UsageError: the runs belong to several datasets or have no query, or answers in the texts decide relevance.
    """
    corpora = sorted({(runs.dataset, runs.corpus_sha256 or "") for runs in samples})
    if len(corpora) > 1:
        names = ", ".join(name for name, _ in corpora)
        raise UsageError(f"runs of {len(corpora)} collections ({names}): choose one with --only")
    if any(runs.hits_alone for runs in samples):
        raise UsageError(f"{samples[0].dataset}: answers in the texts judge every hit; there is nothing to pool")
    if not any(runs.queries for runs in samples):
        raise UsageError(f"{samples[0].dataset}: the set has no queries to pool for; name some with --queries")
    candidates: dict[str, set[str]] = defaultdict(set)
    for runs in samples:
        for run in runs.runs.values():
            for query in runs.queries:
                candidates[query].update(run.rankings.get(query, ())[:depth])
    return candidates


def write_candidates(candidates: Mapping[str, Collection[str]], stream: IO[str]) -> None:
    """Write candidates as a TREC run for rerankers to score; order and scores follow from the ids alone."""
    for query in sorted(candidates):
        documents = sorted(candidates[query])
        for rank, document in enumerate(documents, start=1):
            stream.write(f"{query} Q0 {document} {rank} {len(documents) - rank + 1} pool\n")


def build_pool(
    samples: Sequence[JudgedRuns], depth: int, seed: int, ensemble: Ensemble | None = None, *, again: bool = False
) -> JudgingPool:
    """Pool the unjudged documents among the first ``depth`` hits of all runs.

    Args:
        samples: runs over one dataset and corpus; several samples of its queries make one pool.
        depth: ranks to look at.
        seed: of the order.
        ensemble: chooses among them; all are in the pool without one.
        again: list judged documents too.

    Raises:
        UsageError: as :func:`pool_candidates`, or a reranker of the ensemble lacks a score.
    """
    candidates = pool_candidates(samples, depth)
    chosen = ensemble.choose(candidates) if ensemble else candidates
    queries = {query: text for runs in samples for query, text in runs.queries.items()}
    pairs: list[tuple[str, str]] = []
    judged = 0
    for query in sorted(chosen, key=lambda query: shuffle_key(seed, query)):
        documents = chosen[query]
        known = {document for document in documents if any(document in runs.qrels.get(query, {}) for runs in samples)}
        wanted = documents if again else documents - known
        judged += len(documents) - len(wanted)
        pairs += ((query, document) for document in sorted(wanted, key=lambda name: shuffle_key(seed, query, name)))
    total = sum(map(len, candidates.values())) if ensemble else 0
    return JudgingPool(tuple(pairs), queries, judged, tuple(_count_unjudged(samples, depth)), depth, total)


def _count_unjudged(samples: Sequence[JudgedRuns], depth: int) -> Iterator[tuple[str, UnjudgedHits]]:
    for runs in samples:
        for system, run in runs.runs.items():
            name = system if len(samples) == 1 else f"{system} ({len(runs.queries):,} queries)"
            yield name, count_unjudged(run, runs.qrels, runs.query_ids, depth)


def shuffle_key(seed: int, *ids: str) -> tuple[bytes, tuple[str, ...]]:
    """Return the key by which ids are put into a random order that follows from the seed and themselves alone."""
    named = "\0".join((str(seed), *ids)).encode("utf-8")
    return hashlib.sha256(named).digest(), ids


def pair_id(query_id: str, doc_id: str) -> str:
    """Return a hash of a pair, with a letter first so that no spreadsheet takes it for a number."""
    return "p" + hashlib.sha256(f"{query_id}\0{doc_id}".encode()).hexdigest()[:10]


def write_pool(pool: JudgingPool, documents: Mapping[str, Mapping[str, str]], form: str, stream: IO[str]) -> None:
    """Write the pairs of a pool, with empty grades.

    Args:
        pool: what to judge.
        documents: ``title`` and ``text`` by id; both stay empty for an unknown document.
        form: ``tsv`` or ``jsonl``.
        stream: output.

    Raises:
        UsageError: a table cannot hold an id.
    """
    writer = csv.DictWriter(stream, COLUMNS, dialect="excel-tab", lineterminator="\n")
    if form == "tsv":
        writer.writeheader()
    for query, doc_id in pool.pairs:
        document = documents.get(doc_id, {})
        texts = (pool.queries.get(query) or None, doc_id, document.get("title"), document.get("text"))
        record = dict(zip(COLUMNS, (pair_id(query, doc_id), query, *texts, None), strict=True))
        if form == "jsonl":
            stream.write(json.dumps(record, ensure_ascii=True) + "\n")
        else:
            ids = {"query_id": _id_cell(query), "doc_id": _id_cell(doc_id)}
            writer.writerow({name: _cell(value or "") for name, value in record.items()} | ids)


def _cell(text: str) -> str:
    text = one_line(text)
    return f"'{text}" if is_formula(text) else text


def _id_cell(text: str) -> str:
    """Return the cell of an id, which :func:`_id` reads back."""
    if one_line(text) != text:
        raise UsageError(f"a table cannot hold the id {text!r}; write it with --format jsonl")
    return f"'{text}" if text.startswith((*FORMULA_SIGNS, "'")) else text


def _id(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:2] in ("'", *FORMULA_SIGNS) else cell


@dataclass(frozen=True)
class GradedPair:
    """Line of a judged pool or of qrels; ``grade`` is ``None`` if its assessor left it empty.

    ``iteration``: the second column of qrels.
    """

    place: str
    query_id: str
    doc_id: str
    grade: int | None
    iteration: str = ""


def read_graded_pool(path: Path) -> tuple[GradedPair, ...] | None:
    """Read a pool with grades; return ``None`` for another kind of file.

    A spreadsheet may have saved it with commas or semicolons, a byte order mark, or as UTF-16.

    Raises:
        FileError: the file cannot be read, a grade is not a whole number of 0 or more, an id has changed, or a pair
            has two grades; names file and line.
    """
    with reading(path, "name the file with the grades", damage=trec_lines.DAMAGED):
        content = trec_lines.read_named(path, _MOST_BYTES)
    utf16 = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    text = decode(content, path, encoding="utf-16" if utf16 else "utf-8-sig")
    if text.lstrip().startswith("{"):
        return _check_pairs(_json_lines(path, text))
    header = text.partition("\n")[0].strip()
    for delimiter in "\t,;":
        if set(_REQUIRED) <= {cell.strip().strip('"') for cell in header.split(delimiter)}:
            return _check_pairs(_table_lines(path, text, delimiter))
    return None


def _check_pairs(lines: Iterator[tuple[str, Mapping[str, Any]]]) -> tuple[GradedPair, ...]:
    pairs: dict[tuple[str, str], GradedPair] = {}
    for place, line in lines:
        if missing := [name for name in _REQUIRED if name not in line]:
            raise FileError(f"{place}: has no {missing[0]!r}; write the header with the names {', '.join(_REQUIRED)}")
        query, document = str(line["query_id"]), str(line["doc_id"])
        if fault := _id_fault(query, document):
            raise FileError(f"{place}: query {query!r}, document {document!r}: {fault}; correct it")
        written = str(line.get("pair") or "")
        if written and written != pair_id(query, document):
            ids = f"query {query!r} and document {document!r}"
            raise FileError(f"{place}: {ids} are not the pair that was written ({written}); import columns as text")
        pair = GradedPair(place, query, document, _grade(place, line["grade"]))
        earlier = pairs.setdefault((query, document), pair)
        if earlier.grade is None:
            pairs[query, document] = pair
        elif pair.grade not in (None, earlier.grade):
            grades = f"grade {pair.grade}, and {earlier.grade} in {earlier.place}"
            raise FileError(f"{place}: document {document!r} of query {query!r} has {grades}; keep one")
    return tuple(pairs.values())


def _id_fault(query: str, document: str) -> str | None:
    """Return why a qrels line with these ids could not be read back, if so."""
    try:
        ids = [name.encode() for name in (query, document)]
    except UnicodeEncodeError:
        return "an id has half a character, which UTF-8 cannot hold"
    # Only ASCII white space separates fields: other white space may be part of an id.
    if any(name.split() != [name] for name in ids):
        return "an id is empty or has a blank"
    if query == "#":
        return "a qrels line that begins with # is a comment"
    if "\0" in f"{query}{document}" or "\ufeff" in f"{query}{document}":
        return "an id has a NUL or a byte order mark"
    if sum(map(len, ids)) > _MAX_ID_BYTES:
        return f"the ids have more than {_MAX_ID_BYTES:,} bytes"
    return None


def _grade(place: str, value: object) -> int | None:
    text = "" if value is None else str(value).strip()
    if not text:
        return None
    if isinstance(value, bool) or not _GRADE.fullmatch(text):
        raise FileError(f"{place}: grade {one_line(text)!r} is not a whole number from 0 on; write 0, 1 ... or nothing")
    return int(text)


def _json_lines(path: Path, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(io.StringIO(text), start=1):
        if line.strip():
            try:
                raw = json.loads(line)
                for name in ("query_id", "doc_id"):
                    if isinstance(raw[name], bool) or not isinstance(raw[name], str | int):
                        raise ValueError(f"{name} is not a text")
                yield f"{path}:{number}", {name: raw[name] for name in _REQUIRED} | {"pair": raw.get("pair")}
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                fields = ", ".join(_REQUIRED)
                raise FileError(f"{path}:{number}: not JSON with {fields} ({reason_of(error)}); correct it") from error


def _table_lines(path: Path, text: str, delimiter: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    before = csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))  # a document may be long
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        header = [cell.strip() for cell in next(reader)]
        for cells in reader:
            place = f"{path}:{reader.line_num}"
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                raise FileError(f"{place}: {len(cells)} fields, must be {len(header)}; correct the row")
            line = dict(zip(header, cells, strict=True))
            yield place, line | {name: _id(line[name].strip()) for name in ("query_id", "doc_id")}
    except csv.Error:
        raise FileError(f"{path}:{reader.line_num}: not a table; correct the quotes of the row") from None
    finally:
        csv.field_size_limit(before)


def summary_lines(pool: JudgingPool, rerankers: int) -> Iterator[str]:
    """Yield the size of a pool, and each system's share of unjudged hits; the pool's file must not show them."""
    text = f"{counted(len(pool.pairs), 'pair')} of {counted(pool.queries_to_judge, 'query')} to judge"
    if pool.candidates:
        text += f", chosen by {counted(rerankers, 'reranker')} from {pool.candidates:,} candidates"
        yield f"{text}; {pool.judged:,} more of those chosen are judged"
    else:
        yield f"{text}; {pool.judged:,} more of the first {pool.depth} hits are judged"
    for name, system in pool.systems:
        share = "no hits"
        if system.share is not None:
            unjudged = f"{system.unjudged:,} of {system.hits:,} hits unjudged ({system.unjudged / system.hits:.1%})"
            share = f"{unjudged}; mean over queries {system.share:.1%}"
        yield f"  {one_line(name)}: {share}"

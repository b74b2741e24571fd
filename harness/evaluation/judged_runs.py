"""Runs over the same queries with their qrels, read from files or taken from stored results; their unjudged hits."""

from __future__ import annotations

import glob
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.errors import FileError, UsageError
from harness.evaluation import trec
from harness.evaluation.trec import Qrels, Run
from harness.evaluation.trec_lines import DAMAGED, is_readable, open_input
from harness.progress import Progress
from harness.untrusted import bounded_lines, decode, reading, reason_of

# Other suffixes may be part of a name: ``bm25-0.9``, or ``input.bbn1`` of TREC itself.
_SUFFIXES = (".run", ".trec", ".txt", ".res", ".tsv")
_MOST_LINE_BYTES = 1 << 24  # of a query
# The names of a table's columns, in small letters alone.
_ID_NAMES = frozenset({"id", "qid", "queryid", "topic", "topicid", "number"})
_TEXT_NAMES = frozenset({"text", "query", "querytext", "title", "question"})
# Systems that a note names.
_MOST_NAMED = 8


@dataclass(frozen=True)
class UnknownQueries:
    """Queries of a run file that are not to be judged, and the place of the first in the file."""

    queries: tuple[str, ...]
    place: str


@dataclass(frozen=True)
class JudgedRuns:
    """Runs that may be compared query by query.

    ``runs`` maps each system, or the name of its file, to its run; ``queries`` maps ids to texts (``""``: unknown).
    ``corpus_sha256`` is ``None`` if the runs are files.  ``hits_alone``: only hits are judged
    (:func:`harness.results.reader.judges_hits_alone`), and ``qrels`` has the hits of all systems.  ``unknown``: queries
    left out of run files, by system.  ``notes``: sentences about the files, and on other qrels or fewer queries
    (:mod:`harness.analysis.rejudge`).
    """

    dataset: str
    queries: Mapping[str, str]
    qrels: Qrels
    runs: Mapping[str, Run]
    hits_alone: bool = False
    corpus_sha256: str | None = None
    unknown: Mapping[str, UnknownQueries] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def query_ids(self) -> tuple[str, ...]:
        """Ids of the queries, in their order."""
        return tuple(self.queries)

    @property
    def judged_ids(self) -> tuple[str, ...]:
        """Ids of the queries that have judgements, in their order."""
        return tuple(query for query in self.queries if self.qrels.get(query))

    def without_relevant(self) -> tuple[str, ...]:
        """Return the judged queries without a relevant document; none if only hits are judged."""
        if self.hits_alone:
            return ()
        return tuple(query for query in self.judged_ids if max(self.qrels[query].values()) <= 0)


def read_runs(
    qrels: Path,
    runs: Sequence[Path],
    queries: Mapping[str, str] | None = None,
    watch: Callable[[Path], Progress | None] = lambda _: None,
) -> JudgedRuns:
    """Read run files and their qrels, each run in trec_eval's order: by score.

    Args:
        qrels: file of judgements.
        runs: run files.
        queries: text by id of the queries to judge; by default the queries of the qrels.
        watch: returns a callback for the progress of a file.

    Raises:
        FileError: a file is missing, damaged or empty.
        UsageError: two runs have one name.
    """
    run_names(runs)  # fail before a long read
    judgements = trec.read_qrels_file(qrels, watch(qrels))
    texts = dict.fromkeys(judgements.qrels, "") if queries is None else queries
    unjudged = read_unjudged_runs(qrels.name, runs, texts, watch)
    return replace(unjudged, qrels=judgements.qrels, notes=(*judgements.notes, *unjudged.notes))


def read_unjudged_runs(
    dataset: str,
    runs: Sequence[Path],
    queries: Mapping[str, str],
    watch: Callable[[Path], Progress | None] = lambda _: None,
) -> JudgedRuns:
    """Read run files without qrels; errors as of :func:`read_runs`."""
    by_name: dict[str, Run] = {}
    unknown: dict[str, UnknownQueries] = {}
    for name, path in zip(run_names(runs), runs, strict=True):
        run = trec.read_scored_run(path, watch(path))
        if not run.rankings:
            raise FileError(f"{path}: has no results; recreate it, or leave it out: a system without results scores 0")
        others = tuple(query for query in run.rankings if query not in queries)
        if others:
            unknown[name] = UnknownQueries(others, f"{path}:{run.lines[others[0]]}")
            run = replace(run, rankings={query: run.rankings[query] for query in run.rankings if query in queries})
        by_name[name] = run
    return JudgedRuns(dataset, queries, {}, by_name, unknown=unknown)


def run_names(paths: Sequence[Path]) -> tuple[str, ...]:
    """Name each run after its file without its suffix; keep the suffix where two names would clash.

    Raises:
        UsageError: two files have one name.
    """
    names = [_without_suffix(path.name) for path in paths]
    while clashes := {name for name, count in Counter(names).items() if count > 1}:
        whole = [path.name if name in clashes else name for name, path in zip(names, paths, strict=True)]
        if whole == names:
            path = next(path for name, path in reversed([*zip(names, paths, strict=True)]) if name in clashes)
            raise UsageError(f"{path}: another run is called {path.name!r} too; rename one")
        names = whole
    return tuple(names)


def _without_suffix(name: str) -> str:
    plain = name.removesuffix(".gz").removesuffix(".zst")
    suffix = next((suffix for suffix in _SUFFIXES if plain.lower().endswith(suffix)), "")
    return plain[: len(plain) - len(suffix)] or name


def read_queries(path: Path) -> dict[str, str]:
    """Read queries by id, in the file's order: JSON lines with ``_id`` and ``text``, or lines ``id<TAB>text``.

    Raises:
        FileError: the file is missing or empty, a line is malformed, or an id repeats; names file and line.
    """
    queries: dict[str, str] = {}
    with reading(path, "name a file of queries", damage=DAMAGED), open_input(path) as (_, lines):
        for number, content in enumerate(bounded_lines(lines, _MOST_LINE_BYTES), start=1):
            if len(content) == _MOST_LINE_BYTES:
                raise FileError(f"{path}:{number}: the line has more than {_MOST_LINE_BYTES >> 20} MiB; shorten it")
            line = decode(content, path, number, "utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            if not line.strip():
                continue
            if number == 1 and is_query_header(line.split("\t")):
                continue
            query, text = _parse_query(path, number, line)
            if query in queries:
                raise FileError(f"{path}:{number}: query {query!r} appears twice; remove one line")
            queries[query] = text
    if not queries:
        raise FileError(f"{path}: has no query; name a file with lines 'id<TAB>text' or JSON lines")
    return queries


def is_query_header(fields: Sequence[str]) -> bool:
    """Return whether the fields of a table's first line name an id and a text, as no query does."""
    names = [re.sub("[^a-z]", "", field.lower()) for field in fields]
    return len(names) == 2 and names[0] in _ID_NAMES and names[1] in _TEXT_NAMES


def _parse_query(path: Path, number: int, line: str) -> tuple[str, str]:
    if line.startswith("{"):
        try:
            fields = json.loads(line)
            if type(fields["_id"]) is int:
                fields["_id"] = str(fields["_id"])
            if not all(isinstance(fields[name], str) for name in ("_id", "text")):
                raise ValueError("_id and text must both be text in quotes")
            fields["_id"].encode("utf-8")
            # As in datasets, `?` stands for half a surrogate pair, which UTF-8 cannot hold.
            return fields["_id"], fields["text"].encode("utf-8", "replace").decode("utf-8")
        except (ValueError, KeyError, RecursionError) as error:
            raise FileError(f"{path}:{number}: not JSON with _id and text ({reason_of(error)}); correct it") from error
    query, tab, text = line.partition("\t")
    if not tab or not query:
        raise FileError(f"{path}:{number}: neither JSON nor 'id<TAB>text'; correct the line")
    return query, text


@dataclass(frozen=True)
class UnjudgedHits:
    """Unjudged hits among the first ``depth`` of each query; they count as not relevant.

    ``share`` is the mean over the queries with hits, as ir_measures' ``1 - Judged@depth``; ``None`` without any.
    """

    depth: int
    hits: int
    unjudged: int
    share: float | None


def count_unjudged(run: Run, qrels: Qrels, queries: Iterable[str], depth: int) -> UnjudgedHits:
    """Count unjudged hits among the first ``depth``; a query without hits is ignored."""
    hits = unjudged = 0
    shares = []
    for query in queries:
        ranking = run.rankings.get(query, ())[:depth]
        if ranking:
            judged = qrels.get(query, {})
            missing = sum(document not in judged for document in ranking)
            hits += len(ranking)
            unjudged += missing
            shares.append(missing / len(ranking))
    return UnjudgedHits(depth, hits, unjudged, sum(shares) / len(shares) if shares else None)


def unjudged_share_notes(dataset: str, depth: int, systems: Mapping[str, set[float]]) -> Iterator[str]:
    """Yield a note on the shares of unjudged hits of systems on one dataset, unless all hits are judged."""
    if not any(max(shares) > 0 for shares in systems.values()):
        return
    ordered = sorted(systems, key=lambda name: (-max(systems[name]), name))
    listed = [f"{name} {_percentages(systems[name])}" for name in ordered]
    if len(listed) > _MOST_NAMED:
        listed = [*listed[:2], f"... {listed[-1]} ({len(listed)} systems)"]
    hits = "first hits" if depth == 1 else f"first {depth} hits"
    yield (
        f"Unjudged among the {hits} on {dataset}: {', '.join(listed)}. They count as not relevant, so a "
        "system whose hits were never pooled looks worse than it is (`harness pool` lists them)."
    )


def _percentages(shares: set[float]) -> str:
    ends = dict.fromkeys(f"{share:.0%}" if share >= 0.095 or not share else f"{share:.1%}" for share in sorted(shares))
    return "–".join(dict.fromkeys((next(iter(ends)), list(ends)[-1])))


def pair_files(names: Sequence[str]) -> list[tuple[Path, Path]]:
    """Pair run files, whose names may be globs: each of A with each of B, or all with all.

    Raises:
        FileError: a name is no run file's.
        UsageError: all names name the same file.
    """
    named = [[Path(path) for path in sorted(glob.glob(name)) or [name]] for name in names]  # noqa: PTH207 # absolute too
    for number, paths in enumerate(named):
        for path in paths:
            if not is_readable(path):
                why = "is a folder" if path.is_dir() else "no such file"
                side = f" for {'AB'[number]}" if len(named) == 2 else ""
                raise FileError(f"{path}: {why}; name a run file{side}, or stored rows for A and B")
    sides = named if len(named) == 2 else [[path for paths in named for path in paths]] * 2
    pairs: dict[frozenset[Path], tuple[Path, Path]] = {}
    for one in sides[0]:
        for other in sides[1]:
            if not one.samefile(other):
                pairs.setdefault(frozenset((one.resolve(), other.resolve())), (one, other))
    if not pairs:
        what = f"{Path(names[0])} and {Path(names[-1])} are the same file"
        raise UsageError(f"{what}: there is nothing to compare; name another run")
    return list(pairs.values())

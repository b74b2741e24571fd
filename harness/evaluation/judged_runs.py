"""Runs that answer the same queries, and what they are judged by: from stored results, or from files of others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.errors import FileError, UsageError
from harness.evaluation import qrels_files, trec
from harness.evaluation.trec import Lines, Qrels, Run
from harness.evaluation.trec_parser import Progress

# MERGED harness.evaluation.judged_runs: What run files are called in tables: their names, less the ending that says what kind of
# file they are.


# Behind the last dot may stand part of a name as well: ``bm25-0.9``, ``input.bbn1`` of TREC itself.
_ENDINGS = (".run", ".trec", ".txt", ".res", ".tsv")


def names_of_files(paths: Sequence[Path]) -> tuple[str, ...]:
    """A name for each file, in their order; the whole name where two would be called the same without it.

    Raises:
        UsageError: two files have one name.
    """
    names = [_short(path.name) for path in paths]
    while clashes := {name for name, count in Counter(names).items() if count > 1}:
        whole = [path.name if name in clashes else name for name, path in zip(names, paths, strict=True)]
        if whole == names:
            path = next(path for name, path in reversed([*zip(names, paths, strict=True)]) if name in clashes)
            raise UsageError(f"{path}: two runs are called {path.name!r}; rename one")
        names = whole
    return tuple(names)


def _short(name: str) -> str:
    plain = name.removesuffix(".gz")
    ending = next((each for each in _ENDINGS if plain.lower().endswith(each)), "")
    return plain[: len(plain) - len(ending)] or name


@dataclass(frozen=True)
class Strangers:
    """Queries of a run that are not to be judged, and where in its file the first of them stands."""

    queries: tuple[str, ...]
    place: str


@dataclass(frozen=True)
class JudgedRuns:
    """What may be compared query by query.

    ``runs`` maps each system (as :mod:`harness.evaluation.judged_runs` calls it, where runs are files) to its run; ``queries`` maps
    each query's id to its text, ``""`` where nothing says it.  ``corpus_sha256`` is ``None`` where runs are files.
    ``hits_alone``: see :func:`harness.evaluation.evaluate.judges_hits_alone`; ``qrels`` then holds the hits of all systems.
    ``strangers``: what was left out of runs that are files, by system.  ``said``: sentences about the files, and what
    is otherwise than files or results have it (:mod:`harness.analysis.rejudge`).
    """

    dataset: str
    queries: Mapping[str, str]
    qrels: Qrels
    runs: Mapping[str, Run]
    hits_alone: bool = False
    corpus_sha256: str | None = None
    strangers: Mapping[str, Strangers] = field(default_factory=dict)
    said: tuple[str, ...] = ()

    @property
    def query_ids(self) -> tuple[str, ...]:
        """The queries' ids, in their order."""
        return tuple(self.queries)


def of_files(
    qrels: Path,
    runs: Sequence[Path],
    queries: Mapping[str, str] | None = None,
    watch: Callable[[Path], Progress | None] = lambda _: None,
) -> JudgedRuns:
    """Runs that others made, ordered as trec_eval orders them: by score.

    What is judged are the queries of ``queries``, else those of the judgements; others in a run are ``strangers``.

    Args:
        qrels: file of judgements.
        runs: run files.
        queries: text by id.
        watch: says who is told of each file's reading.

    Raises:
        FileError: a file is missing or damaged, or there is nothing in it.
        UsageError: two runs have one name.
    """
    names_of_files(runs)  # before what may take long is read
    judgements = qrels_files.read(qrels, watch(qrels))
    asked = dict.fromkeys(judgements.qrels, "") if queries is None else queries
    found = not_judged(qrels.name, runs, asked, watch)
    return replace(found, qrels=judgements.qrels, said=(*judgements.remarks, *found.said))


def not_judged(
    dataset: str,
    runs: Sequence[Path],
    queries: Mapping[str, str],
    watch: Callable[[Path], Progress | None] = lambda _: None,
) -> JudgedRuns:
    """The same of runs of which nobody has judged anything yet; what their queries are must be said.

    Raises:
        FileError: a file is missing or damaged, or there is nothing in it.
        UsageError: two runs have one name.
    """
    names = names_of_files(runs)
    named: dict[str, Run] = {}
    strangers: dict[str, Strangers] = {}
    said = []
    for name, path in zip(names, runs, strict=True):
        run = trec.read_scored_run(path, watch(path))
        if not run.rankings:
            raise FileError(
                f"{path}: holds no results; make it again, or leave it out: a system that finds nothing is worth 0"
            )
        if run.longer is not None:
            said.append(_longer(path, run.longer))
        others = tuple(query for query in run.rankings if query not in queries)
        if others:
            strangers[name] = Strangers(others, f"{path}:{run.lines[others[0]]}")
            run = replace(run, rankings={query: run.rankings[query] for query in run.rankings if query in queries})
        named[name] = run
    return JudgedRuns(dataset, queries, {}, named, strangers=strangers, said=tuple(said))


def _longer(path: Path, lines: Lines) -> str:
    many = f"{lines.count:,} lines have more than six fields, the first is {path}:{lines.first}"
    what = f"1 line has more than six fields, {path}:{lines.first}" if lines.count == 1 else many
    return f"{what}: what stands behind the score is taken for the run's tag, as trec_eval does"


def read_queries(path: Path) -> dict[str, str]:
    """Queries by id, in the file's order: JSON lines with ``_id`` and ``text``, or lines ``id<TAB>text``.

    Raises:
        FileError: the file is missing or empty, a line is malformed, or an id stands twice; names file and line.
    """
    found: dict[str, str] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="\n") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                name, text = _query(path, number, line.rstrip("\r\n"))
                if name in found:
                    raise FileError(f"{path}:{number}: query {name!r} stands twice; remove one line")
                found[name] = text
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}; name a file of queries") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: not UTF-8: {error}; mend it") from error
    if not found:
        raise FileError(f"{path}: no query in it; name a file with lines 'id<TAB>text' or JSON lines")
    return found


def _query(path: Path, number: int, line: str) -> tuple[str, str]:
    if line.startswith("{"):
        try:
            fields = json.loads(line)
            return str(fields["_id"]), str(fields["text"])
        except (ValueError, KeyError, RecursionError) as error:
            raise FileError(f"{path}:{number}: no JSON with '_id' and 'text' ({error}); mend the line") from error
    name, tab, text = line.partition("\t")
    if not tab or not name:
        raise FileError(f"{path}:{number}: neither JSON nor 'id<TAB>text'; mend the line")
    return name, text

"""Runs that answer the same queries, and what they are judged by: from stored results, or from files of others."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness import attempts, evaluate, plan, stored_jobs, trec_files
from harness.errors import FileError, UsageError
from harness.records import Outcome
from harness.stored_jobs import StoredJob
from harness.trec_files import Qrels, Run
from harness.trec_lines import Progress


@dataclass(frozen=True)
class Strangers:
    """Queries of a run that are not to be judged, and where in its file the first of them stands."""

    queries: tuple[str, ...]
    place: str


@dataclass(frozen=True)
class JudgedRuns:
    """What may be compared query by query.

    ``runs`` maps each system (a file's name without its ending, where runs are files) to its run; ``queries`` maps
    each query's id to its text, ``""`` where nothing says it.  ``corpus_sha256`` is ``None`` where runs are files.
    ``hits_alone``: see :func:`harness.evaluate.of_hits_alone`; ``qrels`` then holds the hits of all systems.
    ``strangers``: what was left out of runs that are files, by system.  ``said``: what is otherwise than files or
    results have it (:mod:`harness.rejudged`).
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
        runs: run files, each named by its name without the last ending.
        queries: text by id.
        watch: says who is told of each file's reading.

    Raises:
        FileError: a file is missing or damaged.
        UsageError: two runs have one name.
    """
    judgements = trec_files.read_qrels(qrels, watch(qrels))
    asked = queries or dict.fromkeys(judgements, "")
    named: dict[str, Run] = {}
    strangers: dict[str, Strangers] = {}
    for path in runs:
        name = path.name.removesuffix(".gz").rpartition(".")[0] or path.name
        if name in named:
            raise UsageError(f"{path}: two runs are called {name!r}; rename one")
        run = trec_files.read_scored_run(path, watch(path))
        others = tuple(query for query in run.rankings if query not in asked)
        if others:
            strangers[name] = Strangers(others, f"{path}:{run.lines[others[0]]}")
            run = replace(run, rankings={query: run.rankings[query] for query in run.rankings if query in asked})
        named[name] = run
    return JudgedRuns(qrels.name, asked, judgements, named, strangers=strangers)


def of_results(folder: Path, only: str | None = None) -> tuple[JudgedRuns, ...]:
    """The runs of stored jobs that ended well, one for each system: for each dataset, sample and collection.

    A system whose profiles gave different rankings has an entry for each, called ``system/profile``; with the suite in
    front where the profile does not tell them apart.

    Args:
        folder: of results.
        only: a glob over ``system/dataset/scenario/profile``, or without a slash over any one of them.

    Raises:
        FileError: a stored file is missing or damaged.
        UsageError: there is no such run.
    """
    grouped: dict[tuple[str, ...], dict[str, dict[str, StoredJob]]] = defaultdict(lambda: defaultdict(dict))
    for place, tries in attempts.by_place(stored_jobs.read_jobs(folder)).items():
        if place.cell.system == plan.NULL or (only is not None and not plan.matches(place.cell, only)):
            continue
        shown, _ = attempts.choose(tries)
        job = shown[0]
        if job.result.outcome is not Outcome.OK or job.run_path is None:
            continue
        spec = job.result.spec
        key = (spec.cell.dataset, spec.sample_sha256, spec.corpus_sha256, spec.qrels_sha256, str(spec.k))
        content = job.result.files.get(stored_jobs.RUN, job.result.key)
        grouped[tuple(map(str, key))][spec.cell.system].setdefault(content, job)
    if not grouped:
        raise UsageError(
            f"{folder}: no finished run in it{f' that matches {only!r}' if only else ''}; run a suite first"
        )
    return tuple(_stored(systems) for _, systems in sorted(grouped.items()))


def _stored(systems: Mapping[str, Mapping[str, StoredJob]]) -> JudgedRuns:
    jobs: dict[str, StoredJob] = {}
    runs: dict[str, Run] = {}
    for system, found in sorted(systems.items()):
        # Of one system's profiles many differ in the last digits of scores, and in nothing else.
        distinct: dict[tuple[tuple[str, tuple[str, ...]], ...], tuple[StoredJob, Run]] = {}
        for job in found.values():
            run = evaluate.run_of_job(job.folder / stored_jobs.RUN)
            distinct.setdefault(tuple(sorted(run.rankings.items())), (job, run))
        profiles = {job.result.spec.cell.profile for job, _ in distinct.values()}
        for job, run in distinct.values():
            cell = job.result.spec.cell
            name = system if len(distinct) == 1 else f"{system}/{cell.profile}"
            name = name if len(profiles) == len(distinct) else f"{cell.suite}/{name}"
            jobs[name], runs[name] = job, run
    first = next(iter(jobs.values()))
    path = first.qrels_path()
    hits_alone = evaluate.of_hits_alone(path)
    qrels: Qrels = {}
    for each in jobs.values() if hits_alone else (first,):
        for query, judged in trec_files.read_qrels(each.qrels_path()).items():
            qrels.setdefault(query, {}).update(judged)
    spec = first.result.spec
    return JudgedRuns(spec.cell.dataset, first.sample_texts(), qrels, runs, hits_alone, spec.corpus_sha256)


def read_queries(path: Path) -> dict[str, str]:
    """Queries by id, in the file's order: JSON lines with ``_id`` and ``text``, or lines ``id<TAB>text``.

    Raises:
        FileError: the file is missing, a line is malformed, or an id stands twice; names file and line.
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

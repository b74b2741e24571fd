"""Runs that answer the same queries, and what they are judged by: from stored results, or from files of others."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness import attempts, evaluate, given_judgements, plan, run_names, stored_jobs, trec_files
from harness.errors import FileError, UsageError
from harness.records import Outcome
from harness.stored_jobs import StoredJob
from harness.trec_files import Lines, Qrels, Run
from harness.trec_lines import Progress


@dataclass(frozen=True)
class Strangers:
    """Queries of a run that are not to be judged, and where in its file the first of them stands."""

    queries: tuple[str, ...]
    place: str


@dataclass(frozen=True)
class JudgedRuns:
    """What may be compared query by query.

    ``runs`` maps each system (as :mod:`harness.run_names` calls it, where runs are files) to its run; ``queries`` maps
    each query's id to its text, ``""`` where nothing says it.  ``corpus_sha256`` is ``None`` where runs are files.
    ``hits_alone``: see :func:`harness.evaluate.of_hits_alone`; ``qrels`` then holds the hits of all systems.
    ``strangers``: what was left out of runs that are files, by system.  ``said``: sentences about the files, and what
    is otherwise than files or results have it (:mod:`harness.rejudged`).
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
    run_names.of_files(runs)  # before what may take long is read
    judgements = given_judgements.read(qrels, watch(qrels))
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
    names = run_names.of_files(runs)
    named: dict[str, Run] = {}
    strangers: dict[str, Strangers] = {}
    said = []
    for name, path in zip(names, runs, strict=True):
        run = trec_files.read_scored_run(path, watch(path))
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
            run = evaluate.run_of_job(job)
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
        for query, judged in trec_files.read_stored_qrels(each.qrels_path()).items():
            qrels.setdefault(query, {}).update(judged)
    spec, queries = first.result.spec, first.sample_texts()
    grades = (grade for query in queries for grade in qrels.get(query, {}).values())
    said = () if hits_alone else tuple(given_judgements.of_grades(grades))
    return JudgedRuns(spec.cell.dataset, queries, qrels, runs, hits_alone, spec.corpus_sha256, said=said)


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

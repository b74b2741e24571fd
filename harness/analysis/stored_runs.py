"""Runs of stored jobs, with the qrels they are scored by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from harness.errors import UsageError
from harness.evaluation import trec
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.trec import Qrels, Run
from harness.records import Outcome
from harness.results import attempts, reader
from harness.results.reader import StoredJob, judges_hits_alone, read_job_run
from harness.results.schema import NULL_SYSTEM, matches


def read_stored_runs(folder: Path, only: str | None = None) -> tuple[JudgedRuns, ...]:
    """Return the runs of jobs that ended well, one for each system: by dataset, sample and collection.

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
    for place, tries in attempts.jobs_by_cell(reader.read_jobs(folder)).items():
        if place.cell.system == NULL_SYSTEM or (only is not None and not matches(place.cell, only)):
            continue
        shown, _ = attempts.choose(tries)
        job = shown[0]
        if job.result.outcome is not Outcome.OK or job.run_path is None:
            continue
        spec = job.result.spec
        key = (spec.cell.dataset, spec.sample_sha256, spec.corpus_sha256, spec.qrels_sha256, str(spec.k))
        content = job.result.files.get(reader.RUN, job.result.key)
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
            run = read_job_run(job)
            distinct.setdefault(tuple(sorted(run.rankings.items())), (job, run))
        profiles = {job.result.spec.cell.profile for job, _ in distinct.values()}
        for job, run in distinct.values():
            cell = job.result.spec.cell
            name = system if len(distinct) == 1 else f"{system}/{cell.profile}"
            name = name if len(profiles) == len(distinct) else f"{cell.suite}/{name}"
            jobs[name], runs[name] = job, run
    first = next(iter(jobs.values()))
    path = first.qrels_path()
    hits_alone = judges_hits_alone(path)
    qrels: Qrels = {}
    for each in jobs.values() if hits_alone else (first,):
        for query, judged in trec.read_stored_qrels(each.qrels_path()).items():
            qrels.setdefault(query, {}).update(judged)
    spec, queries = first.result.spec, first.sample_texts()
    grades = (grade for query in queries for grade in qrels.get(query, {}).values())
    said = () if hits_alone else tuple(trec.negative_grade_notes(grades))
    return JudgedRuns(spec.cell.dataset, queries, qrels, runs, hits_alone, spec.corpus_sha256, notes=said)

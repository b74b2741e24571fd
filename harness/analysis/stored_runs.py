"""Runs of stored jobs, with the qrels they are scored by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from harness.driver.records import Outcome
from harness.errors import FileError, UsageError, quoted_name
from harness.evaluation import trec
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.trec import Qrels, Run
from harness.results import attempts, reader
from harness.results.reader import StoredJob, judges_hits_alone, read_job_run
from harness.results.schema import NULL_SYSTEMS, matches, unmatched


def read_stored_runs(folder: Path, only: str | None = None) -> tuple[JudgedRuns, ...]:
    """Return the runs of jobs that ended well, one per system, by dataset, sample and collection.

    A system whose profiles ranked differently has an entry for each, named ``system/profile``, or
    ``suite/system/profile`` if needed to tell them apart.

    Args:
        folder: of results.
        only: globs over ``system/dataset/scenario/profile``, or without a slash over any one of them.

    A damaged file affects only the runs that need it, and the notes name it.

    Raises:
        FileError: ``folder`` is not a folder.
        UsageError: no finished run matches.
    """
    none = f"{folder}: no finished run in it{f' that matches {only!r}' if only else ''}; run a suite first"
    stored = reader.read_jobs(folder, none)
    unreadable = list(stored.unreadable)
    if only is not None and (wrong := unmatched([job.result.spec.cell for job in stored], only)) is not None:
        raise UsageError(
            f"--only {quoted_name(wrong)} matches nothing in {folder}; `harness explain` lists the results"
        )
    grouped: dict[tuple[str, ...], dict[str, dict[str, StoredJob]]] = defaultdict(lambda: defaultdict(dict))
    for place, tries in attempts.jobs_by_cell(stored).items():
        if place.cell.system in NULL_SYSTEMS or (only is not None and not matches(place.cell, only)):
            continue
        shown, _ = attempts.choose(tries)
        job = shown[0]
        if job.result.outcome is not Outcome.OK or job.run_path is None:
            continue
        spec = job.result.spec
        key = (spec.cell.dataset, spec.sample_sha256, spec.corpus_sha256, spec.qrels_sha256, str(spec.k))
        content = job.result.files.get(reader.RUN, job.result.key)
        grouped[tuple(map(str, key))][spec.cell.system].setdefault(content, job)
    judged: list[JudgedRuns] = []
    for _, systems in sorted(grouped.items()):
        with _naming(unreadable):
            judged += _stored(systems, unreadable)
    if not judged:
        raise UsageError(reader.first_fault(unreadable) or none)
    notes = tuple(map(reader.left_out, unreadable))
    reader.announce(notes)
    return tuple(replace(each, notes=(*notes, *each.notes)) for each in judged)


@contextmanager
def _naming(unreadable: list[FileError]) -> Iterator[None]:
    """Collect the error about a damaged file, so that the other runs are read."""
    try:
        yield
    except FileError as error:
        unreadable.append(error)


def _stored(systems: Mapping[str, Mapping[str, StoredJob]], unreadable: list[FileError]) -> Iterator[JudgedRuns]:
    """Yield the runs of one query sample; raise FileError if its judgements cannot be read."""
    jobs: dict[str, StoredJob] = {}
    runs: dict[str, Run] = {}
    hits: Qrels = {}
    for system, found in sorted(systems.items()):
        # Profiles of one system often differ only in the last digits of scores.
        distinct: dict[tuple[tuple[str, tuple[str, ...]], ...], tuple[StoredJob, Run, Qrels]] = {}
        for job in found.values():
            with _naming(unreadable):
                run, path = read_job_run(job), job.qrels_path()
                own = trec.read_stored_qrels(path) if judges_hits_alone(path) else {}
                distinct.setdefault(tuple(sorted(run.rankings.items())), (job, run, own))
        profiles = {job.result.spec.cell.profile for job, _, _ in distinct.values()}
        for job, run, own in distinct.values():
            for query, judged in own.items():
                hits.setdefault(query, {}).update(judged)
            cell = job.result.spec.cell
            name = system if len(distinct) == 1 else f"{system}/{cell.profile}"
            name = name if len(profiles) == len(distinct) else f"{cell.suite}/{name}"
            jobs[name], runs[name] = job, run
    if not jobs:
        return
    first = next(iter(jobs.values()))
    hits_alone = judges_hits_alone(first.qrels_path())
    qrels = hits if hits_alone else trec.read_stored_qrels(first.qrels_path())
    spec, queries = first.result.spec, first.sample_texts()
    said = () if hits_alone else tuple(trec.negative_grade_notes(qrels, queries))
    yield JudgedRuns(spec.cell.dataset, queries, qrels, runs, hits_alone, spec.corpus_sha256, notes=said)

"""Choose the attempt to show for each job number of a cell, and write notes on the others.

A cell takes ``spec.jobs`` container lives, each perhaps tried several times.  Attempts at the same job are never
pooled.  Attempts whose specs differ in more than job number and repetition measured different things, so all shown
attempts have one spec.  A measurement that was repeated in part is not mixed with the earlier, whole one.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import NamedTuple

from harness.driver.records import Outcome, digest
from harness.results.reader import StoredJob
from harness.results.schema import Cell, Result, ResultSpec

# The words for fields of the spec in which attempts may differ; other fields have their own names.
_WORDS = {
    "recipe": "image",
    "corpus_sha256": "corpus",
    "index_key": "index",
    "params": "parameters",
    "qrels_sha256": "judgements",
    "scenario_params": "scenario",
    "warmup_sha256": "warm-up queries",
    "k": "hits asked for",
    **dict.fromkeys(("sample_sha256", "sample_size"), "query sample"),
    **dict.fromkeys(("trials", "jobs", "repeats", "warmup_queries", "warmup_cap"), "protocol"),
}


class CellKey(NamedTuple):
    """The key that all jobs of a row share."""

    cell: Cell
    isolation: str
    origin: str | None


def jobs_by_cell(jobs: Iterable[StoredJob]) -> dict[CellKey, list[StoredJob]]:
    """Group jobs that may be attempts at the same cell; keep their order."""
    cells: dict[CellKey, list[StoredJob]] = defaultdict(list)
    for job in jobs:
        cells[CellKey(job.result.spec.cell, job.result.spec.isolation, job.origin)].append(job)
    return cells


def whole_measurement(results: Iterable[Result], jobs: int) -> tuple[dict[int, Result], dict[int, Result]]:
    """Return the attempts of a cell's newest whole measurement, and of a newer one that is not whole, by job number.

    A run measures each job of a cell once, so a job that comes again begins a new measurement.  If none is whole, the
    newest of the largest is returned.

    Args:
        results: attempts of one spec that ended alike, in any order.
        jobs: the number of jobs of the cell.
    """
    measurements: list[dict[int, Result]] = [{}]
    last: dict[int, Result] = {}
    clocks_agree = True
    for result in sorted(results, key=_age):
        number = result.spec.job
        if number in measurements[-1]:
            measurements.append({})
        measurements[-1][number] = result
        if number in last and last[number].spec.repetition > result.spec.repetition:
            clocks_agree = False
        else:
            last[number] = result
    if not clocks_agree:  # then no time tells which jobs belong together
        return last, {}
    place = max(range(len(measurements)), key=lambda number: (len(measurements[number]), number))
    whole, newest = measurements[place], measurements[-1]
    return whole, newest if len(whole) >= jobs and newest is not whole else {}


def choose(
    attempts: Iterable[StoredJob], keys: Collection[str] | None = None
) -> tuple[tuple[StoredJob, ...], tuple[str, ...]]:
    """Return the attempt to show for each stored job number, ascending, and notes on all others.

    The attempt that started last decides the spec, so that a changed image or protocol never shows older results.
    Within that spec the attempts of the newest whole measurement are shown.  A job number without such an attempt
    shows its highest repetition that ended ``ok``, else the highest.  An attempt named in ``keys`` comes first.

    Args:
        attempts: stored jobs of one cell and isolation, at least one, in any order.
        keys: requested job keys, such as the keys of a plan.
    """
    ordered = sorted(attempts, key=lambda job: _age(job.result))
    requested = [job for job in ordered if keys is not None and job.result.key in keys]
    identity = _identity((requested or ordered)[-1])
    by_number: dict[int, list[StoredJob]] = defaultdict(list)
    for job in ordered:
        if _identity(job) == identity:
            by_number[job.result.spec.job].append(job)
    shown, repeated = [], []
    whole, again = _whole([job for same in by_number.values() for job in same])
    notes = list(_again_notes(len(again), ordered[-1].result.spec))
    for _, same in sorted(by_number.items()):
        same.sort(key=lambda job: job.result.spec.repetition)  # clocks may go back
        finished = [job for job in same if job.result.outcome is Outcome.OK]
        measured = [job for job in finished if job.result.key in whole]
        chosen = ([job for job in same if job in requested] or measured or finished or same)[-1]
        shown.append(chosen)
        notes += _hidden_notes(chosen, same)
        if chosen in finished and len(finished) > 1:
            repeated.append((len(finished), chosen is finished[-1]))
    return tuple(shown), (*notes, *_repeated_notes(repeated, shown[0].result.spec), *_other_notes(shown[0], ordered))


def are_default(jobs: Iterable[StoredJob], keys: Collection[str]) -> bool:
    """Return whether these ``keys`` show the jobs that are shown without keys."""
    return all(choose(tries, keys) == choose(tries) for tries in jobs_by_cell(jobs).values())


def measured_again(shown: Iterable[StoredJob], attempts: Iterable[StoredJob]) -> int:
    """Return how many jobs of a cell a newer, unfinished measurement has stored; 0 without one."""
    identities = {_identity(job) for job in shown}
    return len(_whole([job for job in attempts if _identity(job) in identities])[1])


def _whole(jobs: Sequence[StoredJob]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the keys of the newest whole measurement, and of a newer one that is not whole."""
    results = [job.result for job in jobs if job.result.outcome is Outcome.OK]
    whole, again = whole_measurement(results, jobs[0].result.spec.jobs) if jobs else ({}, {})
    return frozenset(result.key for result in whole.values()), frozenset(result.key for result in again.values())


def started(job: StoredJob) -> datetime.datetime:
    """Return the time when a job started."""
    return _age(job.result)[0]


def unit(spec: ResultSpec) -> str:
    """Return the word for a job of a cell: a trial, if each job has one."""
    return "trial" if spec.trials == 1 else "job"


def _identity(job: StoredJob) -> str:
    return digest(replace(job.result.spec, repetition=0, job=0))


def _age(result: Result) -> tuple[datetime.datetime, int, str]:
    """Return a key that sorts attempts by age; repetition and key decide between equal times."""
    time = datetime.datetime.fromisoformat(result.started_at)
    return time if time.tzinfo else time.replace(tzinfo=datetime.UTC), result.spec.repetition, result.key


def _again_notes(count: int, spec: ResultSpec) -> Iterator[str]:
    """Yield a note on a newer measurement that is not whole."""
    if count:
        were = "was" if count == 1 else "were"
        yield (
            f"{count} of {spec.jobs} {unit(spec)}s {were} measured again, the others not yet: the last whole"
            " measurement is shown"
        )


def _hidden_notes(shown: StoredJob, same: Sequence[StoredJob]) -> Iterator[str]:
    """Yield notes on other attempts with the same spec: newer attempts, and good attempts before a failure."""
    spec, outcome = shown.result.spec, shown.result.outcome
    prefix = f"{unit(spec)} {spec.job + 1} of {spec.jobs}: " if spec.jobs > 1 else ""
    index = next(index for index, job in enumerate(same) if job is shown)
    for newer in (job.result for job in same[index + 1 :]):
        if newer.outcome is not outcome:
            ended = f"{newer.outcome.value} on {newer.started_at}{f' ({newer.detail})' if newer.detail else ''}"
            yield f"{prefix}newer attempt ended {ended}; the last {outcome.value} is shown"
    earlier = [job.result for job in same[:index] if job.result.outcome is Outcome.OK]
    if earlier and outcome is not Outcome.OK:
        yield f"{prefix}earlier attempt ended ok on {earlier[-1].started_at}; the newer {outcome.value} is shown"


def _repeated_notes(repeated: Sequence[tuple[int, bool]], spec: ResultSpec) -> Iterator[str]:
    """Yield a note on job numbers with several good attempts: their count, and whether the newest is shown."""
    if not repeated:
        return
    results = sum(count for count, _ in repeated)
    which = "the newest" if all(newest for _, newest in repeated) else "one"
    if spec.jobs == 1:
        yield f"{which} of {results} ok results of this cell; not pooled"
    else:
        yield f"{results} ok results for {len(repeated)} of {spec.jobs} trials: {which} of each is shown"


def _other_notes(shown: StoredJob, ordered: Sequence[StoredJob]) -> Iterator[str]:
    """Yield a note on attempts whose specs differ in more than job number and repetition."""
    differences = [names for job in ordered if (names := _differences(shown.result.spec, job.result.spec))]
    if differences:
        listed, count = ", ".join(sorted(set().union(*differences))), len(differences)
        results = "1 result of another spec" if count == 1 else f"{count} results of other specs"
        yield f"{results} ({listed}) {'is' if count == 1 else 'are'} stored beside; not pooled"


def _differences(one: ResultSpec, other: ResultSpec) -> set[str]:
    return {
        _WORDS.get(item.name, item.name.replace("_", " "))
        for item in fields(one)
        if item.name not in ("repetition", "job") and getattr(one, item.name) != getattr(other, item.name)
    }

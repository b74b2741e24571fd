"""Check a job's samples and run by its spec and record; compare nested values figure by figure."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.driver.output import REPEAT_TRIAL, WARMUP_TRIAL
from harness.driver.rate_search import judged_ns, latency_and_late
from harness.driver.records import MAX_PROBES, Outcome
from harness.driver.update_plan import TRIALS
from harness.errors import counted
from harness.evaluation import answer_recall, trec
from harness.evaluation.answer_recall import MAX_TOKENS, AnswerDepths
from harness.evaluation.trec import Qrels, Run
from harness.results import reader
from harness.results.reader import StoredJob, judges_hits_alone, most_first_stage_hits, most_hits
from harness.results.samples import query_ids
from harness.results.schema import ANSWER_DEPTHS, CLOCK_SLACK_S, JUDGED_HITS, has_probes

# On another processor sums may differ in their last digits.
_CLOSE = 1e-9
_MAX_CHARACTERS = 120
# Runs in memory: a cell's jobs follow each other, and most rank alike.
_MAX_RUNS = 16
# Marks a key that a record lacks, in contrast to a missing value.
_ABSENT = object()


@dataclass(frozen=True)
class Mismatch:
    """A stored value and the value that follows from other files; within a job, places are relative to it."""

    place: str
    stored: str
    follows: str

    def __str__(self) -> str:
        return f"{self.place}: stored: {self.stored}; follows: {self.follows}"


def differences(place: str, stored: Any, follows: Any, *, reason: str = "") -> Iterator[Mismatch]:
    """Find differing figures in two nested values; floats may differ in their last digits.

    Args:
        place: the place of both.
        stored: dicts, lists and plain values.
        follows: the recomputed value.
        reason: text after the value that follows.
    """
    if isinstance(stored, dict) and isinstance(follows, dict):
        for name in dict.fromkeys((*stored, *follows)):
            values = stored.get(name, _ABSENT), follows.get(name, _ABSENT)
            yield from differences(f"{place}: {name}", *values, reason=reason)
    elif isinstance(stored, list | tuple) and isinstance(follows, list | tuple):
        if len(stored) != len(follows):
            yield Mismatch(place, f"{len(stored)} of them", f"{len(follows)}{reason}")
        for number, (one, other) in enumerate(zip(stored, follows, strict=False), start=1):
            yield from differences(f"{place} {number}", one, other, reason=reason)
    elif not _same(stored, follows):
        yield Mismatch(place, as_text(stored), f"{as_text(follows)}{reason}")


def as_text(value: Any) -> str:
    """Return a value as one short line."""
    text = "missing" if value is None else "not there" if value is _ABSENT else str(getattr(value, "value", value))
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}..."


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=_CLOSE) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


def below(root: Path, path: Path) -> str:
    """Return a path relative to the folder that the user named, or the whole path."""
    top = root.absolute()
    return str(path.absolute().relative_to(top)) if path.absolute().is_relative_to(top) else str(path)


@dataclass
class Runs:
    """Checks runs; equal runs, and judgements, are read once."""

    _runs: dict[str, Run] = field(default_factory=dict)
    _qrels: Callable[[Path], Qrels] = field(default_factory=lambda: functools.cache(trec.read_stored_qrels))

    def check(self, job: StoredJob) -> Iterator[Mismatch]:
        """Check that a run ranks only the sample's queries, with at most k hits, and can be judged.

        Its checksum is verified before, so it identifies the run's content.

        Raises:
            FileError: the run, its judgements or the query sample cannot be read.
        """
        if job.run_path is None:
            if job.result.outcome is Outcome.OK:
                yield Mismatch(reader.RUN, "no run", "the run of its first trial: the job ended ok")
            return
        if not job.run_path.lstat().st_size:
            yield Mismatch(reader.RUN, "an empty file", "a run, compressed: even one without hits has a head")
            return
        run = self._run(job.run_path, job)
        yield from _check_rankings(reader.RUN, job, run, job.result.spec.k)
        yield from self._check_judgements(job, run)

    def check_first_stage(self, job: StoredJob) -> Iterator[Mismatch]:
        """Check that a first stage ranks only the sample's queries, to the depth asked for, and all hits of the run.

        Raises:
            FileError: a run or the query sample cannot be read.
        """
        path, spec = job.file(reader.FIRST_STAGE), job.result.spec
        if path is None:
            return
        first, depth = trec.read_run(path, most_first_stage_hits(spec)), spec.params.get("depth")
        yield from _check_rankings(reader.FIRST_STAGE, job, first, max(spec.k, depth) if type(depth) is int else spec.k)
        ranked = self._run(job.run_path, job).rankings if job.run_path else {}
        for query, ranking in ranked.items():
            if new := sorted(set(ranking).difference(first.rankings.get(query, ()))):
                follows = f"document {new[0]!r} of query {query!r}, which {reader.RUN} ranks"
                yield Mismatch(reader.FIRST_STAGE, "not there", follows)
                return

    def check_updated(self, job: StoredJob) -> Iterator[Mismatch]:
        """Check that the run after updates ranks only the sample's queries, with at most k hits.

        Raises:
            FileError: the run or the query sample cannot be read.
        """
        path = job.file(reader.UPDATED_RUN)
        if path is None:
            if is_mixed(job) and job.result.outcome is Outcome.OK:
                yield Mismatch(reader.UPDATED_RUN, "no run", "the run after the updates: the job ended ok")
            return
        run = trec.read_run(path, most_hits(job.result.spec))
        yield from _check_rankings(reader.UPDATED_RUN, job, run, job.result.spec.k)

    def _check_judgements(self, job: StoredJob, run: Run) -> Iterator[Mismatch]:
        path = job.qrels_path()
        if not judges_hits_alone(path):
            self._qrels(path)
            return
        qrels = trec.read_stored_qrels(path)
        hits = {(query, document) for query, ranking in run.rankings.items() for document in ranking}
        judged = {(query, document) for query, documents in qrels.items() for document in documents}
        if hits != judged:
            follows = f"judgements of the {len(hits)} hits of its run"
            yield Mismatch(JUDGED_HITS, f"judgements of {counted(len(judged), 'hit')}", follows)
        if depths := job.file(ANSWER_DEPTHS):
            yield from _check_depths(answer_recall.read_depths(depths), run, qrels)

    def _run(self, path: Path, job: StoredJob) -> Run:
        sha256, most = job.result.files.get(reader.RUN), most_hits(job.result.spec)
        if sha256 is None:
            return trec.read_run(path, most)
        if sha256 not in self._runs:
            if len(self._runs) == _MAX_RUNS:
                self._runs.pop(next(iter(self._runs)))
            self._runs[sha256] = trec.read_run(path, most)
        return self._runs[sha256]


def _check_rankings(name: str, job: StoredJob, run: Run, most: int) -> Iterator[Mismatch]:
    """Find rankings of queries outside the sample, and rankings with too many hits."""
    if strangers := sorted(run.rankings.keys() - set(job.sample_ids())):
        yield Mismatch(name, f"{len(strangers)} queries such as {strangers[0]!r}", "queries of its sample alone")
    if long := {query: len(hits) for query, hits in run.rankings.items() if len(hits) > most}:
        query, count = next(iter(long.items()))
        stored = f"{count} hits for query {query!r}, too many for {counted(len(long), 'query')}"
        yield Mismatch(name, stored, f"at most {most}")


def _check_depths(depths: AnswerDepths, run: Run, qrels: Qrels) -> Iterator[Mismatch]:
    """Compare the stored answer depths with the run and its judgements."""
    with_hits = {query for query, depth in depths.items() if depth.tokens or not depth.language}
    if not with_hits <= run.rankings.keys() <= depths.keys():
        follows = f"depths of the {len(run.rankings)} queries of its run"
        yield Mismatch(ANSWER_DEPTHS, f"depths of {counted(len(depths), 'query')}", follows)
    # Searches stop at the last token, so an answer beyond it is not found.
    lost = [
        query
        for query, depth in depths.items()
        if depth.found is None and depth.tokens < MAX_TOKENS and any(qrels.get(query, {}).values())
    ]
    if lost:
        yield Mismatch(ANSWER_DEPTHS, f"no answer for query {lost[0]!r}", f"the depth of the answer in {JUDGED_HITS}")


# The columns of samples by name, without the ids of queries.
_Columns = dict[str, list[Any]]


def check(job: StoredJob) -> Iterator[Mismatch]:
    """Check that the samples match the spec, and that the record counts them correctly.

    Raises:
        FileError: the query sample cannot be read.
        OSError, ValueError, KeyError, TypeError: from pyarrow, if the file is damaged.
    """
    table, spec, ok = job.samples(), job.result.spec, job.result.outcome is Outcome.OK
    if ok and not table.num_rows:
        yield Mismatch(
            reader.SAMPLES, "no samples", f"samples of {counted(spec.sample_size, 'query')}: the job ended ok"
        )
        return
    sample = job.sample_ids()
    follows = ", as many as its query sample has"
    yield from differences(f"{reader.RESULT}: spec.sample_size", spec.sample_size, len(sample), reason=follows)
    columns = {name: table.column(name).to_pylist() for name in table.column_names if name != "query_id"}
    trials = columns["trial"]
    yield from _check_figures(columns)
    yield from _check_trials(job, trials)
    if ok:
        counts = Counter(zip(trials, query_ids(table), strict=True))
        timed = tuple(query for query in sample if (WARMUP_TRIAL, query) not in counts)
        warm = len(sample) - len(timed)
        follows = ", as many queries of the sample as warmed up"
        yield from differences(f"{reader.RESULT}: spec.held_out", spec.held_out, warm, reason=follows)
        yield from _check_whole(job, counts, timed)
    yield from _check_counts(job, trials, columns["latency_ns"])
    if ok:
        yield from (_check_probes if has_probes(job.result) else _check_wall_time)(job, columns)


def _column(columns: _Columns, name: str) -> list[Any]:
    """Return a column that samples may lack."""
    return columns.get(name) or [None] * len(columns["trial"])


def is_mixed(job: StoredJob) -> bool:
    """Return whether the index changes while a job's queries arrive."""
    return job.result.spec.cell.scenario == "mixed"


def _check_figures(columns: _Columns) -> Iterator[Mismatch]:
    """Find times and counts below their least values, and more real tokens than padded ones."""
    for name in (name for name in columns if name.endswith("_ns") or name.startswith("count_")):
        least = 1 if name == "latency_ns" else 0
        if wrong := [value for value in columns[name] if value is not None and value < least]:
            yield Mismatch(f"{reader.SAMPLES}: {name}", f"{len(wrong)} such as {wrong[0]}", f"at least {least}")
    pairs = zip(columns.get("count_tokens", ()), columns.get("count_padded_tokens", ()), strict=False)
    for real, padded in pairs:
        if None not in (real, padded) and real > padded:
            yield Mismatch(f"{reader.SAMPLES}: count_tokens", f"{real}", f"at most {padded}, by count_padded_tokens")
            return


def _check_trials(job: StoredJob, trials: list[int]) -> Iterator[Mismatch]:
    """Find trials that belong to other jobs."""
    numbers = _trial_numbers(job)
    wrong = sorted(set(trials) - {WARMUP_TRIAL, REPEAT_TRIAL, *numbers})
    if wrong:
        follows = f"{numbers.start} to {numbers.stop - 1}, by its spec"
        yield Mismatch(f"{reader.SAMPLES}: trial", ", ".join(map(str, wrong[:5])), follows)


def _trial_numbers(job: StoredJob) -> range:
    """Return the possible numbers of a job's trials; a rate search may end early."""
    spec, most, count = job.result.spec, job.result.spec.trials, job.result.spec.trials
    if has_probes(job.result):
        most = MAX_PROBES
        measured = job.result.measured
        count = len(measured.probes) if measured and job.result.outcome is Outcome.OK else MAX_PROBES
    return range(spec.job * most, spec.job * most + count)


def _check_whole(job: StoredJob, counts: Counter[tuple[int, str]], queries: tuple[str, ...]) -> Iterator[Mismatch]:
    """Check that each trial has every query once, and that repeated queries have two samples."""
    spec, trials = job.result.spec, _trial_numbers(job)
    expected = Counter((trial, query) for trial in trials for query in queries)
    timed = Counter({sample: count for sample, count in counts.items() if sample[0] >= 0})
    for fault, samples in (("missing", expected - timed), ("too many", timed - expected)):
        if samples:
            trial, query = min(samples)
            stored = f"{samples.total()} samples {fault}, e.g. query {query!r} of trial {trial}"
            yield Mismatch(reader.SAMPLES, stored, f"{len(queries)} queries in each of {len(trials)} trials")
    again = Counter({query: count for (trial, query), count in counts.items() if trial == REPEAT_TRIAL})
    repeated = min(spec.repeats, spec.timed_queries) if spec.cell.scenario == "single_stream" else 0
    if len(again) != repeated or set(again.values()) - {2} or set(again) - set(queries):
        stored = f"{again.total()} of {len(again)} queries"
        yield Mismatch(f"{reader.SAMPLES}: repeats", stored, f"2 of each of {repeated}")


def _check_counts(job: StoredJob, trials: list[int], latency_ns: list[Any]) -> Iterator[Mismatch]:
    """Compare the record's counts with the samples."""
    by_trial = Counter(trial for trial in trials if trial >= 0)
    follows = {
        "trials_finished": sum(count == job.result.spec.timed_queries for count in by_trial.values()),
        "warmup_done": trials.count(WARMUP_TRIAL),
        "first_query_s": latency_ns[0] / 1e9 if latency_ns else None,
    }
    stored = {name: getattr(job.result.answers, name) for name in follows}
    yield from differences(f"{reader.RESULT}: answers", stored, follows, reason=f", by {reader.SAMPLES}")


def _check_wall_time(job: StoredJob, columns: _Columns) -> Iterator[Mismatch]:
    """Compare the samples' total time with the job's, like :mod:`harness.jobs.collect`.

    Queries during updates overlap, and are left out.
    """
    rows = list(zip(columns["trial"], _column(columns, "batch"), columns["latency_ns"], strict=True))
    if is_mixed(job):
        rows = [row for row in rows if row[0] % TRIALS != 1]
    batches = {(trial, batch): ns for trial, batch, ns in rows if batch is not None}
    alone = sum(ns for _, batch, ns in rows if batch is None)
    load_s = job.result.measured.load_s if job.result.measured else None
    worked_s = (load_s or 0) + (alone + sum(batches.values())) / 1e9
    if worked_s > job.result.wall_s + CLOCK_SLACK_S:
        follows = f"at least {worked_s}, by {reader.SAMPLES}"
        yield Mismatch(f"{reader.RESULT}: wall_s", f"{job.result.wall_s}", follows)


def _check_probes(job: StoredJob, columns: _Columns) -> Iterator[Mismatch]:
    """Compare the probes of scenario ``server``, and the confirmed rate, with the samples."""
    measured, target = job.result.measured, job.result.spec.scenario_params
    if measured is None:
        return
    samples = list(zip(columns["trial"], columns["latency_ns"], _column(columns, "failed"), strict=True))
    for number, probe in enumerate(measured.probes, start=1):
        timed = [judged_ns(ns, bool(fault), target) for trial, ns, fault in samples if trial == probe.trial]
        if not timed or target.latency_percentile is None or target.latency_target_s is None:
            continue
        latency_s, late = latency_and_late(timed, target)
        stored = {"queries": probe.queries, "late": probe.late, "latency_s": probe.latency_s}
        follows = {"queries": len(timed), "late": late, "latency_s": latency_s}
        yield from differences(f"{reader.RESULT}: probe {number}", stored, follows, reason=f", by {reader.SAMPLES}")
    believed = [None, *(probe.rate_qps for probe in measured.probes if probe.check and probe.passed)][-1]
    yield from differences(
        f"{reader.RESULT}: measured.rate_qps", measured.rate_qps, believed, reason=", the rate that passed twice"
    )

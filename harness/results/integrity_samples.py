"""Check a job's samples and run against its spec and record; and compare nested values figure by figure."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.driver.output import REPEAT_TRIAL, WARMUP_TRIAL
from harness.evaluation import answer_recall, trec
from harness.evaluation.answer_recall import MAX_TOKENS
from harness.evaluation.trec import Qrels, QrelsCache, Run
from harness.records import MAX_PROBES, Outcome
from harness.results import reader
from harness.results.reader import StoredJob, judges_hits_alone, most_hits
from harness.results.schema import ANSWER_DEPTHS, JUDGED_HITS

if TYPE_CHECKING:
    import pyarrow as pa


# Sums in another order differ in their last digits on another processor.
_CLOSE = 1e-9
_LONGEST = 120


@dataclass(frozen=True)
class Mismatch:
    """A stored value and the value that follows from the other files."""

    place: str
    stored: str
    follows: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.place}: stored: {self.stored}; follows: {self.follows}"


def differences(place: str, stored: Any, follows: Any) -> Iterator[Mismatch]:
    """Find the figures in which two nested values differ; floats may differ in their last digits.

    Args:
        place: names both.
        stored: dicts, lists and plain values.
        follows: the same, made again.
    """
    if isinstance(stored, dict) and isinstance(follows, dict):
        for name in dict.fromkeys((*stored, *follows)):
            yield from differences(f"{place}: {name}", stored.get(name, _ABSENT), follows.get(name, _ABSENT))
    elif isinstance(stored, list | tuple) and isinstance(follows, list | tuple):
        if len(stored) != len(follows):
            yield Mismatch(place, f"{len(stored)} of them", f"{len(follows)}")
        for number, (one, other) in enumerate(zip(stored, follows, strict=False), start=1):
            yield from differences(f"{place} {number}", one, other)
    elif not _same(stored, follows):
        yield Mismatch(place, as_text(stored), as_text(follows))


def as_text(value: Any) -> str:
    """Return a value on one short line."""
    text = "missing" if value is None else "not there" if value is _ABSENT else str(getattr(value, "value", value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=_CLOSE) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


def below(root: Path, path: Path) -> str:
    """Return a path below the folder that the user named, or the whole path."""
    top = root.absolute()
    return str(path.absolute().relative_to(top)) if path.absolute().is_relative_to(top) else str(path)


class _Absent:
    """A key that one of two records lacks, as distinct from a missing value."""


_ABSENT = _Absent()
# Runs in memory: a cell's jobs lie beside each other, and mostly rank alike.
_MOST = 16


@dataclass
class Runs:
    """Checks one run after another; runs of the same bytes, and judgements, are read once."""

    _runs: dict[str, Run] = field(default_factory=dict)
    _qrels: QrelsCache = field(default_factory=QrelsCache)

    def check(self, job: StoredJob) -> Iterator[tuple[str, str, str]]:
        """Check that a run ranks only queries of the sample, with at most k hits, and can be judged.

        Its checksum has been verified: that names its content here.

        Raises:
            FileError: the run, its judgements or the query sample cannot be read.
        """
        if job.run_path is None:
            if job.result.outcome is Outcome.OK:
                yield reader.RUN, "no run", "that of its first trial: the job ended ok"
            return
        if not job.run_path.lstat().st_size:
            yield reader.RUN, "an empty file", "a run, compressed: even one without hits has a head"
            return
        run, k = self._run(job.run_path, job), job.result.spec.k
        strangers = sorted(run.rankings.keys() - set(job.sample_ids()))
        if strangers:
            yield reader.RUN, f"{len(strangers)} queries such as {strangers[0]!r}", "queries of its sample alone"
        long = [query for query, ranking in run.rankings.items() if len(ranking) > k]
        if long:
            count = len(run.rankings[long[0]])
            yield (
                reader.RUN,
                f"{count} hits for query {long[0]!r}, too many for {len(long)} queries",
                f"at most {k}",
            )
        yield from self._judged(job, run)

    def _judged(self, job: StoredJob, run: Run) -> Iterator[tuple[str, str, str]]:
        path = job.qrels_path()
        if not judges_hits_alone(path):
            self._qrels(path)
            return
        qrels = trec.read_stored_qrels(path)
        hits = {(query, document) for query, ranking in run.rankings.items() for document in ranking}
        judged = {(query, document) for query, documents in qrels.items() for document in documents}
        if hits != judged:
            yield JUDGED_HITS, f"judgements of {len(judged)} hits", f"those of the {len(hits)} hits of its run"
        yield from _depths(job.folder / ANSWER_DEPTHS, run, qrels)

    def _run(self, path: Path, job: StoredJob) -> Run:
        sha256, most = job.result.files.get(reader.RUN), most_hits(job.result.spec)
        if sha256 is None:
            return trec.read_run(path, most)
        if sha256 not in self._runs:
            if len(self._runs) == _MOST:
                self._runs.pop(next(iter(self._runs)))
            self._runs[sha256] = trec.read_run(path, most)
        return self._runs[sha256]


def _depths(path: Path, run: Run, qrels: Qrels) -> Iterator[tuple[str, str, str]]:
    """Compare the stored depths of answers with the run and its judgements."""
    if not os.path.lexists(path):
        return
    depths = answer_recall.read_depths(path)
    hits = {query for query, depth in depths.items() if depth.tokens or not depth.language}
    if not hits <= run.rankings.keys() <= depths.keys():
        yield path.name, f"depths of {len(depths)} queries", f"those of the {len(run.rankings)} queries of its run"
    # An answer that stands behind the last token that is looked at is not found.
    lost = [
        query
        for query, depth in depths.items()
        if depth.found is None and depth.tokens < MAX_TOKENS and any(qrels.get(query, {}).values())
    ]
    if lost:
        yield path.name, f"no answer for query {lost[0]!r}", f"the depth of the one that {JUDGED_HITS} has"


# As harness.jobs.collect has it: two clocks are read one after the other.
CLOCK_SLACK_S = 0.05
# File and key below the job's folder, the stored value, the value that follows.
Deviations = Iterator[tuple[str, str, str]]
Check = Callable[[StoredJob], Deviations]


def check(job: StoredJob) -> Deviations:
    """Check that the samples are those of the spec, and that the record counts them correctly.

    Raises:
        FileError: the query sample cannot be read.
        OSError, ValueError, KeyError, TypeError: from pyarrow, where the file is damaged.
    """
    table = job.samples()
    if job.result.outcome is Outcome.OK and not table.num_rows:
        yield reader.SAMPLES, "no samples", f"those of {job.result.spec.sample_size} queries: the job ended ok"
        return
    asked = job.sample_ids()
    if len(asked) != job.result.spec.sample_size:
        yield (
            f"{reader.RESULT}: spec.sample_size",
            f"{job.result.spec.sample_size}",
            f"{len(asked)}, as many as its query sample has",
        )
    trials = [int(trial) for trial in table.column("trial").to_pylist()]
    ids = table.column("query_id").to_pylist()
    latency_ns = table.column("latency_ns").to_pylist()
    yield from _times(table)
    yield from _trials(job, trials)
    if job.result.outcome is Outcome.OK:
        counts = Counter(zip(trials, ids, strict=True))
        timed = tuple(query for query in asked if (WARMUP_TRIAL, query) not in counts)
        if len(asked) - len(timed) != job.result.spec.held_out:
            follows = f"{len(asked) - len(timed)}, as many queries of the sample as warmed up"
            yield f"{reader.RESULT}: spec.held_out", f"{job.result.spec.held_out}", follows
        yield from _whole(job, counts, timed)
    yield from _facts(job, trials, latency_ns)
    yield from _probes(job, trials, latency_ns)
    yield from _worked(job, table)


def _times(table: pa.Table) -> Deviations:
    for name in table.column_names:
        if name.endswith("_ns"):
            least = 1 if name == "latency_ns" else 0
            values = table.column(name).to_pylist()
            wrong = [value for value in values if (value is None and least) or (value is not None and value < least)]
            if wrong:
                yield (
                    f"{reader.SAMPLES}: {name}",
                    f"{len(wrong)} such as {wrong[0]}",
                    f"at least {least} ns throughout",
                )


def _trials(job: StoredJob, trials: list[int]) -> Deviations:
    """Find trials of other jobs."""
    first, count = _numbers(job)
    wrong = sorted(set(trials) - {WARMUP_TRIAL, REPEAT_TRIAL, *range(first, first + count)})
    if wrong:
        follows = f"{first} to {first + count - 1}, by its spec"
        yield f"{reader.SAMPLES}: trial", ", ".join(map(str, wrong[:5])), follows


def _numbers(job: StoredJob) -> tuple[int, int]:
    """Return a job's first trial, and how many it has; at most, where a rate search ended early."""
    spec = job.result.spec
    if spec.cell.scenario == "server":
        return spec.job * MAX_PROBES, len(job.result.probes) if job.result.outcome is Outcome.OK else MAX_PROBES
    return spec.job * spec.trials, spec.trials


def _whole(job: StoredJob, counts: Counter[tuple[int, str]], asked: tuple[str, ...]) -> Deviations:
    """Check that each trial has each query once, and that repeated queries have two samples."""
    first, count = _numbers(job)
    wanted = Counter((trial, query) for trial in range(first, first + count) for query in asked)
    timed = Counter({each: number for each, number in counts.items() if each[0] >= 0})
    for what, found in (("missing", wanted - timed), ("too many", timed - wanted)):
        if found:
            trial, query = min(found)
            many = f"{found.total()} samples {what}, e.g. query {query!r} of trial {trial}"
            yield reader.SAMPLES, many, f"{len(asked)} queries in each of {count} trials"
    spec = job.result.spec
    again = Counter({query: number for (trial, query), number in counts.items() if trial == REPEAT_TRIAL})
    expected = min(spec.repeats, spec.timed_queries) if spec.cell.scenario == "single_stream" else 0
    if len(again) != expected or set(again.values()) - {2} or set(again) - set(asked):
        yield f"{reader.SAMPLES}: repeats", f"{again.total()} of {len(again)} queries", f"2 of each of {expected}"


def _facts(job: StoredJob, trials: list[int], latency_ns: list[Any]) -> Deviations:
    """Compare the record's counts with the samples."""
    result = job.result
    by_trial = Counter(trial for trial in trials if trial >= 0)
    finished = sum(count == result.spec.timed_queries for count in by_trial.values())
    first_s = latency_ns[0] / 1e9 if latency_ns else None
    for name, stored, follows in (
        ("trials_finished", result.trials_finished, finished),
        ("warmup_done", result.warmup_done, trials.count(WARMUP_TRIAL)),
        ("first_query_s", result.first_query_s, first_s),
    ):
        for each in differences(f"{reader.RESULT}: {name}", stored, follows):
            yield each.place, each.stored, f"{each.follows}, by {reader.SAMPLES}"


def _worked(job: StoredJob, table: pa.Table) -> Deviations:
    """Compare the time that the samples claim with the job's own, as :mod:`harness.jobs.collect` does."""
    result = job.result
    if result.spec.cell.scenario == "server" or result.outcome is not Outcome.OK:
        return
    rows = table.select([name for name in ("trial", "latency_ns", "batch") if name in table.column_names]).to_pylist()
    batches = {(row["trial"], row["batch"]): row["latency_ns"] for row in rows if row.get("batch") is not None}
    alone = sum(row["latency_ns"] for row in rows if row.get("batch") is None)
    worked_s = (result.load_s or 0) + (alone + sum(batches.values())) / 1e9
    if worked_s > result.wall_s + CLOCK_SLACK_S:
        yield f"{reader.RESULT}: wall_s", f"{result.wall_s}", f"at least {worked_s}, by {reader.SAMPLES}"


def _probes(job: StoredJob, trials: list[int], latency_ns: list[Any]) -> Deviations:
    """Compare the probes of scenario ``server``, and the believed rate, with the samples."""
    result, target = job.result, job.result.spec.scenario_params
    if result.spec.cell.scenario != "server" or result.outcome is not Outcome.OK:
        return
    for number, probe in enumerate(result.probes, start=1):
        timed = sorted(ns for trial, ns in zip(trials, latency_ns, strict=True) if trial == probe.trial)
        if not timed or target.latency_percentile is None or target.latency_target_s is None:
            continue
        # As harness.driver.rate_search judges it; the guard keeps 0.95 * 200 from becoming rank 191 by rounding.
        rank = max(1, math.ceil(target.latency_percentile / 100 * len(timed) - 1e-9))
        late = sum(ns > round(target.latency_target_s * 1e9) for ns in timed)
        stored = {"queries": probe.queries, "late": probe.late, "latency_s": probe.latency_s}
        follows = {"queries": len(timed), "late": late, "latency_s": timed[rank - 1] / 1e9}
        for each in differences(f"{reader.RESULT}: probe {number}", stored, follows):
            yield each.place, each.stored, f"{each.follows}, by {reader.SAMPLES}"
    believed = [probe.rate_qps for probe in result.probes if probe.check and probe.passed]
    for each in differences(f"{reader.RESULT}: rate_qps", result.rate_qps, believed[-1] if believed else None):
        yield each.place, each.stored, f"{each.follows}, the rate that passed twice"

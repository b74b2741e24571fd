"""The samples of a job (``out/samples.jsonl``): read, checked, and held against the host's clock and counters.

The driver's clock may lie, because the adapter lives in the driver's process.  The host's does not: it saw when the
queries of a trial could first be read, and when the trial ended.  The time between is answers, the driver's own work
(bounded here), or delays that the kernel counted.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.driver.adapter import BadAnswer, check_hits
from harness.driver.output import ERROR, REPEAT_TRIAL, SAMPLES, TIMED_OUT, WARMUP_TRIAL
from harness.driver.records import Filter, Hit, JobSpec, Measurement, Query, most_first_stage
from harness.driver.scenarios import least_hits, repeat_queries
from harness.launch.base import LaunchRequest, TrialTimes
from harness.launch.monitor.traces import CounterReading
from harness.untrusted import (
    MAX_TEXT,
    bounded_lines,
    max_line_bytes,
    max_samples,
    max_trials,
    one_line,
    open_regular,
    reason_of,
)

# The limit of the names of stages, and of the names of counts.
_MOST_NAMES = 16
# A stage, a component system, or a component's stage (``bm25.retrieve``).
_STAGE_NAME = re.compile(r"[^\W\d]\w{0,39}|[a-z0-9][a-z0-9._-]{0,62}(\.[^\W\d]\w{0,39})?")

# Whole numbers that some samples have.
EXTRA = ("scheduled_ns", "service_ns", "batch", "failed")
_COUNT_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")

# The sum of a busy host, a late wake-up and the interval between two looks for files.
TOLERANCE_S, TOLERANCE_SHARE = 0.05, 0.1
# The driver's own work: checking an answer, making its line, collecting garbage.  Measured: 25 microseconds for 10
# hits, 1,100 to 2,200 for 1,000; bounded so that no slow machine and no engine's garbage comes near.
OWN_QUERY_S, OWN_HIT_S = 250e-6, 10e-6
# Longest time to read a page from disk again.
_FAULT_S = 0.01
# Without counters: share of the time that a busy machine may have kept the job waiting.
_UNKNOWN_SHARE = 0.7


@dataclass(frozen=True)
class Sample:
    """One query of one trial, as the job wrote it, checked.

    ``ranking`` is a hash of the ranked ids; the hits themselves are kept for the job's first trial, for the pass after
    updates, and for the first answers of warm-up, whose later passes write none.
    ``first_stage`` is the ranking that a second stage was given, kept likewise; ``counts`` is the work that the adapter
    counted.
    ``service_ns`` and ``scheduled_ns`` (since the trial's start) belong to the ``server`` scenario, whose latency
    counts from the scheduled arrival; ``batch`` to ``offline``, where each query's latency is its whole batch's.
    ``failed`` says how a query of a probe ended without an answer: ``ERROR`` or ``TIMED_OUT``.
    """

    trial: int
    query_id: str
    latency_ns: int
    stages_ns: dict[str, int]
    ranking: bytes
    hits: list[tuple[str, float]]
    counts: dict[str, int] = field(default_factory=dict)
    first_stage: list[tuple[str, float]] = field(default_factory=list)
    scheduled_ns: int | None = None
    service_ns: int | None = None
    batch: int | None = None
    failed: int | None = None


# Document ids of answers, by the filter of their queries.
FoundIds = dict[Filter, set[str]]


def read_samples(job: LaunchRequest) -> tuple[list[Sample], FoundIds, str | None]:
    """Read the samples up to the first wrong one; return them, their document ids and that error."""
    queries = {query.query_id: query for query in (*job.spec.warmup, *job.spec.sample)}
    samples: list[Sample] = []
    doc_ids: FoundIds = defaultdict(set)
    names: dict[str, set[str]] = {"stages": set(), "counts": set()}
    warmed: set[str] = set()
    keeping = {WARMUP_TRIAL, job.spec.first_trial, *([job.spec.first_trial + 2] if job.spec.updates else [])}

    def keep(line: bytes) -> None:
        sample = _sample(line, job.spec, queries, warmed)
        for kind, own in (("stages", sample.stages_ns), ("counts", sample.counts)):
            names[kind].update(own)
            if len(names[kind]) > _MOST_NAMES:
                raise ValueError(f"more than {_MOST_NAMES} {kind}")
        found = doc_ids[queries[sample.query_id].filter]
        found.update(doc_id for doc_id, _ in (*sample.hits, *sample.first_stage))
        # Hits take memory.
        samples.append(sample if sample.trial in keeping else replace(sample, hits=[], first_stage=[]))

    maximum = 2 * max_samples(job.spec)  # ``incomplete`` names doubled samples
    return samples, doc_ids, keep_lines(job.out / SAMPLES, max_line_bytes(job.spec), maximum, keep)


def keep_lines(path: Path, longest: int, most: int, keep: Callable[[bytes], None]) -> str | None:
    """Give each line of a job's file to ``keep``, which refuses it by an exception; return the first error."""
    number = 1
    try:
        with open_regular(path) as file:
            for number, line in enumerate(bounded_lines(file, longest), start=1):
                if number > most:
                    raise ValueError(f"more than {most} {path.stem}")
                if not line.endswith(b"\n"):
                    raise ValueError(f"more than {longest} bytes" if len(line) == longest else "it is cut off")
                keep(line)
    except OSError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, BadAnswer) as error:
        return one_line(f"{path.name}: line {number}: {reason_of(error)}", MAX_TEXT)
    return None


def _sample(line: bytes, spec: JobSpec, queries: Mapping[str, Query], warmed: set[str]) -> Sample:
    """Check one line; add warm-up queries to ``warmed``."""
    raw = json.loads(line)
    trial, query_id, latency_ns = raw["trial"], raw["query_id"], raw["latency_ns"]
    if not isinstance(query_id, str) or query_id not in queries:
        raise ValueError(f"unknown query id {str(query_id)[:80]!r}")
    timed = range(spec.first_trial, spec.first_trial + max_trials(spec))
    if type(trial) is not int or (trial not in timed and trial not in (WARMUP_TRIAL, REPEAT_TRIAL)):
        raise ValueError(f"trial {str(trial)[:20]}, asked for {timed.start} to {timed.stop - 1}")
    if type(latency_ns) is not int or not 0 < latency_ns < 1 << 62:
        raise ValueError(f"latency_ns {str(latency_ns)[:40]} is not a positive whole number")
    stages_ns, counts = _figures(raw, "stages_ns", _STAGE_NAME), _figures(raw, "counts", _COUNT_NAME)
    given = [Hit(doc_id, score) for doc_id, score in raw.get("first_stage", [])]
    first_stage = check_hits(given, most_first_stage(spec), 0)
    hits: list[tuple[str, float]] = []
    failed, may_fail = raw.get("failed"), spec.is_open(trial)
    if failed is not None and (failed not in (ERROR, TIMED_OUT) or not may_fail or raw["hits"]):
        raise ValueError(f"failed {str(failed)[:40]!r} is not possible here")
    if failed is None and (trial != WARMUP_TRIAL or query_id not in warmed):
        matching = queries[query_id].matching
        fewest = least_hits(spec)
        if matching is not None and not spec.fewer_hits_ok:
            fewest = max(0, min(spec.k, matching - (len(spec.updates.documents) if spec.updates else 0)))
        hits = check_hits([Hit(doc_id, score) for doc_id, score in raw["hits"]], spec.k, fewest)
    if trial == WARMUP_TRIAL:
        warmed.add(query_id)
    ranking = hashlib.sha256("\n".join(doc_id for doc_id, _ in hits).encode("utf-8")).digest()
    extra = {name: _extra(name, raw[name]) for name in EXTRA if name in raw}
    return Sample(trial, query_id, latency_ns, stages_ns, ranking, hits, counts, first_stage, **extra)


def _figures(raw: dict[str, Any], key: str, names: re.Pattern[str]) -> dict[str, int]:
    """Check a sample's stages or counts, and leave out malformed names.

    Raises:
        ValueError: one is negative, or not a whole number.
    """
    figures = {name: value for name, value in raw.get(key, {}).items() if names.fullmatch(name)}
    return {name: _extra(f"{key}.{name}", value) for name, value in figures.items()}


def _extra(name: str, value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError(f"{name} {str(value)[:40]} is not a whole number of 0 or more")
    return value


def incomplete(spec: JobSpec, measurement: Measurement[Any], samples: list[Sample]) -> str | None:
    """Return which samples are missing, doubled or not asked for."""
    trials = len(measurement.probes) if spec.probes else spec.trials
    expected = Counter(
        (trial, query.query_id) for trial in range(spec.first_trial, spec.first_trial + trials) for query in spec.sample
    )
    expected.update((REPEAT_TRIAL, query.query_id) for query in repeat_queries(spec) for _ in range(2))
    # Warm-up may pass over its queries again, up to the cap; nothing else may.
    timed = Counter((sample.trial, sample.query_id) for sample in samples if sample.trial != WARMUP_TRIAL)
    warmed = Counter(sample.query_id for sample in samples if sample.trial == WARMUP_TRIAL)
    warmup = {query.query_id for query in spec.warmup}
    missing = (expected - timed).total() + len(warmup - warmed.keys())
    foreign = {(WARMUP_TRIAL, query_id) for query_id in warmed.keys() - warmup} | (timed.keys() - expected.keys())
    doubled = sum(count for key, count in (timed - expected).items() if key in expected)
    doubled += max(0, sum(warmed[query_id] for query_id in warmup) - max(len(spec.warmup), spec.warmup_cap))
    if doubled:
        return f"{doubled} samples come twice"
    if missing:
        return f"{missing} of {expected.total() + len(spec.warmup)} samples are missing"
    if foreign:
        trial, query_id = min(foreign)
        return f"query {query_id!r} was not asked for in {'the warm-up' if trial == WARMUP_TRIAL else f'trial {trial}'}"
    return None


def worked_s(spec: JobSpec, samples: list[Sample]) -> float:
    """Return the seconds that the system claims to have worked on queries.

    Batches count once, and so does time in which several streams worked; waiting in a queue does not count.
    """
    return (_served_ns(samples) if spec.overlaps else claimed_ns(samples)) / 1e9


def claimed_ns(samples: Sequence[Sample]) -> int:
    """Add up latencies, a batch's once."""
    alone = sum(sample.latency_ns for sample in samples if sample.batch is None)
    batches = {(sample.trial, sample.batch): sample.latency_ns for sample in samples if sample.batch is not None}
    return alone + sum(batches.values())


def _served_ns(samples: list[Sample]) -> int:
    """Return the nanoseconds in which at least one stream worked; a sample without an arrival adds its service time."""
    worked_ns = 0
    spans: list[tuple[int, int, int]] = []
    for sample in samples:
        service_ns = sample.latency_ns if sample.service_ns is None else sample.service_ns
        if sample.scheduled_ns is None:
            worked_ns += service_ns
        else:
            end = sample.scheduled_ns + sample.latency_ns
            spans.append((sample.trial, end - service_ns, end))
    reached: dict[int, int] = {}  # until when each trial's time is counted
    for trial, start, end in sorted(spans):
        since = max(start, reached.get(trial, start))
        worked_ns += max(0, end - since)
        reached[trial] = max(since, end)
    return worked_ns


def clock_contradiction(
    spec: JobSpec, handed: Sequence[TrialTimes], samples: Sequence[Sample], readings: Sequence[CounterReading]
) -> str | None:
    """Return the first claim about a trial that cannot be true, with both numbers; ``None`` if all can.

    Args:
        handed: each trial as the host saw it.
        samples: the job's samples.
        readings: the kernel's counters while the job ran.
    """
    if not spec.pause:  # the driver had its queries from the start, and no trial has marks
        return None
    trials: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.trial >= 0:
            trials[sample.trial].append(sample)
    handed_by_phase = {trial.phase: trial for trial in handed}
    for trial, trial_samples in sorted(trials.items()):
        marks = handed_by_phase.get(f"trial-{trial}")
        wrong = (
            _wrong(spec, trial, marks, trial_samples, readings) if marks else "the host did not see it begin and end"
        )
        if wrong:
            return f"trial {trial}: {wrong}"
    return None


def _wrong(
    spec: JobSpec, trial: int, marks: TrialTimes, samples: Sequence[Sample], readings: Sequence[CounterReading]
) -> str | None:
    claimed_s, counted_s = claimed_ns(samples) / 1e9, marks.claimed_ns / 1e9
    if claimed_ns(samples) != marks.claimed_ns:
        return f"its samples add up to {claimed_s:.6f} s, the driver counted {counted_s:.6f} s as they came"
    span_s, least_s, most_s = marks.span_ns / 1e9, marks.least_ns / 1e9, (marks.end_ns - marks.go_ns) / 1e9
    wall_s, cpu_s, delays_s = _counted(readings, marks, spec.envelope.cpus)
    tolerance_s = max(TOLERANCE_S, TOLERANCE_SHARE * least_s)
    if not least_s - tolerance_s - delays_s <= span_s <= most_s + tolerance_s:
        return f"the image's clock says that it lasted {span_s:.3f} s, the host's {least_s:.3f} to {most_s:.3f} s"
    answered_s = claimed_s
    if spec.is_open(trial):  # the last answer of an open loop came so long after the probe's start
        answered_s = max((sample.scheduled_ns or 0) + sample.latency_ns for sample in samples) / 1e9
    if answered_s > span_s + tolerance_s:
        return f"the image claims {answered_s:.3f} s of work in the {span_s:.3f} s that it lasted"
    found = sum(len(sample.first_stage) for sample in samples)
    waits_s = len(samples) / spec.max_qps if spec.max_qps else 0.0  # a limited rate
    own_s = len(samples) * (OWN_QUERY_S + spec.k * OWN_HIT_S) + found * OWN_HIT_S
    if span_s - marks.written_ns / 1e9 - answered_s > own_s + waits_s + tolerance_s + delays_s:
        return f"the image claims {answered_s:.3f} of {span_s:.3f} s; checking answers explains {own_s:.3f} s at most"
    # Waiting and writing take no processor time.  An open loop leaves time in which threads behind it may work, and
    # after updates an engine may still tidy its index.
    around_s = max(0.0, wall_s - least_s)
    cpu_s = None if spec.overlaps else cpu_s
    if cpu_s is not None and cpu_s - 2 * max(TOLERANCE_S, TOLERANCE_SHARE * cpu_s) > claimed_s + own_s + around_s:
        return f"the image claims {claimed_s:.3f} s and used {cpu_s:.3f} s of each of its CPUs"
    return None


def _counted(readings: Sequence[CounterReading], marks: TrialTimes, cpus: int) -> tuple[float, float | None, float]:
    """Sum the counters from the last reading before a trial to the first after it.

    Returns:
        The seconds between the readings, the CPU seconds of each CPU (``None``: unknown), and the kernel's delays.
    """
    before = [reading for reading in readings if reading.t_ns <= marks.go_ns] or readings[:1]
    after = [reading for reading in readings if reading.t_ns >= marks.end_ns] or readings[-1:]
    if not before or not after:
        wall_s = (marks.end_ns - marks.go_ns) / 1e9
        return wall_s, None, _UNKNOWN_SHARE * wall_s
    first, last = before[-1], after[0]
    wall_s, cpu_s = (last.t_ns - first.t_ns) / 1e9, _grown_s(first.cpu_ns, last.cpu_ns)
    cpu_s = None if cpu_s is None else cpu_s / cpus
    waited_s = _grown_s(first.wait_ns, last.wait_ns)
    if waited_s is None:
        waited_s = _UNKNOWN_SHARE * wall_s if cpu_s is None else max(0.0, wall_s - cpu_s)
    held_s = sum(
        _grown_s(*totals) or 0.0
        for totals in ((first.steal_ns, last.steal_ns), (first.throttled_ns, last.throttled_ns))
    )
    faults = (last.major_faults or 0) - (first.major_faults or 0)
    # Delays before the first reading or after the last are unknown.
    unseen_s = (max(0, first.t_ns - marks.go_ns) + max(0, marks.end_ns - last.t_ns)) / 1e9
    return wall_s, cpu_s, waited_s + held_s + unseen_s + _FAULT_S * max(0, faults)


def _grown_s(earlier: int | None, later: int | None) -> float | None:
    return None if earlier is None or later is None else max(0, later - earlier) / 1e9

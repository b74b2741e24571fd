"""Collect an ended job: its outcome, samples and run, and the result to store.

An untrusted image wrote ``out/``: it is bounded, parsed line by line, and checked against the spec.  Observations of
the kernel and the engine outrank the job's own measurement.  An outcome ``oom`` says something about hardware, so the
host must have seen the full memory: the image's claim is only the reason.
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from harness.driver import envelope
from harness.driver.output import MEASUREMENT, WARMUP_TRIAL
from harness.driver.records import Filter, JobSpec, Measurement, Outcome
from harness.errors import counted
from harness.jobs.environment import shared_host
from harness.jobs.job_samples import EXTRA, FoundIds, Sample, clock_contradiction, incomplete, read_samples, worked_s
from harness.jobs.job_updates import read_updates, unplanned
from harness.launch.base import KILLED, LaunchEnd, LaunchRequest, StopReason
from harness.results.reader import RESULT_BYTES, check_facts, parse_record
from harness.results.schema import (
    CLOCK_SLACK_S,
    AnswerCounts,
    Environment,
    JobProvenance,
    Observed,
    Result,
    ResultSpec,
    job_key,
)
from harness.results.updates import Update
from harness.untrusted import (
    LAST_BYTES,
    MAX_TEXT,
    ForeignText,
    check_names,
    foreign,
    last_line,
    max_trials,
    mistake,
    one_line,
    read_start,
    reason_of,
    to_json,
)

if TYPE_CHECKING:
    import pyarrow as pa


Measured = Measurement[ForeignText]
_MEASUREMENT = TypeAdapter(Measured)
# The share of a record that a measurement may take: the names of its phases come twice, and the record holds more.
_MEASUREMENT_BYTES = RESULT_BYTES // 4
# Python's faulthandler writes these lines when a signal ends the process: the innermost frame comes first.
_FATAL = re.compile(rb"^Fatal Python error: (.{1,200})$", re.MULTILINE)
_FRAME = re.compile(rb'^  File "(.{1,4096})", line (\d{1,9}) in (.{1,200})$', re.MULTILINE)
_REPORT_BYTES = 32 << 10
_SIGNAL_NAMES = {signal.strsignal(each): each.name for each in signal.Signals}
_OTHER_PHASES = 8  # load, warm-up, close or build, and some to spare
# A job out of memory that the kernel does not kill: its file pages are dropped and read back at once.
# Share of the limit: the kernel's own (page tables, slabs) and the last file pages take the rest.
_ANON_SHARE = 0.8
# Share of a GPU's memory in use when its driver refused more: a refused tensor may be as large as all that is left.
_GPU_SHARE = 0.8
# A thrashing job had 50 to 200.  A job that reads an index from disk has more, but little anonymous memory.
_FAULTS_PER_S = 10
_STRETCH_S = 20


@dataclass(frozen=True)
class CollectedJob:
    """Outcome of a job, with its measurement, samples and what the host saw; empty where it was never launched."""

    outcome: Outcome
    detail: str | None
    measured: Measured | None = None
    samples: tuple[Sample, ...] = ()
    observed: Observed = field(default_factory=Observed)
    wall_s: float = 0.0
    # How many documents the filter of each filtered query lets through, by query id.
    matching: Mapping[str, int] = field(default_factory=dict)
    updates: tuple[Update, ...] = ()

    @property
    def failed_to_load(self) -> bool:
        """Return whether a search job crashed before its index was open, by its own account."""
        loaded = self.samples or (self.measured and self.measured.load_s is not None)
        return self.outcome is Outcome.CRASH and not loaded

    def answers(self, timed_queries: int, *, changing: bool = False) -> AnswerCounts:
        """Count the answers of a job whose trials ask this many queries; of a ``changing`` index they may differ."""
        by_trial = Counter(sample.trial for sample in self._timed())
        return AnswerCounts(
            first_query_s=self.samples[0].latency_ns / 1e9 if self.samples else None,
            warmup_done=sum(sample.trial == WARMUP_TRIAL for sample in self.samples),
            trials_finished=sum(count == timed_queries for count in by_trial.values()),
            ranking_disagreements=None if changing else self._ranking_disagreements(),
        )

    def _ranking_disagreements(self) -> int | None:
        """Count queries whose ranked ids differ between trials or repeats; None without any repetition."""
        rankings: dict[str, set[bytes]] = {}
        samples = [sample for sample in self.samples if sample.trial != WARMUP_TRIAL and sample.failed is None]
        for sample in samples:
            rankings.setdefault(sample.query_id, set()).add(sample.ranking)
        if len({sample.trial for sample in samples}) < 2:
            return None
        return sum(len(different) > 1 for different in rankings.values())

    def run(self, system: str, held_out: Collection[str] = ()) -> bytes | None:
        """Return the first trial's rankings as a TREC run, with the first answers of ``held_out`` warm-up queries."""
        first = self._first(held_out)
        return _trec_run({query: sample.hits for query, sample in first.items()}, system) if first else None

    def first_stage(self, system: str, held_out: Collection[str] = ()) -> bytes | None:
        """Return the rankings that the second stage was given, of the samples of :meth:`run`, as a TREC run."""
        given = {query: sample.first_stage for query, sample in self._first(held_out).items()}
        return _trec_run(given, system) if any(given.values()) else None

    def updated_run(self, system: str) -> bytes | None:
        """Return the rankings of the pass after the updates as a TREC run."""
        last = max((sample.trial for sample in self._timed()), default=-1)
        after = {sample.query_id: sample.hits for sample in self.samples if sample.trial == last}
        return _trec_run(after, system) if self.updates and self.outcome is Outcome.OK else None

    def _first(self, held_out: Collection[str]) -> dict[str, Sample]:
        """Return the first trial's samples by query, and the first answers of ``held_out`` warm-up queries."""
        timed = self._timed()
        if not timed:
            return {}
        first_trial = min(sample.trial for sample in timed)
        first = {sample.query_id: sample for sample in timed if sample.trial == first_trial}
        for sample in self.samples:
            if sample.trial == WARMUP_TRIAL and sample.query_id in held_out:
                first.setdefault(sample.query_id, sample)
        return first

    def table(self) -> pa.Table | None:
        """Return raw latencies as columns, in measuring order."""
        if not self.samples:
            return None
        import pyarrow as pa

        columns: dict[str, Any] = {
            "query_id": [sample.query_id for sample in self.samples],
            "trial": pa.array([sample.trial for sample in self.samples], pa.int32()),
            "warmup": [sample.trial == WARMUP_TRIAL for sample in self.samples],
            "latency_ns": [sample.latency_ns for sample in self.samples],
        }
        for name in EXTRA:
            column = [getattr(sample, name) for sample in self.samples]
            if any(value is not None for value in column):
                columns[name] = column
        if self.matching:
            columns["matching"] = [self.matching.get(sample.query_id) for sample in self.samples]
        for name in sorted({name for sample in self.samples for name in sample.stages_ns}):
            columns[f"stage_{name}_ns"] = [sample.stages_ns.get(name) for sample in self.samples]
        for name in sorted({name for sample in self.samples for name in sample.counts}):
            columns[f"count_{name}"] = [sample.counts.get(name) for sample in self.samples]
        return pa.table(columns)

    def _timed(self) -> list[Sample]:
        return [sample for sample in self.samples if sample.trial >= 0]


def _trec_run(rankings: Mapping[str, Sequence[tuple[str, float]]], system: str) -> bytes:
    lines = [
        f"{query_id} Q0 {doc_id} {rank} {score!r} {system}\n"
        for query_id, hits in sorted(rankings.items())
        for rank, (doc_id, score) in enumerate(hits, 1)
    ]
    return "".join(lines).encode("utf-8")


def collect(
    job: LaunchRequest,
    ended: LaunchEnd,
    unknown_ids: Callable[[set[str]], set[str]],
    misfits: Callable[[Filter, set[str]], set[str]] = lambda *_: set(),
) -> CollectedJob:
    """Judge a job by the files that it left and by how it ended.

    Args:
        unknown_ids: returns the document ids that the corpus does not have.
        misfits: returns the documents that a filter does not let through.
    """
    measurement, unreadable, unstorable = _measurement(job, ended)
    samples, doc_ids, wrong = read_samples(job)
    updates, wrong_update = read_updates(job)
    wrong = wrong or wrong_update
    outcome, detail = _judge(job, ended, measurement, unreadable or unstorable)
    if outcome is Outcome.OK and measurement is not None:
        if job.spec.kind == "search":
            wrong = wrong or incomplete(job.spec, measurement, samples)
            wrong = wrong or unplanned(job, updates, ended.wall_s)
            wrong = wrong or _unknown(set().union(*doc_ids.values()), unknown_ids) or _unfit(doc_ids, misfits)
        wrong = wrong or _impossible(job.spec, measurement, samples, ended.wall_s)
        wrong = wrong or clock_contradiction(job.spec, ended.handed, samples, ended.counters.readings)
        if wrong:
            outcome, detail = Outcome.BAD_OUTPUT, wrong
    if unstorable:
        if outcome is Outcome.OK or (outcome is Outcome.CRASH and ended.exit_code == 0):
            outcome, detail = Outcome.BAD_OUTPUT, unstorable
        measurement = None  # no reader would take it
    phases = measurement.phases[: max_trials(job.spec) + _OTHER_PHASES] if measurement else ()
    return CollectedJob(
        outcome,
        detail,
        measurement,
        tuple(samples),
        Observed(
            exit_code=ended.exit_code,
            oom_kills=ended.oom_kills,
            throttled_periods=ended.throttled_periods,
            memory=ended.memory.summary(phases),
            canary=ended.canary,
            counters=ended.counters.summary(phases),
            trial_cpu=ended.counters.by_trial(phases) if job.spec.pause else (),
            # Another job's work is in a package's energy.
            trial_energy=ended.counters.energy_by_trial(phases) if job.spec.pause and not shared_host() else (),
            gpu=ended.gpus.summary(phases) if ended.gpus else None,
            placement=ended.placement,
            ready_s=ended.ready_s,
            shared_host=shared_host(),
        ),
        ended.wall_s,
        {
            query.query_id: query.matching
            for query in (*job.spec.warmup, *job.spec.sample)
            if query.matching is not None
        },
        tuple(updates),
    )


def build_result(
    spec: ResultSpec,
    started_at: str,
    collected: CollectedJob,
    environment: Environment,
    provenance: JobProvenance,
) -> Result:
    """Return the result of a collected job; arguments as the fields of :class:`Result`."""
    return Result(
        key=job_key(spec),
        spec=spec,
        outcome=collected.outcome,
        detail=foreign(collected.detail),
        started_at=started_at,
        wall_s=collected.wall_s,
        environment=environment,
        provenance=provenance,
        measured=collected.measured,
        observed=collected.observed,
        answers=collected.answers(spec.timed_queries, changing=spec.cell.scenario == "mixed"),
    )


def _judge(
    job: LaunchRequest, ended: LaunchEnd, measurement: Measured | None, unreadable: str | None
) -> tuple[Outcome, str | None]:
    """Return the outcome, from the strongest evidence to the weakest."""
    limit = job.spec.envelope.memory_bytes >> 20
    if ended.oom_killed or ended.oom_kills:
        what = "the job" if ended.exit_code == KILLED else "one of its processes"
        return Outcome.OOM, f"the kernel killed {what} at the memory limit of {limit} MiB"
    if ended.lacked_memory(job.spec.envelope.memory_bytes):
        return Outcome.OOM, f"killed (exit code {KILLED}) with its memory at the limit of {limit} MiB"
    if ended.stopped:
        return _stopped(job, ended, ended.stopped)
    if measurement is None:
        if b"java.lang.OutOfMemoryError" in ended.log[-LAST_BYTES:]:  # as -XX:+ExitOnOutOfMemoryError leaves it
            return _lacked_memory(job, ended, f"the Java heap ran out; {last_line(ended.log)}")
        if fatal := _FATAL.search(ended.log):
            return Outcome.CRASH, f"ended with exit code {ended.exit_code}: {_signalled(ended.log, fatal)}"
        why = unreadable or "it left no measurement"
        return Outcome.CRASH, f"ended with exit code {ended.exit_code}: {why}; {last_line(ended.log)}"
    if measurement.outcome in (Outcome.TIMEOUT, Outcome.NOT_APPLICABLE, Outcome.INTERRUPTED):
        text = f"the image reported '{measurement.outcome.value}'; only the launcher may decide that"
        return Outcome.BAD_OUTPUT, text
    if measurement.outcome is not Outcome.OK:
        detail = one_line(measurement.detail or "the image gives no reason", MAX_TEXT)
        lacked = measurement.outcome is Outcome.OOM
        return _lacked_memory(job, ended, detail) if lacked else (measurement.outcome, detail)
    if wrong := _unusable(job, measurement):
        return Outcome.BAD_OUTPUT, wrong
    if wrong_limits := _wrong_limits(job, ended, measurement):
        return Outcome.ENVELOPE_MISMATCH, one_line("; ".join(wrong_limits), MAX_TEXT)
    if ended.exit_code != 0:
        return Outcome.CRASH, f"exit code {ended.exit_code} after a complete measurement; {last_line(ended.log)}"
    needed = measurement.build_s if job.spec.kind == "build" else measurement.load_s
    before = measurement.resumed_s or 0.0
    if needed is None or not 0 <= before <= needed < float("inf"):
        took = "no time" if needed is None else f"{needed} s, {before} s of them earlier,"
        return Outcome.BAD_OUTPUT, f"the image reported {took} for its {job.spec.kind}"
    return Outcome.OK, None


def _unusable(job: LaunchRequest, measurement: Measured) -> str | None:
    """Return why a measurement that reports success is not sound; None if it is."""
    if measurement.oom_kills:
        # The host may have missed the last kill, or the image invents one: neither is a sound measurement.
        return f"the image counted {measurement.oom_kills} kills at the memory limit; the host saw none"
    if len(measurement.phases) > max_trials(job.spec) + _OTHER_PHASES:
        return f"the image reported {len(measurement.phases)} phases for {job.spec.trials} trials"
    if measurement.effective is None and not _published(job):
        return "the image did not report the limits that it ran under"
    return None


def _wrong_limits(job: LaunchRequest, ended: LaunchEnd, measurement: Measured) -> list[str]:
    """Return every limit in force that differs from the spec, as read from inside; a published server reads none."""
    if (effective := measurement.effective) is None:
        return []
    cpuset = ended.placement.cpuset if ended.placement else None
    wrong = envelope.mismatches(job.spec.envelope, effective, job.spec.enforced, cpuset)
    known = job.spec.envelope.cpus > 0  # of a service that runs already they are not
    return wrong + envelope.thread_mismatches(job.spec.envelope, effective.threads if known else {})


def _published(job: LaunchRequest) -> bool:
    """Return whether the server is a published image, whose limits are read from outside alone."""
    service = job.prepared.system.service if job.spec.service_url is not None else None
    return service is not None and service.image is not None


def _lacked_memory(job: LaunchRequest, ended: LaunchEnd, claim: str) -> tuple[Outcome, str]:
    """Return ``oom`` where the host saw full memory when the image said that it lacked some, else ``crash``."""
    limit_bytes, memory = job.spec.envelope.memory_bytes, ended.memory
    share = memory.fullest_gpu_share or 0.0
    if share >= _GPU_SHARE:
        return Outcome.OOM, f"{claim}; the host saw {share:.0%} of a GPU's memory in use"
    anon_bytes = max((value for _, value in memory.anon), default=0)
    seen = f"{anon_bytes >> 20} of {limit_bytes >> 20} MiB anonymous"
    # Without a cgroup no limit was in force.
    if memory.peak_cgroup_bytes is not None and anon_bytes >= _ANON_SHARE * limit_bytes:
        return Outcome.OOM, f"{claim}; the host saw {seen}"
    return Outcome.CRASH, f"the image reported that memory ran out, but the host saw at most {seen}: {claim}"


def _stopped(job: LaunchRequest, ended: LaunchEnd, stopped: StopReason) -> tuple[Outcome, str]:
    """Return why the job was stopped; ``oom`` where lack of memory made it slow."""
    starved = at_limit(ended, job.spec.envelope.memory_bytes) if stopped.outcome is Outcome.TIMEOUT else None
    if starved is None:
        return stopped.outcome, stopped.detail
    return Outcome.OOM, f"{stopped.detail} at the memory limit: {starved}"


def at_limit(ended: LaunchEnd, memory_bytes: int) -> str | None:
    """Return the evidence that a stopped job thrashed at its memory limit, if there is any."""
    if ended.memory.peak_cgroup_bytes is None or not ended.memory.anon:
        return None  # no limit was in force
    # The last reading may fall after the kill.
    until_ns = ended.memory.anon[-1][0]
    anon_bytes = max(value for t_ns, value in ended.memory.anon if until_ns - t_ns <= _STRETCH_S * 1e9)
    counted = [reading for reading in ended.counters.readings if reading.major_faults is not None]
    if anon_bytes < _ANON_SHARE * memory_bytes or not counted:
        return None
    last = counted[-1]
    before = [reading for reading in counted if last.t_ns - reading.t_ns >= _STRETCH_S * 1e9]
    if not before:
        return None
    seconds = (last.t_ns - before[-1].t_ns) / 1e9
    faults_per_s = ((last.major_faults or 0) - (before[-1].major_faults or 0)) / seconds
    if faults_per_s < _FAULTS_PER_S:
        return None
    return (
        f"{anon_bytes >> 20} of {memory_bytes >> 20} MiB were anonymous, and the rest was read from disk over and over "
        f"({faults_per_s:,.0f} major faults a second)"
    )


def _measurement(job: LaunchRequest, ended: LaunchEnd) -> tuple[Measured | None, str | None, str | None]:
    """Return what the image measured, why that cannot be read, and why it cannot be stored."""
    try:
        text = read_start(job.out / MEASUREMENT, _MEASUREMENT_BYTES + 1)
    except OSError:
        return None, None, None
    if len(text) > _MEASUREMENT_BYTES:
        return None, None, _unstorable(f"has more than {_MEASUREMENT_BYTES:,} bytes")
    try:
        measurement = _MEASUREMENT.validate_json(text)
        if measurement.effective is not None and job.spec.service_url is not None:
            # What is judged is the server; its client has limits of its own, which its driver verified.
            server = ended.server and replace(ended.server, threads=measurement.effective.threads)
            measurement = replace(measurement, effective=server)
        stored = to_json(measurement, indent=2)  # JSON has no word for nan
    except ValidationError as error:
        return None, f"its measurement.json is wrong: {mistake(error)}", None
    except ValueError as error:
        return None, f"its measurement.json is wrong: {reason_of(error)}", None
    try:
        check_facts(parse_record(stored.encode("utf-8"), _MEASUREMENT_BYTES), "")
        check_names(measurement)
    except ValueError as error:
        return measurement, None, _unstorable(reason_of(error))
    return measurement, None, None


def _unstorable(why: str) -> str:
    return one_line(f"The image's measurement cannot be stored: {why}.", MAX_TEXT)


def _unknown(doc_ids: set[str], unknown_ids: Callable[[set[str]], set[str]]) -> str | None:
    unknown = unknown_ids(doc_ids)
    return f"the corpus lacks {counted(len(unknown), 'document id')}, such as {min(unknown)!r}" if unknown else None


def _unfit(found: FoundIds, misfits: Callable[[Filter, set[str]], set[str]]) -> str | None:
    """Return which document a filtered query should not have found."""
    for wanted, doc_ids in found.items():
        if wanted and (wrong := misfits(wanted, doc_ids)):
            rule = ", ".join(f"{name} = {value!r}" for name, value in wanted)
            return f"{counted(len(wrong), 'retrieved document')} do not fit the filter {rule}, such as {min(wrong)!r}"
    return None


def _impossible(spec: JobSpec, measurement: Measured, samples: list[Sample], wall_s: float) -> str | None:
    """Return the error where claimed times exceed the time that passed."""
    here_s = (measurement.build_s or 0) - (measurement.resumed_s or 0)  # the rest was spent by earlier attempts
    inside_s = (measurement.load_s or 0) + here_s + worked_s(spec, samples)
    if inside_s <= wall_s + CLOCK_SLACK_S:
        return None
    return f"the image reported {inside_s:.3f} s of work in a {spec.kind} job that lasted {wall_s:.3f} s"


def _signalled(log: bytes, fatal: re.Match[bytes]) -> str:
    """Return the signal that ended the job and the lines that it came from: the innermost, and the adapter's.

    Args:
        fatal: the first line of faulthandler's report; an abort of a container's first process reports twice.
    """
    name = fatal[1].decode("utf-8", "replace").strip()
    report = _FATAL.split(log[fatal.end() : fatal.end() + _REPORT_BYTES], maxsplit=1)[0]
    frames = [
        (file.decode("utf-8", "replace"), f"line {int(line)} in {function.decode('utf-8', 'replace')}")
        for file, line, function in _FRAME.findall(report)
    ]
    own = [frame for frame in frames if frame[0].endswith("/adapter.py")]
    places = dict.fromkeys(f"{'/'.join(file.split('/')[-2:])[-100:]} {line}" for file, line in [*frames[:1], *own[:1]])
    at = f" at {', called from '.join(places)}" if places else ""
    return f"{one_line(f'{_SIGNAL_NAMES.get(name, name)}{at}', MAX_TEXT // 2)}; {last_line(log[: fatal.start()])}"

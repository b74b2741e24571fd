"""A job folder, and how the job was seen to end -> outcome, samples, run.

Whatever lies in ``out/`` was written by an untrusted image: it is bounded, parsed line by line, and checked
against what was asked.  What the kernel and the engine saw outranks what the job says of itself.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from harness.launch.base import Ended, Job
from harness.measure import envelope
from harness.measure.answers import BadAnswer, check
from harness.measure.output import MEASUREMENT, SAMPLES, WARMUP_TRIAL
from harness.records import Hit, JobSpec, Measurement, Memory, Outcome, to_json
from harness.untrusted import lines_of, most_line_bytes, most_samples, open_regular, read_regular

if TYPE_CHECKING:
    import pyarrow as pa

_MEASUREMENT = TypeAdapter(Measurement)
_MEASUREMENT_BYTES = 4 << 20
_LAST_BYTES = 4096
_MOST_STAGES = 16
_KILLED = 137  # 128 + SIGKILL
_AT_LIMIT = 0.98
_CLOCK_SLACK_S = 0.05
_OTHER_PHASES = 8  # load, warm-up, close or build, and some to spare


@dataclass(frozen=True)
class Sample:
    """One query of one trial, as the job wrote it and we checked it.

    ``ranking`` is a hash of the ranked ids; the hits themselves are held for the first trial alone.
    """

    trial: int
    query_id: str
    latency_ns: int
    stages_ns: dict[str, int]
    ranking: bytes
    hits: list[tuple[str, float]]

    def without_hits(self) -> Sample:
        """The sample, lighter."""
        return replace(self, hits=[])


@dataclass(frozen=True)
class Collected:
    """What came of a job."""

    outcome: Outcome
    detail: str | None
    measurement: Measurement | None
    memory: Memory
    samples: tuple[Sample, ...]

    @property
    def first_query_s(self) -> float | None:
        """The first query after load, in seconds."""
        return self.samples[0].latency_ns / 1e9 if self.samples else None

    @property
    def warmup_done(self) -> int:
        """Warm-up queries that were asked."""
        return len(self.samples) - len(self._timed())

    def trials_finished(self, sample_size: int) -> int:
        """Trials in which every query of the sample was answered."""
        return sum(count == sample_size for count in Counter(sample.trial for sample in self._timed()).values())

    def ranking_disagreements(self) -> int | None:
        """Sample queries whose ranked ids differ between trials; None without two trials to compare."""
        rankings: dict[str, set[bytes]] = {}
        for sample in self._timed():
            rankings.setdefault(sample.query_id, set()).add(sample.ranking)
        if len({sample.trial for sample in self._timed()}) < 2:
            return None
        return sum(len(seen) > 1 for seen in rankings.values())

    def run(self, system: str) -> bytes | None:
        """The first trial's rankings as a TREC run."""
        first = sorted((s for s in self._timed() if s.trial == 0), key=lambda sample: sample.query_id)
        lines = [
            f"{sample.query_id} Q0 {doc_id} {rank} {score!r} {system}\n"
            for sample in first
            for rank, (doc_id, score) in enumerate(sample.hits, 1)
        ]
        return "".join(lines).encode("utf-8") if first else None

    def table(self) -> pa.Table | None:
        """Raw latencies as columns, in the order in which they were measured."""
        if not self.samples:
            return None
        import pyarrow as pa

        stages = sorted({name for sample in self.samples for name in sample.stages_ns})
        columns: dict[str, Any] = {
            "query_id": pa.array([sample.query_id for sample in self.samples], pa.string()),
            "trial": pa.array([sample.trial for sample in self.samples], pa.int32()),
            "warmup": pa.array([sample.trial == WARMUP_TRIAL for sample in self.samples], pa.bool_()),
            "latency_ns": pa.array([sample.latency_ns for sample in self.samples], pa.int64()),
        }
        for name in stages:
            values = [sample.stages_ns.get(name) for sample in self.samples]
            columns[f"stage_{name}_ns"] = pa.array(values, pa.int64())
        return pa.table(columns)

    def _timed(self) -> list[Sample]:
        return [sample for sample in self.samples if sample.trial != WARMUP_TRIAL]


def collect(job: Job, ended: Ended, unknown_ids: Callable[[set[str]], set[str]]) -> Collected:
    """Judge a job by what it left and by how it was seen to end.

    Args:
        unknown_ids: says which of some document ids the corpus does not have.
    """
    measurement, unreadable = _measurement(job)
    samples, doc_ids, wrong = _samples(job)
    outcome, detail = _judge(job, ended, measurement, unreadable)
    if outcome is Outcome.OK and measurement is not None:
        if job.spec.kind == "search":
            wrong = wrong or _incomplete(job.spec, samples) or _unknown(doc_ids, unknown_ids)
        wrong = wrong or _impossible(job.spec, measurement, samples, ended.wall_s)
        if wrong:
            outcome, detail = Outcome.BAD_OUTPUT, wrong
    phases = measurement.phases[: job.spec.trials + _OTHER_PHASES] if measurement else ()
    memory = ended.memory.summary(phases)
    return Collected(outcome, detail, measurement, memory, tuple(samples))


def _judge(
    job: Job, ended: Ended, measurement: Measurement | None, unreadable: str | None
) -> tuple[Outcome, str | None]:
    """The outcome, from the strongest evidence to the weakest."""
    inside_kills = measurement.oom_kills if measurement else None
    limit = job.spec.envelope.memory_bytes >> 20
    if ended.oom_killed or ended.oom_kills or inside_kills:
        what = "the job" if ended.exit_code == _KILLED else "one of its processes"
        return Outcome.OOM, f"the kernel killed {what} at the memory limit of {limit} MiB"
    peak = ended.memory.peak_cgroup_bytes or 0
    if ended.exit_code == _KILLED and not ended.stopped and peak >= _AT_LIMIT * job.spec.envelope.memory_bytes:
        # Old engines on cgroup v2 miss the flag, and the counter went with the cgroup before we could read it.
        return Outcome.OOM, f"killed (exit code {_KILLED}) with its memory at the limit of {limit} MiB"
    if ended.stopped:
        return ended.stopped.outcome, ended.stopped.detail
    if measurement is None:
        if b"java.lang.OutOfMemoryError" in ended.log[-_LAST_BYTES:]:  # as -XX:+ExitOnOutOfMemoryError leaves it
            return Outcome.OOM, f"the Java heap ran out; {_last_line(ended.log)}"
        why = unreadable or "it left no measurement"
        return Outcome.CRASH, f"ended with exit code {ended.exit_code}: {why}; {_last_line(ended.log)}"
    if measurement.outcome in (Outcome.TIMEOUT, Outcome.NOT_APPLICABLE):
        return Outcome.BAD_OUTPUT, f"the image says {measurement.outcome.value!r}, which is not its to say"
    if measurement.outcome is not Outcome.OK:
        return measurement.outcome, _plain(measurement.detail or "the image does not say why")
    if len(measurement.phases) > job.spec.trials + _OTHER_PHASES:
        return Outcome.BAD_OUTPUT, f"the image names {len(measurement.phases)} phases for {job.spec.trials} trials"
    if measurement.effective is None:
        return Outcome.BAD_OUTPUT, "the image does not say what limits it ran under"
    lying = envelope.mismatches(job.spec.envelope, measurement.effective, job.spec.isolation)
    lying += envelope.thread_mismatches(job.spec.envelope, measurement.effective.threads)
    if lying:
        return Outcome.ENVELOPE_MISMATCH, _plain("; ".join(lying))
    if ended.exit_code != 0:
        return Outcome.CRASH, f"exit code {ended.exit_code} after a complete measurement; {_last_line(ended.log)}"
    needed = measurement.build_s if job.spec.kind == "build" else measurement.load_s
    if needed is None or not 0 <= needed < float("inf"):
        return Outcome.BAD_OUTPUT, f"the image says it took {needed} s to {job.spec.kind}"
    return Outcome.OK, None


def _measurement(job: Job) -> tuple[Measurement | None, str | None]:
    try:
        text = read_regular(job.out / MEASUREMENT, _MEASUREMENT_BYTES)
    except OSError:
        return None, None
    try:
        measurement = _MEASUREMENT.validate_json(text)
        to_json(measurement)  # it will be stored, and JSON has no word for nan
        return measurement, None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return None, f"its measurement.json is wrong at '{_plain(where)}': {first['msg']}"
    except ValueError as error:
        return None, f"its measurement.json is wrong: {error}"


def _samples(job: Job) -> tuple[list[Sample], set[str], str | None]:
    """All samples up to the first wrong one, every document id in them, and what is wrong with that one."""
    known = {query.query_id for query in (*job.spec.warmup, *job.spec.sample)}
    samples: list[Sample] = []
    doc_ids: set[str] = set()
    stages: set[str] = set()
    longest = most_line_bytes(job.spec)
    most = 2 * most_samples(job.spec)  # ``_incomplete`` names the doubled ones
    try:
        with open_regular(job.out / SAMPLES) as file:
            for number, line in enumerate(lines_of(file, longest), 1):
                if number > most:
                    return samples, doc_ids, f"{SAMPLES}: more than {most} samples"
                if not line.endswith(b"\n"):
                    why = (
                        f"line {number} has more than {longest} bytes"
                        if len(line) == longest
                        else "its last line is cut off"
                    )
                    return samples, doc_ids, f"{SAMPLES}: {why}"
                sample = _sample(line, job.spec, known)
                stages.update(sample.stages_ns)
                if len(stages) > _MOST_STAGES:
                    return samples, doc_ids, f"{SAMPLES}: line {number}: more than {_MOST_STAGES} stages"
                doc_ids.update(doc_id for doc_id, _ in sample.hits)
                samples.append(sample.without_hits() if sample.trial != 0 else sample)
    except OSError:
        return samples, doc_ids, None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, BadAnswer) as error:
        return samples, doc_ids, _plain(f"{SAMPLES}: line {len(samples) + 1}: {error}")
    return samples, doc_ids, None


def _sample(line: bytes, spec: JobSpec, known: set[str]) -> Sample:
    raw = json.loads(line)
    trial, query_id, latency_ns = raw["trial"], raw["query_id"], raw["latency_ns"]
    if not isinstance(query_id, str) or query_id not in known:
        raise ValueError(f"unknown query id {str(query_id)[:80]!r}")
    if type(trial) is not int or not WARMUP_TRIAL <= trial < spec.trials:
        raise ValueError(f"trial {str(trial)[:20]} of {spec.trials}")
    if type(latency_ns) is not int or not 0 < latency_ns < 1 << 62:
        raise ValueError(f"latency_ns {str(latency_ns)[:40]} is no positive whole number")
    stages_ns = {
        name: value
        for name, value in raw.get("stages_ns", {}).items()
        if name.isidentifier() and len(name) <= 40 and type(value) is int and 0 <= value < 1 << 62
    }
    fewest = 0 if spec.fewer_hits_ok else min(spec.k, spec.corpus_size)
    hits = check([Hit(doc_id, score) for doc_id, score in raw["hits"]], spec.k, fewest)
    ranking = hashlib.sha256("\n".join(doc_id for doc_id, _ in hits).encode("utf-8")).digest()
    return Sample(trial, query_id, latency_ns, stages_ns, ranking, hits)


def _incomplete(spec: JobSpec, samples: list[Sample]) -> str | None:
    """What is missing, doubled or not asked for among the samples, if anything."""
    wanted = {(trial, query.query_id) for trial in range(spec.trials) for query in spec.sample}
    wanted |= {(WARMUP_TRIAL, query.query_id) for query in spec.warmup}
    given = [(sample.trial, sample.query_id) for sample in samples]
    warmed = sum(trial == WARMUP_TRIAL for trial, _ in given)
    # Warm-up may pass over its queries again, up to the cap; nothing else may.
    doubled = len(given) - len(set(given)) - (max(0, warmed - len(spec.warmup)) if warmed <= spec.warmup_cap else 0)
    if doubled:
        return f"{doubled} samples come twice"
    if wanted - set(given):
        return f"{len(wanted - set(given))} of {len(wanted)} samples are missing"
    if set(given) - wanted:
        trial, query_id = min(set(given) - wanted)
        return f"query {query_id!r} was not asked for in {'the warm-up' if trial < 0 else f'trial {trial}'}"
    return None


def _unknown(doc_ids: set[str], unknown_ids: Callable[[set[str]], set[str]]) -> str | None:
    unknown = unknown_ids(doc_ids)
    if not unknown:
        return None
    return f"{len(unknown)} document ids that the corpus does not have, such as {min(unknown)!r}"


def _impossible(spec: JobSpec, measurement: Measurement, samples: list[Sample], wall_s: float) -> str | None:
    """Times that do not fit into the time that we saw pass."""
    inside_s = (measurement.load_s or 0) + (measurement.build_s or 0) + sum(each.latency_ns for each in samples) / 1e9
    if inside_s <= wall_s + _CLOCK_SLACK_S:
        return None
    return f"the image says it worked {inside_s:.3f} s in a {spec.kind} job that lasted {wall_s:.3f} s"


def _last_line(log: bytes) -> str:
    lines = log[-_LAST_BYTES:].decode("utf-8", "replace").strip().splitlines()
    return f"its last words: {_plain(lines[-1].strip()[:200])}" if lines else "it said nothing"


def _plain(text: str) -> str:
    """Foreign text as one short line that no terminal obeys."""
    line = " ".join(text[:1000].split())[:500]
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in line)

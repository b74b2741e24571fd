"""A launcher that runs nothing: it writes a job's output from a script, for tests of everything else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from harness.driver.cgroup import UNLIMITED
from harness.driver.output import REPEAT_TRIAL, WARMUP_TRIAL, Output
from harness.driver.rate_search import ServedQuery, Unreachable, arrivals_ns, highest_rate, judge_probe, out_of_reach
from harness.driver.records import (
    MAX_PROBES,
    EffectiveEnvelope,
    Envelope,
    JobSpec,
    Measurement,
    Outcome,
    Probe,
    Query,
    digest,
)
from harness.driver.scenarios import repeat_queries, trial_order
from harness.launch.base import LaunchEnd, Launcher, LaunchRequest, Prepared, StopReason, TrialTimes
from harness.launch.images.systems import System
from harness.launch.monitor.traces import MemoryTrace
from harness.progress import Progress
from harness.results.isolation import FAKE

Script = Callable[[LaunchRequest], Outcome]


def _always_ok(_job: LaunchRequest) -> Outcome:
    return Outcome.OK


class FakeLauncher(Launcher):
    """Launcher whose jobs take no time and claim some; ``script`` decides their outcomes."""

    isolation = FAKE
    runs_services = True
    fetches_files = False

    def __init__(
        self, script: Script = _always_ok, *, cache: Path = Path("absent"), models: Path | None = None
    ) -> None:
        super().__init__(cache, models)
        self._script = script
        self.launched: list[LaunchRequest] = []

    @classmethod
    def open(cls, cache: Path, models: Path | None, options: Mapping[str, str]) -> FakeLauncher:  # noqa: ARG003
        """Return a launcher whose jobs all end well."""
        return cls(cache=cache, models=models)

    def cannot(self, envelope: Envelope) -> str | None:
        """Refuse only GPUs."""
        return "the fake launcher has no GPU" if envelope.gpus else None

    def recipe(self, system: System) -> str:
        """Hash the names of the system and its components, and their parameters."""
        return "fake:" + digest([[part.image, part.params] for part in system.parts])

    def find(self, system: System) -> Prepared | None:
        """Return the system: it is always ready."""
        return Prepared(system, self.recipe(system), f"made:{self.recipe(system)}", system.image)

    def prepare(self, system: System) -> Prepared:
        """Return the system: it is always ready."""
        prepared = self.find(system)
        assert prepared is not None
        return prepared

    def launch(self, job: LaunchRequest, progress: Progress) -> LaunchEnd:
        """Write the scripted output."""
        self.launched.append(job)
        outcome = self._script(job)
        handed: tuple[TrialTimes, ...] = ()
        progress(1, 1, job.spec.kind)
        if outcome is Outcome.OK:
            handed = self._write(job)
        elif outcome in (Outcome.CRASH, Outcome.BAD_OUTPUT, Outcome.ENVELOPE_MISMATCH):
            with closing(Output(job.out)) as out:
                out.measurement(Measurement(outcome, f"scripted {outcome.value}", None))
        return LaunchEnd(
            exit_code=0 if outcome is Outcome.OK else 137 if outcome is Outcome.OOM else 1,
            oom_killed=outcome is Outcome.OOM,
            oom_kills=int(outcome is Outcome.OOM),
            throttled_periods=0,
            stopped=StopReason(outcome, "scripted timeout") if outcome is Outcome.TIMEOUT else None,
            memory=MemoryTrace(((0, 100 << 20),), 30 << 20, 150 << 20, source="fake", interval_s=1.0),
            wall_s=60.0,
            log=b"fake log\n",
            handed=handed,
        )

    def _write(self, job: LaunchRequest) -> tuple[TrialTimes, ...]:
        spec, effective = job.spec, _effective(job.spec.envelope)
        facts: dict[str, Any] = {"throttled_periods": 0, "oom_kills": 0, "libraries": {"fake": "1"}, "device": "cpu"}
        doc_ids = _first_ids(job.corpus_dir / "corpus.jsonl", spec.k)
        with closing(Output(job.out)) as out:
            samples = _Samples(spec, out, [(doc_id, float(spec.k - rank)) for rank, doc_id in enumerate(doc_ids)])
            if spec.kind == "build":
                (job.index_dir / "index").write_text("fake\n", encoding="utf-8")
                facts["build_s"] = 2.0
            else:
                facts |= {"load_s": 0.5, **samples.write()}
            out.measurement(Measurement(Outcome.OK, None, effective, tuple(out.phases), **facts))
        return tuple(samples.handed)


class _Samples:
    """Samples of each scenario, with scripted times."""

    def __init__(self, spec: JobSpec, out: Output, hits: list[tuple[str, float]]) -> None:
        self._spec = spec
        self._out = out
        self._hits = hits
        self._probes: list[Probe] = []
        self.handed: list[TrialTimes] = []

    def write(self) -> dict[str, Any]:
        """Warm up, then write what the spec's scenario asks for; return its facts for the measurement."""
        spec = self._spec
        for query in spec.warmup:
            self._sample(WARMUP_TRIAL, query, self._service_ns(query, 0))
        if spec.scenario == "server":
            # Ten milliseconds a query: see _service_ns.
            rate_qps = highest_rate(self._probe, 100.0, MAX_PROBES)
            return {"probes": tuple(self._probes), "rate_qps": rate_qps}
        for trial in range(spec.first_trial, spec.first_trial + spec.trials):
            order = trial_order(spec.sample, spec.seed, trial)
            with self._out.phase(f"trial-{trial}", len(order)):
                self._send(trial, order)
            taken_ns = sum(self._service_ns(query, trial) for query in order)
            self._hand(trial, taken_ns, taken_ns)
        for query in repeat_queries(spec):
            self._send(REPEAT_TRIAL, [query, query])
        return {}

    def _hand(self, trial: int, lasted_ns: int, claimed_ns: int) -> None:
        """Note a trial as a host would see it, by the scripted times."""
        self.handed.append(TrialTimes(f"trial-{trial}", 0, lasted_ns, lasted_ns, lasted_ns, claimed_ns))

    def _send(self, trial: int, queries: list[Query]) -> None:
        offline = self._spec.scenario == "offline" and trial != REPEAT_TRIAL
        size = (self._spec.scenario_params.batch_size or 1) if offline else 1
        for number, first in enumerate(range(0, len(queries), size)):
            batch = queries[first : first + size]
            taken_ns = sum(self._service_ns(query, trial) for query in batch)
            for query in batch:
                self._sample(trial, query, taken_ns, **({"batch": number} if offline else {}))

    def _probe(self, rate_qps: float, check: bool) -> bool:
        """Compute a queue before one stream, without waiting."""
        spec, trial = self._spec, self._spec.first_trial + len(self._probes)
        order = trial_order(spec.sample, spec.seed, trial)
        served, free_ns = [], 0
        with self._out.phase(f"trial-{trial}", len(order)):
            arrivals = arrivals_ns(spec.seed, trial, len(order), rate_qps)
            for query, scheduled_ns in zip(order, arrivals, strict=True):
                start_ns = max(scheduled_ns, free_ns)
                answer = ServedQuery(scheduled_ns, free_ns, start_ns, start_ns + self._service_ns(query, trial))
                self._sample(trial, query, answer.latency_ns, scheduled_ns=scheduled_ns, service_ns=answer.service_ns)
                served.append(answer)
                free_ns = answer.end_ns
        self._hand(trial, max(query.end_ns for query in served), sum(query.latency_ns for query in served))
        probe = judge_probe(served, trial, rate_qps, spec.scenario_params, streams=1, check=check)
        self._probes.append(probe)
        if out_of_reach(served, spec.scenario_params):
            raise Unreachable
        return probe.passed

    def _sample(self, trial: int, query: Query, latency_ns: int, **extra: int) -> None:
        self._out.write_sample(trial, query.query_id, latency_ns, {}, self._hits, **extra)

    def _service_ns(self, query: Query, trial: int) -> int:
        """Return between 5 and 15 ms: the same for the same system, query and trial."""
        key = f"{self._spec.system} {query.query_id} {trial}"
        spread = int(hashlib.sha256(key.encode()).hexdigest()[:8], 16) / 0xFFFFFFFF
        return round(5e6 + 10e6 * spread)


def _first_ids(path: Path, count: int) -> list[str]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line)["_id"] for line, _ in zip(lines, range(count), strict=False)]


def _effective(envelope: Envelope) -> EffectiveEnvelope:
    return EffectiveEnvelope(
        cpus=tuple(range(envelope.cpus)),
        cgroup_version=None,
        memory_bytes=envelope.memory_bytes,
        swap_bytes=0,
        cpu_quota=UNLIMITED,
        pids=envelope.pids,
        gpus=envelope.gpus,
        network_interfaces=("lo",),
        root_read_only=True,
        effective_capabilities=0,
        no_new_privileges=True,
        uid=65532,
        threads={},
    )

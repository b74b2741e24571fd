"""A launcher that runs nothing: it writes what a job would, from a script.  For tests of everything around it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from harness.catalog import System
from harness.launch.base import Ended, Job, Prepared, Progress, Report, Stopped
from harness.launch.memory import MemoryTrace
from harness.measure.output import WARMUP_TRIAL, Output
from harness.measure.scenarios import trial_order
from harness.records import (
    EffectiveEnvelope,
    Envelope,
    Isolation,
    Measurement,
    Outcome,
    Query,
    digest,
)

Script = Callable[[Job], Outcome]


def _always_ok(_job: Job) -> Outcome:
    return Outcome.OK


class FakeLauncher:
    """Every job takes no time and says it took some; ``script`` decides how each ends."""

    isolation = Isolation.FAKE

    def __init__(self, script: Script = _always_ok) -> None:
        self._script = script
        self.launched: list[Job] = []

    def check(self) -> None:
        """Always there."""

    def engine_version(self) -> str | None:
        """There is no engine."""
        return None

    def cannot(self, envelope: Envelope) -> str | None:
        """GPUs are the one thing that even a fake does not pretend to have."""
        return "the fake launcher has no GPU" if envelope.gpus else None

    def find(self, system: System) -> Prepared | None:
        """Always ready."""
        return Prepared(system, "fake:" + digest([system.name, system.params]), system.name)

    def prepare(self, system: System, report: Report) -> Prepared:  # noqa: ARG002
        """Always ready."""
        found = self.find(system)
        assert found is not None
        return found

    def launch(self, job: Job, progress: Callable[[Progress], None]) -> Ended:
        """Write what the script says."""
        self.launched.append(job)
        outcome = self._script(job)
        progress(Progress(job.spec.kind, 1, 1))
        if outcome is Outcome.OK:
            self._write(job)
        elif outcome in (Outcome.CRASH, Outcome.BAD_OUTPUT, Outcome.ENVELOPE_MISMATCH):
            out = Output(job.out)
            out.measurement(Measurement(outcome, f"scripted {outcome.value}", None))
            out.close()
        trace = MemoryTrace(anon=((0, 100 << 20),), peak_cgroup_bytes=150 << 20, source="fake", interval_s=1.0)
        return Ended(
            exit_code=0 if outcome is Outcome.OK else 137 if outcome is Outcome.OOM else 1,
            oom_killed=outcome is Outcome.OOM,
            oom_kills=int(outcome is Outcome.OOM),
            throttled_periods=0,
            stopped=Stopped(outcome, "scripted timeout") if outcome is Outcome.TIMEOUT else None,
            memory=trace,
            wall_s=60.0,
            log=b"fake log\n",
        )

    def sweep(self) -> int:
        """Nothing is ever left."""
        return 0

    def close(self) -> None:
        """Nothing is held."""

    def _write(self, job: Job) -> None:
        spec = job.spec
        if spec.kind == "build":
            (job.index_dir / "index").write_text("fake\n", encoding="utf-8")
        out = Output(job.out)
        doc_ids = _first_ids(job.corpus_dir / "corpus.jsonl", spec.k)
        hits = [(doc_id, float(spec.k - rank)) for rank, doc_id in enumerate(doc_ids)]
        for query in spec.warmup:
            out.sample(WARMUP_TRIAL, query.query_id, _latency_ns(spec.system, query, 0), {}, hits)
        for trial in range(spec.trials):
            with out.phase(f"trial-{trial}", len(spec.sample)):
                for query in trial_order(spec.sample, spec.seed, trial):
                    out.sample(trial, query.query_id, _latency_ns(spec.system, query, trial), {}, hits)
        out.measurement(
            Measurement(
                Outcome.OK,
                None,
                _effective(spec.envelope),
                phases=tuple(out.phases),
                load_s=0.5 if spec.kind == "search" else None,
                build_s=2.0 if spec.kind == "build" else None,
                throttled_periods=0,
                oom_kills=0,
                libraries={"fake": "1"},
                device="cpu",
            )
        )
        out.close()


def _latency_ns(system: str, query: Query, trial: int) -> int:
    """Between 5 and 15 ms: the same for the same system, query and trial."""
    spread = int(hashlib.sha256(f"{system} {query.query_id} {trial}".encode()).hexdigest()[:8], 16) / 0xFFFFFFFF
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
        cpu_quota=None,
        pids=envelope.pids,
        gpus=envelope.gpus,
        network_interfaces=("lo",),
        root_read_only=True,
        effective_capabilities=0,
        no_new_privileges=True,
        uid=65532,
        threads={},
    )

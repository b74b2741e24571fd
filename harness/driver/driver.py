"""The order of a job: verify, load, warm up, trials, close; or verify, build.

Whatever the adapter does, ``measurement.json`` says how it ended; what a dying process cannot say, the host
sees from outside.
"""

from __future__ import annotations

import importlib
import json
import os
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns  # by name: see output.py
from typing import Any, cast

from harness.driver import cgroup, envelope
from harness.driver.adapter import Adapter, Corpus
from harness.driver.hits import BadAnswer
from harness.driver.output import Output, throttled
from harness.driver.scenarios import Done, Hand, handed, offline, single_stream
from harness.driver.server import server
from harness.records import Isolation, JobSpec, Measurement, Outcome, Query, spec_from_json

# MERGED harness.driver.driver: What an exception out of an adapter is as an outcome, and in one line.


# JVM and CUDA, PyTorch, the C library.
_REFUSED = (
    "OutOfMemoryError",
    "CUDA error: out of memory",
    "STATUS_ALLOC_FAILED",
    "can't allocate memory",
    "Cannot allocate memory",
)


def outcome_of(error: BaseException) -> Outcome:
    """Memory that the engine itself refused (a JVM heap, an allocator, a GPU) is ``oom`` like a kernel kill."""
    if isinstance(error, BadAnswer):
        return Outcome.BAD_OUTPUT
    said = f"{type(error).__name__} {error}"
    if isinstance(error, MemoryError) or any(each in said for each in _REFUSED):
        return Outcome.OOM
    return Outcome.CRASH


def one_line(error: BaseException) -> str:
    """The exception's name and text, at most 500 characters that any file can hold."""
    # A lone surrogate in foreign text would make the measurement unwritable.
    text = " ".join(str(error).encode("utf-8", "replace").decode("utf-8").split())
    return f"{type(error).__name__}: {text}"[:500]


SCENARIOS: dict[str, Callable[[Adapter, JobSpec, Output, Hand], Done]] = {
    "single_stream": single_stream,
    "offline": offline,
    "server": server,
}

# The host looks at the machine before it hands over some of the queries.
PAUSE_S = 60.0
PAUSE_POLL_S = 0.005


class Places:
    """Where things lie: fixed in a container; under one folder for a plain process."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.job = Path(environ.get("HARNESS_JOB", "/job"))
        self.corpus = Path(environ.get("HARNESS_CORPUS", "/corpus")) / "corpus.jsonl"
        self.index = Path(environ.get("HARNESS_INDEX", "/index"))
        self.assets = Path(environ.get("HARNESS_ASSETS", "/opt/assets"))


def main() -> int:
    """Run the job that ``spec.json`` describes; exit code 0 when it ended ``ok``, else 1."""
    places = Places(dict(os.environ))
    spec = spec_from_json((places.job / "spec.json").read_text(encoding="utf-8"))
    out = Output(places.job / "out")
    try:
        measurement = Job(spec, places, out).run()
    finally:
        out.close()
    return 0 if measurement.outcome is Outcome.OK else 1


class Job:
    """One job; its measurement grows as the job goes on, so that a crash loses nothing that was known."""

    def __init__(self, spec: JobSpec, places: Places, out: Output) -> None:
        self.spec = spec
        self.places = places
        self.out = out
        self.effective = envelope.read()
        self.measurement = Measurement(Outcome.OK, None, self.effective)

    def run(self) -> Measurement:
        """Do the job and write down how it ended."""
        try:
            spec = self.spec
            self._verify(envelope.mismatches(spec.envelope, self.effective, spec.isolation, spec.cpuset))
            (self._build if self.spec.kind == "build" else self._search)()
        except EnvelopeMismatch as error:
            self._note(outcome=Outcome.ENVELOPE_MISMATCH, detail=str(error))
        except BadAnswer as error:
            self._note(outcome=Outcome.BAD_OUTPUT, detail=str(error))
        # The adapter is foreign code: anything may come out of it, and all of it is an outcome.
        except BaseException as error:  # noqa: BLE001
            traceback.print_exc()
            self._note(outcome=outcome_of(error), detail=one_line(error))
        self._note(phases=tuple(self.out.phases))
        self._note_counters()
        try:
            self.out.measurement(self.measurement)
        except (TypeError, ValueError) as error:
            # Something in what the adapter says of itself is no text or number that JSON can hold.
            self._note(outcome=Outcome.CRASH, detail=one_line(error), libraries={}, device=None)
            self._note(effective=replace(self.effective, threads={}))
            self.out.measurement(self.measurement)
        return self.measurement

    def _build(self) -> None:
        with self.out.phase("build", self.spec.corpus_size):
            start = perf_counter_ns()
            # Inside: imports count, a build is a job that someone pays for from its start.
            adapter = self._adapter()
            corpus = Corpus(self.places.corpus, self.spec.corpus_size)
            adapter.build(corpus, self.places.index, throttled(self.out.progress))
            resumed_s = adapter.resumed_s()
            self._note(build_s=(perf_counter_ns() - start) / 1e9 + resumed_s, resumed_s=resumed_s or None)
        with self.out.phase("check"):
            # Outside: doubting an index is no part of making it.
            adapter.verify_index(corpus, self.places.index)
        self._note(libraries=adapter.libraries(), device=adapter.device())

    def _search(self) -> None:
        with self.out.phase("load"):
            start = perf_counter_ns()
            # Inside: importing the engine is part of what a restart costs.
            adapter = self._adapter()
            adapter.load(self.places.index)
            self._note(load_s=(perf_counter_ns() - start) / 1e9)
        self.effective = replace(self.effective, threads=adapter.threads())
        self._note(effective=self.effective, libraries=adapter.libraries(), device=adapter.device())
        self._verify(envelope.thread_mismatches(self.spec.envelope, self.effective.threads))
        if self.spec.scenario not in SCENARIOS:
            raise ValueError(f"this image knows no scenario {self.spec.scenario!r}, only {', '.join(SCENARIOS)}")
        spec = replace(self.spec, warmup=tuple(self._hand(0)))
        done = SCENARIOS[spec.scenario](adapter, spec, self.out, self._hand)
        self._note(warmup_steady=done.warmup_steady, compiled_s=done.compiled_s)
        self._note(probes=done.probes, rate_qps=done.rate_qps)
        with self.out.phase("close"):
            adapter.close()

    def _hand(self, number: int) -> Sequence[Query]:
        """Wait until the host writes the queries of this number to ``/job/go-<number>``.

        Raises:
            TimeoutError: it did not within :data:`PAUSE_S`.
        """
        if not self.spec.pause:
            return handed(self.spec, number)
        self.out.pause(number)
        go = self.places.job / f"go-{number}"
        deadline = time.monotonic() + PAUSE_S
        while not go.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the host wrote no {go} within {PAUSE_S:g} s")
            time.sleep(PAUSE_POLL_S)
        return [Query(**query) for query in json.loads(go.read_text(encoding="utf-8"))]

    def _adapter(self) -> Adapter:
        module = importlib.import_module("adapter")
        return cast(Adapter, module.ENGINE(self.spec.params, self.spec.envelope, self.places.assets))

    def _verify(self, wrong: list[str]) -> None:
        if wrong:
            raise EnvelopeMismatch("; ".join(wrong))

    def _note(self, **facts: Any) -> None:
        self.measurement = replace(self.measurement, **facts)

    def _note_counters(self) -> None:
        """Add the kernel's own counters while the cgroup still exists."""
        group = cgroup.own() if self.spec.isolation is Isolation.CONTAINER else None
        if group is not None:
            self._note(
                peak_cgroup_bytes=group.peak_bytes(),
                throttled_periods=group.throttled_periods(),
                oom_kills=group.oom_kills(),
            )


class EnvelopeMismatch(Exception):
    """The limits in force are not the ones asked for."""

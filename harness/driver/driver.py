"""The order of a job: verify, load, warm up, trials, close; or verify, build.

``measurement.json`` has the outcome of everything that an adapter does; the host observes a process that dies.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from time import perf_counter_ns  # by name: see output.py
from typing import cast

from harness.driver import cgroup, envelope
from harness.driver.adapter import Adapter, BadAnswer, Corpus, Parameters
from harness.driver.mixed import mixed
from harness.driver.output import Output, throttled
from harness.driver.records import (
    JobSpec,
    Measurement,
    Outcome,
    Query,
    query_of,
    spec_from_json,
    updates_from_json,
)
from harness.driver.scenarios import QuerySource, closed_loop, planned_queries
from harness.driver.server import connections, server

# Messages of the JVM, CUDA, PyTorch and the C library.
_REFUSED = (
    "OutOfMemoryError",
    "CUDA error: out of memory",
    "STATUS_ALLOC_FAILED",
    "can't allocate memory",
    "Cannot allocate memory",
)

# How to search the web, debug kernels and set an allocator: PyTorch adds it to errors of CUDA, far beyond one line.
_CUDA_ADVICE = re.compile(
    r" (Search for `cuda|CUDA kernel errors might be|If reserved but unallocated memory|See documentation for Memory).*"
)


class EnvelopeMismatch(Exception):
    """The limits in force differ from the spec's."""


def outcome_of(error: BaseException) -> Outcome:
    """Return the outcome of an adapter's exception; memory that the engine refused is ``oom``."""
    if isinstance(error, EnvelopeMismatch):
        return Outcome.ENVELOPE_MISMATCH
    if isinstance(error, BadAnswer):
        return Outcome.BAD_OUTPUT
    text = f"{type(error).__name__} {error}"
    if isinstance(error, MemoryError) or any(message in text for message in _REFUSED):
        return Outcome.OOM
    return Outcome.CRASH


def one_line(error: BaseException) -> str:
    """Return an exception's name and text, and the adapter's line that raised it, at most 500 characters."""
    # A lone surrogate cannot be written as UTF-8.
    text = " ".join(str(error).encode("utf-8", "replace").decode("utf-8").split())
    text, place = f"{type(error).__name__}: {_CUDA_ADVICE.sub('', text)}", _place(error)
    # A component's error has its own place.
    return text[:500] if not place or _PLACE.search(text) else f"{text[: 499 - len(place)]} {place}"


_PLACE = re.compile(r" \(\S+\.py:\d+\)$")


def _place(error: BaseException) -> str:
    """Return ``(adapter.py:31)``: the innermost line of the adapter's own files, or nothing."""
    spec = PathFinder.find_spec("adapter")
    if spec is None or spec.origin is None:
        return ""
    folder = f"{Path(spec.origin).parent}/"
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        lines.append((str(error.filename), error.lineno or 0))
    # In a plain process the driver's folder is next to the adapter.
    own = f"{Path(__file__).parent.parent}/"
    lines = [(name, line) for name, line in lines if name.startswith(folder) and not name.startswith(own)]
    inside = [(name.removeprefix(folder), line) for name, line in lines]
    return f"({inside[-1][0][-100:]}:{inside[-1][1]})" if inside else ""


SCENARIOS: dict[str, Callable[[Adapter, JobSpec, Output, QuerySource, Measurement[str]], None]] = {
    "single_stream": closed_loop,
    "offline": closed_loop,
    "server": server,
    "mixed": mixed,
}

# The host looks at the machine before it hands over some of the queries; else they come at once.
PAUSE_S = 60.0
FIRST_POLL_S, POLL_S = 0.0005, 0.005
# The file by which the host tells a client that its server was started, and when.
SERVING = "serving.json"
# The file of the updates of the mixed scenario: an older driver, which knows no such scenario, can read its spec.
UPDATES_FILE = "updates.json"


class JobPaths:
    """The paths of a job: fixed in a container, under one folder for a plain process."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.job = Path(environ.get("HARNESS_JOB", "/job"))
        self.corpus = Path(environ.get("HARNESS_CORPUS", "/corpus")) / "corpus.jsonl"
        self.index = Path(environ.get("HARNESS_INDEX", "/index"))
        self.assets = Path(environ.get("HARNESS_ASSETS", "/opt/assets"))


def main() -> int:
    """Run the job of ``spec.json``, write how it ended; exit code 0 means ``ok``."""
    paths = JobPaths(dict(os.environ))
    spec = spec_from_json((paths.job / "spec.json").read_text(encoding="utf-8"))
    with closing(Output(paths.job / "out")) as out:
        effective = envelope.read()
        measured: Measurement[str] = Measurement(Outcome.OK, None, effective)
        try:
            _verify(envelope.mismatches(spec.envelope, effective, spec.enforced, spec.cpuset))
            measured.max_qps = spec.max_qps
            VERBS.get(spec.kind, run_search)(spec, paths, out, measured)
        except (EnvelopeMismatch, BadAnswer) as error:
            measured.outcome, measured.detail = outcome_of(error), str(error)
        except BaseException as error:  # noqa: BLE001 # foreign code raises anything, and all of it is an outcome
            traceback.print_exc()
            measured.outcome, measured.detail = outcome_of(error), one_line(error)
        measured.phases = tuple(out.phases)
        # While the cgroup still exists.  Without a memory limit it is not the job's.
        if "memory_bytes" in spec.enforced and (group := cgroup.own()):
            measured.peak_cgroup_bytes = group.peak_bytes()
            measured.throttled_periods, measured.oom_kills = group.throttled_periods(), group.oom_kills()
        try:
            out.measurement(measured)
        except (TypeError, ValueError) as error:
            # The adapter's facts about itself do not fit into JSON.
            measured.outcome, measured.detail = Outcome.CRASH, one_line(error)
            measured.libraries, measured.device, measured.effective = {}, None, effective
            out.measurement(measured)
    return 0 if measured.outcome is Outcome.OK else 1


def run_build(spec: JobSpec, paths: JobPaths, out: Output, measured: Measurement[str]) -> None:
    """Build the index under the clock, then verify it."""
    client = _client(spec, paths, out)
    with out.phase("build", spec.corpus_size):
        start = _start_ns(spec, paths)
        # Inside: imports count, because a build is paid for from its start.
        adapter = client or _adapter(spec, paths)
        corpus = Corpus(paths.corpus, spec.corpus_size)
        adapter.build(corpus, paths.index, throttled(out.progress))
        resumed_s = adapter.resumed_s()
        measured.build_s, measured.resumed_s = (perf_counter_ns() - start) / 1e9 + resumed_s, resumed_s or None
    with out.phase("check"):
        # Outside: a build ends before its index is verified.
        adapter.verify_index(corpus, paths.index)
    measured.libraries, measured.device = adapter.libraries(), adapter.device()
    if client:
        client.close()


def run_search(spec: JobSpec, paths: JobPaths, out: Output, measured: Measurement[str]) -> None:
    """Load the index, run the scenario, close the adapter."""
    client = _client(spec, paths, out)
    with out.phase("load"):
        start = _start_ns(spec, paths)
        # Inside: importing the engine is part of what a restart costs.
        adapter = client or _adapter(spec, paths)
        adapter.load(paths.index)
        measured.load_s = (perf_counter_ns() - start) / 1e9
    threads = adapter.threads()
    assert measured.effective is not None
    measured.effective = replace(measured.effective, threads=threads)
    measured.libraries, measured.device = adapter.libraries(), adapter.device()
    if client is None:  # a server's threads are for the host to compare with the server's limits
        _verify(envelope.thread_mismatches(spec.envelope, threads))
    if spec.scenario not in SCENARIOS:
        raise ValueError(f"this image knows no scenario {spec.scenario!r}, only {', '.join(SCENARIOS)}")
    if spec.scenario == "mixed":
        spec = replace(spec, updates=updates_from_json((paths.job / UPDATES_FILE).read_text(encoding="utf-8")))
    hand = partial(_hand, spec, paths, out)
    spec = replace(spec, warmup=tuple(hand(0)))
    run = connections if spec.probes and spec.scenario == "offline" else SCENARIOS[spec.scenario]
    run(adapter, spec, out, hand, measured)
    with out.phase("close"):
        adapter.close()


def run_remove(spec: JobSpec, paths: JobPaths, out: Output, measured: Measurement[str]) -> None:  # noqa: ARG001
    """Remove the index that a build left in a service."""
    client = _client(spec, paths, out)
    if client is None:
        raise ValueError("an index can be removed from a service alone, and this job has no service_url")
    with out.phase("remove"):
        client.remove()


VERBS = {"build": run_build, "search": run_search, "remove": run_remove}


def _hand(spec: JobSpec, paths: JobPaths, out: Output, number: int) -> Sequence[Query]:
    """Wait until the host writes the queries of this number to ``/job/go-<number>``.

    Raises:
        TimeoutError: the host wrote none within :data:`PAUSE_S`.
    """
    if not spec.pause:
        return planned_queries(spec, number)
    out.pause(number)
    return list(map(query_of, json.loads(_wait_for(paths.job / f"go-{number}"))))


def _wait_for(path: Path) -> str:
    """Return the text of a file once the host has written it."""
    deadline, poll_s = time.monotonic() + PAUSE_S, FIRST_POLL_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the host wrote no {path} within {PAUSE_S:g} s")
        time.sleep(poll_s)
        poll_s = min(POLL_S, 2 * poll_s)
    return path.read_text(encoding="utf-8")


def _client(spec: JobSpec, paths: JobPaths, out: Output) -> Adapter | None:
    """Return the client of a service, made before its server starts, so that a restart does not count its imports."""
    if spec.service_url is None:
        return None
    with out.phase("client"):
        adapter = _adapter(spec, paths)
        adapter.service_url = spec.service_url
    return adapter


def _start_ns(spec: JobSpec, paths: JobPaths) -> int:
    """Return the time from which a load or a build counts: now, or the start of the server's process.

    Raises:
        TimeoutError: the host started no server within :data:`PAUSE_S`.
    """
    if spec.service_url is None:
        return perf_counter_ns()
    return int(json.loads(_wait_for(paths.job / SERVING))["started_ns"])


def _adapter(spec: JobSpec, paths: JobPaths) -> Adapter:
    module = importlib.import_module("adapter")
    return cast(Adapter, module.ENGINE(Parameters(spec.params), spec.envelope, paths.assets))


def _verify(mismatches: list[str]) -> None:
    if mismatches:
        raise EnvelopeMismatch("; ".join(mismatches))

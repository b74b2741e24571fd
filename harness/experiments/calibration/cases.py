"""Calibration cases as data: the injected value, the protocol, and the report that must follow."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from harness.analysis.table import Cause, Validity
from harness.driver.records import Envelope, Outcome, Scalar
from harness.errors import UnknownName
from harness.experiments.calibration.known_values import (
    MIB,
    BareMemory,
    Clean,
    CpuTime,
    JobEnd,
    KnownValue,
    LognormalLatency,
    MeanLatency,
    NamedReason,
    NotFaster,
    PeakMemory,
    ServerQueue,
    StalledQuery,
    Throughput,
)
from harness.untrusted import split_list

# One CPU each: a profile with all CPUs of its host shares them with harness, which makes it noisy by rule.
_SMALL = Envelope("cpu1-mem256m", 1, 256 * MIB)


@dataclass(frozen=True)
class Case:
    """A system with an injected value, which the report must show.

    ``quota``: a CPU quota (microseconds per period, period) set from outside once the first trial runs.  ``rival``: the
    trial during which a busy process runs on each CPU of the job.
    """

    name: str
    known_value: KnownValue
    params: dict[str, Scalar] = field(default_factory=dict)
    build_params: dict[str, Scalar] = field(default_factory=dict)
    quota: tuple[int, int] | None = None
    rival: int | None = None


@dataclass(frozen=True)
class Group:
    """Cases with one protocol, envelope and scenario, which form one suite.

    ``suite`` holds further keys of the suite file, such as a scenario's.
    """

    name: str
    cases: tuple[Case, ...]
    queries: int
    protocol: dict[str, Any]
    envelope: Envelope = _SMALL
    scenario: str = "single_stream"
    suite: dict[str, Any] = field(default_factory=dict)

    def limited(self, names: set[str]) -> Group:
        """Return the group with only these cases."""
        return replace(self, cases=tuple(case for case in self.cases if case.name in names))


# The bare systems of the memory cases: the same processes without the memory.
_BARE, _BARE_CHILD = "memory-0", "memory-0-in-child"
_WARMUP = 10
# Slow: memory is sampled, so memory of the last moments may be missed.
_LEAK = PeakMemory(_BARE, (_WARMUP + 200) * MIB // 4, timed=True)
# The timed query that stalls.
_STALLED = 50
# The rates at which the search may end, as shares of the capacity.  Simulations with an undisturbed queue end at 0.86
# to 0.94, depending on the first rate.
_SEARCH = (0.80, 0.96)


def select(only: str | None) -> tuple[Group, ...]:
    """Return all groups, or the cases whose names match one of the globs, with their bare systems.

    A group's name selects all of its cases.

    Raises:
        UnknownName: a glob matches nothing.
    """
    if only is None:
        return GROUPS
    cases = [(group, case) for group in GROUPS for case in group.cases]
    chosen: list[Case] = []
    for glob in split_list(only) or (only,):
        named = [case for group, case in cases if fnmatchcase(case.name, glob) or group.name == glob]
        if not named:
            raise UnknownName("calibration case", glob, [case.name for _, case in cases])
        chosen += named
    names = {case.name for case in chosen}
    names |= {case.known_value.bare for case in chosen if isinstance(case.known_value, PeakMemory)}
    return tuple(part for group in GROUPS if (part := group.limited(names)).cases)


def _once(**more: Any) -> dict[str, Any]:
    """Return a protocol of one container, one trial and a warm-up of known length."""
    return {"trials": 1, "warmup_queries": _WARMUP, "warmup_cap": _WARMUP, "repeats": 0, **more}


def _group(name: str, queries: int, *cases: Case, protocol: dict[str, Any] | None = None, **more: Any) -> Group:
    """Return a group; by default its protocol has one container and one trial."""
    return Group(name, cases, queries, _once() if protocol is None else protocol, **more)


def _mean(service_ms: float, how: str = "spin") -> Case:
    # A sleeper wakes late and a child answers through a pipe; the machine decides how long that takes.
    known_value = MeanLatency(service_ms / 1e3 if how == "spin" else None)
    return Case(f"{how}-{service_ms:g}ms", known_value, {"service_ms": service_ms, "how": how})


def _burn(burn_ms: float, rest_ms: float, workers: int) -> Case:
    name = f"burn-{burn_ms:g}ms-rest-{rest_ms:g}ms" + (f"-{workers}-threads" if workers > 1 else "")
    params: dict[str, Scalar] = {"how": "burn", "burn_ms": burn_ms, "service_ms": rest_ms, "workers": workers}
    return Case(name, CpuTime(workers * burn_ms / 1e3), params)


def _memory(name: str, anonymous_mib: int, mapped_mib: int | None = None, **params: Scalar) -> Case:
    bare = _BARE_CHILD if params.get("hold_in") == "child" else _BARE
    known_value = PeakMemory(bare, anonymous_mib * MIB, None if mapped_mib is None else mapped_mib * MIB)
    build: dict[str, Scalar] = {} if mapped_mib is None else {"file_mib": 256}
    return Case(name, known_value, {"service_ms": 1, **params}, build)


def _ends(name: str, outcome: Outcome, words: str = "", **params: Scalar) -> Case:
    return Case(name, JobEnd(outcome, words), {"service_ms": 0.2, **params})


def _fault(name: str, outcome: Outcome, words: str = "") -> Case:
    # In the sixth query of the first trial.
    return _ends(name, outcome, words, fault=name.replace("-", "_"), at=_WARMUP + 5)


def _lie(name: str, known_value: KnownValue, **params: Scalar) -> Case:
    return Case(name, known_value, {"service_ms": 20, "lie": name.removeprefix("lie-").replace("-", "_"), **params})


def _named(name: str, fault: str, cause: Cause, **params: Scalar) -> Case:
    return Case(name, NamedReason(fault, cause), params)


def _cold(name: str, **params: Scalar) -> Case:
    return _named(name, "10 times slower at first", Cause.WARMUP, slow_factor=10, **params)


def _rankings(name: str, fault: str, **params: Scalar) -> Case:
    return Case(name, NamedReason(fault, Cause.RANKINGS, timed=False), {"service_ms": 1, **params})


def _stall(name: str, *, open_loop: bool) -> Case:
    known_value = StalledQuery(1e-3, 1.0, _STALLED, open_loop)
    return Case(name, known_value, {"service_ms": 1, "stall_at": _WARMUP + _STALLED, "stall_s": known_value.stall_s})


LATENCY = (
    _group("latency-2000", 2000, _mean(0.2)),
    _group("latency-400", 400, _mean(1), _mean(1, "sleep")),
    _group("latency-100", 100, _mean(5), _mean(5, "child")),
    _group("latency-40", 40, _mean(20), _mean(20, "sleep"), _mean(20, "child")),
    _group("latency-11", 11, _mean(100), protocol=_once(warmup_queries=2, warmup_cap=2)),
    _group("latency-4", 4, _mean(500), protocol=_once(warmup_queries=1, warmup_cap=1)),
    _group("distribution", 2000, Case("lognormal", LognormalLatency(0.3e-3, 0.8), {"service_ms": 0.3, "sigma": 0.8})),
)

# Queries after the trial, so that the job waits when its counters are read.
CPU = (
    _group(
        "cpu-time",
        40,
        *(_burn(50, 0, 1), _burn(50, 50, 1), _burn(25, 0, 2), _burn(25, 50, 2)),
        protocol=_once(repeats=2),
    ),
)

SCENARIOS = (
    _group(
        "offline",
        960,
        Case("offline", Throughput(32 / 0.02), {"batch_ms": 20}),
        protocol=_once(warmup_queries=64, warmup_cap=64),
        scenario="offline",
        suite={"offline": {"batch_size": 32}},
    ),
    _group(
        "server",
        400,
        Case("server-rate", ServerQueue(1e-3, _SEARCH), {"service_ms": 1}),
        Case("clean-server", Clean(), {"service_ms": 1}),
        protocol=_once(job_timeout_s=60.0),  # on a busy machine the search would not end
        scenario="server",
        suite={"server": {"latency_target_s": 0.02, "latency_percentile": 95}},
    ),
    _group(
        "stall-open",
        700,
        _stall("stall-open-loop", open_loop=True),
        scenario="server",
        # Unreachable, so that the search ends at the first rate.
        suite={"server": {"latency_target_s": 0.0005, "latency_percentile": 95}},
    ),
    _group("stall-closed", 700, _stall("stall-closed-loop", open_loop=False)),
)

MEMORY = (
    _group(
        "memory",
        200,
        Case(_BARE, BareMemory(), {"service_ms": 1}),
        Case(_BARE_CHILD, BareMemory(), {"service_ms": 1, "hold_mib": 0, "hold_in": "child"}),
        _memory("memory-64", 64, hold_mib=64),
        _memory("memory-256", 256, hold_mib=256),
        _memory("memory-1024", 1024, hold_mib=1024),
        _memory("memory-2048", 2048, hold_mib=2048),
        _memory("memory-256-in-child", 256, hold_mib=256, hold_in="child"),
        _memory("memory-2048-in-child", 2048, hold_mib=2048, hold_in="child"),
        _memory("mapped-256", 0, 256, touch_file=True),
        _memory("mapped-256-untouched", 0, 0, touch_file=False),
        _memory("memory-128-mapped-256", 128, 256, hold_mib=128, touch_file=True),
        Case("leak-0.25-a-query", _LEAK, {"service_ms": 5, "leak_kib": 256}),
        envelope=Envelope("cpu1-mem3", 1, 3072 * MIB),
    ),
)

_LEAD: dict[str, Scalar] = {"lead": _WARMUP, "sample": 100}
_BUSY = NamedReason("each CPU had a busy process in 1 of 3 trials", Cause.CANARY)
_HELD = NamedReason("half a CPU by quota, from outside", Cause.THROTTLING, Validity.INVALID)
_UNSAID = NamedReason("4 threads on 1 CPU, unsaid", Cause.OVERSUBSCRIPTION)
NAMED = (
    _group(
        "clean",
        100,
        Case("clean", Clean(), {"service_ms": 2}),
        Case("rival", _BUSY, {"service_ms": 2}, rival=1),
        protocol={"trials": 3},
    ),
    _group(
        "one-container",
        100,
        Case("clean-one-container", Clean(), {"service_ms": 2}),
        _cold("cold-one-pass", service_ms=1, slow_first=100),
        _named("drift", "each trial 1.4 times slower", Cause.DRIFT, service_ms=1, drift=1.4, **_LEAD),
        _rankings("rankings-by-trial", "another ranking each trial", ranking="trial", **_LEAD),
        protocol={"name": "santhanam2023", "trials": 3, "repeats": 0},
    ),
    _group(
        "until-steady",
        100,
        _cold("cold-beyond-cap", service_ms=0.5, slow_first=200),
        protocol={"trials": 1, "warmup_cap": 80},
    ),
    _group(
        "two-containers",
        100,
        _rankings("rankings-by-process", "another ranking in each process", ranking="process"),
        protocol={"trials": 2},
    ),
    _group(
        "repeated",
        100,
        _named("cache", "a second answer is free", Cause.RESULT_CACHE, service_ms=5, cache=True),
        Case("threads-unsaid", _UNSAID, {"service_ms": 5, "how": "threads", "workers": 4}),
        Case("throttled", _HELD, {"service_ms": 10}, quota=(50_000, 100_000)),
        protocol={"trials": 1},
    ),
)

OUTCOMES = (
    _group(
        "killed",
        20,
        _fault("oom", Outcome.OOM, "the job"),
        _fault("oom-child", Outcome.OOM, "one of its processes"),
        _fault("raise", Outcome.CRASH, "planted"),
        _fault("exit", Outcome.CRASH, "exit code 0"),
        _fault("segfault", Outcome.CRASH, "SIGSEGV"),
        _fault("abort", Outcome.CRASH, "SIGABRT"),
    ),
    _group(
        "lying",
        20,
        _fault("wrong-id", Outcome.BAD_OUTPUT, "no-such-document"),
        _fault("duplicate", Outcome.BAD_OUTPUT, "comes twice"),
        _fault("nan", Outcome.BAD_OUTPUT, "nan"),
        _ends("threads-said", Outcome.ENVELOPE_MISMATCH, "4 threads on 1 CPUs", threads_said=4),
    ),
    # An adapter can reach these, so the lie is refused; if it changes nothing, the true figure is reported.
    _group(
        "lying-about-time",
        40,
        _lie("lie-ahead", NotFaster(0.02), cache=True),
        _lie("lie-asks", JobEnd(Outcome.BAD_OUTPUT, "out of turn"), cache=True),
        _lie("lie-clock", NotFaster(0.02)),
        _lie("lie-driver-clock", JobEnd(Outcome.BAD_OUTPUT, "the image's clock says")),
        _lie("lie-samples", JobEnd(Outcome.BAD_OUTPUT, "the driver counted")),
    ),
    _group("hanging", 20, _fault("hang", Outcome.TIMEOUT, "more than 1 s"), protocol=_once(query_timeout_s=1.0)),
)

GROUPS = (*LATENCY, *CPU, *SCENARIOS, *MEMORY, *NAMED, *OUTCOMES)

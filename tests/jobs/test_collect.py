"""A job is judged by its observed end, then by its files, which can do no harm."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.driver.records import Measurement, Outcome, Phase, Query
from harness.jobs.collect import CollectedJob, build_result, collect
from harness.launch.base import LaunchEnd, LaunchRequest, StopReason
from harness.launch.monitor.traces import (
    CounterReading,
    CounterTrace,
    MemoryTrace,
)
from harness.results.isolation import CONTAINER
from harness.results.schema import JobProvenance, Placement
from harness.untrusted import to_json
from tests.support import job_fixtures, sample_records
from tests.support.job_fixtures import PREPARED, SEEN
from tests.support.messages import PYTHON

SPEC = job_fixtures.spec(
    system="bm25",
    enforced=CONTAINER.enforced,
    k=2,
    corpus_size=10,
    warmup=(Query("w0", "warm"),),
    sample=(Query("q0", "x"), Query("q1", "y")),
)
MEASURED = Measurement(Outcome.OK, None, SEEN, load_s=0.5)
ENDED = LaunchEnd(0, False, 0, 0, None, MemoryTrace(), 60.0, b"first\nlast words\n")
TURNS = [(-1, "w0"), (0, "q0"), (0, "q1"), (1, "q1"), (1, "q0")]


def line(trial: int, query_id: str, **change: Any) -> dict[str, Any]:
    hits = [["d1", 2.0], ["d2", 1.0]]
    return {"trial": trial, "query_id": query_id, "latency_ns": 5, "stages_ns": {}, "hits": hits, **change}


class Left:
    """A job's folder after its end: complete, unless a test changes it."""

    def __init__(self, folder: Path) -> None:
        self.job = LaunchRequest(SPEC, PREPARED, folder, folder, folder)
        self.job.out.mkdir()
        self.measurement, self.samples = self.job.out / "measurement.json", self.job.out / "samples.jsonl"
        self.measured(MEASURED)
        self.wrote(*(line(trial, query_id) for trial, query_id in TURNS))

    def measured(self, measurement: Measurement | dict[str, Any]) -> None:
        self.measurement.write_text(
            to_json(measurement) if isinstance(measurement, Measurement) else json.dumps(measurement)
        )

    def wrote(self, *lines: Any) -> None:
        self.samples.write_text("".join(json.dumps(fields) + "\n" for fields in lines))

    def collect(
        self, ended: LaunchEnd = ENDED, unknown_ids: Callable[[set[str]], set[str]] = lambda ids: set()
    ) -> CollectedJob:
        collected = collect(self.job, ended, unknown_ids)
        assert "\n" not in (collected.detail or "") and len(collected.detail or "") < 700
        assert (collected.detail or "").isprintable() and not PYTHON.search(collected.detail or "")
        to_json(collected.measured) if collected.measured else None
        return collected

    def ends(self, outcome: Outcome, detail: str, ended: LaunchEnd = ENDED) -> CollectedJob:
        collected = self.collect(ended)
        assert (collected.outcome, detail in (collected.detail or "")) == (outcome, True), collected.detail
        return collected


@pytest.fixture
def left(tmp_path: Path) -> Left:
    return Left(tmp_path)


def test_complete_job_is_ok(left: Left) -> None:
    collected = left.collect()
    assert (collected.outcome, collected.detail) == (Outcome.OK, None)
    counted = collected.answers(2)
    assert (counted.trials_finished, counted.ranking_disagreements) == (2, 0)
    assert collected.samples[0].latency_ns == 5
    lines = ["q0 Q0 d1 1 2.0 bm25", "q0 Q0 d2 2 1.0 bm25", "q1 Q0 d1 1 2.0 bm25", "q1 Q0 d2 2 1.0 bm25"]
    assert (collected.run("bm25") or b"").decode().splitlines() == lines


def test_run_holds_the_first_answers_of_held_out_warm_up_queries(left: Left) -> None:
    lines = (left.collect().run("bm25", {"w0"}) or b"").decode().splitlines()
    assert [line.split()[0] for line in lines] == ["q0", "q0", "q1", "q1", "w0", "w0"]


def test_first_stage_has_the_queries_of_the_run_and_names_the_system_that_made_it(left: Left) -> None:
    left.job = replace(left.job, spec=replace(SPEC, params={"depth": 3}))
    given = [["d1", 3.0], ["d2", 2.0], ["d3", 1.0]]
    left.wrote(*(line(trial, query_id, first_stage=given) for trial, query_id in TURNS))
    collected = left.collect()
    lines = (collected.first_stage("words", {"w0"}) or b"").decode().splitlines()
    assert lines[:3] == [f"q0 Q0 d{n} {n} {4 - n}.0 words" for n in (1, 2, 3)]
    assert [line.split()[0] for line in lines[::3]] == ["q0", "q1", "w0"]
    left.wrote(*(line(trial, query_id) for trial, query_id in TURNS))
    assert left.collect().first_stage("words", {"w0"}) is None


def test_kernel_evidence_outranks_all_other_evidence(left: Left) -> None:
    late = StopReason(Outcome.TIMEOUT, "too late")
    message = "the kernel killed one of its processes at the memory limit of 1024 MiB"
    left.ends(Outcome.OOM, message, replace(ENDED, oom_killed=True))
    left.ends(Outcome.OOM, message, replace(ENDED, oom_kills=1, stopped=late))
    left.ends(Outcome.OOM, "killed the job", replace(ENDED, exit_code=137, oom_killed=True, stopped=late))
    left.measured(replace(MEASURED, oom_kills=1))
    left.ends(Outcome.TIMEOUT, "too late", replace(ENDED, oom_kills=None, stopped=late))


def trace(anon_mib: int, faults_per_s: float, seconds: int = 60) -> LaunchEnd:
    """Describe a stopped job with constant anonymous memory and a constant rate of major faults."""
    times = [second * 1_000_000_000 for second in range(seconds)]
    anon = tuple((t_ns, anon_mib << 20) for t_ns in times)
    readings = tuple(CounterReading(t_ns, major_faults=int(faults_per_s * t_ns / 1e9)) for t_ns in times)
    memory = MemoryTrace((*anon, (seconds * 1_000_000_000, 1 << 20)), peak_cgroup_bytes=1 << 30)
    late = StopReason(Outcome.TIMEOUT, "load took more than 60 s")
    return replace(ENDED, exit_code=137, stopped=late, memory=memory, counters=CounterTrace(readings))


def test_job_stopped_while_thrashing_is_oom(left: Left) -> None:
    message = (
        "load took more than 60 s at the memory limit: 900 of 1024 MiB were anonymous, and the rest was read from "
        "disk over and over (50 major faults a second)"
    )
    left.ends(Outcome.OOM, message, trace(900, 50))


@pytest.mark.parametrize(
    "ended",
    [
        trace(900, 1),  # it hangs
        trace(500, 500),  # it reads an index from disk, which more memory would hold
        trace(900, 50, seconds=10),  # too short to tell
        replace(trace(900, 50), counters=CounterTrace()),
        replace(trace(900, 50), memory=MemoryTrace()),
        replace(trace(900, 50), memory=replace(trace(900, 50).memory, peak_cgroup_bytes=None)),  # no limit in force
    ],
)
def test_timeout_without_thrashing_stays_a_timeout(left: Left, ended: LaunchEnd) -> None:
    left.ends(Outcome.TIMEOUT, "load took more than 60 s", ended)


def test_job_without_a_measurement_is_a_crash_with_its_last_output(left: Left) -> None:
    left.measurement.unlink()
    detail = "ended with exit code 139: it left no measurement; its last line: last words"
    collected = left.ends(Outcome.CRASH, detail, replace(ENDED, exit_code=139))
    assert len(collected.samples) == 5, "what was finished is kept"
    left.ends(Outcome.CRASH, "it printed nothing", replace(ENDED, log=b" \n"))
    left.ends(Outcome.CRASH, r"\x1b[31m", replace(ENDED, log=b"\x1b[31m\xff" + b"x" * 1_000))


# As faulthandler writes it; glibc's abort ends the first process of a container by a segmentation fault.
DUMP = b"""free(): invalid pointer
Fatal Python error: %s

Stack (most recent call first):
  File "/opt/python/ctypes/__init__.py", line 519 in string_at
  File "/opt/engine/adapter.py", line 31 in search
  File "/opt/harness/harness/driver/scenarios.py", line 62 in one_by_one

Extension modules: numpy.core (total: 1)
"""


@pytest.mark.parametrize(
    ("log", "detail"),
    [
        (DUMP % b"Segmentation fault", "SIGSEGV at ctypes/__init__.py line 519 in string_at, called from engine/adapt"),
        (DUMP % b"Aborted" + DUMP % b"Segmentation fault", "ended with exit code 139: SIGABRT at ctypes/__init__.py"),
        (DUMP % b"Aborted", "engine/adapter.py line 31 in search; its last line: free(): invalid pointer"),
        (b"Fatal Python error: Bus error\n", "ended with exit code 139: SIGBUS; it printed nothing"),
        (DUMP % b"none of \x1b[31m\xff ours", r"none of \x1b[31m"),
        (DUMP.replace(b"string_at", b"x" * 190) % b"Aborted" + b"y" * 100_000, "its last line: free(): invalid"),
    ],
)
def test_crash_by_a_signal_names_the_signal_and_the_line(left: Left, log: bytes, detail: str) -> None:
    left.measurement.unlink()
    collected = left.ends(Outcome.CRASH, detail, replace(ENDED, exit_code=139, log=log))
    assert len(str(collected.detail)) <= 600 and "\x1b" not in str(collected.detail)


# What an image may say of memory that ran out, and how its detail begins.
JAVA_LOG = b"Terminating due to java.lang.OutOfMemoryError: Java heap space\n"
CLAIMS: dict[str, tuple[Measurement | None, LaunchEnd, str]] = {
    "the log of a JVM": (
        None,
        replace(ENDED, exit_code=3, log=JAVA_LOG),
        "the Java heap ran out; its last line: Term",
    ),
    "the driver": (
        replace(MEASURED, outcome=Outcome.OOM, detail="JavaException: java.lang.OutOfMemoryError"),
        replace(ENDED, exit_code=1),
        "JavaException: java.lang.OutOfMemoryError",
    ),
    "the driver, with kills": (
        replace(MEASURED, outcome=Outcome.OOM, detail="MemoryError", oom_kills=7),
        replace(ENDED, exit_code=1),
        "MemoryError",
    ),
}


def _memory(anon_mib: int, **seen: Any) -> MemoryTrace:
    return MemoryTrace(((0, anon_mib << 20), (1, 1 << 20)), **{"peak_cgroup_bytes": 1 << 30, **seen})


@pytest.mark.parametrize("name", CLAIMS)
def test_memory_that_ran_out_by_the_image_alone_is_a_crash(left: Left, name: str) -> None:
    measurement, ended, claim = CLAIMS[name]
    left.measured(measurement) if measurement else left.measurement.unlink()
    prefix = "the image reported that memory ran out, but the host saw at most"
    for memory in (
        MemoryTrace(),
        _memory(500),  # page cache filled the rest
        _memory(900, peak_cgroup_bytes=None),  # no limit was in force
        _memory(500, fullest_gpu_share=0.7),
    ):
        collected = left.ends(Outcome.CRASH, claim, replace(ended, memory=memory))
        assert (collected.detail or "").startswith(prefix), collected.detail


@pytest.mark.parametrize("name", CLAIMS)
def test_memory_that_ran_out_is_oom_where_the_host_saw_it_full(left: Left, name: str) -> None:
    measurement, ended, claim = CLAIMS[name]
    left.measured(measurement) if measurement else left.measurement.unlink()
    collected = left.ends(Outcome.OOM, claim, replace(ended, memory=_memory(900)))
    assert (collected.detail or "").endswith("; the host saw 900 of 1024 MiB anonymous")
    full = _memory(100, fullest_gpu_share=0.991)
    collected = left.ends(Outcome.OOM, claim, replace(ended, memory=full))
    assert (collected.detail or "").endswith("; the host saw 99% of a GPU's memory in use")


def test_kills_that_the_host_did_not_see_are_never_oom(left: Left) -> None:
    left.measured(replace(MEASURED, oom_kills=2))
    claim = "the image counted 2 kills at the memory limit; the host saw none"
    for ended in (ENDED, replace(ENDED, oom_kills=None), replace(ENDED, memory=_memory(900))):
        left.ends(Outcome.BAD_OUTPUT, claim, ended)
    left.ends(Outcome.TIMEOUT, "", replace(ENDED, stopped=StopReason(Outcome.TIMEOUT, "too late")))
    left.measured(replace(MEASURED, outcome=Outcome.CRASH, detail="planted", oom_kills=2))
    left.ends(Outcome.CRASH, "planted", replace(ENDED, exit_code=1))


@pytest.mark.parametrize(("shared", "joules"), [("0", [2.5]), ("1", [])])
def test_energy_of_packages_is_stored_where_no_other_job_shares_the_host(
    left: Left, monkeypatch: pytest.MonkeyPatch, shared: str, joules: list[float]
) -> None:
    monkeypatch.setenv("HARNESS_SHARED_HOST", shared)
    left.job = replace(left.job, spec=replace(SPEC, pause=True))
    left.measured(replace(MEASURED, phases=(Phase("trial-0", 10, 20),)))
    readings = (CounterReading(9, 0, package_uj=0), CounterReading(21, 5, package_uj=2_500_000))
    seen = left.collect(replace(ENDED, counters=CounterTrace(readings))).observed
    assert [one.package_j for one in seen.trial_energy] == joules and len(seen.trial_cpu) == 1


def test_counters_of_the_kernel_are_those_that_the_host_read(left: Left) -> None:
    left.measured(replace(MEASURED, peak_cgroup_bytes=1 << 40, throttled_periods=9, oom_kills=9))
    trace = MemoryTrace(peak_cgroup_bytes=5 << 20, source="cgroup v2")
    for ended, expected in (
        (replace(ENDED, memory=trace), (5 << 20, 0, 0)),
        (replace(ENDED, oom_kills=None, throttled_periods=None), (None, None, None)),
    ):
        spec, environment = sample_records.SPEC, sample_records.ENVIRONMENT
        result = build_result(spec, "2026-01-01", left.collect(ended), environment, JobProvenance())
        seen = result.observed
        assert (seen.memory.peak_cgroup_bytes, seen.throttled_periods, seen.oom_kills) == expected
        assert result.measured is not None and result.measured.oom_kills == 9, "the driver's record is kept as it came"


def test_outcome_reported_by_the_job_is_accepted(left: Left) -> None:
    left.measured(replace(MEASURED, outcome=Outcome.CRASH, detail="a\n\x1b[2Jb" + "x" * 10_000))
    left.ends(Outcome.CRASH, r"a \x1b[2Jbxxx", replace(ENDED, exit_code=1))
    left.measured(replace(MEASURED, outcome=Outcome.CRASH))
    left.ends(Outcome.CRASH, "the image gives no reason")


@pytest.mark.parametrize("outcome", [Outcome.TIMEOUT, Outcome.NOT_APPLICABLE, Outcome.INTERRUPTED])
def test_outcome_only_the_host_can_know_is_not_accepted_from_the_job(left: Left, outcome: Outcome) -> None:
    left.measured(replace(MEASURED, outcome=outcome))
    left.ends(Outcome.BAD_OUTPUT, "only the launcher may decide that")


def test_false_envelope_claim_is_an_envelope_mismatch(left: Left) -> None:
    left.measured(replace(MEASURED, effective=replace(SEEN, memory_bytes=2 << 30)))
    left.ends(Outcome.ENVELOPE_MISMATCH, "memory limit 2147483648 bytes, asked for 1073741824")
    left.measured(replace(MEASURED, effective=replace(SEEN, threads={"lib\x1b\n": 56})))
    left.ends(Outcome.ENVELOPE_MISMATCH, "says 56 threads on 2 CPUs")
    left.measured(MEASURED)
    placed = Placement((2, 3), (1,), True, (0, 1), apart=True)
    left.ends(Outcome.OK, "", replace(ENDED, placement=placed))
    elsewhere = replace(ENDED, placement=replace(placed, cpus=(0, 3), numa_nodes=(0,)))
    left.ends(Outcome.ENVELOPE_MISMATCH, "CPUs 2-3 in the affinity mask, asked for CPUs 0,3; memory from", elsewhere)
    left.measured(replace(MEASURED, effective=None))
    left.ends(Outcome.BAD_OUTPUT, "did not report the limits that it ran under")


def test_failure_after_the_measurement_is_a_crash(left: Left) -> None:
    left.ends(Outcome.CRASH, "exit code 3 after a complete measurement; its last line", replace(ENDED, exit_code=3))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"peak_cgroup_bytes": -1}, " below 0"),
        ({"compiled_s": -1.0}, " below 0"),
        ({"load_s": -1.0}, "reported -1.0 s, "),
    ],
)
def test_measurement_with_negative_values_is_not_stored(left: Left, change: dict[str, Any], fault: str) -> None:
    left.measured(replace(MEASURED, **change))
    assert left.ends(Outcome.BAD_OUTPUT, fault).measured is None
    left.measured(replace(MEASURED, load_s=None))
    left.ends(Outcome.BAD_OUTPUT, "the image reported no time for its search")


def test_huge_number_of_threads_is_a_mismatch_and_not_stored(left: Left) -> None:
    left.measured(replace(MEASURED, effective=replace(SEEN, threads={"lib": 10**25})))
    assert left.ends(Outcome.ENVELOPE_MISMATCH, "threads on 2 CPUs").measured is None


_UNSTORABLE: dict[str, Measurement] = {
    "kernel peak": replace(MEASURED, peak_cgroup_bytes=1 << 63),
    "phase": replace(MEASURED, phases=(Phase("load", 0, 1 << 64),)),
    "load": replace(MEASURED, compiled_s=1e30),
    "libraries": replace(MEASURED, libraries={f"library{n}": "1" * 100 for n in range(25_000)}),
    "a library with a control character": replace(MEASURED, libraries={"\x1b[2J": "1"}),
    "libraries that would fit without their indentation": replace(MEASURED, libraries={"n" * 600_000: "1"}),
    "device": replace(MEASURED, device="x" * 3_000_000),
    "CPUs, one a line": replace(MEASURED, effective=replace(SEEN, network_interfaces=("x",) * 60_000)),
}


@pytest.mark.parametrize("claim", _UNSTORABLE)
def test_claim_that_no_reader_takes_is_bad_output_and_not_stored(left: Left, claim: str) -> None:
    left.measured(_UNSTORABLE[claim])
    collected = left.ends(Outcome.BAD_OUTPUT, "The image's measurement cannot be stored: ")
    assert collected.measured is None and len(collected.samples) == 5
    # Stronger evidence of how it ended stays.
    left.ends(Outcome.OOM, "the kernel killed", replace(ENDED, oom_kills=1))
    left.ends(Outcome.CRASH, "exit code 3", replace(ENDED, exit_code=3))


WRONG = {
    "nothing": b"",
    "half": to_json(MEASURED).encode()[:-20],
    "no UTF-8": b'{"outcome": "\xff"}',
    "a list": b"[]",
    "deep inside": b'{"outcome":' + b'{"a":' * 100_000,
    "another outcome": to_json(MEASURED).replace('"outcome": "ok"', '"outcome": "great"').encode(),
    "a lone surrogate": to_json(MEASURED).replace('"detail": null', '"detail": "\\ud800"').encode(),
    "nan": to_json(MEASURED).replace('"load_s": 0.5', '"load_s": NaN').encode(),
    "infinite": to_json(MEASURED).replace('"load_s": 0.5', '"load_s": 1e999').encode(),
    "nan inside": to_json(MEASURED).replace('"cpu_quota": -1', '"cpu_quota": NaN').encode(),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_malformed_measurement_is_a_crash_and_does_no_harm(left: Left, wrong: str) -> None:
    left.measurement.write_bytes(WRONG[wrong])
    assert left.ends(Outcome.CRASH, "its measurement.json is wrong").measured is None


def test_unknown_keys_are_ignored(left: Left) -> None:
    left.measured({**json.loads(to_json(MEASURED)), "surprise": [1, 2, 3]})
    left.wrote(*(line(trial, query_id, surprise={}) for trial, query_id in TURNS))
    assert left.collect().outcome is Outcome.OK


def replaced(path: Path, kind: str) -> None:
    kept = path.with_name("kept")
    path.rename(kept)
    {"a link": lambda: path.symlink_to(kept), "a pipe": lambda: os.mkfifo(path), "a folder": path.mkdir}[kind]()


@pytest.mark.parametrize("kind", ["a link", "a pipe", "a folder"])
def test_only_regular_files_are_read(left: Left, kind: str) -> None:
    replaced(left.samples, kind)
    assert left.ends(Outcome.BAD_OUTPUT, "5 of 5 samples are missing").samples == ()
    replaced(left.measurement, kind)
    left.ends(Outcome.CRASH, "it left no measurement")


def test_endless_samples_are_read_up_to_a_limit(left: Left) -> None:
    with left.samples.open("r+b") as file:
        file.truncate(1 << 40)
    assert len(left.ends(Outcome.BAD_OUTPUT, "samples.jsonl: line 6: more than").samples) == 5


def test_truncated_last_line_is_ignored_after_a_kill(left: Left) -> None:
    left.samples.write_bytes(left.samples.read_bytes()[:-10])
    assert len(left.ends(Outcome.BAD_OUTPUT, "samples.jsonl: line 5: it is cut off").samples) == 4
    assert len(left.ends(Outcome.OOM, "kernel", replace(ENDED, oom_killed=True)).samples) == 4


def test_missing_duplicate_and_unexpected_samples_are_named(left: Left) -> None:
    lines = [line(trial, query_id) for trial, query_id in TURNS]
    left.wrote(*lines[:-1])
    assert left.ends(Outcome.BAD_OUTPUT, "1 of 5 samples are missing").answers(2).trials_finished == 1
    left.wrote(*lines, line(1, "w0"))
    left.ends(Outcome.BAD_OUTPUT, "query 'w0' was not asked for in trial 1")
    left.job = replace(left.job, spec=replace(SPEC, warmup_cap=2))
    left.wrote(line(-1, "q0"), *lines)
    left.ends(Outcome.BAD_OUTPUT, "query 'q0' was not asked for in the warm-up")
    left.samples.unlink()
    assert left.ends(Outcome.BAD_OUTPUT, "5 of 5 samples are missing").samples == ()


WRONG_LINES: dict[str, tuple[Any, str]] = {
    "no trial": ({"query_id": "q0"}, "'trial'"),
    "an unknown query": (line(0, "q9"), "unknown query id 'q9'"),
    "no text as query": (line(0, ["q0"]), "unknown query id \"['q0']\""),
    "a trial too many": (line(2, "q0"), "trial 2, asked for 0 to 1"),
    "a trial before all": (line(-3, "q0"), "trial -3, asked for 0 to 1"),
    "a truth as trial": (line(True, "q0"), "trial True, asked for 0 to 1"),
    "a text as trial": (line("\n\x1b", "q0"), ", asked for 0 to 1"),
    "no time": (line(0, "q0", latency_ns=0), "latency_ns 0 is not a positive whole number"),
    "endless time": (line(0, "q0", latency_ns=1 << 62), "is not a positive whole number"),
    "no hits": (line(0, "q0", hits=None), "a value has the wrong type"),
    "half a hit": (line(0, "q0", hits=[["d1"]]), "not enough values to unpack"),
    "too few hits": (line(0, "q0", hits=[]), "0 hits, expected 2"),
    "nan": (line(0, "q0", hits=[["d1", float("nan")], ["d2", 1.0]]), "rank 1: the score is nan"),
    "a lone surrogate": (line(0, "q0", hits=[["\ud800", 2.0], ["d2", 1.0]]), "rank 1: the document id '\\ud800'"),
    "negative stage": (line(0, "q0", stages_ns={"encode": -1}), "stages_ns.encode -1 is not a whole number"),
    "half a stage": (line(0, "q0", stages_ns={"encode": 0.5}), "stages_ns.encode 0.5 is not a whole number"),
    "negative count": (line(0, "q0", counts={"pairs": -2}), "counts.pairs -2 is not a whole number"),
    "stages as a list": (line(0, "q0", stages_ns=[1]), "a value has the wrong type"),
}


@pytest.mark.parametrize("wrong", WRONG_LINES)
def test_wrong_sample_is_named_and_earlier_ones_are_kept(left: Left, wrong: str) -> None:
    bad, message = WRONG_LINES[wrong]
    left.wrote(line(-1, "w0"), bad, line(0, "q1"))
    collected = left.ends(Outcome.BAD_OUTPUT, "samples.jsonl: line 2: ")
    assert message in (collected.detail or ""), collected.detail
    assert [sample.query_id for sample in collected.samples] == ["w0"]


@pytest.mark.parametrize("content", [b"{\n", b"\xff\xfe\n", b"[" * 4_000 + b"\n", b"9" * 5000 + b"\n"])
def test_malformed_json_line_is_named(left: Left, content: bytes) -> None:
    left.samples.write_bytes(content)
    left.ends(Outcome.BAD_OUTPUT, "samples.jsonl: line 1: ")


def test_stages_are_columns_unless_no_column_can_have_the_name(left: Left) -> None:
    stages = {"encode": 3, "e5.v2": 1, "e5.v2.encode": 1, "a b": 1, "X" * 41: 1, "x" * 64: 1, ".x": 1, "bm25.a b": 1}
    left.wrote(*(line(trial, query_id, stages_ns=stages if trial == 0 else {}) for trial, query_id in TURNS))
    table = left.collect().table()
    assert table.column_names[:4] == ["query_id", "trial", "warmup", "latency_ns"]
    assert table.column_names[4:] == ["stage_e5.v2_ns", "stage_e5.v2.encode_ns", "stage_encode_ns"]
    assert table.column("stage_encode_ns").to_pylist() == [None, 3, 3, None, None]
    assert table.column("warmup").to_pylist() == [True, False, False, False, False]
    assert table.column("query_id").to_pylist() == [query_id for _, query_id in TURNS], "in the order of measuring"


def test_unknown_documents_are_bad_output(left: Left) -> None:
    collected = left.collect(unknown_ids=lambda ids: ids - {"d1"})
    assert collected.outcome is Outcome.BAD_OUTPUT
    assert collected.detail == "the corpus lacks 1 document id, such as 'd2'"


def test_differing_rankings_are_counted_and_differing_scores_are_not(left: Left) -> None:
    lines = [line(trial, query_id) for trial, query_id in TURNS]
    lines[3]["hits"] = [["d2", 2.0], ["d1", 1.0]]
    lines[4]["hits"] = [["d1", 9.0], ["d2", 1.0]]
    left.wrote(*lines)
    assert left.collect().answers(2).ranking_disagreements == 1
    assert (left.collect().run("x") or b"").startswith(b"q0 Q0 d1 1 2.0 x\n"), "the first trial's is the run"
    left.wrote(*lines[:3])
    assert left.collect().answers(2).ranking_disagreements is None, "one trial agrees with nothing"


def test_fewer_hits_are_accepted_if_the_system_may_return_fewer(left: Left) -> None:
    left.job = replace(left.job, spec=replace(SPEC, fewer_hits_ok=True))
    left.wrote(*(line(trial, query_id, hits=[]) for trial, query_id in TURNS))
    collected = left.collect()
    assert collected.outcome is Outcome.OK and collected.run("bm25") == b""


def test_times_longer_than_the_elapsed_time_are_refused(left: Left) -> None:
    left.ends(Outcome.BAD_OUTPUT, "s of work in a search job", replace(ENDED, wall_s=0.1))


def test_kill_at_the_memory_limit_is_oom_without_a_kill_record(left: Left) -> None:
    """An old engine on cgroup v2 sets no flag, and the counter is removed with the cgroup."""
    at_limit = MemoryTrace(peak_cgroup_bytes=left.job.spec.envelope.memory_bytes)
    left.ends(Outcome.OOM, "killed (exit code 137)", replace(ENDED, exit_code=137, memory=at_limit))
    below = MemoryTrace(peak_cgroup_bytes=left.job.spec.envelope.memory_bytes // 2)
    left.ends(Outcome.CRASH, "exit code 137", replace(ENDED, exit_code=137, memory=below))

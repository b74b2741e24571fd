"""Tests of the order of a job, which always ends with one measurement."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

from harness.driver import cgroup, driver
from harness.driver.adapter import Corpus
from harness.driver.output import EVENTS, MEASUREMENT, SAMPLES, Output
from harness.driver.records import PROTOCOL_VERSION, Cpuset, Hit, JobSpec, Query, ScenarioParams, to_json
from harness.jobs.suite import Suite
from harness.results.isolation import CONTAINER
from tests.driver.test_adapter import Least
from tests.support import job_fixtures
from tests.support.job_fixtures import SEEN
from tests.support.recorded_cgroups import unfold

SEARCH = job_fixtures.spec()


class Diary(Least):
    """Records its calls; ``wrong`` replaces the behaviour of a verb."""

    diary: list[str]
    wrong: dict[str, Callable[[], Any]]

    def _write(self, verb: str) -> Any:
        self.diary.append(verb)
        return self.wrong.get(verb, lambda: None)()

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        self._write(f"build {[document.doc_id for document in corpus]}")
        progress(1)
        (index_dir / "made").touch()

    def verify_index(self, corpus: Corpus, index_dir: Path) -> None:
        assert (index_dir / "made").exists()
        self._write(f"verify_index {[document.doc_id for document in corpus]}")

    def load(self, index_dir: Path) -> None:
        self._write("load")

    def search(self, query: str, k: int) -> Sequence[Hit]:
        return self._write(f"search {query}") or [Hit("d", 1.0)]

    def threads(self) -> dict[str, int]:
        return self._write("threads") or {"lib": 2}

    def libraries(self) -> dict[str, str]:
        return {"lib": "1.0"}

    def close(self) -> None:
        self._write("close")


class Job:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.diary, self.wrong = folder, [], {}  # type: tuple[Path, list[str], dict[str, Callable[[], Any]]]
        for name in ("out", "index", "assets"):
            (folder / name).mkdir()
        (folder / "corpus.jsonl").write_text('{"_id": "d", "title": "", "text": "x"}\n')
        engine = type("Engine", (Diary,), {"diary": self.diary, "wrong": self.wrong})
        module = ModuleType("adapter")
        module.ENGINE = engine
        monkeypatch.setitem(sys.modules, "adapter", module)
        self.seen(monkeypatch)
        names = {"JOB": folder, "CORPUS": folder, "INDEX": folder / "index", "ASSETS": folder / "assets"}
        for name, path in names.items():
            monkeypatch.setenv(f"HARNESS_{name}", str(path))
        write = Output.measurement

        def last(out: Output, measurement: Any) -> None:
            self.diary.append("measurement")
            write(out, measurement)

        monkeypatch.setattr(Output, "measurement", last)

    def seen(self, monkeypatch: pytest.MonkeyPatch, **change: Any) -> None:
        monkeypatch.setattr(driver.envelope, "read", lambda: self.diary.append("verify") or replace(SEEN, **change))

    def run(self, spec: JobSpec = SEARCH) -> tuple[int, dict[str, Any]]:
        (self.folder / "spec.json").write_text(to_json(spec))
        code = driver.main()
        return code, json.loads((self.folder / "out" / MEASUREMENT).read_text())


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(tmp_path, monkeypatch)


def test_phases_run_from_verify_to_measurement_in_order(job: Job) -> None:
    code, measurement = job.run()
    searches = ["search warm", "search timed", "search timed"]
    assert job.diary == ["verify", "load", "threads", *searches, "close", "measurement"]
    assert (code, measurement["outcome"], measurement["detail"]) == (0, "ok", None)
    assert [phase["name"] for phase in measurement["phases"]] == ["load", "warmup", "trial-0", "trial-1", "close"]
    edges = [edge for phase in measurement["phases"] for edge in (phase["start_ns"], phase["end_ns"])]
    assert edges == sorted(edges), "phases follow each other and do not overlap"
    assert measurement["effective"]["threads"] == {"lib": 2}
    assert measurement["libraries"] == {"lib": "1.0"} and measurement["device"] == "cpu"
    assert measurement["load_s"] > 0 and measurement["build_s"] is None
    assert measurement["protocol_version"] == PROTOCOL_VERSION


def test_build_only_verifies_and_builds(job: Job) -> None:
    code, measurement = job.run(replace(SEARCH, kind="build", warmup=(), sample=()))
    assert job.diary == ["verify", "build ['d']", "verify_index ['d']", "measurement"]
    assert code == 0 and measurement["build_s"] > 0 and measurement["load_s"] is None
    assert (job.folder / "index" / "made").exists()


@pytest.mark.slow
def test_index_is_verified_after_its_build_and_outside_its_time(job: Job) -> None:
    message = "the index holds 0 of 1 documents"

    def short() -> None:
        time.sleep(0.2)
        raise RuntimeError(message)

    job.wrong["verify_index ['d']"] = short
    code, measurement = job.run(replace(SEARCH, kind="build", warmup=(), sample=()))
    assert (code, measurement["outcome"], measurement["detail"]) == (1, "crash", f"RuntimeError: {message}")
    (build, check) = measurement["phases"]
    assert (build["name"], check["name"]) == ("build", "check")
    assert measurement["build_s"] <= (build["end_ns"] - build["start_ns"]) / 1e9
    assert check["end_ns"] - check["start_ns"] >= 0.2e9


def test_wrong_envelope_ends_the_job_before_load(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.seen(monkeypatch, cpus=(0,), uid=0)
    code, measurement = job.run(replace(SEARCH, enforced=CONTAINER.enforced))
    assert job.diary == ["verify", "measurement"]
    assert code == 1 and measurement["outcome"] == "envelope_mismatch"
    assert measurement["detail"] == "1 CPUs in the affinity mask, asked for 2; runs as root"
    assert measurement["effective"]["cpus"] == [0], "what was seen is written down"


@pytest.mark.parametrize("kind", ["search", "build"])
def test_wrong_cpus_of_the_right_count_end_the_job_before_load(job: Job, kind: str) -> None:
    code, measurement = job.run(replace(SEARCH, kind=kind, cpuset=Cpuset((4, 5))))
    assert job.diary == ["verify", "measurement"]
    assert (code, measurement["outcome"]) == (1, "envelope_mismatch")
    assert measurement["detail"] == "CPUs 2-3 in the affinity mask, asked for CPUs 4-5"


def test_too_many_threads_end_the_job_before_the_first_query(job: Job) -> None:
    job.wrong["threads"] = lambda: {"lib": 3}
    code, measurement = job.run()
    assert job.diary == ["verify", "load", "threads", "measurement"]
    assert (code, measurement["outcome"]) == (1, "envelope_mismatch")
    assert measurement["effective"]["threads"] == {"lib": 3} and measurement["load_s"] > 0


def test_threads_of_a_server_may_be_more_than_the_cpus_of_its_client(job: Job) -> None:
    job.wrong["threads"] = lambda: {"lib": 3}
    (job.folder / driver.SERVING).write_text('{"started_ns": 0}')
    _, measurement = job.run(replace(SEARCH, service_url="http://127.0.0.1:8080"))
    assert measurement["outcome"] == "ok" and measurement["effective"]["threads"] == {"lib": 3}


def throw(error: BaseException) -> Callable[[], Any]:
    def thrown() -> Any:
        raise error

    return thrown


@pytest.mark.parametrize("verb", ["load", "threads", "search warm", "search timed", "close"])
def test_measurement_is_written_if_any_verb_fails(job: Job, verb: str) -> None:
    job.wrong[verb] = throw(RuntimeError("in\ntwo lines \ud800"))
    code, measurement = job.run()
    assert (code, measurement["outcome"]) == (1, "crash")
    assert measurement["detail"] == "RuntimeError: in two lines ?"
    assert job.diary[-1] == "measurement"
    assert len((job.folder / "out" / SAMPLES).read_text().splitlines()) == {"search timed": 1, "close": 3}.get(verb, 0)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (MemoryError(), "oom"),
        (RuntimeError("JVM exception occurred: Java heap space java.lang.OutOfMemoryError"), "oom"),
        (type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory"), "oom"),
        (SystemExit(0), "crash"),
        (KeyboardInterrupt(), "crash"),
        (ImportError("no torch"), "crash"),
    ],
)
def test_error_has_its_outcome(job: Job, error: BaseException, outcome: str) -> None:
    job.wrong["search timed"] = throw(error)
    code, measurement = job.run()
    assert (code, measurement["outcome"]) == (1, outcome)
    assert measurement["detail"].startswith(type(error).__name__)


def test_a_bad_answer_is_bad_output(job: Job) -> None:
    job.wrong["search timed"] = lambda: [("d", 1.0)]
    code, measurement = job.run()
    assert (code, measurement["outcome"]) == (1, "bad_output")
    assert measurement["detail"] == "rank 1: tuple, not a Hit"


def test_missing_adapter_is_reported(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adapter", None)
    _, measurement = job.run()
    assert measurement["outcome"] == "crash" and "adapter" in measurement["detail"]


def test_importing_the_engine_counts_as_load(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0]
    monkeypatch.setattr(driver, "perf_counter_ns", lambda: clock[0])

    def slow_import(name: str) -> ModuleType:
        clock[0] += 3_000_000_000
        return sys.modules[name]

    monkeypatch.setattr(driver.importlib, "import_module", slow_import)
    job.wrong["load"] = lambda: clock.__setitem__(0, clock[0] + 2_000_000_000)
    _, measurement = job.run()
    assert measurement["load_s"] == 5.0


def test_a_spec_of_another_contract_is_refused(job: Job) -> None:
    with pytest.raises(ValueError, match="contract version 1, this image speaks 2"):
        job.run(replace(SEARCH, protocol_version=1))
    assert not (job.folder / "out" / MEASUREMENT).exists()


def test_driver_waits_for_the_hosts_queries(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    polls = []

    def host(seconds: float) -> None:
        polls.append(seconds)
        number = [line["pause"] for line in events(job) if "pause" in line][-1]
        if len(polls) % 3 == 0:
            (job.folder / f"go-{number}").write_text(to_json([Query(f"q{number}", f"of {number}")]))

    monkeypatch.setattr(driver.time, "sleep", host)
    code, _ = job.run(replace(SEARCH, trials=2, repeats=1, pause=True, warmup=(), sample=()))
    assert code == 0 and len(polls) == 4 * 3 and max(polls) <= 0.01
    told = [line.get("pause", line.get("phase")) for line in events(job) if "end" not in line]
    assert told == ["load", 0, "warmup", 1, "trial-0", 2, "trial-1", 3, "repeat", "close"]
    searches = ["search of 0", "search of 1", "search of 2", "search of 3", "search of 3"]
    assert job.diary == ["verify", "load", "threads", *searches, "close", "measurement"]


def events(job: Job) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (job.folder / "out" / EVENTS).read_text().splitlines()]


@pytest.mark.slow
def test_job_ends_if_the_host_sends_no_queries(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "PAUSE_S", 0.05)
    code, measurement = job.run(replace(SEARCH, pause=True))
    assert code == 1 and [line["pause"] for line in events(job) if "pause" in line] == [0]
    assert measurement["detail"] == f"TimeoutError: the host wrote no {job.folder}/go-0 within 0.05 s"


def test_driver_does_not_wait_without_pause(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver.time, "sleep", throw(AssertionError("slept")))
    assert job.run()[0] == 0 and not any("pause" in line for line in events(job))


def test_every_scenario_of_suites_exists() -> None:
    named = get_args(get_args(Suite.model_fields["scenarios"].annotation)[0])
    assert set(driver.SCENARIOS) == set(named)


def test_unknown_scenario_is_named(job: Job) -> None:
    _, measurement = job.run(replace(SEARCH, scenario="sideways"))
    assert measurement["detail"] == (
        "ValueError: this image knows no scenario 'sideways', only single_stream, offline, server, mixed"
    )


def test_offline_and_server_jobs_run_to_their_end(job: Job) -> None:
    _, measurement = job.run(replace(SEARCH, scenario="offline", scenario_params=ScenarioParams(batch_size=4)))
    assert measurement["outcome"] == "ok" and measurement["rate_qps"] is None
    target = ScenarioParams(latency_target_s=0.5, latency_percentile=50.0)
    _, measurement = job.run(replace(SEARCH, scenario="server", scenario_params=target))
    assert measurement["outcome"] == "ok", measurement["detail"]
    assert len(measurement["probes"]) == 1, "one query proves nothing, whatever the rate"
    assert measurement["probes"][0]["passed"] is False and measurement["rate_qps"] is None


def test_kernel_counters_are_read_before_the_container_ends(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = cgroup.own(unfold(tmp_path / "recorded", "systemd/limited/killed.inside").cgroups)
    monkeypatch.setattr(driver.cgroup, "own", lambda: recorded)
    _, measurement = job.run(replace(SEARCH, enforced=CONTAINER.enforced))
    counters = [measurement[name] for name in ("peak_cgroup_bytes", "throttled_periods", "oom_kills")]
    assert counters == [256 << 20, 0, 1]


def test_plain_process_has_no_own_counters(job: Job) -> None:
    _, measurement = job.run()
    assert measurement["peak_cgroup_bytes"] is measurement["throttled_periods"] is measurement["oom_kills"] is None


def test_an_index_is_removed_from_a_service_and_nothing_else_is_done(job: Job) -> None:
    spec = replace(SEARCH, kind="remove", warmup=(), sample=(), service_url="http://127.0.0.1:1")
    code, measurement = job.run(spec)
    assert code == 1 and "Engine cannot remove an index from its service" in measurement["detail"]
    sys.modules["adapter"].ENGINE.remove = lambda self: self.diary.append(f"remove at {self.service_url}")
    job.diary.clear()
    code, measurement = job.run(spec)
    assert code == 0 and job.diary == ["verify", "remove at http://127.0.0.1:1", "measurement"]
    code, measurement = job.run(replace(spec, service_url=None))
    assert code == 1 and "from a service alone" in measurement["detail"]


def test_a_servers_threads_are_for_the_hosts_judgement(job: Job) -> None:
    (job.folder / "serving.json").write_text('{"started_ns": 0}')
    spec = replace(SEARCH, envelope=replace(SEARCH.envelope, cpus=1), enforced=(), service_url="http://127.0.0.1:1")
    code, measurement = job.run(replace(spec, max_qps=1000.0))
    assert (code, measurement["effective"]["threads"]) == (0, {"lib": 2})
    assert measurement["max_qps"] == 1000.0 and measurement["capped"] is False

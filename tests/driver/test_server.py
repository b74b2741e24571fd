"""The open loop in real time: queueing counts as latency."""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.driver import rate_search, server
from harness.driver.adapter import BadAnswer, QueryFailed
from harness.driver.output import EVENTS, SAMPLES, Output
from harness.driver.records import Envelope, Hit, JobSpec, Measurement, Outcome, Query, ScenarioParams
from harness.driver.scenarios import closed_loop, planned_queries
from harness.jobs.job_samples import incomplete, read_samples, worked_s
from harness.launch.base import LaunchRequest, Prepared
from tests.driver.test_adapter import Least
from tests.support import job_fixtures

TARGET = ScenarioParams(latency_target_s=0.05, latency_percentile=95.0)


class Serving(Least):
    """Sleeps for a scripted time, by the number of the search."""

    service_s: Callable[[int], float]
    threads_seen: set[str]
    width = 1
    searches = 0
    failing: Callable[[int], Exception | None] = staticmethod(lambda _: None)

    def search(self, query: str, k: int) -> Sequence[Hit]:
        assert not gc.isenabled()
        number, self.searches = self.searches, self.searches + 1
        self.threads_seen.add(threading.current_thread().name)
        time.sleep(self.service_s(number))
        if failure := self.failing(number):
            raise failure
        return [Hit("d", 1.0)]

    def streams(self) -> int:
        return self.width

    def stages_s(self) -> dict[str, float]:
        return {"retrieve": 0.001}


def adapter(service_s: Callable[[int], float], width: int = 1) -> Serving:
    made = Serving({}, Envelope("e", 1, 1), Path())
    made.service_s, made.width, made.threads_seen = service_s, width, set()
    return made


def spec(queries: int, **keys: Any) -> JobSpec:
    given = {
        "scenario": "server",
        "trials": 1,
        "seed": 3,
        "scenario_params": TARGET,
        "warmup": tuple(Query(f"w{n}", "warm") for n in range(5)),
        "sample": tuple(Query(f"q{n}", f"text {n}") for n in range(queries)),
        **keys,
    }
    return job_fixtures.spec(**given)


def run(folder: Path, system: Serving, job: JobSpec, scenario: Callable[..., None] = server.server) -> Measurement[str]:
    (folder / "out").mkdir()
    measured: Measurement[str] = Measurement(Outcome.OK, None, None)
    with closing(Output(folder / "out")) as out:
        scenario(system, job, out, partial(planned_queries, job), measured)
    return measured


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out" / SAMPLES).read_text().splitlines()]


def p99_s(latencies_ns: list[int]) -> float:
    return sorted(latencies_ns)[int(0.99 * len(latencies_ns)) - 1] / 1e9


def one_probe(
    folder: Path, system: Serving, job: JobSpec, rate_qps: float, monkeypatch: pytest.MonkeyPatch
) -> Measurement[str]:
    """A job whose search tries one rate and no other."""

    def search(probe: Callable[[float, bool], bool], *_: float) -> None:
        with suppress(rate_search.Unreachable):
            probe(rate_qps, False)

    monkeypatch.setattr(server, "highest_rate", search)
    return run(folder, system, job)


@pytest.mark.slow
def test_stall_shows_in_the_open_loop_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One search of 300 takes a second.  In a closed loop that is one slow query, beyond the 99th percentile; here some
    150 arrive meanwhile, and each of them waits."""
    stalled = 5 + 100  # warm-up comes first
    for name in ("closed", "open"):
        (tmp_path / name).mkdir()
    job = spec(300, warmup_cap=0)
    run(tmp_path / "closed", adapter(lambda n: 1.0 if n == stalled else 0.001), job, closed_loop)
    closed = [row["latency_ns"] for row in rows(tmp_path / "closed") if row["trial"] == 0]
    assert max(closed) > 0.99e9 and p99_s(closed) < 0.5
    system = adapter(lambda n: 1.0 if n == stalled else 0.001)
    (probe,) = one_probe(tmp_path / "open", system, job, 150.0, monkeypatch).probes
    opened = [row for row in rows(tmp_path / "open") if row["trial"] == 0]
    assert p99_s([row["latency_ns"] for row in opened]) > 0.7
    assert probe.late > 50 and not probe.passed
    assert sum(row["service_ns"] > 0.9e9 for row in opened) == 1, "the service of the others was quick"


@pytest.mark.slow
def test_probe_is_complete_and_accepted_by_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = spec(40, first_trial=5)
    done = one_probe(tmp_path, adapter(lambda _: 0.001), job, 200.0, monkeypatch)
    found, _, wrong = read_samples(LaunchRequest(job, Prepared(None, "", "", ""), tmp_path, tmp_path, tmp_path))
    assert wrong is None
    assert incomplete(job, done, found) is None
    probe = [row for row in rows(tmp_path) if row["trial"] == 5]
    assert [row["scheduled_ns"] for row in probe] == rate_search.arrivals_ns(3, 5, 40, 200.0)
    assert all(row["latency_ns"] >= row["service_ns"] >= 1_000_000 for row in probe)
    assert all(row["stages_ns"] == {"retrieve": 1_000_000} for row in probe)
    wall_s = (probe[-1]["scheduled_ns"] + probe[-1]["latency_ns"]) / 1e9
    assert worked_s(job, [sample for sample in found if sample.trial == 5]) <= wall_s


@pytest.mark.slow
def test_thread_count_equals_the_number_of_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "three").mkdir()
    alone = adapter(lambda _: 0.001)
    one_probe(tmp_path / "one", alone, spec(30), 300.0, monkeypatch)
    assert alone.threads_seen == {threading.current_thread().name}, "the thread that loaded the engine"
    several = adapter(lambda _: 0.02, width=3)
    done = one_probe(tmp_path / "three", several, spec(60), 100.0, monkeypatch)
    assert len(several.threads_seen) == 1 + 3
    assert sorted(row["query_id"] for row in rows(tmp_path / "three") if row["trial"] == 0) == sorted(
        query.query_id for query in spec(60).sample
    )
    assert done.probes[0].late < 60, "a load of two on three streams is kept up with"


@pytest.mark.parametrize("width", [0, -1, 1.5, True, 100_000])
def test_invalid_streams_are_refused(tmp_path: Path, width: Any) -> None:
    with pytest.raises(ValueError, match=r"streams\(\) is .*, must be a whole number from 1 to 1024"):
        run(tmp_path, adapter(lambda _: 0.0, width), spec(10))


@pytest.mark.parametrize("width", [1, 2])
def test_an_error_in_a_stream_ends_the_job(tmp_path: Path, width: int) -> None:
    def failing(number: int) -> float:
        if number == 8:
            raise MemoryError("full")
        return 0.001

    before = set(threading.enumerate())  # a server of another test may still end
    with pytest.raises(MemoryError, match="full"):
        run(tmp_path, adapter(failing, width), spec(200))
    assert set(threading.enumerate()) <= before, "no stream goes on alone"


@pytest.mark.slow
def test_a_bad_answer_is_found_after_the_probe(tmp_path: Path) -> None:
    class Wrong(Serving):
        def search(self, query: str, k: int) -> Sequence[Hit]:
            found = super().search(query, k)
            return [] if self.searches == 9 else found

    system = Wrong({}, Envelope("e", 1, 1), Path())
    system.service_s, system.threads_seen = lambda _: 0.001, set()
    with pytest.raises(BadAnswer, match="0 hits, expected 1"):
        run(tmp_path, system, spec(20))
    assert system.searches == 5 + 20


@pytest.mark.slow
def test_long_probe_reports_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_REPORT_NS", 20_000_000)
    one_probe(tmp_path, adapter(lambda _: 0.0), spec(20), 40.0, monkeypatch)
    events = [json.loads(line) for line in (tmp_path / "out" / EVENTS).read_text().splitlines()]
    done = [event["done"] for event in events if "done" in event]
    assert len(done) > 5 and done[:-1] == sorted(done[:-1]) and done[-1] == 0


@pytest.mark.slow
def test_rate_is_found_and_checked_with_queries_from_the_host(tmp_path: Path) -> None:
    """Two milliseconds a query and a target of 200 ms at the median: anything under a full load will do."""
    target = ScenarioParams(latency_target_s=0.2, latency_percentile=50.0)
    (tmp_path / "out").mkdir()
    out, asked, job = Output(tmp_path / "out"), [], spec(60, scenario_params=target)

    def hand(number: int) -> list[Query]:
        asked.append(number)
        return planned_queries(job, number)

    done: Measurement[str] = Measurement(Outcome.OK, None, None)
    server.server(adapter(lambda _: 0.002), replace(job, sample=()), out, hand, done)
    out.close()
    assert done.rate_qps is not None and 50 < done.rate_qps < 600
    assert done.probes[-1].check and done.probes[-1].passed
    assert asked == list(range(1, len(done.probes) + 1))
    assert [phase.name for phase in out.phases] == ["warmup", *(f"trial-{n}" for n in range(len(done.probes)))]
    assert [probe.trial for probe in done.probes] == list(range(len(done.probes)))


@pytest.mark.slow
def test_queries_without_an_answer_are_counted_as_late_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of 40 queries fail at once, one of them by a time-out: their latency is short, and still they are late."""
    job, system = spec(40), adapter(lambda _: 0.001)
    failures = {5 + 3: QueryFailed("status 500"), 5 + 7: QueryFailed("no answer within 1 s", timed_out=True)}
    system.failing = failures.get
    measured = one_probe(tmp_path, system, job, 100.0, monkeypatch)
    (probe,) = measured.probes
    assert (probe.queries, probe.failed) == (40, 2) and probe.late >= 2
    found, _, wrong = read_samples(LaunchRequest(job, Prepared(None, "", "", ""), tmp_path, tmp_path, tmp_path))
    assert wrong is None and incomplete(job, measured, found) is None
    failed = [sample for sample in found if sample.failed is not None]
    assert sorted(sample.failed for sample in failed) == [1, 2] and not any(sample.hits for sample in failed)


def test_a_failed_query_of_a_closed_loop_ends_the_job(tmp_path: Path) -> None:
    system = adapter(lambda _: 0.0)
    system.failing = lambda _: QueryFailed("status 500")
    with pytest.raises(QueryFailed, match="status 500"):
        run(tmp_path, system, spec(4, scenario="single_stream"), closed_loop)


@pytest.mark.slow
def test_connections_are_doubled_until_a_service_answers_no_faster(tmp_path: Path) -> None:
    """A server that serves two at once: four connections wait for each other."""
    job = spec(40, scenario="offline", service_url="http://127.0.0.1:8080", first_trial=64)
    places = threading.Semaphore(2)

    class Two(Serving):
        def search(self, query: str, k: int) -> Sequence[Hit]:
            with places:
                return super().search(query, k)

    system = Two({}, Envelope("e", 1, 1), Path())
    system.service_s, system.width, system.threads_seen = lambda _: 0.005, 16, set()
    measured = run(tmp_path, system, job, server.connections)
    assert [probe.streams for probe in measured.probes] == [1, 2, 4, 2]
    assert [probe.trial for probe in measured.probes] == [64, 65, 66, 67]
    alone, two, four, again = (probe.rate_qps for probe in measured.probes)
    assert 1.5 * alone < two < 2.1 * alone and four < 1.05 * two
    assert measured.rate_qps == again and measured.probes[-1].check
    found, _, wrong = read_samples(LaunchRequest(job, Prepared(None, "", "", ""), tmp_path, tmp_path, tmp_path))
    assert wrong is None and incomplete(job, measured, found) is None
    wall_s = sum(40 / probe.rate_qps for probe in measured.probes)
    assert 0 < worked_s(job, [sample for sample in found if sample.trial >= 0]) <= 1.01 * wall_s


@pytest.mark.slow
@pytest.mark.parametrize(("max_qps", "capped"), [(100.0, True), (100_000.0, False)])
def test_connections_stop_where_the_limit_of_the_rate_decides(tmp_path: Path, max_qps: float, capped: bool) -> None:
    url = "http://127.0.0.1:8080"
    job = spec(20, scenario="offline", service_url=url, max_qps=max_qps, warmup=(Query("w", "warm"),))
    measured = run(tmp_path, adapter(lambda _: 0.002, width=4), job, server.connections)
    assert measured.capped is capped
    if capped:
        assert [probe.streams for probe in measured.probes] == [1, 1] and measured.rate_qps <= 106
    found, _, wrong = read_samples(LaunchRequest(job, Prepared(None, "", "", ""), tmp_path, tmp_path, tmp_path))
    assert wrong is None and incomplete(job, measured, found) is None
    assert max(sample.latency_ns for sample in found) < 1e9, "the pause is in no latency"

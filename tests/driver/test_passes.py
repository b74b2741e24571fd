"""Nothing but search is in the timed window; a clock that only we move proves it."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.driver import scenarios
from harness.driver.adapter import Adapter
from harness.driver.hits import BadAnswer
from harness.driver.output import SAMPLES, Output
from harness.driver.scenarios import Done, closed_loop, trial_order
from harness.records import Envelope, Hit, JobSpec, Query, ScenarioParams
from tests.driver.test_adapter import Least
from tests.support import job_fixtures

SAMPLE = tuple(Query(f"q{n}", f"text {n}") for n in range(8))
WARMUP = (Query("w0", "warm 0"), Query("w1", "warm 1"))


class Clock:
    """Nanoseconds that pass only when somebody says so."""

    def __init__(self) -> None:
        self.now = 1_000

    def pass_ns(self, count: int) -> None:
        self.now += count

    def __call__(self) -> int:
        return self.now


class Timed(Least):
    """Each search takes 5 ms; each look at what it says of itself takes an hour."""

    clock: Clock
    searched: list[tuple[str, int]]

    def search(self, query: str, k: int) -> Sequence[Hit]:
        self.searched.append((query, k))
        self.clock.pass_ns(5_000_000)
        return [Hit("d1", 2.0), Hit("d2", 1.0)]

    def stages_s(self) -> dict[str, float]:
        self.clock.pass_ns(3_600_000_000_000)
        return {"encode": 0.003, "retrieve": 0.0015}


def spec(**keys: Any) -> JobSpec:
    return job_fixtures.spec(**{"k": 2, "trials": 3, "corpus_size": 10, "warmup": WARMUP, "sample": SAMPLE, **keys})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(scenarios, "perf_counter_ns", made)
    return made


def run(
    folder: Path, adapter: Adapter, job: JobSpec, scenario: Callable[..., Done] = closed_loop, **keys: Any
) -> tuple[list[dict[str, Any]], list[str]]:
    out = Output(folder)
    try:
        scenario(adapter, job, out, **keys)
    finally:
        out.close()
    samples = [json.loads(line) for line in (folder / SAMPLES).read_text().splitlines()]
    return samples, [phase.name for phase in out.phases]


def timed(clock: Clock, cls: type[Timed] = Timed) -> Timed:
    adapter = cls({}, Envelope("e", 1, 1), Path())
    adapter.clock, adapter.searched = clock, []
    return adapter


def test_the_time_of_search_is_all_that_counts(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checking, writing, collecting garbage and asking for stages take an hour each here, and none of it counts."""

    def slow(function: Any) -> Any:
        def slowed(*args: Any, **keys: Any) -> Any:
            clock.pass_ns(3_600_000_000_000)
            return function(*args, **keys)

        return slowed

    monkeypatch.setattr(scenarios, "check", slow(scenarios.check))
    monkeypatch.setattr(scenarios.gc, "collect", slow(gc.collect))
    monkeypatch.setattr(Output, "write_sample", slow(Output.write_sample))
    samples, _ = run(tmp_path, timed(clock), spec())
    assert {sample["latency_ns"] for sample in samples} == {5_000_000}
    assert clock.now > len(samples) * 4 * 3_600_000_000_000
    assert samples[0]["stages_ns"] == {"encode": 3_000_000, "retrieve": 1_500_000}


def test_a_clock_that_an_adapter_replaces_is_not_the_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lying(Least):
        def search(self, query: str, k: int) -> Sequence[Hit]:
            time.sleep(0.002)
            return [Hit("d1", 1.0), Hit("d2", 0.5)]

    monkeypatch.setattr(time, "perf_counter_ns", lambda: 7)
    samples, _ = run(tmp_path, Lying({}, Envelope("e", 1, 1), Path()), spec(trials=1))
    assert min(sample["latency_ns"] for sample in samples) >= 2_000_000


def test_a_slow_search_is_a_slow_sample(tmp_path: Path, clock: Clock) -> None:
    class Slow(Timed):
        def search(self, query: str, k: int) -> Sequence[Hit]:
            clock.pass_ns(70_000_000 if query == "text 3" else 0)
            return super().search(query, k)

    samples, _ = run(tmp_path, timed(clock, Slow), spec())
    assert {s["query_id"] for s in samples if s["latency_ns"] == 75_000_000} == {"q3"}


def test_a_trials_order_is_fixed_by_the_seed() -> None:
    assert trial_order(SAMPLE, 2023, 1) == trial_order(SAMPLE, 2023, 1)
    assert trial_order(SAMPLE, 2023, 1) != trial_order(SAMPLE, 2024, 1)
    # Written down once: another order would make old and new results of one key differ.
    assert [query.query_id for query in trial_order(SAMPLE, 2023, 0)] == [
        "q1",
        "q4",
        "q6",
        "q3",
        "q2",
        "q7",
        "q5",
        "q0",
    ]


def test_a_bad_answer_ends_the_job_after_what_was_finished(tmp_path: Path, clock: Clock) -> None:
    class Failing(Timed):
        def search(self, query: str, k: int) -> Sequence[Hit]:
            hits = super().search(query, k)
            return hits[:1] if len(self.searched) == 5 else hits

    with pytest.raises(BadAnswer, match="1 hits, expected 2"):
        run(tmp_path, timed(clock, Failing), spec())
    assert len((tmp_path / SAMPLES).read_text().splitlines()) == 4


def test_no_more_hits_are_expected_than_there_are_documents(tmp_path: Path, clock: Clock) -> None:
    samples, _ = run(tmp_path, timed(clock), spec(k=10, corpus_size=2))
    assert len(samples) == 26
    with pytest.raises(BadAnswer, match="2 hits, expected 3"):
        run(tmp_path, timed(clock), spec(k=10, corpus_size=3))
    run(tmp_path, timed(clock), spec(k=10, corpus_size=3, fewer_hits_ok=True))


def test_the_collector_rests_while_a_query_runs(tmp_path: Path, clock: Clock) -> None:
    class Looking(Timed):
        def search(self, query: str, k: int) -> Sequence[Hit]:
            assert not gc.isenabled()
            return super().search(query, k)

    run(tmp_path, timed(clock, Looking), spec())


class Batched(Timed):
    """A batch takes 5 ms whatever its size."""

    asked: list[list[str]]

    def search_batch(self, queries: Sequence[str], k: int) -> Sequence[Sequence[Hit]]:
        self.asked.append(list(queries))
        self.clock.pass_ns(5_000_000)
        return [[Hit("d1", 2.0), Hit("d2", 1.0)] for _ in queries]


def batched(clock: Clock, cls: type[Batched] = Batched) -> Batched:
    adapter = timed(clock, cls)
    assert isinstance(adapter, Batched)
    adapter.asked = []
    return adapter


THREES = ScenarioParams(batch_size=3)


def test_each_query_of_a_batch_waits_for_the_whole_batch(tmp_path: Path, clock: Clock) -> None:
    adapter = batched(clock)
    samples, _ = run(tmp_path, adapter, spec(trials=2, scenario="offline", scenario_params=THREES))
    assert [len(texts) for texts in adapter.asked] == [2, 3, 3, 2, 3, 3, 2], "the last of a trial may be smaller"
    assert {sample["latency_ns"] for sample in samples} == {5_000_000}
    timed_rows = [(sample["trial"], sample["batch"]) for sample in samples if sample["trial"] >= 0]
    assert timed_rows == [(t, b) for t in (0, 1) for b in (0, 0, 0, 1, 1, 1, 2, 2)]
    assert [sample["query_id"] for sample in samples if sample["trial"] == 1] == [
        query.query_id for query in trial_order(SAMPLE, 0, 1)
    ]


def test_passes_of_a_batched_warm_up_are_told_apart(tmp_path: Path, clock: Clock) -> None:
    job = spec(scenario="offline", warmup_cap=6, scenario_params=ScenarioParams(batch_size=1))
    samples, _ = run(tmp_path, batched(clock), job)
    assert [sample["batch"] for sample in samples if sample["trial"] == -1] == list(range(6))


def test_an_engine_without_batches_is_asked_one_by_one(tmp_path: Path, clock: Clock) -> None:
    adapter = timed(clock)
    samples, _ = run(tmp_path, adapter, spec(trials=1, scenario="offline", scenario_params=THREES))
    assert len(adapter.searched) == 2 + 8
    latencies = [sample["latency_ns"] // 5_000_000 for sample in samples if sample["trial"] == 0]
    assert latencies == [3] * 6 + [2] * 2, "the batch's duration is the sum"


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([[Hit("d1", 1.0), Hit("d2", 0.5)]], "returned 1 answers for 2 queries"),
        (iter([]), "returned list_iterator for 2 queries"),
        (None, "returned NoneType for 2 queries"),
        ([[Hit("d1", 1.0), Hit("d2", 0.5)], [Hit("d1", 1.0)]], "1 hits, expected 2"),
        ([[Hit("d1", 1.0), Hit("d2", 0.5)], (hit for hit in ())], "search returned generator, not a list"),
    ],
)
def test_a_bad_batch_is_a_bad_answer(tmp_path: Path, clock: Clock, answers: Any, message: str) -> None:
    class Wrong(Batched):
        def search_batch(self, queries: Sequence[str], k: int) -> Sequence[Sequence[Hit]]:
            return answers  # type: ignore[no-any-return]

    with pytest.raises(BadAnswer, match=message):
        run(tmp_path, batched(clock, Wrong), spec(scenario="offline", scenario_params=THREES))


def test_the_clock_costs_a_query_next_to_nothing(tmp_path: Path) -> None:
    """The window holds the call and two clock reads; benchmarks/driver_overhead.py measures it."""
    reads = []

    class Counting(Least):
        def search(self, query: str, k: int) -> Sequence[Hit]:
            reads.append("search")
            return [Hit("d1", 1.0)]

    def clock() -> int:
        reads.append("clock")
        return len(reads)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(scenarios, "perf_counter_ns", clock)
        run(tmp_path, Counting({}, Envelope("e", 1, 1), Path()), spec(k=1, trials=1))
    at = reads.index("search")
    assert reads[at - 2 : at + 2] == ["clock", "clock", "search", "clock"]

"""Nothing but search is in the timed window; a clock that only we move proves it."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.measure import scenarios
from harness.measure.adapter import Adapter
from harness.measure.answers import BadAnswer
from harness.measure.output import SAMPLES, Output
from harness.measure.scenarios import SCENARIOS, single_stream, trial_order
from harness.records import Envelope, Hit, Isolation, JobSpec, Query
from tests.measure.test_adapter import Least

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
    envelope = Envelope("cpu1-mem1", 1, 1 << 30)
    given = {"k": 2, "trials": 3, "corpus_size": 10, "warmup": WARMUP, "sample": SAMPLE, **keys}
    return JobSpec("search", "fake", {}, envelope, Isolation.PROCESS, **given)


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """The scenario holds the garbage collector; give it back."""
    yield
    gc.enable()
    gc.unfreeze()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(scenarios.time, "perf_counter_ns", made)
    return made


def run(folder: Path, adapter: Adapter, job: JobSpec) -> tuple[list[dict[str, Any]], list[str]]:
    out = Output(folder)
    try:
        single_stream(adapter, job, out)
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
    monkeypatch.setattr(Output, "sample", slow(Output.sample))
    samples, _ = run(tmp_path, timed(clock), spec())
    assert {sample["latency_ns"] for sample in samples} == {5_000_000}
    assert clock.now > len(samples) * 4 * 3_600_000_000_000
    assert samples[0]["stages_ns"] == {"encode": 3_000_000, "retrieve": 1_500_000}


def test_a_slow_search_is_a_slow_sample(tmp_path: Path, clock: Clock) -> None:
    class Slow(Timed):
        def search(self, query: str, k: int) -> Sequence[Hit]:
            clock.pass_ns(70_000_000 if query == "text 3" else 0)
            return super().search(query, k)

    samples, _ = run(tmp_path, timed(clock, Slow), spec())
    assert {s["query_id"] for s in samples if s["latency_ns"] == 75_000_000} == {"q3"}


def test_warm_up_comes_before_the_trials_and_is_marked(tmp_path: Path, clock: Clock) -> None:
    adapter = timed(clock)
    samples, phases = run(tmp_path, adapter, spec())
    assert phases == ["warmup", "trial-0", "trial-1", "trial-2"]
    assert [sample["trial"] for sample in samples] == [-1] * 2 + [0] * 8 + [1] * 8 + [2] * 8
    assert [sample["query_id"] for sample in samples[:2]] == ["w0", "w1"]
    assert adapter.searched[:2] == [("warm 0", 2), ("warm 1", 2)]
    assert len(adapter.searched) == 2 + 3 * 8, "nothing is searched that is not written down"


def test_each_trial_passes_over_the_whole_sample_in_its_own_order(tmp_path: Path, clock: Clock) -> None:
    samples, _ = run(tmp_path, timed(clock), spec())
    orders = [[sample["query_id"] for sample in samples if sample["trial"] == trial] for trial in range(3)]
    assert all(sorted(order) == [query.query_id for query in SAMPLE] for order in orders)
    assert len({tuple(order) for order in orders}) == 3


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


def test_every_scenario_that_a_suite_may_name_is_there() -> None:
    assert list(SCENARIOS.items()) == [("single_stream", single_stream)]

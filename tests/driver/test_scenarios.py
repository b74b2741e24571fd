"""Closed-loop scenarios: the clock around a query, warm-up, the order of phases."""

from __future__ import annotations

import gc
import itertools
import json
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.driver import scenarios
from harness.driver.adapter import Adapter, BadAnswer
from harness.driver.output import EVENTS, MEASUREMENT, SAMPLES, Output
from harness.driver.records import Envelope, Hit, JobSpec, Measurement, Outcome, Query, ScenarioParams
from harness.driver.scenarios import (
    ENOUGH_QUERIES,
    WORK_NS,
    QuerySource,
    closed_loop,
    planned_queries,
    repeat_queries,
    steady,
    trial_order,
    warm_up,
)
from harness.jobs.job_samples import incomplete, read_samples
from harness.launch.base import LaunchRequest, Prepared
from tests.driver.test_adapter import Least
from tests.support import job_fixtures

SAMPLE = tuple(Query(f"q{n}", f"text {n}") for n in range(8))
WARMUP = (Query("w0", "warm 0"), Query("w1", "warm 1"))


class Clock:
    """A clock that advances only when a test advances it."""

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
    folder: Path, adapter: Adapter, job: JobSpec, hand: QuerySource | None = None
) -> tuple[list[dict[str, Any]], list[str]]:
    out = Output(folder)
    try:
        closed_loop(adapter, job, out, hand or partial(planned_queries, job), Measurement(Outcome.OK, None, None))
    finally:
        out.close()
    samples = [json.loads(line) for line in (folder / SAMPLES).read_text().splitlines()]
    return samples, [phase.name for phase in out.phases]


def timed(clock: Clock, cls: type[Timed] = Timed) -> Timed:
    adapter = cls({}, Envelope("e", 1, 1), Path())
    adapter.clock, adapter.searched = clock, []
    return adapter


def test_latency_is_the_time_of_search_alone(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks, writes, garbage collection and stage reads take an hour each, outside the window."""

    def slow(function: Any) -> Any:
        def slowed(*args: Any, **keys: Any) -> Any:
            clock.pass_ns(3_600_000_000_000)
            return function(*args, **keys)

        return slowed

    monkeypatch.setattr(scenarios, "check_hits", slow(scenarios.check_hits))
    monkeypatch.setattr(scenarios.gc, "collect", slow(gc.collect))
    monkeypatch.setattr(Output, "write_sample", slow(Output.write_sample))
    samples, _ = run(tmp_path, timed(clock), spec())
    assert {sample["latency_ns"] for sample in samples} == {5_000_000}
    assert clock.now > len(samples) * 4 * 3_600_000_000_000
    assert samples[0]["stages_ns"] == {"encode": 3_000_000, "retrieve": 1_500_000}


def test_replaced_clock_does_not_affect_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lying(Least):
        def search(self, query: str, k: int) -> Sequence[Hit]:
            time.sleep(0.002)
            return [Hit("d1", 1.0), Hit("d2", 0.5)]

    monkeypatch.setattr(time, "perf_counter_ns", lambda: 7)
    samples, _ = run(tmp_path, Lying({}, Envelope("e", 1, 1), Path()), spec(trials=1))
    assert min(sample["latency_ns"] for sample in samples) >= 2_000_000


def test_a_trials_order_is_fixed_by_the_seed() -> None:
    assert trial_order(SAMPLE, 2023, 1) == trial_order(SAMPLE, 2023, 1)
    assert trial_order(SAMPLE, 2023, 1) != trial_order(SAMPLE, 2024, 1)
    # Written down once: another order would make old and new results of one key differ.
    assert " ".join(query.query_id for query in trial_order(SAMPLE, 2023, 0)) == "q1 q4 q6 q3 q2 q7 q5 q0"


def test_bad_answer_ends_the_job_and_keeps_finished_samples(tmp_path: Path, clock: Clock) -> None:
    class Failing(Timed):
        def search(self, query: str, k: int) -> Sequence[Hit]:
            hits = super().search(query, k)
            return hits[:1] if len(self.searched) == 5 else hits

    with pytest.raises(BadAnswer, match="1 hits, expected 2"):
        run(tmp_path, timed(clock, Failing), spec())
    assert len((tmp_path / SAMPLES).read_text().splitlines()) == 4


def test_minimum_of_hits_is_bounded_by_the_corpus(tmp_path: Path, clock: Clock) -> None:
    samples, _ = run(tmp_path, timed(clock), spec(k=10, corpus_size=2))
    assert len(samples) == 26
    with pytest.raises(BadAnswer, match="2 hits, expected 3"):
        run(tmp_path, timed(clock), spec(k=10, corpus_size=3))
    run(tmp_path, timed(clock), spec(k=10, corpus_size=3, fewer_hits_ok=True))


def test_garbage_collector_is_off_while_a_query_runs(tmp_path: Path, clock: Clock) -> None:
    class Looking(Timed):
        def search(self, query: str, k: int) -> Sequence[Hit]:
            assert not gc.isenabled()
            return super().search(query, k)

    run(tmp_path, timed(clock, Looking), spec())


def test_collections_between_queries_do_not_walk_the_queries_of_a_trial(tmp_path: Path, clock: Clock) -> None:
    """With 100,000 queries each collection would take milliseconds, beside searches of microseconds."""
    given = spec()
    walked: list[bool] = []

    class Looking(Timed):
        def search(self, query: str, k: int) -> Sequence[Hit]:
            if query.startswith("text"):
                walked.append(any(type(each) is Query for each in gc.get_objects()))
            return super().search(query, k)

    def hand(number: int) -> list[Query]:
        return [replace(query) for query in planned_queries(given, number)]  # as a file gives them

    run(tmp_path, timed(clock, Looking), given, hand)
    assert len(walked) >= 3 * len(SAMPLE) and not any(walked[: 3 * len(SAMPLE)])


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
    assert all(sample["stages_ns"] for sample in samples)
    timed_rows = [(sample["trial"], sample["batch"]) for sample in samples if sample["trial"] >= 0]
    assert timed_rows == [(t, b) for t in (0, 1) for b in (0, 0, 0, 1, 1, 1, 2, 2)]
    assert [sample["query_id"] for sample in samples if sample["trial"] == 1] == [
        query.query_id for query in trial_order(SAMPLE, 0, 1)
    ]


def test_batched_warm_up_numbers_its_passes(tmp_path: Path, clock: Clock) -> None:
    job = spec(scenario="offline", warmup_cap=6, scenario_params=ScenarioParams(batch_size=1))
    samples, _ = run(tmp_path, batched(clock), job)
    assert [sample["batch"] for sample in samples if sample["trial"] == -1] == list(range(6))


def test_engine_without_batches_gets_single_queries(tmp_path: Path, clock: Clock) -> None:
    adapter = timed(clock)
    samples, _ = run(tmp_path, adapter, spec(trials=1, scenario="offline", scenario_params=THREES))
    assert len(adapter.searched) == 2 + 8
    latencies = [sample["latency_ns"] // 5_000_000 for sample in samples if sample["trial"] == 0]
    assert latencies == [3] * 6 + [2] * 2, "the batch's duration is the sum"
    assert not any(sample["stages_ns"] for sample in samples), "those of one query are not those of its batch"


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
            return answers

    with pytest.raises(BadAnswer, match=message):
        run(tmp_path, batched(clock, Wrong), spec(scenario="offline", scenario_params=THREES))


def test_clock_costs_a_query_little(tmp_path: Path) -> None:
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


SECOND = 1_000_000_000


def passes(
    levels_s: Iterable[float], most: int = 5000, compiled_s: Sequence[float] = (), queries: int = 20
) -> tuple[int, bool | None]:
    """Return how many passes were made over these levels, and how they were called.

    Args:
        most: passes.
        compiled_s: what compilers took during each pass; nothing after its end.
    """
    levels, made = iter(levels_s), list[int]()

    def ask() -> int:
        made.append(round(SECOND * next(levels)))
        return made[-1]

    last, verdict = warm_up(ask, queries, most * queries, lambda: round(SECOND * sum(compiled_s[: len(made)])))
    assert last == made[-1]
    return len(made), verdict


def test_three_long_passes_that_agree_are_enough() -> None:
    assert passes([1.0] * 50) == (3, True)


@pytest.mark.parametrize("level_s", [0.3, 0.02, 0.001])
def test_short_passes_continue_until_enough_work(level_s: float) -> None:
    made, verdict = passes([level_s] * 5000)
    assert verdict is True and WORK_NS <= made * level_s * SECOND <= 1.2 * WORK_NS


def test_few_fast_passes_are_not_enough() -> None:
    """Three passes of 0.15 s agree within 10 % in the middle of a slope."""
    levels = [1.0, 0.6, *[0.15] * 3, *[0.15 * 0.97**number for number in range(80)], *[0.01] * 400]
    made, verdict = passes(levels)
    assert verdict is True and levels[made - 1] == 0.01


def test_level_needs_two_passes_to_compare() -> None:
    assert passes([10.0], 1) == (1, None)
    assert passes([10.0, 9.5], 2) == (2, True)
    assert passes([10.0, 8.0], 2) == (2, False)


def test_passes_that_agree_by_chance_on_a_slope_are_not_enough() -> None:
    assert passes([2.0, 1.2, 1.19, 0.8, 0.5, 0.5, 0.5]) == (7, True)


@pytest.mark.parametrize("fall", [0.95, 0.96, 0.97, 0.98])
def test_a_gentle_slope_is_a_slope(fall: float) -> None:
    """Each pass is a little faster: within 10 % of its neighbours, but far from steady."""
    levels = [max(0.5, 2 * fall**number) for number in range(200)]
    made, verdict = passes(levels, 200)
    if verdict:
        assert levels[made - 1] == 0.5
    else:
        assert sum(levels[:made]) >= 60, "it took too long"


@pytest.mark.parametrize("seed", range(20))
def test_warm_up_waits_for_a_compiler_under_noise(seed: int) -> None:
    """From 4 times the time to once over some 10 passes, each off by 2 %: the end is within 15 % of the level."""
    chance = random.Random(seed)
    levels = [0.6 * (1 + 3 * 0.7**number) * chance.gauss(1, 0.02) for number in range(50)]
    made, verdict = passes(levels)
    assert verdict is True and levels[made - 1] < 0.6 * 1.15


@pytest.mark.parametrize("seed", range(20))
def test_warm_up_ends_soon_under_stationary_noise(seed: int) -> None:
    chance = random.Random(seed)
    made, verdict = passes(chance.gauss(0.6, 0.02) for _ in range(50))
    assert verdict is True and made <= 12


def test_warm_up_waits_for_compilers_whose_level_looks_steady() -> None:
    """A level of .6 s a pass while a compiler takes half a CPU for ten passes."""
    assert passes([0.6] * 50, compiled_s=[0.3] * 10) == (13, True)
    assert passes([0.6] * 20, 20, compiled_s=[0.3] * 20) == (20, False), "to the cap"
    assert passes([0.6] * 50, compiled_s=[0.006] * 50) == (3, True), "one per cent"


def test_one_stall_only_delays() -> None:
    assert passes([1.0, 1.0, 9.9, 1.0, 1.0, 1.0]) == (6, True)


def test_unsteady_level_is_reported_at_the_cap_and_after_a_minute() -> None:
    assert passes([100 * 0.9**number / 1e6 for number in range(50)], 50) == (50, False)
    assert passes([2 * 0.97**number for number in range(100)]) == (76, False)
    assert passes([30.0, 20.0, 10.0, 5.0]) == (3, False), "three passes at least"


def test_little_work_is_judged_without_its_coldest_third() -> None:
    many = ENOUGH_QUERIES // 6
    levels = [0.01, 0.005, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001]
    assert passes(levels, 9, queries=many) == (9, True)
    assert passes([0.001, 0.001, 0.001, 0.001, 0.002, 0.002], 6, queries=many) == (6, False)
    assert passes(levels, 9, queries=many // 2) == (9, False), "neither 1.5 s of work nor queries enough"


def test_steady_detects_a_stable_level() -> None:
    assert steady([100, 110, 105]) and not steady([100, 111, 105])
    assert steady([1015, 1010, 1000]), "a fall under 2 % is noise"
    assert not steady([104, 102, 100]) and steady([102, 104, 100])
    assert steady([0, 0, 0]), "a clock that does not move"
    assert steady([90, 110, 110, 90, 100, 100, 100]), "parts are compared, not passes"


def test_warm_up_comes_before_the_trials_and_is_marked(tmp_path: Path, clock: Clock) -> None:
    adapter = timed(clock)
    samples, phases = run(tmp_path, adapter, spec())
    assert phases == ["warmup", "trial-0", "trial-1", "trial-2"]
    assert [sample["trial"] for sample in samples] == [-1] * 2 + [0] * 8 + [1] * 8 + [2] * 8
    assert [sample["query_id"] for sample in samples[:2]] == ["w0", "w1"]
    assert adapter.searched[:2] == [("warm 0", 2), ("warm 1", 2)]
    assert len(adapter.searched) == 2 + 3 * 8, "nothing is searched that is not written down"


def test_trials_are_numbered_from_the_first_of_this_job(tmp_path: Path, clock: Clock) -> None:
    whole, phases = run(tmp_path, timed(clock), spec(trials=4))
    assert phases == ["warmup", "trial-0", "trial-1", "trial-2", "trial-3"]
    (tmp_path / "part").mkdir()
    part, phases = run(tmp_path / "part", timed(clock), spec(first_trial=2, trials=2))
    assert phases == ["warmup", "trial-2", "trial-3"]
    assert part[2:] == whole[2 + 2 * 8 :], "a trial is the same whichever job it runs in"


def test_repeats_follow_the_trials(tmp_path: Path, clock: Clock) -> None:
    job = spec(first_trial=1, trials=1, repeats=3)
    samples, phases = run(tmp_path, timed(clock), job)
    assert phases == ["warmup", "trial-1", "repeat"]
    again = [sample["query_id"] for sample in samples if sample["trial"] == -2]
    assert again == [query.query_id for query in repeat_queries(job) for _ in range(2)]
    assert len(set(again)) == 3 and samples[-6:] == [sample for sample in samples if sample["trial"] == -2]


@pytest.mark.parametrize("scenario", ["single_stream", "offline"])
def test_queries_are_requested_when_their_trial_begins(tmp_path: Path, clock: Clock, scenario: str) -> None:
    """The driver holds only warm-up queries, so no engine can answer ahead."""
    adapter = timed(clock)
    asked_before: list[tuple[int, int]] = []
    job = spec(scenario=scenario, repeats=2 if scenario == "single_stream" else 0)

    def hand(number: int) -> list[Query]:
        asked_before.append((number, len(adapter.searched)))
        return planned_queries(job, number)

    samples, _ = run(tmp_path, adapter, replace(job, sample=()), hand=hand)
    repeats = [(4, 2 + 24)] if job.repeats else []
    assert asked_before == [(1, 2), (2, 2 + 8), (3, 2 + 16), *repeats]
    (tmp_path / "at once").mkdir()
    assert run(tmp_path / "at once", timed(clock), job)[0] == samples


def test_end_of_a_trial_has_its_claimed_time(tmp_path: Path, clock: Clock) -> None:
    """The time of a batch counts once."""
    run(tmp_path, timed(clock), spec(trials=1, repeats=1))
    (tmp_path / "batches").mkdir()
    job = spec(trials=1, scenario="offline", scenario_params=ScenarioParams(batch_size=4))
    run(tmp_path / "batches", batched(clock), job)
    for folder, claimed_ns in ((tmp_path, 40_000_000), (tmp_path / "batches", 10_000_000)):
        events = [json.loads(line) for line in (folder / EVENTS).read_text().splitlines()]
        assert [event["claimed_ns"] for event in events if event.get("end") == "trial-0"] == [claimed_ns]


@pytest.mark.parametrize(
    "job",
    [
        spec(first_trial=3, repeats=4),
        spec(scenario="offline", first_trial=1, scenario_params=ScenarioParams(batch_size=3)),
        spec(warmup_cap=20),
        spec(scenario="offline", warmup_cap=20, scenario_params=ScenarioParams(batch_size=100)),
    ],
)
def test_written_samples_are_accepted_by_the_host(tmp_path: Path, clock: Clock, job: Any) -> None:
    (tmp_path / "out").mkdir()
    run(tmp_path / "out", timed(clock), job)
    found, doc_ids, wrong = read_samples(LaunchRequest(job, Prepared(None, "", "", ""), tmp_path, tmp_path, tmp_path))
    assert wrong is None and doc_ids == {(): {"d1", "d2"}}
    assert incomplete(job, Measurement(Outcome.OK, None, None), found) is None


class Warming(Timed):
    """Each warm-up pass takes its scripted time."""

    script: list[int]

    def search(self, query: str, k: int) -> Sequence[Hit]:
        passes, first = divmod(len(self.searched), len(WARMUP))
        self.clock.pass_ns(self.script[passes] if not first and passes < len(self.script) else 0)
        return super().search(query, k)


def test_warm_up_continues_until_its_level_is_stable(tmp_path: Path, clock: Clock) -> None:
    adapter = timed(clock, Warming)
    assert isinstance(adapter, Warming)
    adapter.script = [9_000_000_000, 2_000_000_000, 500_000_000, *[600_000_000] * 17]
    samples, _ = run(tmp_path, adapter, spec(warmup_cap=40))
    warm = [sample for sample in samples if sample["trial"] == -1]
    assert len(warm) == 2 * (3 + 3)
    assert [len(sample["hits"]) for sample in warm] == [2, 2, *[0] * 10], "hits are written once"


@pytest.mark.parametrize(("cap", "steady"), [(0, None), (3, None), (4, False), (6, False), (40, False), (10_000, True)])
def test_warm_up_is_bounded_by_its_cap(tmp_path: Path, clock: Clock, cap: int, steady: bool | None) -> None:
    adapter = timed(clock, Warming)
    assert isinstance(adapter, Warming)
    adapter.script = [90_000_000, 20_000_000, 5_000_000]
    out = Output(tmp_path)
    job = spec(warmup_cap=cap)
    done: Measurement[str] = Measurement(Outcome.OK, None, None)
    closed_loop(adapter, job, out, partial(planned_queries, job), done)
    out.close()
    assert done.warmup_steady is steady and not (tmp_path / MEASUREMENT).exists()


def test_a_limited_rate_sleeps_before_each_query_and_never_in_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += round(seconds * 1e9)

    monkeypatch.setattr(scenarios, "perf_counter_ns", lambda: now[0])
    monkeypatch.setattr(scenarios.time, "sleep", sleep)
    pace, starts = scenarios.Pace(10.0), []
    for number, _ in enumerate(pace.each(SAMPLE)):
        starts.append(now[0])
        now[0] += 350_000_000 if number == 3 else 30_000_000  # a slow answer needs no pause behind it
    gaps = [after - before for before, after in itertools.pairwise([0, *starts])]
    assert gaps == [100_000_000] * 4 + [350_000_000] + [100_000_000] * 3
    assert slept == pytest.approx([0.1, *[0.07] * 3, *[0.07] * 3]) and pace.held == 7


def test_an_unlimited_rate_has_no_pace() -> None:
    assert scenarios.QueryRunner(Least({}, Envelope("e", 1, 1), Path()), job_fixtures.spec(), None).pace is None

"""The closed loops: phases in order, trials numbered, pauses between trials, repeats at the end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.driver.output import EVENTS, MEASUREMENT, Output
from harness.driver.scenarios import Done, closed_loop, handed, repeated
from harness.jobs.job_samples import incomplete, read
from harness.launch.base import LaunchRequest, Prepared
from harness.records import Hit, Measurement, Outcome, Query, ScenarioParams
from tests.driver.test_passes import SAMPLE, WARMUP, Clock, Timed, batched, clock, run, spec, timed

__all__ = ["clock"]  # a fixture


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


def test_trials_are_numbered_from_the_first_of_this_job(tmp_path: Path, clock: Clock) -> None:
    whole, phases = run(tmp_path, timed(clock), spec(trials=4))
    assert phases == ["warmup", "trial-0", "trial-1", "trial-2", "trial-3"]
    (tmp_path / "part").mkdir()
    part, phases = run(tmp_path / "part", timed(clock), spec(first_trial=2, trials=2))
    assert phases == ["warmup", "trial-2", "trial-3"]
    assert part[2:] == whole[2 + 2 * 8 :], "a trial is the same whichever job it runs in"


def test_after_the_trials_some_queries_are_asked_twice_in_a_row(tmp_path: Path, clock: Clock) -> None:
    job = spec(first_trial=1, trials=1, repeats=3)
    samples, phases = run(tmp_path, timed(clock), job)
    assert phases == ["warmup", "trial-1", "repeat"]
    again = [sample["query_id"] for sample in samples if sample["trial"] == -2]
    assert again == [query.query_id for query in repeated(job) for _ in range(2)]
    assert len(set(again)) == 3 and samples[-6:] == [sample for sample in samples if sample["trial"] == -2]


@pytest.mark.parametrize("scenario", ["single_stream", "offline"])
def test_queries_are_asked_for_as_their_trial_begins(tmp_path: Path, clock: Clock, scenario: str) -> None:
    """What is not known cannot be answered ahead: the driver itself has no query but those of warm-up."""
    adapter = timed(clock)
    asked_before: list[tuple[int, int]] = []
    job = spec(scenario=scenario, repeats=2 if scenario == "single_stream" else 0)

    def hand(number: int) -> list[Query]:
        asked_before.append((number, len(adapter.searched)))
        return handed(job, number)

    samples, _ = run(tmp_path, adapter, replace(job, sample=()), hand=hand)
    repeats = [(4, 2 + 24)] if job.repeats else []
    assert asked_before == [(1, 2), (2, 2 + 8), (3, 2 + 16), *repeats]
    (tmp_path / "at once").mkdir()
    assert run(tmp_path / "at once", timed(clock), job)[0] == samples


def test_the_end_of_a_trial_says_what_it_claims(tmp_path: Path, clock: Clock) -> None:
    """And a batch's time counts once."""
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
def test_what_is_written_is_what_the_host_asks_for(tmp_path: Path, clock: Clock, job: Any) -> None:
    (tmp_path / "out").mkdir()
    run(tmp_path / "out", timed(clock), job)
    found, doc_ids, wrong = read(LaunchRequest(job, Prepared(None, "", ""), tmp_path, tmp_path, tmp_path))  # type: ignore[arg-type]
    assert wrong is None and doc_ids == {"d1", "d2"}
    assert incomplete(job, Measurement(Outcome.OK, None, None), found) is None


class Warming(Timed):
    """Each pass over the warm-up takes what the script says."""

    script: list[int]

    def search(self, query: str, k: int) -> Sequence[Hit]:
        passes, first = divmod(len(self.searched), len(WARMUP))
        self.clock.pass_ns(self.script[passes] if not first and passes < len(self.script) else 0)
        return super().search(query, k)


def test_warm_up_goes_on_until_its_level_is_stable(tmp_path: Path, clock: Clock) -> None:
    adapter = timed(clock, Warming)
    assert isinstance(adapter, Warming)
    adapter.script = [9_000_000_000, 2_000_000_000, 500_000_000, *[600_000_000] * 17]
    samples, _ = run(tmp_path, adapter, spec(warmup_cap=40))
    warm = [sample for sample in samples if sample["trial"] == -1]
    assert len(warm) == 2 * (3 + 3)
    assert [len(sample["hits"]) for sample in warm] == [2, 2, *[0] * 10], "hits are written once"


@pytest.mark.parametrize(("cap", "steady"), [(0, None), (3, None), (4, False), (6, False), (40, False), (10_000, True)])
def test_the_cap_bounds_it_and_the_result_is_said(tmp_path: Path, clock: Clock, cap: int, steady: bool | None) -> None:
    adapter = timed(clock, Warming)
    assert isinstance(adapter, Warming)
    adapter.script = [90_000_000, 20_000_000, 5_000_000]
    out = Output(tmp_path)
    done = closed_loop(adapter, spec(warmup_cap=cap), out)
    out.close()
    assert done == Done(steady) and not (tmp_path / MEASUREMENT).exists()

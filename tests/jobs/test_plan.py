"""Tests of the plan: finished jobs, jobs to do, and their order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from harness.driver.records import Envelope, Outcome, ScenarioParams
from harness.jobs.inputs import Inputs
from harness.jobs.plan import Planned, index_key, order, plan, states
from harness.jobs.suite import Expectation, Restriction, Suite
from harness.jobs.suite_protocol import SuiteProtocol
from harness.jobs.suite_scenarios import Offline, Server
from harness.launch.images.systems import System
from harness.results.isolation import CONTAINER, PROCESS
from harness.results.reader import MOST_REPETITION
from harness.results.schema import NULL_SYSTEM, Cell, Result, job_key
from tests.support import job_fixtures, sample_records

PAPERS = SuiteProtocol(name="santhanam2023")
SUITE = Suite(
    name="demo",
    systems=("a", "b"),
    datasets=("./tiny", "big"),
    profiles=("p1", "p2"),
    protocol=PAPERS,
    overhead=False,
)
RECIPES = {"a": "recipe-a", "b": "recipe-b"}


def system(name: str, **build_params: Any) -> System:
    return job_fixtures.system(name, build_params=build_params, search_params={"k1": 0.9})


def dataset(corpus: str, qrels: str = "q") -> Any:
    return SimpleNamespace(corpus=SimpleNamespace(sha256=corpus), qrels_sha256=qrels, language=None)


def sample(sha256: str = "s", size: int = 300) -> Any:
    return SimpleNamespace(
        sample_sha256=sha256, warmup_sha256="w", sample=range(size), warmup=range(10), held_out=frozenset()
    )


def make(suite: Suite = SUITE, stored: Iterable[Result] = (), only: str | None = None, **keys: Any) -> list[Planned]:
    given: dict[str, Any] = {
        "systems": {name: system(name) for name in ("a", "b", NULL_SYSTEM)},
        "profiles": {name: Envelope(name, 1, 1 << 30) for name in ("p1", "p2")},
        "datasets": {name: dataset(f"c-{name}") for name in ("tiny", "big")},
        "samples": {name: sample() for name in ("tiny", "big")},
    }
    for name in given:
        given[name] |= keys.pop(name, {})
    options: dict[str, Any] = {"recipes": RECIPES, "isolation": CONTAINER.name, **keys}
    return plan(Inputs(suite, suite.cells(only), **given), stored=stored, **options)


ONE = "a/tiny/single_stream/p1"


def test_a_system_that_the_launcher_lacks_is_foreseen_as_not_applicable() -> None:
    jobs = make(unable={"a": "not available here"})
    lacking = [job for job in jobs if job.cell.system == "a"]
    assert lacking and all(job.cannot == "not available here" for job in lacking)
    assert {job.expected for job in lacking} == {Outcome.NOT_APPLICABLE}
    assert all(job.cannot is None and job.expected is Outcome.OK for job in jobs if job.cell.system != "a")


def ended(job: Planned, outcome: Outcome) -> Result:
    return Result(
        job_key(job.spec), job.spec, outcome, None, "2026-11-05T10:00:00+00:00", 1.0, sample_records.ENVIRONMENT
    )


def one(stored: Iterable[Result] = (), suite: Suite = SUITE, **keys: Any) -> Planned:
    (job,) = make(suite, stored, ONE, **keys)
    return job


def test_plan_is_the_product_of_the_suites_lists() -> None:
    jobs = make()
    assert len(jobs) == len({job_key(job.spec) for job in jobs}) == 8
    assert {job.why for job in jobs} == {"to do"}
    assert jobs[0].cell == Cell("demo", "a", "tiny", "single_stream", "p1")


@pytest.mark.parametrize(
    ("glob", "count"),
    [("a", 4), ("p1", 4), ("[ab]", 8), ("t*", 4), ("a/*", 4), ("*/p1", 4), (ONE, 1), ("A", 0), ("single_stream", 8)],
)
def test_only_matches_a_cell_or_any_part_of_it(glob: str, count: int) -> None:
    assert len(SUITE.cells(glob)) == count


def test_job_is_done_if_stored_as_ok() -> None:
    job = one([ended(one(), Outcome.OK)])
    assert job.done and job.why == "done (ok)" and job.spec.repetition == 0
    assert sum(job.done for job in make(stored=[ended(one(), Outcome.OK)])) == 1


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.OK])
def test_failed_job_is_retried_as_the_next_repetition(outcome: Outcome) -> None:
    job = one([ended(one(), outcome)])
    assert not job.done and job.spec.repetition == 1
    assert job.why == f"to do again: ended {outcome.value}"


def test_job_is_done_if_its_retry_ends_ok() -> None:
    first = ended(one(), Outcome.CRASH)
    second = ended(one([first]), Outcome.OK)
    job = one([second, first])
    assert job.done and job.latest == second and job.spec.repetition == 1


def test_repetition_number_is_not_reused_after_a_result_was_moved() -> None:
    first = ended(one(), Outcome.CRASH)
    second = ended(one([first]), Outcome.CRASH)
    assert one([second]).spec.repetition == 2, "the first one's folder was moved away, the second one's is there"


def test_next_repetition_is_one_that_readers_of_results_take() -> None:
    last = ended(one(), Outcome.CRASH)
    last = replace(last, spec=replace(last.spec, repetition=MOST_REPETITION))
    assert one([last]).spec.repetition == 0
    assert one([ended(one(), Outcome.CRASH), last]).spec.repetition == 1


def test_fresh_ignores_stored_results() -> None:
    stored = [ended(one(), Outcome.OK)]
    job = one(stored, fresh=True)
    assert not job.done and job.spec.repetition == 1
    assert one([*stored, ended(job, Outcome.OK)]).spec.repetition == 1, "the newest is shown as done"


def test_expected_failure_is_done_and_an_unexpected_ok_is_not() -> None:
    suite = SUITE.model_copy(update={"expect": (Expectation(system="a", profile="p1", outcome=Outcome.OOM),)})
    assert one([ended(one(), Outcome.OOM)], suite).why == "done (oom)"
    assert one([ended(one(), Outcome.OK)], suite).why == "to do again: ended ok"


@pytest.mark.parametrize(
    "change",
    [
        {"recipes": {"a": "another"}},
        {"systems": {"a": system("a", stemmer=True)}},
        {"profiles": {"p1": Envelope("p1", 1, 2 << 30)}},
        {"datasets": {"tiny": dataset("other")}},
        {"samples": {"tiny": sample("other")}},
        {"isolation": PROCESS.name},
    ],
)
def test_job_is_not_done_if_its_spec_changed(change: dict[str, Any]) -> None:
    job = one([ended(one(), Outcome.OK)], **change)
    assert not job.done and job.spec.repetition == 0 and job.latest is None


def test_system_without_an_image_is_to_do_and_known_by_its_recipe() -> None:
    job = one(unbuilt={"a"})
    assert job.spec == one().spec and job.why == "to do: its image is not built yet"
    assert one([ended(one(), Outcome.OK)], unbuilt={"a"}).why == "done (ok)"


def test_job_without_its_gpus_is_to_do_until_stored_as_not_applicable() -> None:
    cannot = {"p1": "no GPU on this host"}
    gpus = {"p1": Envelope("p1", 1, 1 << 30, gpus=1), "p2": Envelope("p2", 1, 1 << 30)}
    job = one(cannot=cannot, profiles=gpus)
    assert not job.done and job.expected is Outcome.NOT_APPLICABLE
    assert job.why == "not applicable: no GPU on this host"
    stored = [ended(job, Outcome.NOT_APPLICABLE)]
    assert one(stored, cannot=cannot, profiles=gpus).done
    assert one(stored, cannot=cannot, profiles=gpus, fresh=True).done, "nothing new can be learnt from trying again"
    assert one(stored, cannot=cannot, profiles=gpus, recipes={}).done, "an image plays no part"
    assert not one(stored, profiles=gpus).done, "the hardware has come"


def test_too_large_profile_is_not_an_expected_outcome() -> None:
    cannot = {"p1": "needs 64 CPUs, this host gives 2"}
    job = one(cannot=cannot)
    assert not job.done and job.expected is Outcome.OK
    assert not one([ended(job, Outcome.NOT_APPLICABLE)], cannot=cannot).done


def test_index_key_depends_on_image_corpus_and_build_parameters_only() -> None:
    key = index_key(system("a"), "d", "c")
    assert index_key(system("b").model_copy(update={"search_params": {"k1": 1.2}}), "d", "c") == key
    assert len({key, index_key(system("a"), "d2", "c"), index_key(system("a"), "d", "c2")}) == 3
    assert index_key(system("a", stemmer=True), "d", "c") != key


FRESH = SUITE.model_copy(update={"protocol": SuiteProtocol(trials=3)})


def test_interleaved_protocol_uses_a_fresh_process_per_trial() -> None:
    jobs = make(FRESH, only=ONE)
    assert [(job.spec.jobs, job.spec.job, job.spec.trials) for job in jobs] == [(3, 0, 1), (3, 1, 1), (3, 2, 1)]
    assert len({job_key(job.spec) for job in jobs}) == 3
    (paper,) = make(only=ONE)
    assert (paper.spec.jobs, paper.spec.job, paper.spec.trials) == (1, 0, 5)


def test_each_round_has_one_job_per_cell_in_its_own_order() -> None:
    jobs = order(make(FRESH), 1)
    assert all(not job.done for job in order(make(stored=[ended(one(), Outcome.OK)]), 1))
    rounds = [jobs[start : start + 8] for start in (0, 8, 16)]
    for number, members in enumerate(rounds):
        assert {job.spec.job for job in members} == {number}
        assert len({job.cell for job in members}) == 8
    assert len({tuple(job.cell for job in members) for members in rounds}) == 3
    assert order(make(FRESH), 1) == jobs and order(make(FRESH), 2) != jobs


def test_remaining_trials_are_to_do_after_some_are_stored() -> None:
    first, second, _ = make(FRESH, only=ONE)
    jobs = make(FRESH, [ended(second, Outcome.OK), ended(first, Outcome.CRASH)], ONE)
    assert [(job.done, job.spec.repetition) for job in jobs] == [(False, 1), (True, 0), (False, 0)]
    assert [job.spec.job for job in order(jobs, 1)] == [0, 2]


def test_cell_state_is_shared_by_its_jobs_or_counted() -> None:
    jobs = make(FRESH, only=ONE)
    assert states(jobs) == [(jobs[0].cell, "to do")]
    jobs = make(FRESH, [ended(jobs[1], Outcome.OK)], ONE)
    assert states(jobs) == [(jobs[0].cell, "2 of 3 to do; 1 of 3 done (ok)")]


def test_null_system_runs_once_per_measured_profile() -> None:
    suite = FRESH.model_copy(update={"overhead": True})
    null = [cell for cell in suite.cells() if cell.system == NULL_SYSTEM]
    assert [cell.profile for cell in null] == ["p1", "p2"]
    assert {cell.scenario for cell in null} == {"single_stream"}
    assert [cell.profile for cell in suite.cells(ONE) if cell.system == NULL_SYSTEM] == ["p1"]
    assert [(cell.system, cell.profile) for cell in suite.cells(f"{NULL_SYSTEM}/*/*/p2")] == [(NULL_SYSTEM, "p2")]
    assert suite.cells("nothing") == []
    jobs = [job for job in make(suite) if job.cell.system == NULL_SYSTEM]
    assert [(job.spec.jobs, job.spec.trials) for job in jobs] == [(1, 1), (1, 1)]
    assert sum(job.spec.job == 0 for job in order(make(suite), 1)) == 10, "it comes in the first round, not in each"


def test_null_system_is_not_added_twice_if_the_suite_names_it() -> None:
    suite = FRESH.model_copy(update={"overhead": True, "systems": ("a", NULL_SYSTEM)})
    assert len([cell for cell in suite.cells() if cell.system == NULL_SYSTEM]) == 4


RESTRICTED = SUITE.model_copy(update={"restrict": (Restriction(profiles=("p1",), systems=("a",)),)})


def test_restricted_profile_has_cells_of_its_systems_only() -> None:
    places = {(cell.system, cell.dataset, cell.profile) for cell in RESTRICTED.cells()}
    whole = {(cell.system, cell.dataset, cell.profile) for cell in SUITE.cells()}
    assert whole - places == {("b", "tiny", "p1"), ("b", "big", "p1")} and len(make(RESTRICTED)) == 6
    assert RESTRICTED.cells("b/*/p1") == [], "not even when it is asked for"


def test_null_system_is_measured_on_a_restricted_profile() -> None:
    suite = RESTRICTED.model_copy(update={"overhead": True})
    assert {cell.profile for cell in suite.cells() if cell.system == NULL_SYSTEM} == {"p1", "p2"}
    assert [cell.profile for cell in suite.cells("b") if cell.system == NULL_SYSTEM] == ["p2"], "where b is measured"


def test_scenario_parameters_are_part_of_the_spec() -> None:
    update = {
        "scenarios": ("single_stream", "offline", "server"),
        "offline": Offline(batch_size=7),
        "server": Server(latency_target_s=0.1, latency_percentile=99),
    }
    jobs = make(SUITE.model_copy(update=update), only="a/tiny/*/p1")
    params = {job.cell.scenario: job.spec.scenario_params for job in jobs}
    assert params["single_stream"] == ScenarioParams()
    assert params["offline"] == ScenarioParams(batch_size=7)
    assert params["server"] == ScenarioParams(latency_target_s=0.1, latency_percentile=99.0)
    assert {job.cell.scenario: job.spec.repeats for job in jobs} == {"single_stream": 20, "offline": 0, "server": 0}

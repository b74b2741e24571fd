"""Jobs become parts, each for one machine, for a time and at a price."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.aws.ec2.backend import Ec2Backend
from harness.driver.records import Outcome
from harness.jobs.estimates import DurationEstimate, RunModel
from harness.jobs.inputs import IndexBuild
from harness.pricing import instances
from harness.pricing.offers import ChosenMachine
from harness.remote import partition
from harness.remote.partition import Grouping, Market, committed_usd, plan_launch
from harness.remote.records import Launch, PlannedPart
from tests.support import sample_records
from tests.support.job_fixtures import planned

GIB = 1 << 30
KNOWN = instances.read_instances("aws")
LARGE, XLARGE = ChosenMachine(KNOWN["m6i.large"], 0.096), ChosenMachine(KNOWN["m6i.xlarge"], 0.192)
MACHINES = {"small": LARGE, "big": XLARGE}


def hours(seconds: dict[str, float]) -> Grouping:
    return Grouping(
        Market(MACHINES),
        lambda job: DurationEstimate(seconds.get(job.cell.system, 60.0), 7200, True),
        lambda _build: DurationEstimate(600, 7200, False),
    )


def missing(*systems: str) -> dict[str, IndexBuild]:
    return {f"{system}-d": IndexBuild(f"{system}-d", system, "d") for system in systems}


def test_each_profile_has_one_worker() -> None:
    jobs = [planned(system, profile, job=job) for system in "ab" for profile in ("small", "big") for job in range(3)]
    made = Ec2Backend.parts(jobs, hours({}))
    assert [(part.name, part.instance_type, len(part.jobs)) for part in made] == [
        ("small", "m6i.large", 6),
        ("big", "m6i.xlarge", 6),
    ]


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from("abcdefghij"), st.sampled_from(["small", "big"])), min_size=1, max_size=40))
def test_every_job_is_in_one_part(cells: list[tuple[str, str]]) -> None:
    jobs = [planned(system, profile, job=number) for number, (system, profile) in enumerate(cells)]
    keys = [job.key for part in Ec2Backend.parts(jobs, hours({})) for job in part.jobs]
    assert len(keys) == len(set(keys)) == len(jobs)


def test_builds_are_one_part_before_the_others() -> None:
    jobs = [planned("a"), planned("b"), planned("c")]
    made = Ec2Backend.parts(jobs, replace(hours({}), missing=missing("a", "b", "z"), build_machine=XLARGE))
    assert [(part.name, part.instance_type, len(part.builds), len(part.jobs)) for part in made] == [
        ("builds", "m6i.xlarge", 2, 0),
        ("small", "m6i.large", 0, 3),
    ]
    assert made[1].needs == ("a-d", "b-d")
    assert not made[0].measured and made[1].measured


def test_first_part_builds_the_index_without_a_build_profile() -> None:
    jobs = [planned("a"), planned("a", "big")]
    made = Ec2Backend.parts(jobs, replace(hours({}), missing=missing("a")))
    assert [len(part.builds) for part in made] == [1, 0]
    assert [part.needs for part in made] == [(), ("a-d",)]


HYBRID = {
    **missing("a", "b"),
    "h-d": IndexBuild("h-d", "h", "d", components={"a": "a-d", "b": "b-d"}),
}


def test_hybrid_waits_for_the_components_that_an_earlier_part_builds() -> None:
    jobs = [planned("a"), planned("h", "big"), planned("h")]
    made = Ec2Backend.parts(jobs, replace(hours({}), missing=HYBRID))
    assert [[build.key for build in part.builds] for part in made] == [["a-d", "b-d", "h-d"], []]
    assert [part.needs for part in made] == [(), ("h-d",)]
    made = Ec2Backend.parts(jobs[:2], replace(hours({}), missing=HYBRID))
    assert [[build.key for build in part.builds] for part in made] == [["a-d"], ["b-d", "h-d"]]
    assert [part.needs for part in made] == [(), ("a-d",)]
    made = Ec2Backend.parts(jobs, replace(hours({}), missing=HYBRID, build_machine=XLARGE))
    assert [[build.key for build in part.builds] for part in made] == [["a-d", "b-d", "h-d"], [], []]


def test_components_of_a_finished_hybrid_are_not_built() -> None:
    only = {key: build for key, build in HYBRID.items() if key != "h-d"}
    (part,) = Ec2Backend.parts([planned("h")], replace(hours({}), missing=only))
    assert (part.builds, part.needs) == ((), ())


def test_images_that_build_and_that_search_both_count() -> None:
    cell = planned("a").cell
    inputs: Any = SimpleNamespace(
        cells=[cell, cell],
        system=lambda _: SimpleNamespace(image="a-search"),
        builder=lambda _: SimpleNamespace(image="a"),
    )
    images: Any = {"a": SimpleNamespace(size_bytes=5), "a-search": SimpleNamespace(size_bytes=2)}
    assert partition._image_bytes(inputs, images) == {"a": 7}


def test_disk_has_room_for_images_and_data() -> None:
    large = {"image_bytes": {"a": 10 * GIB}, "corpus_bytes": {"d": 20 * GIB}, "index_bytes": {"a-d": 40 * GIB}}
    (part,) = Ec2Backend.parts([planned("a")], replace(hours({}), **large))
    assert part.disk_gib >= 20 + 10 + 2 * (20 + 40)
    tiny = {"image_bytes": {"a": 1}, "corpus_bytes": {"d": 1}, "index_bytes": {"a-d": 1}}
    (small,) = Ec2Backend.parts([planned("a")], replace(hours({}), **tiny))
    assert small.disk_gib == 30 and small.expected_s < part.expected_s


def test_estimate_is_measured_with_stored_results() -> None:
    spec = sample_records.SPEC
    times = RunModel([], job_timeout_s=7200, build_timeout_s=600)
    assert not times.job(spec).measured
    stored = [sample_records.result(minute=n, repetition=n) for n in range(3)]
    times = RunModel(
        [replace(result, wall_s=seconds) for result, seconds in zip(stored, (10, 20, 900), strict=True)],
        job_timeout_s=7200,
        build_timeout_s=600,
    )
    assert times.job(spec) == DurationEstimate(pytest.approx(20), 7200, True)
    # On another profile the like, for as many queries.
    other = replace(spec, cell=replace(spec.cell, profile="x"), sample_size=spec.sample_size * 2)
    assert times.job(other).measured and 30 < times.job(other).seconds < 41
    assert not times.job(replace(spec, cell=replace(spec.cell, system="other"))).measured


def test_interrupted_job_gives_no_estimate() -> None:
    result = replace(sample_records.result(Outcome.INTERRUPTED), wall_s=0.0)
    assert not RunModel([result], job_timeout_s=1, build_timeout_s=1).job(sample_records.SPEC).measured


def test_time_outs_bound_estimates() -> None:
    times = RunModel([], job_timeout_s=50, build_timeout_s=70)
    assert times.job(sample_records.SPEC).seconds == 50 and times.build("a", "d", 10**9).seconds == 70


def test_a_limit_is_above_the_estimate_and_below_the_time_outs() -> None:
    sure = replace(PART, expected_s=10_000, worst_s=10**6, measured=True)
    assumed = replace(sure, measured=False)
    assert (
        sure.expected_s
        < partition.least_limit_s(sure)
        < partition.usual_limit_s(sure)
        < partition.usual_limit_s(assumed)
        < 10**6
    )
    assert partition.usual_limit_s(replace(assumed, worst_s=20_000)) == 20_000
    assert partition.usual_limit_s(replace(sure, expected_s=0.0, worst_s=0.0)) >= 3600


PART = PlannedPart("p", "m6i.large", 0.36, 30, expected_s=3600, worst_s=40_000, measured=True)


def launch(name: str, limit_s: int, attempts: int = 1, usd_per_hour: float = 0.36) -> Launch:
    return Launch(name, limit_s, attempts, 0.0, usd_per_hour)


def test_without_a_cap_a_part_has_the_usual_limit_and_is_begun_again() -> None:
    limits = plan_launch(PART, [], 0.0, 3)
    assert limits is not None
    assert (limits.limit_s, limits.attempts) == (3 * 3600, 3)


@pytest.mark.slow
@given(
    cap=st.floats(0.1, 20.0),
    rates=st.lists(st.floats(0.05, 2.0), min_size=1, max_size=8),
    lived=st.lists(st.floats(0.0, 1.0), min_size=8, max_size=8),
)
def test_promised_and_spent_never_exceed_the_cap(cap: float, rates: list[float], lived: list[float]) -> None:
    launches: dict[str, Launch] = {}
    waiting = [replace(PART, name=f"{n}", usd_per_hour=rate) for n, rate in enumerate(rates)]
    for number, part in enumerate(waiting):
        made = plan_launch(part, waiting[number + 1 :], 0.0, 3, cap - committed_usd(launches.values()))
        if made is None:
            continue
        launches[made.name] = made
        assert committed_usd(launches.values()) <= cap + 1e-6
        if number % 2:
            used = lived[number] * (made.limit_s + partition.BEYOND_LIMIT_S)
            launches[made.name] = replace(made, usd=partition.cost_usd(made, used))
            assert committed_usd(launches.values()) <= cap + 1e-6


def test_launch_leaves_the_waiting_parts_their_least_money() -> None:
    need = partition.most_usd(0.36, partition.least_limit_s(PART))
    cap, waiting = 2 * need + 0.01, [replace(PART, name=name) for name in "ab"]
    launches: list[Launch] = []
    for number, part in enumerate(waiting):
        made = plan_launch(part, waiting[number + 1 :], 0.0, 3, cap - committed_usd(launches))
        assert made is not None and made.limit_s >= partition.least_limit_s(PART) - 1
        launches.append(made)


def test_unknown_time_costs_the_whole_limit() -> None:
    made = launch("p", 3600, attempts=2)
    assert partition.cost_usd(made, None) == pytest.approx(2 * partition.most_usd(0.36, 3600))
    assert partition.cost_usd(made, 1800.0) == pytest.approx(0.18)
    assert partition.cost_usd(made, 1.0) == partition.cost_usd(made, 60.0), "a minute is billed at least"

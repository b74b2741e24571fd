"""Jobs are put on boxes, for a time and at a price."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import instances
from harness.ec2 import estimates, money
from harness.ec2.estimates import Estimate, Estimates
from harness.ec2.grouping import Grouping, Missing, Sizes, groups
from harness.ec2.machines import Machine
from harness.records import Outcome
from harness.remote.records import IndexBuild
from tests import build
from tests.jobs import planned

GIB = 1 << 30
KNOWN = instances.read("aws")
LARGE, XLARGE = Machine(KNOWN["m6i.large"], 0.096), Machine(KNOWN["m6i.xlarge"], 0.192)
MACHINES = {"small": LARGE, "big": XLARGE}


def hours(seconds: dict[str, float]) -> Grouping:
    return Grouping(MACHINES, lambda job: Estimate(seconds.get(job.cell.system, 60.0), 7200, True))


def test_one_box_for_each_type() -> None:
    jobs = [planned(system, profile, job=job) for system in "ab" for profile in ("small", "big") for job in range(3)]
    made = groups(jobs, hours({}))
    assert [(group.instance_type, len(group.jobs)) for group in made] == [("m6i.large", 6), ("m6i.xlarge", 6)]
    assert [group.name for group in made] == ["001", "002"]


def test_cells_stay_whole_and_hours_are_even() -> None:
    jobs = [planned(system, job=job) for system in "abcd" for job in range(3)]
    seconds = {"a": 900.0, "b": 300.0, "c": 300.0, "d": 300.0}
    made = groups(jobs, replace(hours(seconds), per_type=2))
    by_box = [{job.cell.system for job in group.jobs} for group in made]
    assert sorted(map(sorted, by_box)) == [["a"], ["b", "c", "d"]]
    assert made[0].expected_s == pytest.approx(made[1].expected_s, rel=0.05)


@given(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=40), st.integers(1, 5))
def test_every_job_is_on_one_box(systems: list[str], per_type: int) -> None:
    jobs = [planned(system, job=number) for number, system in enumerate(systems)]
    made = groups(jobs, replace(hours({}), per_type=per_type))
    assert sorted(job.key for group in made for job in group.jobs) == sorted(
        {job.key for group in made for job in group.jobs}
    )
    assert sum(len(group.jobs) for group in made) == len(jobs)
    homes = [{job.cell for job in group.jobs} for group in made]
    assert sum(map(len, homes)) == len(set().union(*homes)) and len(made) <= per_type


def missing(*systems: str) -> dict[str, Missing]:
    return {
        f"{system}-d": Missing(IndexBuild(f"{system}-d", system, "d"), Estimate(600, 7200, False)) for system in systems
    }


def test_builds_are_boxes_of_their_own_and_come_first() -> None:
    jobs = [planned("a"), planned("b"), planned("c")]
    made = groups(jobs, replace(hours({}), missing=missing("a", "b", "z"), build_machine=XLARGE))
    assert [(group.instance_type, len(group.builds), len(group.jobs)) for group in made] == [
        ("m6i.xlarge", 2, 0),
        ("m6i.large", 0, 3),
    ]
    assert made[1].needs == ("a-d", "b-d")
    assert not made[0].measured and made[1].measured


def test_builds_are_spread_where_that_is_worth_a_box() -> None:
    how = replace(hours({}), missing=missing("a", "b"), build_machine=XLARGE, per_type=5)
    assert [len(group.builds) for group in groups([planned("a"), planned("b")], how) if group.builds] == [1, 1]
    quick = {key: replace(each, estimate=Estimate(30, 60, True)) for key, each in how.missing.items()}
    made = groups([planned("a"), planned("b")], replace(how, missing=quick))
    assert [len(group.builds) for group in made if group.builds] == [2]


def test_without_a_build_profile_the_first_who_needs_an_index_builds_it() -> None:
    jobs = [planned("a"), planned("a", "big")]
    made = groups(jobs, replace(hours({}), missing=missing("a")))
    assert [len(group.builds) for group in made] == [1, 0]
    assert [group.needs for group in made] == [(), ("a-d",)]


def test_disks_hold_what_is_shipped() -> None:
    sizes = Sizes({"a": 10 * GIB}, {"d": 20 * GIB}, {"a-d": 40 * GIB})
    (group,) = groups([planned("a")], replace(hours({}), sizes=sizes))
    assert group.disk_gib >= 20 + 10 + 2 * (20 + 40)
    (small,) = groups([planned("a")], replace(hours({}), sizes=Sizes({"a": 1}, {"d": 1}, {"a-d": 1})))
    assert small.disk_gib == 30 and small.expected_s < group.expected_s


def test_estimates_are_measured_where_something_was() -> None:
    spec = build.SPEC
    times = Estimates([], job_timeout_s=7200, build_timeout_s=600)
    assert not times.job(spec).measured
    stored = [build.result(minute=n, repetition=n) for n in range(3)]
    times = Estimates(
        [replace(result, wall_s=seconds) for result, seconds in zip(stored, (10, 20, 900), strict=True)],
        job_timeout_s=7200,
        build_timeout_s=600,
    )
    assert times.job(spec) == Estimate(pytest.approx(20), 7200, True)
    # On another profile the like, for as many queries.
    other = replace(spec, cell=replace(spec.cell, profile="x"), sample_size=spec.sample_size * 2)
    assert times.job(other).measured and 30 < times.job(other).seconds < 41
    assert not times.job(replace(spec, cell=replace(spec.cell, system="other"))).measured


def test_an_interrupted_job_says_nothing_of_time() -> None:
    result = replace(build.result(Outcome.INTERRUPTED), wall_s=0.0)
    assert not Estimates([result], job_timeout_s=1, build_timeout_s=1).job(build.SPEC).measured


def test_time_outs_bound_estimates() -> None:
    times = Estimates([], job_timeout_s=50, build_timeout_s=70)
    assert times.job(build.SPEC).seconds == 50 and times.build("a", "d", 10**9).seconds == 70


def test_a_minute_is_billed_at_least_and_disk_and_address_are_too() -> None:
    rate = money.Rate(1.0, 73, 0.1)
    assert rate.usd_per_hour == pytest.approx(1.0 + 0.01 + money.ADDRESS_USD_PER_HOUR)
    assert rate.usd(1) == rate.usd(60) < rate.usd(61)


def test_a_limit_is_above_the_estimate_and_below_the_time_outs() -> None:
    sure, assumed = Estimate(10_000, 10**6, True), Estimate(10_000, 10**6, False)
    assert sure.seconds < money.need_s(sure) < money.usual_limit_s(sure) < money.usual_limit_s(assumed) < 10**6
    assert money.usual_limit_s(replace(assumed, worst_s=20_000)) == 20_000
    assert money.usual_limit_s(estimates.NOTHING) >= 3600

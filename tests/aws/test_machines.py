"""Tests of the choice of a machine for each profile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.analysis import published
from harness.aws.machines import MachineOptions, accepted, of_suite, platforms_of, survey
from harness.config import data_root
from harness.driver.records import Envelope
from harness.errors import UsageError
from harness.jobs import suite as suites
from harness.pricing import offers
from harness.pricing.offers import ChosenMachine
from harness.pricing.prices import Snapshot

GIB = 1 << 30
SMALL = Envelope("cpu1-mem1", 1, GIB)


def chosen(snapshot: Snapshot, *profiles: Envelope, **wanted: object) -> dict[str, ChosenMachine]:
    named = {profile.name: profile for profile in profiles or (SMALL,)}
    declared = wanted.pop("declared", {})
    found = survey(named, snapshot, MachineOptions(**wanted), declared)
    for refused in found.values():
        if isinstance(refused, UsageError):
            raise refused
    return accepted(found)


def test_cheapest_type_with_room_for_the_host_is_chosen(snapshot: Snapshot) -> None:
    machine = chosen(snapshot)["cpu1-mem1"]
    assert machine.instance.architecture == "x86_64"
    assert machine.instance.vcpus >= 2 and not machine.instance.burstable
    assert machine.instance.memory_bytes >= machine.limit_bytes == GIB
    cheaper = [
        instance.instance_type
        for instance, usd in snapshot.prices
        if usd < machine.usd_per_hour
        and instance.vcpus >= 2
        and instance.memory_bytes >= GIB
        and instance.architecture == "x86_64"
        and not instance.previous_generation
        and not (instance.burstable or instance.bare_metal or instance.gpus or instance.accelerators)
    ]
    assert cheaper == []


def test_type_other_than_the_priced_one_is_reported(snapshot: Snapshot) -> None:
    """Choose a larger type if the profile takes every vCPU of its priced type."""
    priced = offers.find_offers(Envelope("x", 2, 4 * GIB), snapshot).chosen(measured="x86_64")
    assert priced is not None
    name, full = priced.instance.instance_type, Envelope("full", priced.instance.vcpus, priced.instance.memory_bytes)
    machine = chosen(snapshot, full)["full"]
    assert machine.name != name and not machine.instance.previous_generation
    assert (
        machine.remark is not None
        and f"full: {name} is the cheapest that fits, and is left out: no vCPU" in machine.remark
    )


def test_machine_is_of_an_earlier_generation_only_if_no_current_one_has_room(snapshot: Snapshot) -> None:
    assert not chosen(snapshot)["cpu1-mem1"].instance.previous_generation
    earlier = replace(snapshot, prices=tuple(price for price in snapshot.prices if price[0].previous_generation))
    machine = chosen(earlier)["cpu1-mem1"]
    assert machine.instance.previous_generation and machine.instance.architecture == "x86_64"


def test_chosen_type_has_the_architecture_of_the_images(snapshot: Snapshot) -> None:
    arm = chosen(snapshot, architecture="arm64")["cpu1-mem1"]
    assert arm.instance.architecture == "arm64" and not arm.name.startswith("a1.")


def test_suite_names_one_type_and_the_command_line_names_all(snapshot: Snapshot) -> None:
    other = Envelope("cpu1-mem2", 1, 2 * GIB)
    both = chosen(snapshot, SMALL, other, declared={"cpu1-mem2": "m6i.xlarge"})
    assert both["cpu1-mem2"].name == "m6i.xlarge" and both["cpu1-mem1"].name != "m6i.xlarge"
    everywhere = chosen(snapshot, SMALL, other, declared={"cpu1-mem2": "m6i.xlarge"}, instance="m6i.large")
    assert {machine.name for machine in everywhere.values()} == {"m6i.large"}


@pytest.mark.parametrize(
    ("name", "profile", "says"),
    [
        ("m6i.larg", SMALL, "Did you mean 'm6i.large'"),
        ("t3.large", SMALL, "t3.large is burstable"),
        ("a1.large", SMALL, "does not run on it"),
        ("p2.xlarge", SMALL, "p2.xlarge is no longer rented: .* lacks it"),
        ("p3.2xlarge", SMALL, "facts are of 2022-12-05.; --instance g4dn.4xlarge has at least its resources"),
        ("p3dn.24xlarge", SMALL, "GPUs are too old"),
        ("g5g.xlarge", SMALL, "no images for GPUs on arm64"),
        ("m6i.large", Envelope("cpu1-mem9", 1, 9 * GIB), "cannot run profile cpu1-mem9: less than 9 GiB"),
        ("m6i.large", Envelope("cpu4-mem1", 4, GIB), "fewer than 4 vCPUs"),
        ("m6i.large", Envelope("gpu1", 1, GIB, gpus=1), "fewer than 1 NVIDIA GPUs"),
    ],
)
def test_impossible_instance_type_is_refused(snapshot: Snapshot, name: str, profile: Envelope, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        chosen(snapshot, profile, instance=name)


def test_gpu_profile_gets_a_type_with_a_supported_driver(snapshot: Snapshot) -> None:
    machine = chosen(snapshot, Envelope("gpu", 1, 64 * GIB, gpus=1))["gpu"]
    assert machine.instance.gpus >= 1 and machine.name.partition(".")[0] not in ("g3", "p2")


def test_profile_too_large_for_every_type_is_refused(snapshot: Snapshot) -> None:
    with pytest.raises(UsageError, match=r"no instance type of .* has room for profile huge"):
        chosen(snapshot, Envelope("huge", 10_000, GIB))


def test_architecture_is_the_named_type_s_own_unless_one_is_asked_for(snapshot: Snapshot) -> None:
    assert chosen(snapshot, instance="m7g.large")["cpu1-mem1"].instance.architecture == "arm64"
    with pytest.raises(UsageError, match="arm64, asked for x86_64"):
        chosen(snapshot, instance="m7g.large", architecture="x86_64")


def test_gpu_profile_is_never_chosen_on_arm64(snapshot: Snapshot) -> None:
    """There is no image for GPUs on arm64, though types with NVIDIA GPUs are the cheapest there."""
    machine = chosen(snapshot, Envelope("gpu", 1, 4 * GIB, gpus=1), architecture="arm64")["gpu"]
    assert machine.instance.gpus and machine.instance.architecture == "x86_64"


@pytest.mark.parametrize(("suite", "cells"), [("santhanam2023-msmarco", 28), ("santhanam2023-xortydi", 24)])
def test_every_cell_of_the_paper_runs_on_its_own_type_or_names_the_substitute(
    snapshot: Snapshot, suite: str, cells: int
) -> None:
    loaded = suites.load(data_root() / "suites" / f"{suite}.toml")
    paper = published.read(data_root() / "results" / "published" / "santhanam2023")
    lines = paper.table3["msmarco" if "msmarco" in suite else "xortydi"]
    assert len(lines) == len(loaded.cells()) == cells
    machines = survey(loaded.envelopes(), snapshot, MachineOptions(), loaded.ec2.instances)
    for line in lines:
        machine = machines[line.hardware.profile]
        assert isinstance(machine, ChosenMachine)
        if line.gpu:
            assert (machine.substitutes, machine.instance.architecture) == (line.instance_type, "x86_64")
            assert machine.remark is not None and f"{line.instance_type} is no longer rented" in machine.remark
            assert f"; {machine.name} is the cheapest with at least its resources" in machine.remark
        else:
            assert (machine.name, machine.substitutes) == (line.instance_type, None)
            whole = machine.instance.memory_bytes == line.hardware.memory_bytes
            assert (machine.limit_bytes < line.hardware.memory_bytes) == whole


def test_report_and_launcher_agree_on_what_fits(snapshot: Snapshot) -> None:
    """m7a.medium (1 vCPU, 4 GiB) is what a table prices 4 GiB on, and the launcher takes it."""
    profile = Envelope("cpu1-mem4", 1, 4 * GIB)
    priced = offers.find_offers(profile, snapshot).chosen(measured="x86_64")
    assert priced is not None and priced.instance.memory_bytes == 4 * GIB
    machine = chosen(snapshot, profile, instance=priced.instance.instance_type)["cpu1-mem4"]
    assert machine.limit_bytes == offers.host_reserve().left(4 * GIB) < 4 * GIB


def test_suite_of_two_architectures_names_the_profile_of_its_builds(snapshot: Snapshot) -> None:
    loaded = suites.load(data_root() / "suites" / "santhanam2023-msmarco.toml")
    machines = of_suite(loaded, snapshot, MachineOptions())
    found = platforms_of(loaded, machines)
    assert {found["cpu1-mem4"], found["gpu1-cpu1-mem4"]} == {"linux/arm64", "linux/amd64"}
    with pytest.raises(UsageError, match="set build_profile"):
        platforms_of(loaded.model_copy(update={"build_profile": None}), machines)
    assert platforms_of(loaded, {name: each for name, each in machines.items() if "gpu" in name}) == {}

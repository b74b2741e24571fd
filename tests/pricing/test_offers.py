import datetime
from dataclasses import replace
from pathlib import Path

import pytest

from harness.driver.records import Envelope
from harness.errors import UnknownName
from harness.pricing import instances, offers, prices
from harness.pricing.instances import TypeChoice
from harness.pricing.prices import Snapshot
from tests.support import price_fixtures

GIB, MIB = 2**30, 2**20
RESERVE = offers.HostReserve(memory="512MiB", share=1 / 64)


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    return prices.snapshot(root=price_fixtures.write(tmp_path))


def cheapest(snapshot: Snapshot, cpus: int, memory_gib: float, gpus: int = 0, **more: object) -> str | None:
    envelope = Envelope(name="p", cpus=cpus, memory_bytes=int(memory_gib * GIB), gpus=gpus)
    offer = offers.find_offers(envelope, snapshot, **more).cheapest
    fitting = offers.find_offers(envelope, snapshot, **more).fitting
    assert offer == (fitting[0] if fitting else None)
    return None if offer is None else offer.instance.instance_type


def test_cheapest_type_that_is_large_enough_is_chosen(snapshot: Snapshot) -> None:
    assert cheapest(snapshot, 1, 1) == "small.one"
    assert cheapest(snapshot, 1, 1.5) == "small.one"
    assert cheapest(snapshot, 1, 1.6) == "m1.two"
    assert cheapest(snapshot, 2, 1) == "m1.two"


def test_limit_of_a_job_is_what_the_host_leaves_of_a_whole_machine() -> None:
    assert (RESERVE.left(4 * GIB), RESERVE.left(GIB // 4)) == (4 * GIB - 512 * 2**20 - 64 * 2**20, 0)
    assert RESERVE.limit(64 * GIB, 64 * GIB) == RESERVE.left(64 * GIB) == 63 * GIB - 512 * 2**20
    assert RESERVE.limit(32 * GIB, 64 * GIB) == 32 * GIB, "half of a machine is given whole"
    assert RESERVE.left(RESERVE.needed(3 * GIB)) == 3 * GIB > RESERVE.left(RESERVE.needed(3 * GIB) - MIB)
    assert offers.host_reserve().limit(32 * GIB, 32 * GIB) / GIB == pytest.approx(29.9, abs=0.01)


def test_host_is_of_a_profile_s_size_though_its_kernel_shows_less() -> None:
    reserve = offers.host_reserve()
    assert reserve.limit_on_host(32 * GIB, int(30.6 * GIB)) == reserve.left(32 * GIB) < 30 * GIB
    assert reserve.limit_on_host(32 * GIB, 33 * GIB) == 32 * GIB
    assert reserve.limit_on_host(32 * GIB, 30 * GIB) is None
    assert reserve.left_on_host(4 * GIB) == 4 * GIB - 512 * MIB


def test_type_fits_a_profile_of_its_nominal_memory(snapshot: Snapshot) -> None:
    assert cheapest(snapshot, 1, 1.5) == "small.one"
    assert cheapest(snapshot, 1, 4) == "m1.two"


def test_ties_are_broken_by_fewer_cpus_then_by_name(snapshot: Snapshot) -> None:
    assert cheapest(snapshot, 2, 8) == "a.tie"
    assert cheapest(snapshot, 3, 8) == "c.tie"


def test_profile_without_gpus_is_never_priced_on_a_gpu_type(snapshot: Snapshot) -> None:
    assert cheapest(snapshot, 4, 16) == "plain.four", "three cheaper types have cards"
    assert cheapest(snapshot, 48, 1) is None, "and if only such types remain, on none"


def test_only_whole_nvidia_gpus_count(snapshot: Snapshot) -> None:
    assert cheapest(snapshot, 1, 1, gpus=1) == "g.one"
    assert cheapest(snapshot, 1, 1, gpus=2) == "g.four"
    assert cheapest(snapshot, 1, 1, gpus=5) is None


def test_memory_of_each_gpu_can_be_required(tmp_path: Path) -> None:
    folder = price_fixtures.write(tmp_path)
    facts = folder / "instances" / "x.csv"
    # The four's cards, in an edition whose memory nobody wrote down.
    facts.write_text(
        facts.read_text().replace("g.four,48,24,192,x86_64,4,t4,nvidia,16384", "g.four,48,24,192,x86_64,4,t4,nvidia,")
    )
    snapshot = prices.snapshot(root=folder)
    assert cheapest(snapshot, 1, 1, gpus=1, gpu_memory_bytes=16 * GIB) == "g.one"
    assert cheapest(snapshot, 1, 1, gpus=1, gpu_memory_bytes=16 * GIB + 1) is None
    assert cheapest(snapshot, 1, 1, gpus=2) == "g.four", "no need is known"
    assert cheapest(snapshot, 1, 1, gpus=2, gpu_memory_bytes=GIB) is None, "what is not known may be too little"
    assert cheapest(snapshot, 1, 1, gpu_memory_bytes=99 * GIB) == "small.one", "without GPUs there is no such need"
    left_out = offers.find_offers(Envelope("p", 1, GIB, gpus=1), snapshot, gpu_memory_bytes=17 * GIB).left_out
    reasons = {each.instance.instance_type: each.reason for each in left_out}
    assert reasons["g.one"] == "GPUs with less than 17 GiB of memory"
    assert reasons["g.four"] == "the memory of its GPUs is not known"


def test_architecture_can_be_required(snapshot: Snapshot) -> None:
    assert cheapest(snapshot, 1, 1, architecture="x86_64") == "m1.two"
    assert cheapest(snapshot, 1, 1, gpus=1, architecture="arm64") is None


@pytest.mark.parametrize(
    ("architecture", "generation", "measured", "instance_type"),
    [
        # small.one is arm64; m1.two is x86_64 of an earlier generation, plain.four of the current one.
        ("measured", "current", "x86_64", "plain.four"),
        ("measured", "any", "x86_64", "m1.two"),
        ("measured", "current", "arm64", "small.one"),
        ("measured", "current", None, "small.one"),
        ("any", "current", "x86_64", "small.one"),
        ("any", "any", "x86_64", "small.one"),
        ("arm64", "current", "x86_64", "small.one"),
        ("x86_64", "any", "arm64", "m1.two"),
    ],
)
def test_preferred_type_is_chosen(
    snapshot: Snapshot, architecture: str, generation: str, measured: str | None, instance_type: str
) -> None:
    found = offers.find_offers(Envelope("p", 1, GIB), snapshot).chosen(TypeChoice(architecture, generation), measured)
    assert found is not None and found.instance.instance_type == instance_type


def test_unknown_generation_counts_as_current(snapshot: Snapshot) -> None:
    needed = offers.find_offers(Envelope("p", 3, 8 * GIB), snapshot, current=True)
    assert [each.instance.instance_type for each in needed.fitting] == ["c.tie", "plain.four"]
    found = needed.chosen(measured="arm64")
    assert found is not None and found.instance.current_generation is None


def test_choice_gives_up_the_generation_then_the_architecture(snapshot: Snapshot) -> None:
    def chosen(*types: str) -> str | None:
        some = tuple(price for price in snapshot.prices if price[0].instance_type in types)
        found = offers.find_offers(Envelope("p", 1, GIB), replace(snapshot, prices=some)).chosen(measured="x86_64")
        return found and found.instance.instance_type

    assert chosen("small.one", "m1.two", "plain.four") == "plain.four"
    assert chosen("small.one", "m1.two") == "m1.two"
    assert chosen("small.one") == "small.one"
    assert chosen() is None


@pytest.mark.parametrize(("choice", "name"), [(("arm", "any"), "architecture"), (("any", "new"), "generation")])
def test_unknown_choice_is_refused(choice: tuple[str, str], name: str) -> None:
    with pytest.raises(UnknownName, match=f"unknown {name}"):
        TypeChoice(*choice)


def test_earlier_generation_can_be_left_out(snapshot: Snapshot) -> None:
    assert cheapest(snapshot, 1, 1.6) == "m1.two"
    assert cheapest(snapshot, 1, 1.6, current=True) == "a.tie"
    left_out = offers.find_offers(Envelope("p", 1, GIB), snapshot, current=True).left_out
    assert {each.instance.instance_type: each.reason for each in left_out}["m1.two"] == "of an earlier generation"


def test_offers_are_sorted_by_price_and_others_have_a_reason(snapshot: Snapshot) -> None:
    found = offers.find_offers(Envelope("p", 2, 8 * GIB), snapshot)
    assert [each.instance.instance_type for each in found.fitting] == ["a.tie", "b.tie", "c.tie", "plain.four"]
    assert found.fitting[0].usd_per_hour == 0.06
    assert found.fitting[0].as_of == datetime.date(2024, 5, 1)
    reasons = {each.instance.instance_type: each.reason for each in found.left_out}
    assert len(reasons) + 4 == len(price_fixtures.FACTS)
    assert reasons["small.one"] == "fewer than 2 vCPUs"
    assert reasons["m1.two"] == "less than 8 GiB of memory"
    assert reasons["t3.big"].startswith("burstable")
    assert reasons["m1.metal"].startswith("bare metal")
    assert "accelerators" in reasons["inf.one"] and "accelerators" in reasons["g.one"]
    gpus = offers.find_offers(Envelope("p", 2, 8 * GIB, gpus=1), snapshot, architecture="x86_64")
    reasons = {each.instance.instance_type: each.reason for each in gpus.left_out}
    assert reasons["plain.four"] == "fewer than 1 NVIDIA GPUs"
    assert reasons["a.tie"] == "arm64, asked for x86_64"
    assert reasons["m1.two"] == "less than 8 GiB of memory"


def test_successor_has_at_least_the_same_resources(snapshot: Snapshot) -> None:
    facts = {instance.instance_type: instance for instance, _ in snapshot.prices}

    def successor(name: str) -> str | None:
        offer = offers.successor(facts[name], snapshot)
        return offer and offer.instance.instance_type

    assert successor("m1.two") == "plain.four", "not the burstable, not the bare-metal one, none with cards"
    assert successor("small.one") == "a.tie"
    assert successor("a.tie") == "b.tie"
    assert successor("g.one") == "g.four"
    assert successor("plain.four") is None, "the others have cards or no local disk"
    assert successor("g.four") is None


@pytest.mark.parametrize(
    ("profile", "instance_type", "price"),
    [
        # Read off the snapshot by hand.  Three of Santhanam et al.'s choices (table 3) are among them.
        ("cpu1-mem1", "a1.medium", 0.0255),
        ("cpu2-mem4", "a1.large", 0.051),
        ("cpu1-mem4", "m6g.medium", 0.0385),
        ("cpu1-mem32", "x2gd.large", 0.167),
        ("cpu1-mem64", "x2gd.xlarge", 0.334),
        ("cpu16-mem64", "m6g.4xlarge", 0.616),
        ("gpu1-cpu1-mem4", "g5g.xlarge", 0.42),
        ("gpu1-cpu1-mem32", "g4dn.2xlarge", 0.752),
    ],
)
def test_shipped_profiles_have_the_known_cheapest_types(profile: str, instance_type: str, price: float) -> None:
    offer = offers.find_offers(
        instances.hardware_profile(profile), prices.snapshot(datetime.date(2022, 12, 5))
    ).cheapest
    assert offer is not None
    assert (offer.instance.instance_type, offer.usd_per_hour) == (instance_type, price)


def test_the_shipped_reserve_is_between_256_mib_and_1_gib() -> None:
    assert 256 * MIB <= 4 * GIB - offers.host_reserve().left(4 * GIB) <= GIB
    assert instances.data_folder().is_dir()

"""What became of the costs: the same types, and the cheapest that provide the same."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from harness.analysis.published import repricing
from harness.analysis.published.tables import Published
from harness.pricing.prices import Snapshot


def test_no_type_that_the_paper_names_changed_its_price(published: Published, follows: Snapshot, now: Snapshot) -> None:
    rents = repricing.rents(published, follows, now)
    assert len(rents) == 19
    assert len({rent.instance_type for rent in rents}) == 11
    assert all(rent.same == rent.then for rent in rents)


def test_what_one_would_rent_provides_what_the_paper_gave(
    published: Published, follows: Snapshot, now: Snapshot
) -> None:
    for rent in repricing.rents(published, follows, now):
        for offer in (rent.cheapest_then, rent.cheapest, rent.cheapest_x86_then, rent.cheapest_x86):
            assert offer is not None
            instance = offer.instance
            assert instance.vcpus >= rent.hardware.cpus
            assert instance.memory_bytes >= rent.hardware.memory_bytes
            assert bool(instance.gpus) == bool(rent.hardware.gpus), "without GPUs never at a GPU's price"
            if rent.hardware.gpus:
                assert (instance.gpu_memory_bytes or 0) >= 16 * 2**30
        assert rent.cheapest_x86 is not None and rent.cheapest_x86.instance.architecture == "x86_64"
        assert rent.cheapest is not None and rent.cheapest.usd_per_hour <= rent.cheapest_x86.usd_per_hour


def test_costs_move_with_the_rent_and_ranks_with_the_costs(
    published: Published, follows: Snapshot, now: Snapshot
) -> None:
    moved = repricing.moved(published, follows, now)
    assert len(moved) == 62
    last = next(each for each in moved if (each.cost.table, each.cost.number) == ("3b", 24))
    assert last.rent.cheapest is not None and last.rent.cheapest.instance.instance_type == "g4dn.4xlarge"
    assert last.cheapest == Fraction(43) * Fraction("1.204") * 1000 / 3600
    for table in ("2", "3a", "3b"):
        part = [each for each in moved if each.cost.table == table]
        by_rank = sorted(part, key=lambda each: each.rank or 0)
        assert by_rank == sorted(part, key=lambda each: each.cheapest or 0)
        assert min(each.rank_then or 0 for each in part) == 1


def test_a_type_that_is_gone_has_a_successor_and_no_price(
    published: Published, follows: Snapshot, now: Snapshot
) -> None:
    without = replace(now, prices=tuple(item for item in now.prices if item[0].instance_type != "r6a.2xlarge"))
    rent = next(each for each in repricing.rents(published, follows, without) if each.instance_type == "r6a.2xlarge")
    assert rent.same is None
    assert rent.successor is not None and rent.successor.instance.architecture == "x86_64"
    assert rent.successor.instance.memory_bytes >= 64 * 2**30 and rent.successor.instance.vcpus >= 8
    moved = [each for each in repricing.moved(published, follows, without) if each.rent == rent]
    assert [each.same for each in moved] == [None]


def test_what_nothing_provides_has_no_cost_and_no_rank(published: Published, follows: Snapshot, now: Snapshot) -> None:
    small = replace(now, prices=tuple(item for item in now.prices if item[0].memory_bytes < 64 * 2**30))
    moved = repricing.moved(published, follows, small)
    lost = [each for each in moved if each.cost.table == "3b"]
    assert {(each.cheapest, each.cheapest_x86, each.rank) for each in lost} == {(None, None, None)}
    assert all(each.rank_then for each in lost)

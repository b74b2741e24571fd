"""The instance type that a row is priced on, and the reasons for missing prices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.analysis import row_pricing
from harness.analysis.row_pricing import Tariff
from harness.analysis.table import Row
from harness.driver.records import Envelope, Outcome
from harness.estimate import Estimate
from harness.pricing import prices, serverless
from harness.pricing.instances import TypeChoice
from tests.support import price_fixtures, sample_records

GIB = 2**30


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return price_fixtures.write(tmp_path)


@pytest.fixture
def tariff(root: Path) -> Tariff:
    return row_pricing.tariff(prices.snapshot(root=root), root)


def row(**changes: Any) -> Row:
    known = {"cpus": 4, "memory_limit_bytes": 8 * GIB, "latency_mean_s": Estimate(0.036, 0.018, 0.072)}
    return sample_records.row(**{**known, **changes})


def test_row_cost_matches_the_calculation_by_hand(tariff: Tariff) -> None:
    found = row_pricing.price_row(row(), tariff)
    assert found.price is not None
    assert (found.price.instance_type, found.price.usd_per_hour, found.price.substitutes) == ("plain.four", 0.2, None)
    # 0.036 s x US$ 0.20 / 3600 s x 1,000,000 = US$ 2.00.
    assert (found.usd_per_million.value, found.usd_per_million.low, found.usd_per_million.high) == (
        pytest.approx(2.0),
        pytest.approx(1.0),
        pytest.approx(4.0),
    )


def small(tariff: Tariff, architecture: str = "x86_64") -> Row:
    """Price a row of 1 CPU and 1 GiB, measured on an architecture."""
    machine = replace(sample_records.MACHINE, architecture=architecture)
    return row_pricing.price_row(row(cpus=1, memory_limit_bytes=GIB, machine=machine), tariff)


def test_row_is_priced_on_the_current_generation_of_its_own_architecture(tariff: Tariff) -> None:
    # small.one (arm64, US$ 0.02) and m1.two (x86_64, an earlier generation, US$ 0.05) are cheaper than plain.four.
    found = small(tariff)
    assert found.price is not None and (found.price.instance_type, found.price_note) == ("plain.four", None)
    arm = small(tariff, "aarch64")
    assert arm.price is not None and (arm.price.instance_type, arm.price_note) == ("small.one", None)


def test_generation_is_given_up_before_the_architecture(root: Path) -> None:
    def priced(*types: str) -> Row:
        path = price_fixtures.add_prices(root, "x_here_2026-01-01.csv", {"on-demand": dict.fromkeys(types, "0.3")})
        found = small(row_pricing.tariff(prices.snapshot(root=root), root))
        path.unlink()
        return found

    earlier, other = priced("small.one", "m1.two"), priced("small.one")
    assert earlier.price is not None and earlier.price.instance_type == "m1.two"
    assert (
        earlier.price_note == "priced on m1.two (x86_64); no x86_64 type of the current generation provides the profile"
    )
    assert row_pricing.other_machine(earlier, earlier.price) is None
    assert other.price is not None and other.price.instance_type == "small.one"
    assert other.price_note == (
        "priced on small.one (arm64); latency was measured on x86_64, and the cost takes it to be the same there"
    )
    assert row_pricing.other_machine(other, other.price) == "arm64"


def test_choice_of_any_type_prices_a_row_on_the_cheapest(root: Path) -> None:
    def priced(*choice: str) -> Row:
        return small(row_pricing.tariff(prices.snapshot(root=root), root, TypeChoice(*choice)))

    on = {choice: priced(*choice) for choice in (("any", "any"), ("measured", "any"), ("arm64", "current"))}
    assert [found.price and found.price.instance_type for found in on.values()] == ["small.one", "m1.two", "small.one"]
    assert on["measured", "any"].price_note is None, "an earlier generation was the choice"


def test_row_without_gpus_is_not_priced_on_a_gpu_machine(tariff: Tariff) -> None:
    # inf.one, radeon.one and part.gpu are cheaper than plain.four, and large enough.
    price = row_pricing.price_row(row(memory_limit_bytes=16 * GIB), tariff).price
    assert price is not None and price.instance_type == "plain.four"
    with_gpu = row_pricing.price_row(row(gpus=1), tariff).price
    assert with_gpu is not None and (with_gpu.instance_type, with_gpu.gpus) == ("g.one", 1)


def measured_on(instance_type: str, architecture: str = "x86_64") -> Row:
    return row(machine=replace(sample_records.MACHINE, instance_type=instance_type, architecture=architecture))


def test_row_is_priced_on_the_known_type_that_measured_it(tariff: Tariff) -> None:
    """Rate x time of that instance (Santhanam et al. 2023, 4.1), though it is larger than the profile."""
    for name, usd in (("plain.four", 0.2), ("g.four", 1.9), ("t3.big", 0.01)):
        found = row_pricing.price_row(measured_on(name), tariff)
        assert found.price is not None and found.price_note is None
        assert (found.price.instance_type, found.usd_per_million.value) == (name, pytest.approx(usd * 10))
        assert row_pricing.is_own_machine(found, found.price)
    unknown = row_pricing.price_row(measured_on("zz.none"), tariff)
    assert unknown.price is not None and unknown.price.instance_type == "plain.four"
    assert not row_pricing.is_own_machine(unknown, unknown.price)


def test_row_goes_on_the_cheapest_type_where_that_is_asked_for(root: Path) -> None:
    cheapest = row_pricing.tariff(prices.snapshot(root=root), root, TypeChoice(cheapest=True))
    elsewhere = row_pricing.price_row(measured_on("t3.big"), cheapest)
    assert elsewhere.price is not None and elsewhere.price.instance_type == "plain.four"
    assert elsewhere.price_note == (
        "priced on plain.four (x86_64), the cheapest type that provides the profile; latency was measured on t3.big"
        " (x86_64), and the cost takes it to be the same there"
    )
    assert row_pricing.price_row(measured_on("c.tie", "aarch64"), cheapest).price_note is None


def test_row_is_priced_by_the_nominal_memory_of_its_profile(tariff: Tariff) -> None:
    """A whole machine of 8 GiB leaves 7.1 to the job, and costs that machine."""
    whole = row(cpus=2, memory_limit_bytes=7 * GIB, nominal_memory_bytes=8 * GIB)
    found = row_pricing.price_row(replace(whole, machine=None), tariff).price
    assert found is not None and (found.instance_type, found.memory_bytes) == ("a.tie", 8 * GIB)


@pytest.mark.parametrize("model", ["NVIDIA H100 80GB HBM3", "NVIDIA T4G"])
def test_row_measured_on_another_gpu_has_a_note(tariff: Tariff, model: str) -> None:
    priced = on_gpu(tariff, model)
    assert row_pricing.other_machine(priced, priced.price) == "t4"
    assert priced.price_note == (
        f"priced on g.one (x86_64), whose GPU is a t4; latency was measured on {model}, and the cost takes it to be the"
        " same there"
    )
    same = on_gpu(tariff, "Tesla T4")
    assert same.price_note is row_pricing.other_machine(same, same.price) is None


def on_gpu(tariff: Tariff, model: str) -> Row:
    """Price a row of one GPU, measured on a model."""
    return row_pricing.price_row(row(gpus=1, machine=replace(sample_records.MACHINE, gpu_models=(model,))), tariff)


def test_row_published_for_its_type_is_priced_on_it_without_a_note(tariff: Tariff) -> None:
    found = row_pricing.price_row(row(published_type="g.one"), tariff)
    assert found.price is not None and (found.price.instance_type, found.price_note) == ("g.one", None)
    assert found.usd_per_million.value == pytest.approx(0.036 * 0.5 / 3600 * 1e6)
    burstable = row_pricing.price_row(row(published_type="t3.big"), tariff)
    assert burstable.price is not None and burstable.price.usd_per_hour == 0.01, "never offered, but published for it"


def test_gpu_type_is_priced_only_if_it_holds_the_measured_memory(tariff: Tariff) -> None:
    def priced(**changes: Any) -> Row:
        return row_pricing.price_row(row(**changes), tariff)

    one = priced(gpus=1, peak_gpu_bytes=16 * GIB).price
    assert one is not None and one.instance_type == "g.one"
    four = priced(gpus=4, peak_gpu_bytes=64 * GIB).price
    assert four is not None and four.instance_type == "g.four", "16 GiB in each of four"
    found = priced(gpus=1, peak_gpu_bytes=16 * GIB + 1)
    assert found.price is None and "4 CPU, 8 GiB, 1 GPU of 16 GiB" in str(found.price_note)
    none = priced(gpus=1, gpu_memory_bytes=32 * GIB, peak_gpu_bytes=GIB)
    assert none.price is None and "1 GPU of 32 GiB" in str(none.price_note), "the paper's GPU goes before"
    without = priced(peak_gpu_bytes=99 * GIB).price
    assert without is not None and without.instance_type == "plain.four", "no GPU was asked for"


def test_cheapest_type_is_looked_up_for_each_gpu_memory_need(tariff: Tariff) -> None:
    envelope = Envelope("p", 4, 8 * GIB, gpus=1)
    found = [tariff.cheapest(envelope, need) for need in (None, 17 * GIB, 16 * GIB)]
    assert [each and each.instance_type for each in found] == ["g.one", None, "g.one"]


def test_type_of_another_provider_is_noted(root: Path) -> None:
    facts = root / "instances" / "x.csv"
    (root / "instances" / "y.csv").write_text(
        facts.read_text().replace("\nx,", "\ny,").replace(",plain.four", ",y.four")
    )
    tariff = row_pricing.tariff(prices.snapshot(root=root), root)
    found = row_pricing.price_row(row(published_type="y.four"), tariff)
    assert found.price is not None and found.price.instance_type == "plain.four", "as of any row"
    assert found.price_note == "another type than the paper's; latency not re-measured"
    assert tariff.on("y.four") == (None, "y.four is a type of another provider, y")


def test_discontinued_type_is_named_with_its_successor(root: Path) -> None:
    price_fixtures.add_prices(
        root, "x_here_2026-01-01.csv", {"on-demand": {"plain.four": "0.3", "g.four": "2.0", "m1.two": "0.01"}}
    )
    tariff = row_pricing.tariff(prices.snapshot(root=root), root)
    found = row_pricing.price_row(row(published_type="g.one"), tariff)
    assert found.price is not None
    assert (found.price.instance_type, found.price.substitutes) == ("g.four", "g.one")
    assert found.price_note == (
        "g.one has no price in x here on-demand of 2026-01-01; substituted by g.four, the cheapest with at least its "
        "resources (local hard disks are not compared), latency not re-measured"
    )
    assert found.usd_per_million.value == pytest.approx(0.036 * 2.0 / 3600 * 1e6)
    none = row_pricing.price_row(row(published_type="small.one"), tariff)
    assert none.price is None and "no type there has at least its resources" in str(none.price_note)
    assert none.usd_per_million.reason == none.price_note
    stranger = row_pricing.price_row(row(published_type="z9.huge"), tariff)
    assert stranger.price is None and "its resources are not known; add a row" in str(stranger.price_note)


def test_saturated_cost_is_given_if_the_profile_fills_the_machine(tariff: Tariff) -> None:
    served = {"scenario": "server", "throughput_qps": Estimate(100.0, 80.0, 120.0, "lowest and highest of 3 jobs")}
    found = row_pricing.price_row(row(**served, latency_target_s=0.1, latency_percentile=95.0), tariff)
    # US$ 0.20 for 360,000 queries; more of them an hour cost less each.
    value = 0.2 / 360_000 * 1e6
    bounds = found.cost.saturated
    assert (bounds.value, bounds.low, bounds.high) == (
        pytest.approx(value),
        pytest.approx(value / 1.2),
        pytest.approx(value / 0.8),
    )
    assert bounds.reason == "95 % of queries within 100 ms; lowest and highest of 3 jobs"
    assert found.cost.sequential.value is None and "prices no query" in str(found.cost.sequential.reason)


def test_half_a_machine_is_not_saturated(tariff: Tariff) -> None:
    served = {"scenario": "server", "throughput_qps": Estimate(100.0)}
    found = row_pricing.price_row(row(cpus=3, **served), tariff).cost.saturated
    assert found.value is None
    assert found.reason == (
        "the throughput was measured on 3 vCPUs, but plain.four has 4 vCPUs; measure on a hardware profile with 4 vCPUs"
    )
    without_its_gpu = row_pricing.price_row(row(published_type="g.one", **served), tariff).cost.saturated
    assert "g.one has 4 vCPUs and 1 GPU" in str(without_its_gpu.reason)
    with_it = row_pricing.price_row(row(published_type="g.one", gpus=1, **served), tariff).cost.saturated
    assert with_it.value == pytest.approx(0.5 / 360_000 * 1e6)


def test_offline_row_notes_that_it_has_no_latency_target(tariff: Tariff) -> None:
    found = row_pricing.price_row(row(scenario="offline", throughput_qps=Estimate(100.0)), tariff).cost.saturated
    assert found.value is not None and str(found.reason).startswith("no latency target: batches")


def test_throughput_is_not_derived_from_latency(tariff: Tariff) -> None:
    found = row_pricing.price_row(row(), tariff).cost.saturated
    assert (found.value, found.reason) == (None, "no throughput in scenario single_stream; measure scenario server")
    missing = Estimate(None, reason="no rate was believed")
    assert row_pricing.price_row(row(scenario="server", throughput_qps=missing), tariff).cost.saturated == missing


def test_profile_that_no_type_provides_has_no_price(tariff: Tariff) -> None:
    found = row_pricing.price_row(row(gpus=9), tariff)
    assert found.price is None and found.price_note == (
        "no instance type in the prices of x here on-demand of 2024-05-01 provides 4 CPU, 8 GiB, 9 GPU; price with "
        "another snapshot"
    )
    assert found.usd_per_million.reason == found.price_note


def test_a_failed_row_has_a_machine_and_no_cost(tariff: Tariff) -> None:
    found = row_pricing.price_row(row(outcome=Outcome.OOM, latency_mean_s=Estimate(None)), tariff)
    assert found.price is not None and found.usd_per_million == Estimate(None)


INDEX = {
    "build_envelope": Envelope("build", 4, 8 * GIB),
    "index_build_s": 1800.0,
    "corpus_documents": 5000,
    "index_bytes": GIB // 2,
}


def test_index_costs_match_the_calculation_by_hand(root: Path) -> None:
    (root / "storage.csv").write_text(f"{prices.STORAGE_HEADER}\nx,here,ssd,0.08,2024-01-01,doc\n")
    tariff = row_pricing.tariff(prices.snapshot(root=root), root)
    found = row_pricing.price_row(row(cpus=1, memory_limit_bytes=GIB, **INDEX), tariff)
    assert found.cost.build_price is not None and found.cost.build_price.instance_type == "plain.four", (
        "what the build had, not the job"
    )
    # Half an hour at US$ 0.20 for 5,000 documents: US$ 0.10 / 5,000 x 1,000,000.
    assert found.cost.build.value == pytest.approx(20.0)
    assert found.cost.storage_per_month.value == pytest.approx(0.04)


def test_build_is_priced_on_the_architecture_that_built(tariff: Tariff) -> None:
    def built_on(architecture: str | None) -> str:
        machine = None if architecture is None else replace(sample_records.MACHINE, architecture=architecture)
        found = row_pricing.price_row(row(**INDEX, build_machine=machine), tariff)
        assert found.cost.build_price is not None and found.price is not None
        assert found.price.architecture == "x86_64"
        return found.cost.build_price.architecture

    assert [built_on(name) for name in (None, "x86_64", "aarch64")] == ["x86_64", "x86_64", "arm64"]


@pytest.mark.parametrize(
    ("changes", "name", "reason"),
    [
        ({"corpus_documents": None}, "build", "does not say how many documents"),
        ({"index_build_s": None}, "build", "no build of an index"),
        ({"build_envelope": None}, "build", "built on different profiles"),
        ({"build_envelope": Envelope("b", 500, GIB)}, "build", "provides 500 CPU"),
        ({"index_bytes": None}, "storage_per_month", "no size of an index"),
        ({}, "storage_per_month", "no price of storage of x here is dated 2024-05-01 or before"),
    ],
)
def test_unknown_index_figure_is_missing_with_a_reason(
    tariff: Tariff, changes: dict[str, Any], name: str, reason: str
) -> None:
    figure = getattr(row_pricing.price_row(row(**{**INDEX, **changes}), tariff).cost, name)
    assert figure.value is None and reason in str(figure.reason)


@pytest.fixture
def metered(tariff: Tariff) -> Tariff:
    return replace(tariff, serverless=serverless.FILES.newest())


def test_metered_cost_is_the_cheapest_offer_of_the_measured_architecture(metered: Tariff) -> None:
    # 4 CPUs need 4 x 1,769 MiB of Lambda, and the profile has 8 GiB: 8 x 0.0000166667 x 0.0365 s x 1e6 + 0.20.
    found = row_pricing.price_row(row(), metered).cost
    assert found.metered_quote is not None and found.metered_quote.offer == "AWS Lambda x86_64"
    assert found.metered.value == pytest.approx(5.06668)
    arm = replace(sample_records.MACHINE, architecture="aarch64")
    there = row_pricing.price_row(row(machine=arm), metered).cost
    assert {quote.architecture for quote in there.serverless} == {"arm64"}
    any_of = replace(metered, choice=TypeChoice("any", "any"))
    assert {quote.architecture for quote in row_pricing.price_row(row(), any_of).cost.serverless} == {"arm64", "x86_64"}
    paper = row_pricing.price_row(row(published_type="a.tie", machine=None), metered).cost
    assert paper.metered_quote is not None and paper.metered_quote.architecture == "arm64"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpus": 1}, "no serverless offer in the prices has a GPU"),
        ({"scenario": "server"}, "latency holds waiting or batches"),
        ({"cpus": 12}, "no x86_64 offer that is paid by the request holds 12 CPUs and 8 GiB in the serverless prices"),
        ({"cpus": 0}, "published without hardware"),
        ({"latency_mean_s": Estimate(None, reason="too few queries")}, "too few queries"),
    ],
)
def test_missing_metered_cost_has_a_reason(metered: Tariff, changes: dict[str, Any], reason: str) -> None:
    found = row_pricing.price_row(row(**changes), metered).cost
    assert found.metered.value is None and reason in str(found.metered.reason)


def test_prices_older_than_the_first_serverless_ones_say_so(tariff: Tariff) -> None:
    found = row_pricing.price_row(row(), tariff).cost
    assert "no serverless prices of 2024-05-01 or before are stored" in str(found.metered.reason)

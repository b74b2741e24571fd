"""Bills of rows: rented machines against serverless offers and the API of a language model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.analysis import bills, notes, query_prices, row_pricing
from harness.analysis.bills import BillGroup
from harness.analysis.table import Row, Table, TokenPrice
from harness.estimate import Estimate
from harness.pricing import prices, serverless
from harness.pricing.bill import Traffic
from tests.support import sample_records

MILLION = Traffic(queries_per_month=1e6, peak=1)


def priced(**changes: Any) -> Row:
    """Return a row of 1 CPU and 1 GiB, 9.5 ms a query, at the shipped prices."""
    tariff = row_pricing.tariff(prices.snapshot(), serverless=serverless.FILES.newest())
    row = sample_records.row(**{"latency_mean_s": Estimate(0.0095), "cpus": 1, **changes})
    return row_pricing.price_row(row, tariff)


def with_tokens(row: Row, usd: float, **counts: float) -> Row:
    token_price = TokenPrice("m", 1, 1, None, "2026-01-01", "a list")
    cost = replace(row.cost, tokens=Estimate(usd), token_price=token_price)
    return replace(row, cost=cost, token_model="m", counts=counts)


def find(*rows: Row, traffic: Traffic = MILLION) -> BillGroup:
    (group,) = bills.find(Table(rows, ("RR@10",)), traffic, {})
    return group


def test_serverless_is_billed_beside_the_machine_of_each_system() -> None:
    # Lambda: 10 ms x 1.7275390625 GiB x 0.0000166667 x 1e6 + 0.20 = 0.487924 for the million.
    group = find(priced())
    assert group.by_query is not None and group.by_query.offer == "AWS Lambda x86_64" and group.saves
    assert group.by_query.bill.total_usd.value == pytest.approx(0.487924)
    machine = group.bills[0].bill.total_usd.value
    assert machine is not None and group.until == pytest.approx(machine / 0.487924 * 1e6)
    assert group.by_query.cheaper_below == pytest.approx(group.until)
    # A task of Fargate is a machine: (0.04048 + 2 x 0.004445) x 730 a month, however few queries there are.
    (task,) = (one for one in group.others if one.offer == "AWS Fargate x86_64")
    assert (task.bill.machines, task.bill.total_usd.value) == (1, pytest.approx(36.0401))
    busy = find(priced(), traffic=Traffic(queries_per_month=2e8, peak=1))
    assert busy.by_query is not None and not busy.saves and busy.until == pytest.approx(group.until)
    # A machine under load bills the system; serverless is priced by its single queries.
    served = priced(scenario="server", throughput_qps=Estimate(50.0), key="8899aabbccddeeff")
    both = find(priced(), served)
    assert [one.row.scenario for one in both.bills] == ["server"] and both.bills[0].service.capacity_qps.value == 50
    assert both.by_query is not None and both.by_query.row.scenario == "single_stream"
    assert both.until == pytest.approx(group.until)


def test_tokens_are_added_where_answers_are_recorded_and_an_alternative_elsewhere() -> None:
    own, recorded = (with_tokens(priced(), 516.0, **counts) for counts in ({}, {"provider_ms": 900.0}))
    group = find(own)
    assert group.bills[0].bill.tokens_usd is None
    (api,) = (one for one in group.others if one.offer == "API of m")
    assert api.bill.search_usd == pytest.approx(516.0), "a million queries"
    assert api.cheaper_below == pytest.approx((group.bills[0].bill.total_usd.value or 0) / 516 * 1e6)
    paid = find(recorded)
    assert paid.bills[0].bill.tokens_usd == pytest.approx(516.0)
    assert all(one.bill.tokens_usd == pytest.approx(516.0) for one in paid.others)
    assert not any(one.offer.startswith("API") for one in paid.others)


def test_metered_price_above_the_saturated_one_is_named_with_its_ratio() -> None:
    single = priced()
    usd = single.cost.metered.value
    assert usd is not None
    loaded = replace(single, scenario="server", cost=replace(single.cost, saturated=Estimate(usd / 12.5)))
    elsewhere = replace(loaded, profile="cpu2-mem8")
    one, other = query_prices.of_rows([single, loaded, elsewhere])
    assert (one.single, one.loaded, one.metered_over_saturated) == (single, loaded, pytest.approx(12.5))
    assert other.single is None and "measure scenario single_stream" in str(other.metered.reason)
    assert list(notes.dearer_by_query([one, other])) == [
        "Metered costs more than saturated on the same hardware: bm25 on cpu1-mem1 12.5 times as much."
    ]
    cheap = replace(loaded, cost=replace(single.cost, saturated=Estimate(usd * 2)))
    assert not list(notes.dearer_by_query(query_prices.of_rows([single, cheap])))

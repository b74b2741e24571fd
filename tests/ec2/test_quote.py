"""The quote that the user sees before anything starts."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from harness.ec2 import money, quote
from harness.ec2.quote import Quote
from harness.ec2.records import Group
from harness.remote.records import IndexBuild, PartJob
from harness.result import Cell

CELL = Cell("suite", "bm25", "scifact", "single_stream", "cpu1-mem1")
JOBS = tuple(PartJob(CELL, number, 0, f"{number:016}") for number in range(3))
BUILD = Group("001", "c6i.large", 0.1, 30, builds=(IndexBuild("k", "bm25", "scifact"),), expected_s=1800, worst_s=7200)
WORK = Group("002", "m6i.large", 0.2, 40, jobs=JOBS, expected_s=3600, worst_s=7200, measured=True)
QUOTE = Quote(
    (BUILD, WORK), "us-east-1", "prices", ("ami-0",), {"m6i.large": ("us-east-1a",)}, {"m6i.large": None}, 8, None
)


def many(count: int) -> tuple[Group, ...]:
    return (BUILD, *(replace(WORK, name=f"{number:03}") for number in range(2, count + 1)))


def text(found: Quote) -> str:
    said = StringIO()
    quote.show(found, Console(file=said, width=200))
    return said.getvalue()


def test_a_quote_is_as_reckoned_by_hand() -> None:
    assert quote.rows(QUOTE.groups) == [
        ("001", "c6i.large", "1", "0", "30 GiB", "0.50", "assumed", "0.1000", "0.05"),
        ("002", "m6i.large", "0", "3", "40 GiB", "1.00", "measured", "0.2000", "0.20"),
    ]
    assert QUOTE.expected_usd == pytest.approx(0.25)
    assert QUOTE.hours == pytest.approx(1.5), "builds come first"
    limits = [money.usual_limit_s(quote.estimate(group)) for group in QUOTE.groups]
    assert QUOTE.worst_usd == pytest.approx((0.1 * (limits[0] + 300) + 0.2 * (limits[1] + 300)) / 3600)
    assert replace(QUOTE, cap_usd=0.3).worst_usd == 0.3


def test_many_parts_are_few_rows_with_the_same_sums() -> None:
    groups = many(206)
    rows = quote.rows(groups)
    assert [row[0] for row in rows] == ["001", "002-206"]
    assert rows[1][3] == "615" and float(rows[1][8]) == pytest.approx(205 * 0.2)
    assert [row[0] for row in quote.rows(many(24))] == [f"{number:03}" for number in range(1, 25)]


def test_what_is_not_known_is_said() -> None:
    said = text(QUOTE)
    assert "quota: not known" in said and "c6i.large: offered in no zone" in said
    assert "--max-usd holds all of it to a sum" in said
    assert "and --max-usd" in text(replace(QUOTE, cap_usd=5.0))

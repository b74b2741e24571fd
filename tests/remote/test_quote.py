"""The quote of a run on EC2 or Batch: few lines, true bounds."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from harness.jobs.inputs import IndexBuild
from harness.pricing import instances
from harness.pricing.offers import ChosenMachine
from harness.remote import partition
from harness.remote.quote import Quote
from harness.remote.records import PartJob, PlannedPart
from harness.results.schema import Cell

KNOWN = instances.read_instances("aws")
CELL = Cell("suite", "bm25", "scifact", "single_stream", "cpu1-mem1")
JOBS = tuple(PartJob(CELL, number, 0, f"{number:016}") for number in range(3))
BUILD = PlannedPart(
    "001", "c6i.large", 0.1, 30, builds=(IndexBuild("k", "bm25", "scifact"),), expected_s=1800, worst_s=7200
)
WORK = PlannedPart("002", "m6i.large", 0.2, 40, jobs=JOBS, expected_s=3600, worst_s=7200, measured=True)
REMARKED = {"p": ChosenMachine(KNOWN["m6i.large"], 0.2, "p is priced on t3.small, which is left out: why")}


def quote(*parts: PlannedPart, cap: float | None = None, most: int = 8, attempts: int = 1) -> Quote:
    return Quote(parts or (BUILD, WORK), REMARKED, cap, most, attempts, "`harness ec2 reap`")


def lines(shown: Quote, *, wide: bool = False) -> list[str]:
    text = StringIO()
    shown.show(["prices: of a date"], Console(file=text, width=200), wide=wide)
    return text.getvalue().splitlines()


def test_quote_says_where_how_much_how_long_and_how_to_stop() -> None:
    head, work, build, prices, remark, about, never, stop = lines(quote())
    assert head.split() == ["parts", "machine", "builds", "jobs", "disk", "time", "US$", "profiles"]
    assert work.split() == ["1", "m6i.large", "0", "3", "40", "GiB", "1.0", "h", "0.20", "cpu1-mem1"]
    assert build.split() == ["1", "c6i.large", "1", "0", "30", "GiB", "~30", "min", "0.05"]
    assert prices == "prices: of a date" and remark.endswith("which is left out: why")
    assert about == "about US$ 0.25, done in about 1.0 h (~: assumed, not from stored results)"
    limits = [partition.usual_limit_s(part) for part in (BUILD, WORK)]
    worst = (0.1 * (limits[0] + 420) + 0.2 * (limits[1] + 420)) / 3600
    assert never == f"never more than US$ {worst:.2f}, 2.1 h a machine, by time limits"
    assert stop == "to stop: `harness ec2 reap` ends every machine; Ctrl-C leaves them running"


def test_wide_quote_has_every_part() -> None:
    _, build, work, *notes = (line.split() for line in lines(quote(), wide=True))
    assert build == ["001", "c6i.large", "1", "0", "30", "GiB", "~30", "min", "0.05"]
    assert work == ["002", "m6i.large", "0", "3", "40", "GiB", "1.0", "h", "0.20", "cpu1-mem1"]
    assert len(notes) == 5


def test_quote_of_many_cells_has_a_line_for_each_type() -> None:
    types = ("m6i.large", "m6i.xlarge", "m6i.2xlarge", "c6i.large")
    cells = [replace(WORK, name=f"{number:03}", instance_type=types[number % 4]) for number in range(24)]
    assert len(lines(quote(BUILD, *cells))) == 10


def test_part_that_waits_for_an_index_is_done_after_it() -> None:
    waits = replace(WORK, needs=("k",))
    assert quote(BUILD, waits).expected_s == 1800 + 3600
    assert quote(BUILD, WORK).expected_s == 3600
    assert quote(*[replace(WORK, name=str(number)) for number in range(16)]).expected_s == 2 * 3600


def test_quote_is_never_more_than_the_cap() -> None:
    shown = quote(cap=0.3, attempts=3)
    assert shown.worst_usd == 0.3
    assert "never more than US$ 0.30, 2.1 h a machine, by time limits and --max-usd" in lines(shown)


def test_quote_counts_the_machines_that_replace_lost_ones() -> None:
    assert quote(attempts=3).worst_usd == pytest.approx(3 * quote().worst_usd)
    assert "2.1 h a machine and 3 machines a part, by time limits" in lines(quote(attempts=3))[-2]


def test_further_remarks_are_counted() -> None:
    several = replace(quote(), machines={**REMARKED, "q": replace(REMARKED["p"], remark="q is priced on another")})
    remark = "p is priced on t3.small, which is left out: why"
    assert f"{remark} (1 more profiles likewise: --wide; --instance names a type)" in lines(several)
    assert "q is priced on another" in lines(several, wide=True)

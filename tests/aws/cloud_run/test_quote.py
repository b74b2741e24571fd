"""The quote that the user sees before anything starts."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from harness.aws.cloud_run import partition
from harness.aws.cloud_run.machines import ChosenMachine
from harness.aws.cloud_run.records import PartJob, PlannedPart
from harness.jobs.inputs import IndexBuild
from harness.pricing import instances
from harness.results.schema import Cell

CELL = Cell("suite", "bm25", "scifact", "single_stream", "cpu1-mem1")
JOBS = tuple(PartJob(CELL, number, 0, f"{number:016}") for number in range(3))
BUILD = PlannedPart(
    "001", "c6i.large", 0.1, 30, builds=(IndexBuild("k", "bm25", "scifact"),), expected_s=1800, worst_s=7200
)
WORK = PlannedPart("002", "m6i.large", 0.2, 40, jobs=JOBS, expected_s=3600, worst_s=7200, measured=True)
PARTS = (BUILD, WORK)
MACHINES = {
    "p": ChosenMachine(
        instances.read_instances("aws")["m6i.large"], 0.2, "p is priced on t3.small, which is left out: why"
    )
}


def shown(parts: tuple[PlannedPart, ...] = PARTS, cap: float | None = None) -> list[str]:
    text = StringIO()
    partition.show_quote(parts, ["prices: of a date"], MACHINES, cap, Console(file=text, width=200))
    return text.getvalue().splitlines()


def test_a_quote_is_as_reckoned_by_hand() -> None:
    _, build, work, *notes = (line.split() for line in shown())
    assert build == ["001", "c6i.large", "1", "0", "30", "GiB", "0.50", "assumed", "0.1000", "0.05"]
    assert work == ["002", "m6i.large", "0", "3", "40", "GiB", "1.00", "measured", "0.2000", "0.20"]
    limits = [partition.usual_limit_s(part) for part in PARTS]
    worst = (0.1 * (limits[0] + 420) + 0.2 * (limits[1] + 420)) / 3600
    last = " ".join(notes[-1])
    assert last == f"about US$ 0.25; never more than US$ {worst:.2f}, by the time limit of each"


def test_many_parts_are_few_rows_with_the_same_sums() -> None:
    many = (BUILD, *(replace(WORK, name=f"{number:03}") for number in range(2, 207)))
    _, first, rest, *_ = (line.split() for line in shown(many))
    assert first[0] == "001" and rest[0] == "002-206"
    assert rest[3] == "615" and float(rest[-1]) == pytest.approx(205 * 0.2)
    assert len(shown(many[:24])) == 1 + 24 + 3


def test_a_cap_is_said() -> None:
    assert "never more than US$ 0.30, by the time limit of each and --max-usd" in shown(cap=0.3)[-1]


def test_why_a_machine_is_another_than_the_priced_one_is_said() -> None:
    assert any("which is left out: why" in line for line in shown())

"""Made-up measured rows: six systems on four machines, some failed, one noisy, with their distributions."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.analysis import results_folder, row_pricing
from harness.analysis.leaderboard import RankedRow, RankInterval
from harness.analysis.table import Row, Table, Validity
from harness.config import data_root
from harness.driver.records import Outcome
from harness.estimate import Estimate
from harness.evaluation.per_query import SHARES, PerQuery
from harness.pricing import prices
from harness.report.plots import style
from harness.report.plots.style import Frame
from tests.support import sample_records

MIB = 2**20
SYSTEMS = ("bm25", "dpr", "colbertv2-s", "colbertv2-m", "bt-splade-l", "unicoil")
# Profile: CPUs, MiB, instance type, US$ an hour, how much slower.
MACHINES = {
    "cpu1-mem1": (1, 1024, "a1.medium", 0.0255, 1.6),
    "cpu1-mem2": (1, 2048, "t4g.small", 0.0168, 1.1),
    "cpu1-mem4": (1, 4096, "m6g.medium", 0.0385, 1.0),
    "cpu4-mem16": (4, 16384, "m6g.xlarge", 0.154, 0.4),
}


def row(system: str, profile: str, place: int, **changes: object) -> Row:
    cpus, memory, instance, usd, slower = MACHINES[profile]
    mean_s = 0.004 * 2.4**place * slower
    accuracy = 0.30 + 0.03 * place - 0.004 * place**2
    plain = sample_records.row(
        system=system,
        profile=profile,
        cpus=cpus,
        memory_limit_bytes=memory * MIB,
        price=sample_records.price(instance, usd, cpus, memory * MIB),
        key=f"{system}/{profile}",
        keys=(f"{system}/{profile}",),
        queries=40,
        trials=3,
        measures={"RR@10": Estimate(accuracy, accuracy - 0.02, accuracy + 0.02)},
        latency_mean_s=Estimate(mean_s, mean_s * 0.9, mean_s * 1.12),
        these_queries_s={"mean": Estimate(mean_s, mean_s * 0.98, mean_s * 1.02)},
        usd_per_million=Estimate(mean_s / 3600 * usd * 1e6, mean_s / 4000 * usd * 1e6, mean_s / 3300 * usd * 1e6),
        peak_anon_bytes=100 * MIB,
    )
    return sample_records.row_with(plain, **changes)


def per_query(of: Row) -> PerQuery:
    place = sorted(SYSTEMS).index(of.system) if of.system in SYSTEMS else 0
    mean = of.latency.mean_s.value or 0.0
    rng = np.random.default_rng(place)
    latency = mean * rng.lognormal(0, 0.4, 40)
    accuracy = np.clip(rng.normal(of.measures["RR@10"].value or 0.0, 0.1, 40), 0, 1)
    quantiles = tuple(float(each) for each in np.quantile(latency * rng.lognormal(0, 0.3, 40), SHARES))
    return PerQuery(
        of.per_query_key, tuple(f"q{number:02}" for number in range(40)), latency, {"RR@10": accuracy}, quantiles
    )


def made(rows: Sequence[Row]) -> Table:
    return sample_records.table(rows)


@pytest.fixture(scope="session")
def table() -> Table:
    rows = [row(system, profile, place) for place, system in enumerate(SYSTEMS) for profile in MACHINES]
    gone = {"outcome": Outcome.OOM, "detail": "killed", "latency_mean_s": Estimate(None), "measures": {}}
    gone["usd_per_million"] = Estimate(None)
    failed = {("colbertv2-m", "cpu1-mem1"), ("bt-splade-l", "cpu1-mem1"), ("bt-splade-l", "cpu1-mem2")}
    rows = [sample_records.row_with(each, **gone) if (each.system, each.profile) in failed else each for each in rows]
    rows[5] = sample_records.row_with(rows[5], validity=Validity.NOISY)
    return made(rows)


@pytest.fixture(scope="session")
def found(table: Table) -> dict[str, PerQuery]:
    return {each.per_query_key: per_query(each) for each in table.rows if each.outcome is Outcome.OK}


@pytest.fixture(scope="session")
def published() -> Table:
    folder = data_root() / "results" / "published" / "santhanam2023"
    return row_pricing.price(
        results_folder.read(folder).table, row_pricing.tariff(prices.snapshot(datetime.date(2022, 12, 2)))
    )


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    with style.settings(9):
        yield


def frame(*systems: str) -> Frame:
    return Frame("title", ("A note.",), style.system_styles(systems))


def axes_of(figure: Any) -> list[Any]:
    return [axes for axes in figure.axes if axes.get_visible()]


def lines(axes: Any, gid: str) -> list[tuple[list[float], list[float]]]:
    return [
        (list(map(float, line.get_xdata())), list(map(float, line.get_ydata())))
        for line in axes.lines
        if line.get_gid() == gid
    ]


def words(figure: Any) -> str:
    import matplotlib.text

    return "\n".join(each.get_text() for each in figure.findobj(matplotlib.text.Text))


def dots(axes: Any) -> list[tuple[float, float]]:
    """The middles of what has error bars."""
    data = [bar.lines[0].get_data() for bar in axes.containers]
    return [(float(x), float(y)) for across, up in data for x, y in zip(across, up, strict=True)]


NAMES = (
    "$x^2",
    "_hidden",
    "a--> <script>alert(1)</script>",
    "中文 🦀",
    "x" * 200,
    "x" * 199 + "y",
    "\x1b[31m\u202e%s {0}",
)


def ranked(row: Row, **changes: Any) -> RankedRow:
    """Return a row of a leaderboard without intervals of its rank."""
    unknown = RankInterval(None, None, "made up")
    plain = RankedRow(row, {}, None, None, unknown, unknown, unknown, None)
    return replace(plain, **changes)

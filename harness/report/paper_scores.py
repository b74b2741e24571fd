"""Table 4 of a paper beside the Dynascores that follow from its other tables and its exchange rates."""

from __future__ import annotations

from dataclasses import replace

from harness.analysis import leaderboard, row_pricing
from harness.analysis.leaderboard import Asked, Leaderboard
from harness.analysis.published import published_rows
from harness.analysis.published.sources import Dataset
from harness.analysis.published.tables import Published, Scored
from harness.analysis.table import Table
from harness.pricing.prices import Snapshot
from harness.report.document import MISSING, Escape
from harness.report.sections import Section
from harness.stats import Estimate


def scores(published: Published, follows: Snapshot, escape: Escape) -> tuple[Section, ...]:
    """Each dataset's scores, printed and made again from the figures as printed.

    Args:
        published: the tables.
        follows: the prices that they follow.
        escape: makes texts harmless where they will stand.
    """
    table = _table(published, follows)
    found = []
    for dataset in published.about.datasets:
        if dataset.amrs:
            asked = Asked(dataset.name, "RR@10", amrs=dataset.amrs, suite=published.about.name)
            found.append(_section(published, dataset, leaderboard.build(table, {}, asked), escape))
    return tuple(found)


def _table(published: Published, follows: Snapshot) -> Table:
    """Tables 3 as printed, costs too: they were made of latencies that are printed as whole milliseconds."""
    table = row_pricing.table(published_rows.measurements(published, follows), row_pricing.tariff(follows))
    name = published.about.name
    printed = {
        f"{name}/table{dataset.table3}/{number}": Estimate(float(line.cost_usd_per_million.value))
        for dataset in published.about.datasets
        for number, line in enumerate(published.table3[dataset.name], start=1)
    }
    rows = (replace(row, usd_per_million=printed[row.key]) for row in table.rows if row.key in printed)
    return replace(table, rows=tuple(rows))


def _section(published: Published, dataset: Dataset, board: Leaderboard, escape: Escape) -> Section:
    made = {(each.row.system, each.row.profile): each for each in board.standings}
    cells, off = [], 0.0
    for line in published.table4[dataset.name]:
        mine = made.get((line.system, profile(line)))
        printed = float(line.dynascore.value)
        if mine is None or mine.score is None:
            again = (MISSING,) * 3
        else:
            off = max(off, abs(mine.score - printed))
            again = (f"{mine.score:.3f}", f"{mine.score - printed:+.3f}", str(mine.rank))
        cells.append((str(line.rank), escape(line.system), escape(line.hardware), str(line.dynascore), *again))
    rates = ", ".join(f"{name} {rate:g}" for name, rate in dataset.amrs.items())
    weights = ", ".join(f"{name} {weight:g}" for name, weight in board.asked.weights.items())
    return Section(
        f"Table {escape(dataset.table4)}: {escape(dataset.label)}, Dynascores made again",
        (
            f"Weights: {escape(weights)}. AMRS: {escape(rates)} (units for a point of RR@10). Made of accuracies,"
            f" latencies and costs as printed; the largest difference is {off:.3f}, which rounding explains.",
        ),
        ("rank", "system", "hardware", "printed", "made again", "difference", "rank"),
        (True, False, False, True, True, True, True),
        tuple(cells),
        keys=3,
    )


def profile(line: Scored) -> str:
    """``1 GPU, 16 CPU, 32 GB memory`` as a hardware profile is named."""
    parts = {unit: count for count, unit in (words.split()[:2] for words in line.hardware.split(", "))}
    gpus = f"gpu{parts['GPU']}-" if "GPU" in parts else ""
    return f"{gpus}cpu{parts['CPU']}-mem{parts['GB']}"

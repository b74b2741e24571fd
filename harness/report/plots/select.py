"""Rows that may be compared -> the records of each plot, or why a plot is missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from harness.analysis import axes, leaderboard, pareto_front
from harness.analysis.dynascore import RateStatus
from harness.analysis.leaderboard import Leaderboard, LeaderboardQuery
from harness.analysis.table import Row, Table, Validity
from harness.errors import UsageError
from harness.evaluation.per_query import PerQuery
from harness.records import Isolation, Outcome
from harness.report.plots import ranking, style
from harness.report.plots import rows as row_plots
from harness.report.plots.style import Frame, SystemStyle

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawing = Callable[[], "Figure"]


class NoPlot(Exception):
    """Plot that cannot be drawn; the text names it and the reason."""


@dataclass(frozen=True)
class PlotRows:
    """Table of comparable rows, their per-query values, and the group's name.

    ``asked`` says how they are ranked.
    """

    table: Table
    found: Mapping[str, PerQuery]
    asked: LeaderboardQuery
    styles: Mapping[str, SystemStyle]
    called: str

    @property
    def measure(self) -> str:
        """Return the measure of accuracy."""
        return self.asked.measure

    @cached_property
    def ranked(self) -> Leaderboard:
        """Return the leaderboard as queried."""
        return leaderboard.build(self.table, self.found, self.asked)

    @cached_property
    def weighed(self) -> Leaderboard:
        """Return the leaderboard of all rows by Dynascore of accuracy, cost and latency, with the queried rates."""
        weights = leaderboard.PRESETS[0].weights
        asked = replace(self.asked, weights=weights, bounds=(), rank_by=None)
        return leaderboard.build(self.table, self.found, asked)

    @cached_property
    def by_cost(self) -> Leaderboard:
        """Return the leaderboard with the front over accuracy and cost."""
        asked = replace(self.asked, bounds=(), rank_by="cost", front=("accuracy", "cost"))
        return leaderboard.build(self.table, self.found, asked)

    def frame(self, title: str, notes: Iterable[str], left_out: Iterable[tuple[Row, str]]) -> Frame:
        """Return title and small print: prices, rows in doubt, and missing rows."""
        table, rows = self.table, self.table.rows
        said = [f"Prices: {table.price_provider} {table.price_region}, {table.price_term}, {table.price_date}."]
        if rows[0].isolation is Isolation.PUBLISHED:
            said.append("Published figures, not measured here: no intervals are known.")
        elif rows[0].isolation is not Isolation.CONTAINER:
            said.append(f"Isolation: {rows[0].isolation.value}; no limits were enforced.")
        doubted = [row_name(row) for row in rows if row.validity is Validity.NOISY and row.outcome is Outcome.OK]
        said += [f"Noisy: {style.first_of(doubted)}."] if doubted else []
        absent = [f"{row_name(row)} ({style.plain_text(why, 60)})" for row, why in left_out]
        said += [f"Not drawn: {style.first_of(absent)}."] if absent else []
        return Frame(f"{self.called}: {title}", (" ".join((*notes, *said)),), self.styles)

    @property
    def cost_label(self) -> str:
        """Return the label of the cost axis, with the cost model."""
        model = "sequential" if self.table.rows[0].scenario == "single_stream" else "saturated"
        return f"cost, US$ per million queries ({model})"

    def usable(self) -> tuple[list[Row], list[tuple[Row, str]]]:
        """Return the rows that ran and are valid, and the others with a reason."""
        kept, others = [], []
        for row in self.table.rows:
            why = pareto_front.reason_not_ranked(row, ())
            if why is None:
                kept.append(row)
            else:
                others.append((row, short_reason(row, why)))
        return kept, others


def row_name(row: Row) -> str:
    """Return a row's name."""
    return f"{row.system} on {row.profile}"


def short_reason(row: Row, why: str) -> str:
    """Return in few words why a row is not drawn."""
    return why if row.outcome is Outcome.OK else row.outcome.value


def no_row_reason(others: list[tuple[Row, str]]) -> str:
    """Return why no row could be drawn, with the first as an example."""
    row, why = others[0]
    return f"no row has what it takes ({row_name(row)}: {why}{f'; {len(others) - 1} more' if len(others) > 1 else ''})"


def _hardware(row: Row) -> str:
    return row.profile if row.price is None else f"{row.profile}, {row.price.instance_type}"


def _board(rows: PlotRows, what: str, which: Callable[[PlotRows], Leaderboard]) -> Leaderboard:
    try:
        return which(rows)
    except UsageError as error:
        raise NoPlot(f"{what}: {error}") from error


def _left_out(board: Leaderboard) -> list[tuple[Row, str]]:
    return [(each.row, short_reason(each.row, each.reason)) for each in board.left_out]


def _cost(rows: PlotRows) -> Drawing:
    board = _board(rows, "cost and accuracy", lambda each: each.by_cost)
    points = [
        row_plots.CostPoint(
            each.row.system, _hardware(each.row), each.figures["cost"], each.figures["accuracy"], each.state
        )
        for each in board.ranked_rows
        if each.state is not None
    ]
    notes = ["Bars: 95 % intervals."] if any(point.cost.low is not None for point in points) else []
    around = rows.frame(f"cost and {rows.measure}", notes, _left_out(board))
    return lambda: row_plots.draw_cost(points, around, rows.cost_label, f"{rows.measure}, points")


def _winners(rows: PlotRows) -> Drawing:
    what = "winners over the weights"
    board = _board(rows, what, lambda each: each.weighed)
    rates = {name: rate.value for name, rate in board.rates.items()}
    for name, rate in board.rates.items():
        if rate.value is None:
            raise NoPlot(f"{what}: the AMRS of {name} is undefined ({rate.status.value})")
    candidates = []
    for each in sorted(board.ranked_rows, key=lambda each: (each.row.system, each.row.profile, each.row.key)):
        gains = [each.figures["accuracy"].value or 0.0]
        for name in ranking.WEIGHED[1:]:
            value, rate_of = each.figures[name].value, rates[name]
            assert value is not None and rate_of is not None
            gains.append(-value / rate_of)
        candidates.append(ranking.Candidate(each.row.system, each.row.profile, (gains[0], gains[1], gains[2])))
    presets = {
        preset.name: tuple(preset.weights.get(name, 0.0) for name in ranking.WEIGHED)
        for preset in leaderboard.PRESETS
        if set(preset.weights) <= set(ranking.WEIGHED)
    }
    exchange = " and ".join(f"{rate:.4g} {_unit(board, name)}" for name, rate in rates.items())
    note = (
        f"The highest Dynascore ({_rates(board)}, {rows.measure}; a point of accuracy is worth {exchange})"
        f" of {len(candidates)} rows. Numbers on the sides: accuracy left, cost below, latency right."
    )
    around = rows.frame(f"who wins under which weights ({rows.measure})", [note], _left_out(board))
    return lambda: ranking.draw_winners(candidates, presets, around)  # type: ignore[arg-type]


def _rates(board: Leaderboard) -> str:
    """Return the source of the exchange rates."""
    given = all(rate.status is RateStatus.GIVEN for rate in board.rates.values())
    return "rates given" if given else f"mode {board.query.mode}"


def _unit(board: Leaderboard, name: str) -> str:
    return axes.axis(name, board.query.measure).unit


def _ranks(rows: PlotRows) -> Drawing:
    board = _board(rows, "ranks", lambda each: each.ranked)
    shown = [
        ranking.PlottedRank(
            each.row.system,
            f"{style.plain_text(each.row.system, 24)}, {each.row.profile}",
            each.rank,
            _score(each.score, board.query.rank_by),
            tuple(
                None if span.best is None or span.worst is None else (span.best, span.worst)
                for span in (each.by_queries, each.by_systems, each.by_weights)
            ),
        )
        for each in board.ranked_rows
        if each.rank is not None and each.score is not None
    ]
    if not shown:
        why = ", ".join(f"the AMRS of {name} is {rate.status.value}" for name, rate in board.rates.items())
        raise NoPlot(f"ranks: no row has a score ({why})")
    by = board.query.rank_by
    weights = ", ".join(f"{name} {weight:g}" for name, weight in board.query.weights.items())
    notes = [] if by else [f"Dynascore ({_rates(board)}; {rows.measure}; weights {weights})."]
    scored = f"{axes.axis(by, rows.measure).label}, {_unit(board, by)}" if by else "Dynascore"
    if len(shown) > ranking.MAX_RANKED:
        notes.append(f"The best {ranking.MAX_RANKED} of {len(shown):,} rows.")
    if board.ranked_rows[0].by_queries.best is None:
        notes.append(f"Ranks with other queries are not known ({board.ranked_rows[0].by_queries.reason}).")
    around = rows.frame("ranks and how far they hold", notes, _left_out(board))
    return lambda: ranking.draw_ranks(shown[: ranking.MAX_RANKED], around, scored)


def _score(score: float, rank_by: str | None) -> str:
    return f"{score:.2f}" if rank_by is None else f"{abs(score):.4g}"


def _distributions(rows: PlotRows) -> Drawing:
    kept, others = rows.usable()
    drawn, without = [], []
    for row in kept:
        of = rows.found.get(row.per_query_key)
        if of is None or not of.quantiles_s:
            without.append((row, "no samples of latency"))
        else:
            drawn.append(row_plots.LatencyDistribution(row.system, row.profile, of.quantiles_s))
    if not drawn:
        raise NoPlot(f"latency distributions: {no_row_reason(without or others)}")
    kinds = list(dict.fromkeys(each.hardware for each in drawn))[: row_plots.MAX_DISTRIBUTION_PANELS]
    kept_out = sorted({each.hardware for each in drawn} - set(kinds))
    notes = ["All timed samples of all trials; 51 quantiles joined by lines."]
    notes += [f"Hardware not drawn: {style.first_of(kept_out)}."] if kept_out else []
    around = rows.frame("latency distributions", notes, [*others, *without])
    return lambda: row_plots.draw_distributions([each for each in drawn if each.hardware in kinds], around)


def _memory(rows: PlotRows) -> Drawing:
    read = axes.axis("latency", rows.measure).read
    limits: dict[tuple[int, int], list[row_plots.MemoryPoint]] = defaultdict(list)
    others = []
    for row in rows.table.rows:
        ran = row.outcome is Outcome.OK
        if row.outcome in (Outcome.NOT_APPLICABLE, Outcome.INTERRUPTED) or (
            ran and (row.validity is Validity.INVALID or read(row).value is None)
        ):
            others.append((row, pareto_front.reason_not_ranked(row, ()) or "no latency"))
            continue
        hardware = f"{row.cpus} CPU{'s' if row.cpus > 1 else ''}" + (
            f", {row.gpus} GPU{'s' if row.gpus > 1 else ''}" if row.gpus else ""
        )
        limits[row.cpus, row.gpus].append(
            row_plots.MemoryPoint(row.system, hardware, row.memory_limit_bytes, read(row), row.outcome.value)
        )
    drawn, single = [], set()
    for _, every in sorted(limits.items()):
        several = {
            name
            for name in {each.system for each in every}
            if len({each.limit_bytes for each in every if each.system == name}) > 1
        }
        drawn += [each for each in every if each.system in several]
        single |= {f"{each.system}, {each.hardware}" for each in every if each.system not in several}
    if not any(each.latency.value is not None for each in drawn):
        why = "no system ran at any of several limits" if drawn else "each system was measured at one limit only"
        raise NoPlot(f"memory limits: {no_row_reason(others) if others and not limits else why}")
    kinds = list(dict.fromkeys(each.hardware for each in drawn))[: row_plots.MAX_MEMORY_PANELS]
    notes = ["Bars: 95 % intervals."] if any(each.latency.low is not None for each in drawn) else []
    notes += [f"Measured at one limit only, not drawn: {style.first_of(sorted(single))}."] if single else []
    around = rows.frame("latency under memory limits", notes, others)
    return lambda: row_plots.draw_memory([each for each in drawn if each.hardware in kinds], around)


def _instances(rows: PlotRows) -> Drawing:
    kept, others = rows.usable()
    read = axes.axis("cost", rows.measure).read
    drawn = []
    for row in kept:
        value = read(row).value
        if row.price is None or value is None:
            others.append((row, read(row).reason or "no price"))
        else:
            drawn.append(row_plots.InstanceCost(row.system, row.price.instance_type, row.price.usd_per_hour, value))
    if not drawn:
        raise NoPlot(f"cost by instance type: {no_row_reason(others)}")
    types = sorted({(each.usd_per_hour, each.instance_type) for each in drawn})
    if len(types) < 2:
        raise NoPlot(f"cost by instance type: all rows are priced on one type, {types[0][1]}")
    shown = {name for _, name in types[: row_plots.MAX_TYPES]}
    notes = [f"The cheapest {len(shown)} of {len(types)} types."] if len(shown) < len(types) else []
    around = rows.frame("cost by instance type", notes, others)
    return lambda: row_plots.draw_instances(
        [each for each in drawn if each.instance_type in shown], around, rows.cost_label
    )


# A plot of each kind, but for order flips.
MAKERS: Mapping[str, Callable[[PlotRows], Drawing]] = {
    "cost": _cost,
    "winners": _winners,
    "ranks": _ranks,
    "distributions": _distributions,
    "memory": _memory,
    "instances": _instances,
}

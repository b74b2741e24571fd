"""Rows that may be compared -> the records of each picture; or why there is none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.analysis import axes, leaderboard, pareto_front
from harness.analysis.dynascore import RateStatus
from harness.analysis.leaderboard import Leaderboard
from harness.analysis.table import Row, Validity
from harness.errors import UsageError
from harness.records import Outcome
from harness.report.plots import cost, frame, memory, order_flips, ranks, row_plots, theme, winners
from harness.report.plots.frame import Frame
from harness.report.plots.row_plots import Drawing, Missing, Rows, short, why_none

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# MERGED harness.report.plots.select: Cost by instance type: a line for each type, the cheapest an hour first; a dot
# for each system on it, log cost.


MOST_TYPES = 40


@dataclass(frozen=True)
class Rented:
    """A row: what a million queries cost on an instance type."""

    system: str
    instance_type: str
    usd_per_hour: float
    usd_per_million: float


def draw(rows: Sequence[Rented], around: Frame, cost_label: str) -> Figure:
    """Draw them; at most ``MOST_TYPES`` types."""
    types = sorted({(row.usd_per_hour, row.instance_type) for row in rows})
    place = {name: number for number, (_, name) in enumerate(types)}
    names = {row.system for row in rows}
    sheet = frame.begin(around, max(2.4, 0.9 + 0.3 * len(types)), len(names))
    axes = sheet.figure.add_subplot()
    for system in sorted(names):
        style = around.looks[system]
        of_it = [row for row in rows if row.system == system]
        (dots,) = axes.plot(
            [row.usd_per_million for row in of_it],
            [place[row.instance_type] for row in of_it],
            marker=style.marker,
            color=style.colour,
            markersize=7,
            alpha=0.85,
            linestyle="none",
            gid=theme.text(system),
        )
        dots.set_in_layout(False)
    called = theme.short(name for _, name in types)
    axes.set_yticks(range(len(types)), [f"{called[name]} ({usd:g})" for usd, name in types])
    axes.set_ylim(len(types) - 0.4, -0.6)
    axes.set_ylabel("instance type (US$ per hour)")
    frame.number_axis(axes.xaxis, [row.usd_per_million for row in rows])
    axes.set_xlabel(theme.text(cost_label))
    frame.grid(axes)
    frame.legend(sheet, frame.systems(names, around.looks))
    return sheet.figure


def _hardware(row: Row) -> str:
    return row.profile if row.price is None else f"{row.profile}, {row.price.instance_type}"


def _board(rows: Rows, what: str, which: Callable[[Rows], Leaderboard]) -> Leaderboard:
    try:
        return which(rows)
    except UsageError as error:
        raise Missing(f"{what}: {error}") from error


def _left_out(board: Leaderboard) -> list[tuple[Row, str]]:
    return [(each.row, short(each.row, each.reason)) for each in board.left_out]


def _cost(rows: Rows) -> Drawing:
    board = _board(rows, "cost and accuracy", lambda each: each.by_cost)
    points = [
        cost.Point(each.row.system, _hardware(each.row), each.figures["cost"], each.figures["accuracy"], each.state)
        for each in board.ranked_rows
        if each.state is not None
    ]
    notes = ["Bars: 95 % intervals."] if any(point.cost.low is not None for point in points) else []
    around = rows.frame(f"cost and {rows.measure}", notes, _left_out(board))
    return lambda: cost.draw(points, around, rows.cost_label, f"{rows.measure}, points")


def _winners(rows: Rows) -> Drawing:
    what = "winners over the weights"
    board = _board(rows, what, lambda each: each.weighed)
    rates = {name: rate.value for name, rate in board.rates.items()}
    for name, rate in board.rates.items():
        if rate.value is None:
            raise Missing(f"{what}: the AMRS of {name} is undefined ({rate.status.value})")
    candidates = []
    for each in sorted(board.ranked_rows, key=lambda each: (each.row.system, each.row.profile, each.row.key)):
        gains = [each.figures["accuracy"].value or 0.0]
        for name in winners.NAMES[1:]:
            value, rate_of = each.figures[name].value, rates[name]
            assert value is not None and rate_of is not None
            gains.append(-value / rate_of)
        candidates.append(winners.Candidate(each.row.system, each.row.profile, (gains[0], gains[1], gains[2])))
    presets = {
        preset.name: tuple(preset.weights.get(name, 0.0) for name in winners.NAMES)
        for preset in leaderboard.PRESETS
        if set(preset.weights) <= set(winners.NAMES)
    }
    exchange = " and ".join(f"{rate:.4g} {_unit(board, name)}" for name, rate in rates.items())
    note = (
        f"The highest Dynascore ({_rates(board)}, {rows.measure}; a point of accuracy is worth {exchange})"
        f" of {len(candidates)} rows. Numbers on the sides: accuracy left, cost below, latency right."
    )
    around = rows.frame(f"who wins under which weights ({rows.measure})", [note], _left_out(board))
    return lambda: winners.draw(candidates, presets, around)  # type: ignore[arg-type]


def _rates(board: Leaderboard) -> str:
    """Where the exchange rates are from."""
    given = all(rate.status is RateStatus.GIVEN for rate in board.rates.values())
    return "rates given" if given else f"mode {board.query.mode}"


def _unit(board: Leaderboard, name: str) -> str:
    return axes.axis(name, board.query.measure).unit


def _ranks(rows: Rows) -> Drawing:
    board = _board(rows, "ranks", lambda each: each.ranked)
    shown = [
        ranks.Ranked(
            each.row.system,
            f"{theme.text(each.row.system, 24)}, {each.row.profile}",
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
        raise Missing(f"ranks: no row has a score ({why})")
    by = board.query.rank_by
    weights = ", ".join(f"{name} {weight:g}" for name, weight in board.query.weights.items())
    notes = [] if by else [f"Dynascore ({_rates(board)}; {rows.measure}; weights {weights})."]
    scored = f"{axes.axis(by, rows.measure).label}, {_unit(board, by)}" if by else "Dynascore"
    if len(shown) > ranks.MOST_ROWS:
        notes.append(f"The best {ranks.MOST_ROWS} of {len(shown):,} rows.")
    if board.ranked_rows[0].by_queries.best is None:
        notes.append(f"Ranks with other queries are not known ({board.ranked_rows[0].by_queries.reason}).")
    around = rows.frame("ranks and how far they hold", notes, _left_out(board))
    return lambda: ranks.draw(shown[: ranks.MOST_ROWS], around, scored)


def _score(score: float, rank_by: str | None) -> str:
    return f"{score:.2f}" if rank_by is None else f"{abs(score):.4g}"


def _distributions(rows: Rows) -> Drawing:
    kept, others = rows.usable()
    drawn, without = [], []
    for row in kept:
        of = rows.found.get(row.per_query_key)
        if of is None or not of.quantiles_s:
            without.append((row, "no samples of latency"))
        else:
            drawn.append(row_plots.Distribution(row.system, row.profile, of.quantiles_s))
    if not drawn:
        raise Missing(f"latency distributions: {why_none(without or others)}")
    kinds = list(dict.fromkeys(each.hardware for each in drawn))[: row_plots.MOST_PANELS]
    kept_out = sorted({each.hardware for each in drawn} - set(kinds))
    notes = ["All timed samples of all trials; 51 quantiles joined by lines."]
    notes += [f"Hardware not drawn: {theme.listed(kept_out)}."] if kept_out else []
    around = rows.frame("latency distributions", notes, [*others, *without])
    return lambda: row_plots.draw([each for each in drawn if each.hardware in kinds], around)


def _memory(rows: Rows) -> Drawing:
    read = axes.axis("latency", rows.measure).read
    limits: dict[tuple[int, int], list[memory.Limit]] = defaultdict(list)
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
            memory.Limit(row.system, hardware, row.memory_limit_bytes, read(row), row.outcome.value)
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
        raise Missing(f"memory limits: {why_none(others) if others and not limits else why}")
    kinds = list(dict.fromkeys(each.hardware for each in drawn))[: memory.MOST_PANELS]
    notes = ["Bars: 95 % intervals."] if any(each.latency.low is not None for each in drawn) else []
    notes += [f"Measured at one limit only, not drawn: {theme.listed(sorted(single))}."] if single else []
    around = rows.frame("latency under memory limits", notes, others)
    return lambda: memory.draw([each for each in drawn if each.hardware in kinds], around)


def _instances(rows: Rows) -> Drawing:
    kept, others = rows.usable()
    read = axes.axis("cost", rows.measure).read
    drawn = []
    for row in kept:
        value = read(row).value
        if row.price is None or value is None:
            others.append((row, read(row).reason or "no price"))
        else:
            drawn.append(Rented(row.system, row.price.instance_type, row.price.usd_per_hour, value))
    if not drawn:
        raise Missing(f"cost by instance type: {why_none(others)}")
    types = sorted({(each.usd_per_hour, each.instance_type) for each in drawn})
    if len(types) < 2:
        raise Missing(f"cost by instance type: all rows are priced on one type, {types[0][1]}")
    shown = {name for _, name in types[:MOST_TYPES]}
    notes = [f"The cheapest {len(shown)} of {len(types)} types."] if len(shown) < len(types) else []
    around = rows.frame("cost by instance type", notes, others)
    return lambda: draw([each for each in drawn if each.instance_type in shown], around, rows.cost_label)


MAKERS: Mapping[str, Callable[[Rows], Drawing]] = {
    "cost": _cost,
    "winners": _winners,
    "ranks": _ranks,
    "distributions": _distributions,
    "memory": _memory,
    "instances": _instances,
    "flips": order_flips.make,
}

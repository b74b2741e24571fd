"""Report of a leaderboard under other queries, fewer judgements, another measure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from harness.analysis.robustness import Condition, RankedSystem, Robustness
from harness.errors import counted
from harness.estimate import Z, best_of
from harness.report.document import (
    MISSING,
    Escape,
    Grid,
    GridColumn,
    ReportDocument,
    Section,
    Value,
    brief,
    digits,
    grid_of,
)
from harness.report.verdict_scope import RESAMPLES

# Version of the JSON.
ROBUSTNESS_VERSION = 1
# A matrix of more systems is illegible.
_MOST_SYSTEMS = 15


METHOD = (
    "A pair flips where its order differs from the leaderboard's; a tie counts half, so 50 % is a coin toss. "
    "Pairs that are equal on the leaderboard have no order to lose.",
    "± points: another --seed draws others, and shares change by chance: 95 % of them lie within this many points of a "
    "share near 50 %, closer near 0 or 100 %. Four times as many draws halve it.",
    "Other queries: these, drawn with replacement, the same ones for all systems. Fewer judgements: relevant ones "
    "(grade above 0) are kept, best grades first and equal ones at random (with --any-grade any at random), and all "
    "others dropped, or a share of all is kept at random; a query that keeps none is out of that draw's mean. Another "
    "measure: by it, over resampled queries.",
    "Kendall's tau-b with the leaderboard: 1 is the same order, -1 the reverse; mean over draws, smallest and largest; "
    "for another measure, its value over all queries comes first.",
)


def robustness_document(boards: Sequence[Robustness]) -> ReportDocument:
    """Return the document of what moves some leaderboards; CSV has a line for each pair under each condition."""
    return ReportDocument(
        sections=lambda escape: (*(_section(board, escape) for board in boards), Section(notes=(RESAMPLES, *METHOD))),
        lines=lambda: _lines(boards),
        answer=lambda escape: _brief(boards, escape),
        content=lambda: {
            "robustness_version": ROBUSTNESS_VERSION,
            "leaderboards": [_record(board) for board in boards],
        },
    )


def _brief(boards: Sequence[Robustness], escape: Escape) -> tuple[Section, ...]:
    """Return the answer; its first note says what was tested."""
    first, *others = (_ranking(_section(board, escape)) for board in boards)
    return brief((dataclasses.replace(first, notes=(RESAMPLES, *first.notes)), *others))


def _ranking(section: Section) -> Section:
    """Return a section without draws, their errors and the matrices of flips."""
    standings, conditions = section.grids[:2]
    return dataclasses.replace(section, grids=(standings, conditions.select((0, 3, 4, 5))))


def _section(board: Robustness, escape: Escape) -> Section:
    standings: list[GridColumn[tuple[int, RankedSystem]]] = [
        ("", True, lambda item: str(item[0])),
        ("system", False, lambda item: escape(item[1].system)),
        (board.measure, True, lambda item: f"{item[1].value:.4f}"),
        ("rank", True, lambda item: f"{item[1].rank:g}"),
        ("rank (95 % of resamples)", True, lambda item: _rank_interval(item[1])),
        ("first with other queries", True, lambda item: digits(item[1].first, ".0%")),
    ]
    headers = ("what is other", "draws", "± points (95 %)", "tau", "pairs that flip in 5 % of draws", "what flips most")
    conditions = tuple(_condition(board, condition, escape) for condition in board.conditions)
    grids = [
        grid_of(list(enumerate(board.standings, start=1)), standings, keys=2),
        Grid("", headers, (False, True, True, True, True, False), conditions),
    ]
    after: tuple[str, ...] = ()
    if len(board.systems) <= _MOST_SYSTEMS:
        grids += [_matrix(board, condition, escape) for condition in board.conditions if condition.flips]
    else:
        after = (f"The {len(board.systems):,} systems' matrices are in --format csv and json, and in the picture.",)
    return Section(
        title=f"{escape(board.dataset)}, by {escape(board.measure)}, {board.queries:,} judged queries",
        grids=tuple(grids),
        after=after,
        notes=tuple(escape(note) for note in board.notes),
    )


def _rank_interval(standing: RankedSystem) -> str:
    if standing.low is None or standing.high is None:
        return MISSING
    return f"{standing.low:g}" if standing.low == standing.high else f"{standing.low:g} to {standing.high:g}"


def condition_name(condition: Condition) -> str:
    """Return a condition's name."""
    return f"{condition.cause.value}: {condition.name}"


def _condition(board: Robustness, condition: Condition, escape: Escape) -> tuple[str, ...]:
    name = escape(condition_name(condition))
    if not condition.flips:
        return name, *(MISSING,) * 4, escape(condition.reason or "")
    pairs = [
        (share, one, other)
        for one, line in enumerate(condition.flips)
        for other, share in enumerate(line[:one])
        if share is not None
    ]
    often = sum(share >= 0.05 for share, _, _ in pairs)
    (share, one, other), *equal = best_of(pairs, lambda pair: pair[0]) or [(0.0, 0, 0)]
    both = f"{escape(board.systems[other])} and {escape(board.systems[one])}"
    also = f", and {counted(len(equal), 'other pair')}" if equal else ""
    most = f"{both}{also}: {percent(share)} %" if share else "none"
    error = share_error(condition.draws)
    points = digits(error and 100 * error, ".2g")
    return name, f"{condition.draws:,}", points, _tau(condition), f"{often:,} of {len(pairs):,}", most


def _tau(condition: Condition) -> str:
    """Return ``0.87 (0.33 to 1.00)``; of another measure tau over all queries first."""
    tau, whole = condition.tau, condition.tau_whole
    if tau.value is None:
        return MISSING
    spread = "" if tau.low == tau.high else f" ({tau.low:.2f} to {tau.high:.2f})"
    first = "" if whole is None or condition.draws == 1 else f"{whole:.2f}; "
    return f"{first}{tau.value:.2f}{spread}"


def share_error(draws: int) -> float | None:
    """Return the sampling error (95 %) of a share of one half, the largest; ``None``: nothing was drawn at random."""
    return Z / (2 * draws**0.5) if draws > 1 else None


def percent(share: float) -> str:
    """Return a share in per cent; only never is ``0``, and only always is ``100``."""
    if 0 < share < 0.01:
        return "<1"
    return ">99" if 0.99 < share < 1 else f"{100 * share:.0f}"


def _matrix(board: Robustness, condition: Condition, escape: Escape) -> Grid:
    """Return the share of draws in which each pair of systems flips."""
    count = len(board.systems)
    cells = tuple(
        (
            f"{number + 1} {escape(board.systems[number])}",
            *(MISSING if share is None else percent(share) for share in condition.flips[number][:number]),
            *("" for _ in range(number, count - 1)),
        )
        for number in range(1, count)
    )
    headers = ("flips, % of draws", *(str(number) for number in range(1, count)))
    return Grid(escape(condition_name(condition)), headers, (False, *(True,) * (count - 1)), cells)


def _lines(boards: Sequence[Robustness]) -> Iterator[Sequence[Value]]:
    """Yield a line for each pair, with the leaderboard's better system as ``a``."""
    yield (
        *("dataset", "measure", "queries", "cause", "condition", "draws", "a", "b", "value_a", "value_b"),
        *("flips", "tau", "tau_low", "tau_high", "tau_whole", "reason", "flips_error"),
    )
    for board in boards:
        for condition in board.conditions:
            start = (board.dataset, board.measure, board.queries, condition.cause.value, condition.name)
            tau = (condition.tau.value, condition.tau.low, condition.tau.high, condition.tau_whole)
            for number, worse in enumerate(board.standings):
                for other, better in enumerate(board.standings[:number]):
                    pair = (condition.draws, better.system, worse.system, better.value, worse.value)
                    flips = condition.flips[number][other] if condition.flips else None
                    yield *start, *pair, flips, *tau, condition.reason, share_error(condition.draws)


def _record(board: Robustness) -> dict[str, Any]:
    record = dataclasses.asdict(board)
    record["conditions"] = [
        condition | {"error": share_error(condition["draws"])} for condition in record["conditions"]
    ]
    return record

"""Rows priced at two dates -> ranks, and the verdicts that do not hold at both."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from harness.place import Place
from harness.repriced import Best, Change, Flip, Priced
from harness.table import Figure, Validity

_PRICED = ("before", "same", "cheapest_before", "cheapest")


def ranked(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Return the changes with their ranks, each among the rows of its place; equal costs share a rank."""
    costs: dict[tuple[Place, str], list[float]] = defaultdict(list)
    for each in changes:
        for name in _PRICED:
            value = getattr(each, name).cost.value
            if value is not None and each.row.validity is not Validity.INVALID:
                costs[each.place, name].append(value)
    ranks = {
        where: {value: rank for rank, value in reversed(list(enumerate(sorted(found), start=1)))}
        for where, found in costs.items()
    }

    def rank(each: Change, name: str) -> Priced:
        priced: Priced = getattr(each, name)
        if priced.cost.value is None or each.row.validity is Validity.INVALID:
            return priced
        return replace(priced, rank=ranks[each.place, name][priced.cost.value])

    return tuple(Change(each.row, *(rank(each, name) for name in _PRICED)) for each in changes)


def moved(changes: Sequence[Change], way: str) -> int:
    """Return how many rows have another rank than at the other date."""
    return sum(was.rank != now.rank for was, now in (each.pairs[way] for each in changes))


def _by_place(changes: Sequence[Change]) -> Mapping[Place, list[Change]]:
    places: dict[Place, list[Change]] = defaultdict(list)
    for each in changes:
        if each.before.rank is not None or each.cheapest_before.rank is not None:
            places[each.place].append(each)
    return {place: places[place] for place in sorted(places, key=lambda place: tuple(map(str, place)))}


def _cheapest_of_each(changes: Sequence[Change], way: str, side: int) -> dict[str, Figure]:
    """Return what each system costs at its cheapest row, at the other date (``side`` 0) or now (1)."""
    found: dict[str, Figure] = {}
    for each in changes:
        figure = each.pairs[way][side].cost
        known = found.get(each.row.system)
        if figure.value is not None and (known is None or known.value is None or figure.value < known.value):
            found[each.row.system] = figure
    return found


def flips(changes: Sequence[Change], way: str) -> Iterator[Flip]:
    """Pairs of systems of which the other one is cheaper when rows are priced in that way."""
    for place, rows in _by_place(changes).items():
        before, now = (_cheapest_of_each(rows, way, side) for side in (0, 1))
        order = sorted((name for name in before if name in now), key=lambda name: (_usd(before, name), name))
        # From the cheapest on: whoever was cheaper and now costs more than this one stands behind it in ``seen``.
        seen: list[tuple[float, str]] = []
        for name in order:
            for _, earlier in seen[bisect_right(seen, (_usd(now, name), "\U0010ffff")) :]:
                if _usd(before, earlier) < _usd(before, name):
                    overlap = any(_overlap(costs[earlier], costs[name]) for costs in (before, now))
                    was, is_now = ((_usd(costs, earlier), _usd(costs, name)) for costs in (before, now))
                    yield Flip(place, way, earlier, name, was, is_now, overlap)
            insort(seen, (_usd(now, name), name))


def _usd(costs: Mapping[str, Figure], name: str) -> float:
    value = costs[name].value
    assert value is not None  # only costs that are known stand there
    return value


def _overlap(one: Figure, two: Figure) -> bool:
    if one.low is None or one.high is None or two.low is None or two.high is None:
        return False
    return one.low <= two.high and two.low <= one.high


def best(changes: Sequence[Change], way: str) -> Iterator[Best]:
    """Find places whose cheapest row is another now; one that is still as cheap stays it."""
    for place, rows in _by_place(changes).items():
        was = next((each for each in rows if each.pairs[way][0].rank == 1), None)
        now = next((each for each in rows if each.pairs[way][1].rank == 1), None)
        if was is not None and now is not None and was.pairs[way][1].rank != 1:
            pairs = ((each.row.system, each.row.profile) for each in (was, now))
            yield Best(place, way, *pairs)

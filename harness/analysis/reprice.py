"""The same measured rows at two dates' prices: what each costs then and now, and which verdicts do not hold any more.

Nothing is measured and nothing stored is read.  Each row is priced on its own instance at both dates (what a price
change alone does) and on the cheapest type of each date (what one would rent), so that like is compared with like; what
choosing another type gains at one date stands apart.  A row's cost is that of the model that its scenario has:
``sequential`` for ``single_stream``, ``saturated`` for the others.
"""

from __future__ import annotations

import datetime
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from harness.analysis import row_pricing
from harness.analysis.axes import Place
from harness.analysis.reprice_records import CHEAPEST, SAME, Best, Change, Flip, Gone, Priced, Repricing, Side
from harness.analysis.row_pricing import Placed, Tariff
from harness.analysis.table import Measurements, Row, Validity
from harness.errors import UsageError
from harness.pricing import cost, prices
from harness.pricing.prices import Snapshot
from harness.records import Outcome
from harness.stats import Estimate

# MERGED harness.analysis.reprice: Rows priced at two dates -> ranks, and the verdicts that do not hold at both.


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


def _cheapest_of_each(changes: Sequence[Change], way: str, side: int) -> dict[str, Estimate]:
    """Return what each system costs at its cheapest row, at the other date (``side`` 0) or now (1)."""
    found: dict[str, Estimate] = {}
    for each in changes:
        figure = each.pairs[way][side].cost
        known = found.get(each.row.system)
        if figure.value is not None and (known is None or known.value is None or figure.value < known.value):
            found[each.row.system] = figure
    return found


def order_flips(changes: Sequence[Change], way: str) -> Iterator[Flip]:
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


def _usd(costs: Mapping[str, Estimate], name: str) -> float:
    value = costs[name].value
    assert value is not None  # only costs that are known stand there
    return value


def _overlap(one: Estimate, two: Estimate) -> bool:
    if one.low is None or one.high is None or two.low is None or two.high is None:
        return False
    return one.low <= two.high and two.low <= one.high


def best_choices(changes: Sequence[Change], way: str) -> Iterator[Best]:
    """Find places whose cheapest row is another now; one that is still as cheap stays it."""
    for place, rows in _by_place(changes).items():
        was = next((each for each in rows if each.pairs[way][0].rank == 1), None)
        now = next((each for each in rows if each.pairs[way][1].rank == 1), None)
        if was is not None and now is not None and was.pairs[way][1].rank != 1:
            pairs = ((each.row.system, each.row.profile) for each in (was, now))
            yield Best(place, way, *pairs)


def other(now: Snapshot, against: datetime.date | None = None) -> Snapshot:
    """The prices to compare with: those of a date, else the newest, else (where those are asked for) the ones before.

    Raises:
        UsageError: there are none of that region and term, or no others.
    """
    region = f"{now.provider}/{now.region}"
    if against is not None:
        return prices.snapshot(against, region=region, term=now.term)
    newest = prices.snapshot(region=region, term=now.term)
    if newest.as_of != now.as_of:
        return newest
    try:
        return prices.snapshot(now.as_of - datetime.timedelta(days=1), region=region, term=now.term)
    except UsageError:
        raise UsageError(
            f"{now} are the only {now.term} prices of {now.region}: nothing to compare with; "
            "`harness report --as-of` prices a table at one date"
        ) from None


def compare(measured: Measurements, before: Tariff, now: Tariff) -> Repricing:
    """Price the same rows twice.

    Args:
        measured: rows without money.
        before: the prices that are compared with.
        now: the prices that were asked for.
    """
    changes = ranked([_change(row, before, now) for row in measured.rows if row.outcome is Outcome.OK])
    flips = tuple(flip for way in (SAME, CHEAPEST) for flip in order_flips(changes, way))
    best = tuple(each for way in (SAME, CHEAPEST) for each in best_choices(changes, way))
    gone = tuple(_gone(changes, now))
    lost = tuple(
        sorted({each.row.profile for each in changes if each.cheapest_before.price and not each.cheapest.price})
    )
    found = tuple(
        sorted({each.row.profile for each in changes if each.cheapest.price and not each.cheapest_before.price})
    )
    failed = len(measured.rows) - len(changes)
    return Repricing(
        before=_side(before.snapshot),
        now=_side(now.snapshot),
        measures=measured.measures,
        changes=changes,
        flips=flips,
        best=best,
        gone=gone,
        no_longer_provided=lost,
        newly_provided=found,
        summary=tuple(_summary(changes, flips, best, gone, lost, (before.snapshot.as_of, now.snapshot.as_of))),
        notes=tuple(_notes(changes, failed)),
    )


def _change(row: Row, before: Tariff, now: Tariff) -> Change:
    then = row_pricing.place(row, before)
    very = row.published_type or (then[0].instance_type if then[0] else None)
    # A row that had no machine at the other date has no "same instance" either.
    same: Placed = (None, then[1]) if very is None else now.on(very)
    cheapest = (_cost(row, row_pricing.cheapest(row, tariff)) for tariff in (before, now))
    return Change(row, _cost(row, then), _cost(row, same), *cheapest)


def _cost(row: Row, placed: Placed) -> Priced:
    model = row_pricing.sequential if row.scenario == "single_stream" else row_pricing.saturated
    return Priced(*placed, model(row, *placed))


def _gone(changes: Sequence[Change], now: Tariff) -> Iterator[Gone]:
    used: dict[str, int] = defaultdict(int)
    for each in changes:
        # A type that an earlier type's place had been given to is told by that one's name.
        if each.before.price is not None:
            used[each.before.price.substitutes or each.before.price.instance_type] += 1
    for name, rows in sorted(used.items()):
        if now.snapshot.price_of(name) is None:
            price, note = now.on(name)
            yield Gone(name, rows, price.instance_type if price else None, note)


def _side(snapshot: Snapshot) -> Side:
    return Side(snapshot.provider, snapshot.region, snapshot.term, str(snapshot.as_of), snapshot.source)


def _summary(
    changes: Sequence[Change],
    flips: Sequence[Flip],
    best: Sequence[Best],
    gone: Sequence[Gone],
    lost: Sequence[str],
    dates: tuple[datetime.date, datetime.date],
) -> Iterator[str]:
    """Say what the dates change, like with like, and what a choice of type gains at each date."""
    for way, words in ((SAME, "On the same instance at both dates"), (CHEAPEST, "On the cheapest type of each date")):
        pairs = [(was.cost.value, is_now.cost.value) for was, is_now in (each.pairs[way] for each in changes)]
        known = [(was, is_now) for was, is_now in pairs if was is not None and is_now is not None]
        more, less = sum(was < is_now for was, is_now in known), sum(was > is_now for was, is_now in known)
        flipped = sum(each.way == way for each in flips)
        datasets = {each.place.dataset for each in best if each.way == way}
        yield (
            f"{words}: of {_count(len(known), 'row')} {more:,} cost more and {less:,} less; "
            f"{_count(moved(changes, way), 'rank')} changed; {_count(flipped, 'verdict')} flipped; "
            f"{_count(len(datasets), 'dataset')} with another cheapest row."
        )
    gains = [(_gain(changes, side), date) for side, date in enumerate(dates)]
    chosen = " and ".join(f"{_count(gain, 'row')} at {date}" for gain, date in gains)
    yield f"Another type than its own is cheaper for {chosen}."
    yield f"{_count(len(gone), 'instance type')} gone; {_count(len(lost), 'profile')} that no type provides any more."


def _gain(changes: Sequence[Change], side: int) -> int:
    """Return how many rows cost less on the cheapest type than on their own, at the other date (0) or now (1)."""
    offers = ((each.pairs[SAME][side].cost.value, each.pairs[CHEAPEST][side].cost.value) for each in changes)
    return sum(own is not None and other is not None and other < own for own, other in offers)


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _notes(changes: Sequence[Change], failed: int) -> Iterator[str]:
    scenarios = {each.row.scenario == "single_stream" for each in changes}
    for model, shown in ((cost.SEQUENTIAL, True in scenarios), (cost.SATURATED, False in scenarios)):
        if shown:
            yield f"Cost, {model.name}: {model.formula}; {model.meaning}."
    yield (
        "Latency and throughput are as they were measured, on the machine named in harness report: none was measured "
        "again on any of these instances."
    )
    yield (
        "Ranks count from the cheapest of the rows that may be compared: those of one dataset, scenario, isolation, "
        "latency target, query sample and corpus, with as many hits asked for (published: of one table). A verdict "
        "between two systems compares each at its cheapest row there. Rows whose numbers are invalid have no rank."
    )
    if failed:
        yield f"{_count(failed, 'row')} without numbers (failed) left out; harness report shows them."

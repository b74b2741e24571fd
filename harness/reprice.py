"""The same measured rows at two dates' prices: what each costs then and now, and which verdicts do not hold any more.

Nothing is measured and nothing stored is read.  Each row is priced on its own instance at both dates (what a price
change alone does) and on the cheapest type of each date (what one would rent), so that like is compared with like; what
choosing another type gains at one date stands apart.  A row's cost is that of the model that its scenario has:
``sequential`` for ``single_stream``, ``saturated`` for the others.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterator, Sequence

from harness import cost, prices, pricing, ranking
from harness.errors import UsageError
from harness.prices import Snapshot
from harness.pricing import Placed, Tariff
from harness.records import Outcome
from harness.repriced import CHEAPEST, SAME, Best, Change, Flip, Gone, Priced, Repricing, Side
from harness.table import Measurements, Row


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
    changes = ranking.ranked([_change(row, before, now) for row in measured.rows if row.outcome is Outcome.OK])
    flips = tuple(flip for way in (SAME, CHEAPEST) for flip in ranking.flips(changes, way))
    best = tuple(each for way in (SAME, CHEAPEST) for each in ranking.best(changes, way))
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
    then = pricing.place(row, before)
    very = row.published_type or (then[0].instance_type if then[0] else None)
    # A row that had no machine at the other date has no "same instance" either.
    same: Placed = (None, then[1]) if very is None else now.on(very)
    cheapest = (_cost(row, pricing.cheapest(row, tariff)) for tariff in (before, now))
    return Change(row, _cost(row, then), _cost(row, same), *cheapest)


def _cost(row: Row, placed: Placed) -> Priced:
    model = pricing.sequential if row.scenario == "single_stream" else pricing.saturated
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
            f"{_count(ranking.moved(changes, way), 'rank')} changed; {_count(flipped, 'verdict')} flipped; "
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

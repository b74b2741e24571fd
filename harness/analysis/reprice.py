"""Price the same measured rows at two dates: changes of costs, ranks, and verdicts between systems.

Each row is priced twice: on its own instance at both dates (the effect of price changes alone), and on the cheapest
type of each date (the type to rent).  The gain from another type is counted separately.  Cost is ``sequential`` for
``single_stream`` and ``saturated`` for the other scenarios.
"""

from __future__ import annotations

import datetime
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from harness.analysis import axes, row_carbon, row_pricing
from harness.analysis.axes import ComparisonGroup
from harness.analysis.row_pricing import MachineChoice, Tariff
from harness.analysis.table import Carbon, Price, Row, Table, Validity
from harness.driver.records import Outcome
from harness.errors import UsageError, counted
from harness.estimate import Estimate
from harness.pricing import carbon, cost, prices, serverless, token_prices
from harness.pricing.dated_files import DatedFile
from harness.pricing.instances import TypeChoice
from harness.pricing.prices import Snapshot
from harness.stats import competition_ranks

# The two ways to compare two dates.
SAME, CHEAPEST = "same instance", "cheapest type"
# Two more ways, without a rented machine: the cost of tokens, for systems that name a language model, and serverless.
TOKENS, METERED = "token prices", "serverless prices"
_NO_CARBON = Carbon()


@dataclass(frozen=True)
class PricedRow:
    """A row's machine, cost and rank (1: cheapest; ``None``: no valid cost)."""

    price: Price | None
    note: str | None
    cost: Estimate
    rank: int | None = None

    @property
    def substituted(self) -> bool:
        """Return whether another type replaces the row's own, which has no price any more."""
        return self.price is not None and self.price.substitutes is not None


@dataclass(frozen=True)
class RowChange:
    """A row at both dates, on its own instance and on the cheapest type of each date.

    ``before`` and ``same`` are on its own instance: published or measured, else the cheapest of the earlier date.
    ``tokens_before`` and ``tokens`` are the costs of its tokens, ``metered_before`` and ``metered`` of its queries at
    the cheapest serverless offer of each date, without an instance; ``carbon_before`` and ``carbon`` its CO2e by the
    factors of each date.
    """

    row: Row
    before: PricedRow
    same: PricedRow
    cheapest_before: PricedRow
    cheapest: PricedRow
    tokens_before: PricedRow
    tokens: PricedRow
    metered_before: PricedRow
    metered: PricedRow
    carbon_before: Carbon = _NO_CARBON
    carbon: Carbon = _NO_CARBON

    @property
    def pairs(self) -> dict[str, tuple[PricedRow, PricedRow]]:
        """Return the row at the other date and now, for each way."""
        return {
            SAME: (self.before, self.same),
            CHEAPEST: (self.cheapest_before, self.cheapest),
            TOKENS: (self.tokens_before, self.tokens),
            METERED: (self.metered_before, self.metered),
        }

    @cached_property
    def place(self) -> ComparisonGroup:
        """The comparison group that ranks it."""
        return axes.comparison_group(self.row)


@dataclass(frozen=True)
class OrderFlip:
    """Two systems whose order by cost (of their cheapest rows) changed.

    ``way`` is ``same instance``, ``cheapest type``, ``token prices`` or ``serverless prices``.  ``overlap``: their
    intervals overlap at one of the dates, so the measurements cannot tell which system is cheaper.
    """

    place: ComparisonGroup
    way: str
    was_cheaper: str
    is_cheaper: str
    before_usd: tuple[float, float]
    now_usd: tuple[float, float]
    overlap: bool


@dataclass(frozen=True)
class CheapestChange:
    """A comparison group whose cheapest row (system and hardware profile) changed; ties give several rows."""

    place: ComparisonGroup
    way: str
    was: tuple[tuple[str, str], ...]
    now: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class GoneType:
    """An instance type that priced rows at the other date and has no price now, with its successor."""

    instance_type: str
    rows: int
    successor: str | None
    note: str | None


@dataclass(frozen=True)
class DatedPrices:
    """A price list."""

    provider: str
    region: str
    term: str
    date: str
    source: str


@dataclass(frozen=True)
class Repricing:
    """All changes between two price lists.

    ``summary``: four sentences with all counts, and one each about token prices, serverless prices and CO2e, if any;
    ``token_dates``, ``serverless_dates``, ``carbon_dates``: their dates.
    """

    before: DatedPrices
    now: DatedPrices
    measures: tuple[str, ...]
    changes: tuple[RowChange, ...]
    flips: tuple[OrderFlip, ...]
    best: tuple[CheapestChange, ...]
    gone: tuple[GoneType, ...]
    no_longer_provided: tuple[str, ...]
    newly_provided: tuple[str, ...]
    summary: tuple[str, ...]
    notes: tuple[str, ...]
    token_dates: tuple[str, ...] = ()
    serverless_dates: tuple[str, ...] = ()
    carbon_dates: tuple[str, ...] = ()


def other_prices(now: Snapshot, against: datetime.date | None = None) -> Snapshot:
    """Choose the prices to compare with: of a date, else the newest, else the previous ones.

    Raises:
        UsageError: prices of that region and term do not exist, or exist for one date only.
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


def other_tariff(now: Tariff, against: datetime.date | None = None) -> Tariff:
    """Return the tariff to compare with: its prices of all kinds are chosen as :func:`other_prices` are."""
    market = f"{now.snapshot.provider}/{now.snapshot.region}"
    return row_pricing.tariff(
        other_prices(now.snapshot, against),
        choice=now.choice,
        tokens=token_prices.FILES.other(now.tokens, against),
        rates=carbon.other_rates(now.carbon, market, against),
        serverless=serverless.FILES.other(now.serverless, against),
    )


def compare(measured: Table, before: Tariff, now: Tariff) -> Repricing:
    """Price the same rows at two dates.

    Args:
        measured: rows without prices.
        before: the prices to compare with.
        now: the prices that the user chose.
    """
    rows = [row for row in measured.rows if row.outcome is Outcome.OK]
    changes = ranked(rows, [_priced(row, before, now) for row in rows])
    carbon_dates = _carbon_dates(before, now)
    if carbon_dates:
        changes = tuple(_with_carbon(change, before, now) for change in changes)
    found = Repricing(
        before=_dated(before.snapshot),
        now=_dated(now.snapshot),
        measures=measured.measures,
        changes=changes,
        flips=tuple(flip for way in (SAME, CHEAPEST, TOKENS, METERED) for flip in order_flips(changes, way)),
        best=tuple(change for way in (SAME, CHEAPEST) for change in cheapest_changes(changes, way)),
        gone=tuple(_gone(changes, now)),
        no_longer_provided=_profiles(
            each for each in changes if each.cheapest_before.price and not each.cheapest.price
        ),
        newly_provided=_profiles(each for each in changes if each.cheapest.price and not each.cheapest_before.price),
        summary=(),
        notes=tuple(_notes(changes, now.choice, failed=len(measured.rows) - len(changes))),
        token_dates=_dates(changes, TOKENS, before.tokens, now.tokens),
        serverless_dates=_dates(changes, METERED, before.serverless, now.serverless),
        carbon_dates=carbon_dates,
    )
    return replace(found, summary=tuple(_summary(found)))


def _profiles(changes: Iterable[RowChange]) -> tuple[str, ...]:
    return tuple(sorted({change.row.profile for change in changes}))


# A row's machine, the note on it, and its cost.
Priced = tuple[Price | None, str | None, Estimate]


def _priced(row: Row, before: Tariff, now: Tariff) -> tuple[Priced, ...]:
    """Price a row in the four ways of a change, in the order of its fields."""
    then = row_pricing.choose_machine(row, before)
    tied = row_pricing.own_type(row, before)
    own = row.published_type or tied or (then[0].instance_type if then[0] else None)
    # Without a machine at the other date a row has no "same instance".
    same: MachineChoice = (None, then[1]) if own is None else now.on(own)
    cheapest_then = then if tied is None else row_pricing.cheapest_machine(row, before)
    machines = (then, same, cheapest_then, row_pricing.cheapest_machine(row, now))
    model = row_pricing.sequential if row.scenario == "single_stream" else row_pricing.saturated
    costs: dict[MachineChoice, Estimate] = {}
    for machine in machines:
        if machine not in costs:
            costs[machine] = model(row, *machine)
    tokens = ((None, None, row_pricing.tokens(row, tariff.tokens)[1]) for tariff in (before, now))
    by_query = ((None, None, row_pricing.metered(row, tariff)[0]) for tariff in (before, now))
    return (*((*machine, costs[machine]) for machine in machines), *tokens, *by_query)


def _dated(snapshot: Snapshot) -> DatedPrices:
    return DatedPrices(snapshot.provider, snapshot.region, snapshot.term, str(snapshot.as_of), snapshot.source)


def ranked(rows: Sequence[Row], priced: Sequence[tuple[Priced, ...]]) -> tuple[RowChange, ...]:
    """Return the rows' changes with the ranks in their comparison groups; equal costs share a rank.

    Args:
        rows: all measured.
        priced: each row's ways, in the order of a change's fields.
    """
    valid = [number for number, row in enumerate(rows) if row.validity is not Validity.INVALID]
    groups = axes.grouped(valid, lambda number: axes.comparison_group(rows[number]))
    ways = []
    for way in zip(*priced, strict=True):
        ranks: list[int | None] = [None] * len(rows)
        for numbers in groups.values():
            of_group = competition_ranks([way[number][2].value for number in numbers])
            for number, rank in zip(numbers, of_group, strict=True):
                ranks[number] = rank
        ways.append([PricedRow(price, note, cost, rank) for (price, note, cost), rank in zip(way, ranks, strict=True)])
    return tuple(RowChange(row, *priced_row) for row, *priced_row in zip(rows, *ways, strict=True)) if ways else ()


def order_flips(changes: Sequence[RowChange], way: str) -> Iterator[OrderFlip]:
    """Find pairs of systems whose order by cost changed."""
    for place, rows in _by_place(changes).items():
        before, now = (_cheapest_by_system(rows, way, side) for side in (0, 1))
        # Systems in order of cost: systems that cost more now than ``name`` follow it in ``cheaper``.
        cheaper: list[tuple[float, str]] = []
        for name in sorted(before.keys() & now.keys(), key=lambda name: (before[name][0], name)):
            for _, earlier in cheaper[bisect_right(cheaper, (now[name][0], "\U0010ffff")) :]:
                if before[earlier][0] < before[name][0]:
                    overlap = any(_overlap(costs[earlier][1], costs[name][1]) for costs in (before, now))
                    was, is_now = ((costs[earlier][0], costs[name][0]) for costs in (before, now))
                    yield OrderFlip(place, way, earlier, name, was, is_now, overlap)
            insort(cheaper, (now[name][0], name))


def cheapest_changes(changes: Sequence[RowChange], way: str) -> Iterator[CheapestChange]:
    """Find comparison groups whose cheapest row changed; a row that ties stays the cheapest."""
    for place, rows in _by_place(changes).items():
        was, now = ([change for change in rows if change.pairs[way][side].rank == 1] for side in (0, 1))
        if was and now and not any(change in now for change in was):
            names = (tuple((change.row.system, change.row.profile) for change in rows) for rows in (was, now))
            yield CheapestChange(place, way, *names)


def _by_place(changes: Sequence[RowChange]) -> Mapping[ComparisonGroup, list[RowChange]]:
    ranked = [change for change in changes if any(was.rank is not None for was, _ in change.pairs.values())]
    places = axes.grouped(ranked, lambda change: change.place)
    return {place: places[place] for place in sorted(places, key=lambda place: tuple(map(str, place)))}


def _cheapest_by_system(changes: Sequence[RowChange], way: str, side: int) -> dict[str, tuple[float, Estimate]]:
    """Return the cost of each system's cheapest row, at the other date (``side`` 0) or now (1)."""
    costs: dict[str, tuple[float, Estimate]] = {}
    for change in changes:
        cost = change.pairs[way][side].cost
        system = change.row.system
        if cost.value is not None and (system not in costs or cost.value < costs[system][0]):
            costs[system] = cost.value, cost
    return costs


def _overlap(one: Estimate, two: Estimate) -> bool:
    if one.low is None or one.high is None or two.low is None or two.high is None:
        return False
    return one.low <= two.high and two.low <= one.high


def _gone(changes: Sequence[RowChange], now: Tariff) -> Iterator[GoneType]:
    used: dict[str, int] = defaultdict(int)
    for change in changes:
        # A row on a substitute counts for the replaced type.
        if change.before.price is not None:
            used[change.before.price.substitutes or change.before.price.instance_type] += 1
    for name, rows in sorted(used.items()):
        if now.snapshot.price_of(name) is None:
            price, note = now.on(name)
            yield GoneType(name, rows, price.instance_type if price else None, note)


def _summary(found: Repricing) -> Iterator[str]:
    """Count the changes between the dates, like with like, and the rows for which another type is cheaper."""

    def flipped(way: str) -> str:
        return f"{counted(sum(flip.way == way for flip in found.flips), 'verdict')} flipped"

    for way, words in ((SAME, "On the same instance at both dates"), (CHEAPEST, "On the cheapest type of each date")):
        pairs = [change.pairs[way] for change in found.changes]
        alike = [pair for pair in pairs if way != SAME or not any(priced.substituted for priced in pair)]
        moved = sum(was.rank != is_now.rank for was, is_now in pairs)
        datasets = {change.place.dataset for change in found.best if change.way == way}
        yield (
            f"{words}: {_more_and_less(_costs(alike))}; {counted(moved, 'rank')} changed; {flipped(way)}; "
            f"{counted(len(datasets), 'dataset')} with another cheapest row."
        )
    dates = enumerate((found.before.date, found.now.date))
    chosen = " and ".join(f"{counted(_gain(found.changes, side), 'row')} at {date}" for side, date in dates)
    yield f"Another type than its own is cheaper for {chosen}."
    substituted = sum(each.rows for each in found.gone if each.successor is not None)
    of = f", of {counted(substituted, 'row')} that a substitute prices" if substituted else ""
    lost = f"{counted(len(found.no_longer_provided), 'profile')} no type provides any more"
    yield f"{counted(len(found.gone), 'instance type')} gone{of}; {lost}."
    for way in (TOKENS, METERED):
        costs = _costs([change.pairs[way] for change in found.changes])
        if any(None not in pair for pair in costs):
            yield f"By {way}: {_more_and_less(costs)}; {flipped(way)}."
    if found.carbon_dates:
        then, now = found.carbon_dates
        grams = [(change.carbon_before.grams.value, change.carbon.grams.value) for change in found.changes]
        yield f"By the carbon factors of {now} against {then}: {_more_and_less(grams, 'emit')}."


def _costs(pairs: Iterable[tuple[PricedRow, PricedRow]]) -> list[tuple[float | None, float | None]]:
    return [(was.cost.value, is_now.cost.value) for was, is_now in pairs]


def _more_and_less(costs: Iterable[tuple[float | None, float | None]], verb: str = "cost") -> str:
    """Count the rows with a cost at both dates, and how many cost more or less now."""
    differences = [is_now - was for was, is_now in costs if was is not None and is_now is not None]
    more, less = sum(usd > 0 for usd in differences), sum(usd < 0 for usd in differences)
    return f"of {counted(len(differences), 'row')} {more:,} {verb} more and {less:,} less"


def _dates(changes: Sequence[RowChange], way: str, before: DatedFile | None, now: DatedFile | None) -> tuple[str, ...]:
    """Return the dates of token or serverless prices; empty if they price no row at either date."""
    if all(each.cost.value is None for change in changes for each in change.pairs[way]):
        return ()
    return tuple("none" if each is None else str(each.as_of) for each in (before, now))


def _carbon_dates(before: Tariff, now: Tariff) -> tuple[str, ...]:
    """Return the dates of the factors of carbon; empty if they are the same, or one is missing."""
    dates = [each.carbon.factors.date for each in (before, now) if each.carbon is not None]
    return tuple(dates) if len(set(dates)) == 2 else ()


def _with_carbon(change: RowChange, before: Tariff, now: Tariff) -> RowChange:
    architecture = row_pricing.measured_architecture(change.row)
    was, is_now = (row_carbon.of_row(change.row, each.carbon, architecture) for each in (before, now))
    return replace(change, carbon_before=was, carbon=is_now)


def _gain(changes: Sequence[RowChange], side: int) -> int:
    """Count the rows that cost less on the cheapest type than on their own, at the other date (0) or now (1)."""
    offers = ((change.pairs[SAME][side].cost.value, change.pairs[CHEAPEST][side].cost.value) for change in changes)
    return sum(own is not None and other is not None and other < own for own, other in offers)


def _notes(changes: Sequence[RowChange], choice: TypeChoice, failed: int) -> Iterator[str]:
    yield from cost.describe_models(change.row.scenario for change in changes)
    yield (
        "Latency and throughput are as they were measured, on the machine named in harness report: none was measured "
        "again on any of these instances."
    )
    yield (
        "Ranks count from the cheapest of the rows that may be compared: rows of one dataset, scenario, isolation, "
        "latency target, query sample and corpus, with as many hits asked for (published: of one table). A verdict "
        "between two systems compares each at its cheapest row there. Rows whose numbers are invalid have no rank."
    )
    yield f"The cheapest types are chosen with preference for {choice}."
    if failed:
        yield f"{counted(failed, 'row')} without numbers (failed) left out; harness report shows them."

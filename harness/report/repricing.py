"""A repricing: rows at the prices of two dates, what flipped and what is gone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from harness.analysis.axes import ComparisonGroup
from harness.analysis.reprice import (
    CHEAPEST,
    SAME,
    CheapestChange,
    GoneType,
    OrderFlip,
    PricedRow,
    Repricing,
    RowChange,
)
from harness.analysis.table import Row
from harness.report.document import (
    MISSING,
    Escape,
    Footnotes,
    Grid,
    GridColumn,
    ReportDocument,
    Section,
    Value,
    bounded,
    grid_of,
    number,
    stand_ins,
)
from harness.report.main_table import name_columns
from harness.stats import Estimate

# Version of the JSON and CSV.
REPRICE_VERSION = 1
# A table of every pair that flipped says no more than the first few of very many.
_MOST = 50
Column = tuple[str, Callable[[RowChange], Value]]
# The four prices of each row, by the names that programs read.
_WAYS: dict[str, Callable[[RowChange], PricedRow]] = {
    "before": lambda each: each.before,
    "same": lambda each: each.same,
    "cheapest_before": lambda each: each.cheapest_before,
    "cheapest": lambda each: each.cheapest,
}


def repricing_document(repricing: Repricing) -> ReportDocument:
    """Return the document of a repricing: the summary, the rows, what flipped and what is gone."""
    return ReportDocument(
        sections=lambda escape: _sections(repricing, escape),
        lines=lambda: _lines(repricing),
        content=lambda: _content(repricing),
        padded=False,
        dense=True,
    )


def _sections(repricing: Repricing, escape: Escape) -> Iterator[Section]:
    before, now = repricing.before, repricing.now
    title = f"{now.provider} {now.region}, {now.term}: prices of {now.date} against {before.date}"
    yield Section(title=escape(title), notes=tuple(escape(line) for line in repricing.summary))
    footnotes = Footnotes(escape)
    grids = (_rows(repricing, footnotes, escape),) if repricing.changes else ()
    changed = stand_ins(change.row for change in repricing.changes)
    notes = (*changed, *_note_lines(repricing), *repricing.notes, *_sources(repricing))
    yield Section(grids=grids, footnotes=footnotes.texts, notes=tuple(escape(note) for note in notes))


def _rows(repricing: Repricing, notes: Footnotes, escape: Escape) -> Grid:
    def instance(priced: PricedRow) -> str:
        if priced.price is None:
            return MISSING + notes.mark(priced.note)
        return f"{escape(priced.price.instance_type)} ({priced.price.usd_per_hour:g}){notes.mark(priced.note)}"

    caption, keys = name_columns([each.row for each in repricing.changes], escape)
    columns: list[GridColumn[RowChange]] = [(head, numeric, _of_row(cell)) for head, numeric, cell in keys]
    before, now = repricing.before.date, repricing.now.date
    columns += [
        ("hardware profile", False, lambda each: escape(each.row.profile)),
        *((name, True, _measured(name)) for name in repricing.measures),
        ("latency mean, ms", True, lambda each: _number(each.row.latency_mean_s, 1e3)),
    ]
    if any(each.row.scenario != "single_stream" for each in repricing.changes):
        columns += [
            ("throughput, queries/s", True, lambda each: _number(each.row.throughput_qps)),
            ("cost model", False, lambda each: cost_model(each.row)),
        ]
    columns += [
        (f"instance type {before} (US$/h)", False, lambda each: instance(each.before)),
        (f"US$ per million queries (interval) {before}", True, lambda each: _cost(each.before, notes)),
        (f"same instance {now} (US$/h)", False, lambda each: instance(each.same)),
        (f"US$ (interval), same instance {now}", True, lambda each: _cost(each.same, notes)),
        ("change, same instance", True, lambda each: _percent(*each.pairs[SAME])),
    ]
    # A row that was measured stands on the cheapest type of the other date already.
    if any(each.before != each.cheapest_before for each in repricing.changes):
        columns += [
            (f"cheapest type {before} (US$/h)", False, lambda each: instance(each.cheapest_before)),
            (f"US$ (interval), cheapest {before}", True, lambda each: _cost(each.cheapest_before, notes)),
        ]
    columns += [
        (f"cheapest type {now} (US$/h)", False, lambda each: instance(each.cheapest)),
        (f"US$ (interval), cheapest {now}", True, lambda each: _cost(each.cheapest, notes)),
        ("change, cheapest types", True, lambda each: _percent(*each.pairs[CHEAPEST])),
        ("rank: same instance, cheapest types", False, _ranks),
        ("validity", False, lambda each: each.row.validity.value),
    ]
    return grid_of(repricing.changes, columns, caption=caption, keys=len(keys) + 1)


def _of_row(cell: Callable[[Row], str]) -> Callable[[RowChange], str]:
    return lambda each: cell(each.row)


def _measured(name: str) -> Callable[[RowChange], str]:
    def cell(each: RowChange) -> str:
        value = each.row.measures.get(name, Estimate(None)).value
        return MISSING if value is None else f"{value:.3f}"

    return cell


def _number(figure: Estimate, scale: float = 1.0) -> str:
    return MISSING if figure.value is None else number(figure.value * scale)


def _cost(priced: PricedRow, notes: Footnotes) -> str:
    if priced.cost.value is None:
        # Where there is no machine, its column says why.
        return MISSING + (notes.mark(priced.cost.reason) if priced.price else "")
    return bounded(priced.cost)


def _percent(was: PricedRow, is_now: PricedRow) -> str:
    before, now = was.cost.value, is_now.cost.value
    if before is None or now is None or before == 0:
        return MISSING
    return f"{(now / before - 1) * 100:+.1f} %"


def _ranks(each: RowChange) -> str:
    return ", ".join(
        " → ".join(MISSING if priced.rank is None else str(priced.rank) for priced in pair)
        for pair in each.pairs.values()
    )


def _note_lines(found: Repricing) -> Iterator[str]:
    """Yield a sentence on each finding that no longer holds."""
    where = _names({each.place for each in found.changes})
    for part in (_gone(found.gone, found.now.date), _flips(found.flips, where), _best(found.best, where)):
        told = list(part)
        yield from told[:_MOST]
        if len(told) > _MOST:
            yield f"... and {len(told) - _MOST:,} more of these; JSON holds all"
    if found.no_longer_provided:
        yield f"No type provides any more: {', '.join(found.no_longer_provided)}."
    if found.newly_provided:
        yield f"Provided now and not before: {', '.join(found.newly_provided)}."


def _gone(gone: Sequence[GoneType], date: str) -> Iterator[str]:
    for each in gone:
        rows = f"{each.rows:,} row{'' if each.rows == 1 else 's'}"
        yield f"Gone by {date}: {each.instance_type} ({rows}). {each.note or ''}".rstrip() + "."


def _names(places: Collection[ComparisonGroup]) -> dict[ComparisonGroup, str]:
    """Return the names of the groups: dataset, scenario, and the fields in which they differ."""
    differing = [name for name in ComparisonGroup._fields[2:] if len({getattr(place, name) for place in places}) > 1]
    return {
        place: ", ".join((place.dataset, place.scenario, *(_said(name, getattr(place, name)) for name in differing)))
        for place in places
    }


def _said(name: str, value: object) -> str:
    if name == "latency_target_s":
        return "no latency target" if value is None else f"within {float(str(value)) * 1e3:g} ms"
    words = {"k": "top", "latency_percentile": "percentile", "sample_sha256": "sample", "corpus_sha256": "corpus"}
    short = str(value)[:8] if name.endswith("sha256") else value
    return f"{words.get(name, name)} {MISSING if value is None else short}"


def _flips(flips: Sequence[OrderFlip], where: Mapping[ComparisonGroup, str]) -> Iterator[str]:
    for each in flips:
        was, now = ([number(value) for value in pair] for pair in (each.before_usd, each.now_usd))
        one, two = each.was_cheaper, each.is_cheaper
        told = f"{one} ({was[0]}) cheaper than {two} ({was[1]}), then {two} ({now[1]}) cheaper than {one} ({now[0]})"
        doubt = "; their intervals overlap at one of the dates" if each.overlap else ""
        yield f"Verdict flips on {where[each.place]} ({each.way}): {told}{doubt}."


def _best(best: Sequence[CheapestChange], where: Mapping[ComparisonGroup, str]) -> Iterator[str]:
    for each in best:
        was, now = (" on ".join(pair) for pair in (each.was, each.now))
        yield f"Cheapest row of {where[each.place]} ({each.way}): {was}, then {now}."


def _sources(found: Repricing) -> Iterator[str]:
    for side in (found.before, found.now):
        yield f"Prices: {side.provider} {side.region}, Linux {side.term}, {side.date} (source: {side.source})."


def _lines(repricing: Repricing) -> Iterator[Sequence[Value]]:
    """Yield a line for each row; dates stand in columns, so that only measures change the header."""
    columns = _columns(repricing)
    yield [name for name, _ in columns]
    for change in repricing.changes:
        yield [get(change) for _, get in columns]


def _columns(repricing: Repricing) -> list[Column]:
    columns: list[Column] = [
        ("system", lambda each: each.row.system),
        ("hardware_profile", lambda each: each.row.profile),
        ("suite", lambda each: each.row.suite),
        ("dataset", lambda each: each.row.dataset),
        ("scenario", lambda each: each.row.scenario),
        ("isolation", lambda each: each.row.isolation.value),
        ("validity", lambda each: each.row.validity.value),
        ("published_type", lambda each: each.row.published_type),
        *((name, _measure(name)) for name in repricing.measures),
        ("latency_mean_ms", lambda each: _scaled(each.row.latency_mean_s.value, 1e3)),
        ("throughput_qps", lambda each: each.row.throughput_qps.value),
        ("cost_model", lambda each: cost_model(each.row)),
    ]
    for way, of in _WAYS.items():
        columns += _priced_columns(way, of, repricing.before.date if way.endswith("before") else repricing.now.date)
    columns += [("key", lambda each: each.row.key), ("stand_in", lambda each: each.row.stand_in)]
    if any(each.row.origin is not None for each in repricing.changes):
        columns.append(("origin", lambda each: each.row.origin))
    return columns


def _priced_columns(way: str, of: Callable[[RowChange], PricedRow], date: str) -> list[Column]:
    return [
        (f"{way}_price_date", lambda _: date),
        (f"{way}_instance_type", lambda each: price.instance_type if (price := of(each).price) else None),
        (f"{way}_price_usd_per_hour", lambda each: price.usd_per_hour if (price := of(each).price) else None),
        (f"{way}_substitutes", lambda each: price.substitutes if (price := of(each).price) else None),
        (f"{way}_usd_per_million_queries", lambda each: of(each).cost.value),
        (f"{way}_usd_per_million_queries_low", lambda each: of(each).cost.low),
        (f"{way}_usd_per_million_queries_high", lambda each: of(each).cost.high),
        (f"{way}_rank", lambda each: of(each).rank),
        (f"{way}_note", lambda each: of(each).note or of(each).cost.reason),
    ]


def _measure(name: str) -> Callable[[RowChange], Value]:
    return lambda each: each.row.measures.get(name, Estimate(None)).value


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def cost_model(row: Row) -> str:
    """Return the cost model of a row's scenario."""
    return "sequential" if row.scenario == "single_stream" else "saturated"


def _content(repricing: Repricing) -> dict[str, object]:
    """Return all of a repricing; of each row its names and the figures that repricing reads."""
    content: dict[str, object] = {"reprice_version": REPRICE_VERSION}
    for item in dataclasses.fields(repricing):
        value = getattr(repricing, item.name)
        content[item.name] = value if isinstance(value, str) else _parts(value)
    return content


def _parts(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    assert isinstance(value, tuple)
    return [_part(each) for each in value]


def _part(each: object) -> object:
    if isinstance(each, RowChange):
        return _change(each)
    if isinstance(each, OrderFlip | CheapestChange):
        # What is compared stands beside the rest, as in a row.
        return {**each.place._asdict(), **{name: value for name, value in vars(each).items() if name != "place"}}
    return each if isinstance(each, str) else vars(each)


def _change(each: RowChange) -> dict[str, object]:
    row = each.row
    names = ("suite", "system", "dataset", "scenario", "profile", "key", "published_type", "cpus", "memory_limit_bytes")
    more = ("gpus", "stand_in", "origin")
    place = ("k", "latency_target_s", "latency_percentile", "sample_sha256", "corpus_sha256")
    return {
        **{name: getattr(row, name) for name in (*names, *more, *place)},
        "isolation": row.isolation.value,
        "validity": row.validity.value,
        "measures": {name: vars(figure) for name, figure in row.measures.items()},
        "latency_mean_s": vars(row.latency_mean_s),
        "throughput_qps": vars(row.throughput_qps),
        **{name: _priced(of(each)) for name, of in _WAYS.items()},
    }


def _priced(priced: PricedRow) -> dict[str, object]:
    price = priced.price
    return {
        "instance_type": price.instance_type if price else None,
        "usd_per_hour": price.usd_per_hour if price else None,
        "substitutes": price.substitutes if price else None,
        "usd_per_million": vars(priced.cost),
        "rank": priced.rank,
        "note": priced.note,
    }

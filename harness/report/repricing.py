"""A repricing: rows at the prices of two dates, flipped orders, and instance types without a price."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import attrgetter

from harness.analysis import row_pricing
from harness.analysis.reprice import (
    CHEAPEST,
    METERED,
    SAME,
    TOKENS,
    CheapestChange,
    GoneType,
    OrderFlip,
    PricedRow,
    Repricing,
    RowChange,
)
from harness.analysis.table import Price, Row
from harness.errors import counted
from harness.report import hardware
from harness.report.columns import reader
from harness.report.document import (
    MISSING,
    MOST_LINES,
    Escape,
    Footnotes,
    Grid,
    GridColumn,
    ReportDocument,
    Section,
    Value,
    bounded,
    column_of,
    digits,
    grid_of,
    joined_by_and,
    lines_of,
    number,
    stand_ins,
)
from harness.report.figures import Figure
from harness.report.groups import group_words
from harness.report.main_table import name_columns, profile_column
from harness.report.row_figures import THROUGHPUT, all_columns, carbon_cell, priced_by_hour, priced_from

# Version of the JSON and CSV.
REPRICE_VERSION = 1
# A table of every pair that flipped says no more than the first few of very many.
_MOST = 50
# The fields of a change that are priced rows.
_WAYS = ("before", "same", "cheapest_before", "cheapest")
_CARBON_WAYS = ("carbon_before", "carbon")


def repricing_document(repricing: Repricing) -> ReportDocument:
    """Return the document of a repricing: the summary, the rows, flipped orders, and types without a price."""
    return ReportDocument(
        sections=lambda escape: _sections(repricing, escape),
        lines=lambda: lines_of(repricing.changes, _csv_columns(repricing)),
        content=lambda: _content(repricing),
        answer=lambda escape: (_answer(repricing, escape),),
        padded=False,
    )


def _answer(repricing: Repricing, escape: Escape) -> Section:
    """Return what each row costs at both dates on the type that priced it first, and what changed."""
    before, now = repricing.before, repricing.now
    caption, names = name_columns([change.row for change in repricing.changes], escape)
    keys: list[GridColumn[RowChange]] = [column_of(column, attrgetter("row")) for column in names]
    columns: list[GridColumn[RowChange]] = [
        *keys,
        ("hardware", False, lambda change: escape(hardware.hardware(change.row))),
        ("instance type", False, lambda change: _types(change, escape)),
        (f"US$/1M, {before.date}", True, lambda change: number(change.before.cost.value)),
        (f"US$/1M, {now.date}", True, lambda change: number(change.same.cost.value)),
        ("change", True, lambda change: _percent(*change.pairs[SAME])),
    ]
    grids: tuple[Grid, ...] = (grid_of(repricing.changes, columns, keys=len(keys)),)
    for way, name, dates in _other_ways(repricing):  # grids of their own: one grid would be wider than a terminal
        priced = [change for change in repricing.changes if None not in [each.cost.value for each in change.pairs[way]]]
        if priced:
            grids = (*grids, grid_of(priced, [*keys, *_other_columns(way, name, dates)], keys=len(keys)))
    if repricing.carbon_dates:
        grids = (*grids, grid_of(repricing.changes, [*keys, *_carbon_columns(repricing)], keys=len(keys)))
    title = f"{now.provider} {now.region}, {now.term}: {caption}"
    shown = [line for line in repricing.summary if not line.startswith("0 ")][: MOST_LINES - 1]
    return Section(
        lead=(escape(title),),
        grids=grids,
        notes=(*map(escape, shown), "cheapest types, ranks, verdicts and all notes: --wide"),
    )


def _sections(repricing: Repricing, escape: Escape) -> Iterator[Section]:
    before, now = repricing.before, repricing.now
    title = f"{now.provider} {now.region}, {now.term}: prices of {now.date} against {before.date}"
    yield Section(title=escape(title), notes=tuple(escape(line) for line in repricing.summary))
    footnotes = Footnotes(escape)
    grids = (_rows(repricing, footnotes),) if repricing.changes else ()
    changed = stand_ins(change.row for change in repricing.changes)
    notes = (*changed, *_findings(repricing), *repricing.notes, *_sources(repricing))
    yield Section(grids=grids, footnotes=footnotes.texts, notes=tuple(escape(note) for note in notes))


def _types(change: RowChange, escape: Escape) -> str:
    """Return a row's type, and the one that replaces it now."""
    own = _instance_type(change.row, change.before.price, escape)
    if not change.same.substituted or change.before.price == change.same.price:
        return own
    return f"{own}, gone: {_instance_type(change.row, change.same.price, escape)}"


def _instance_type(row: Row, price: Price | None, escape: Escape) -> str:
    return MISSING if price is None else escape(price.instance_type) + hardware.other_machine_mark(row, price)


def _rows(repricing: Repricing, notes: Footnotes) -> Grid:
    def instance(way: str) -> Callable[[RowChange], str]:
        read = attrgetter(f"{way}.price", f"{way}.note")
        return lambda change: notes.price(change.row, *read(change))

    def cost(way: str) -> Callable[[RowChange], str]:
        def cell(change: RowChange) -> str:
            priced: PricedRow = getattr(change, way)
            if priced.cost.value is not None:
                return bounded(priced.cost)
            # If no machine prices the row, the machine's column says why.
            return notes.missing(priced.cost.reason if priced.price else None)

        return cell

    def priced_at(figure: Figure, heading: str, way: str) -> GridColumn[RowChange]:
        return (
            f"{figure.title}, {heading}",
            True,
            lambda change: figure.written(figure.estimate(_on_machine(change, way))),
        )

    def fact(figure: Figure) -> GridColumn[RowChange]:
        plain = replace(figure, bounds="", header="")
        return plain.wide_header, True, lambda change: plain.written(plain.estimate(change.row))

    escape, changes = notes.escape, repricing.changes
    measured = priced_from(repricing.measures)
    before, now = repricing.before.date, repricing.now.date
    caption, keys = name_columns([change.row for change in changes], escape)
    served = any(change.row.scenario != "single_stream" for change in changes)
    # A measured row was priced on the cheapest type of the other date already.
    moved = any(change.before != change.cheapest_before for change in changes)
    columns: list[GridColumn[RowChange] | None] = [
        *(column_of(column, attrgetter("row")) for column in keys),
        column_of(profile_column(escape), attrgetter("row")),
        *(fact(each) for each in measured if served or each.alias != THROUGHPUT),
        ("cost model", False, lambda change: cost_model(change.row)) if served else None,
        (f"instance type {before} (US$/h)", False, instance("before")),
        (f"US$ per million queries (interval) {before}", True, cost("before")),
        (f"same instance {now} (US$/h)", False, instance("same")),
        (f"US$ (interval), same instance {now}", True, cost("same")),
        ("change, same instance", True, lambda change: _percent(*change.pairs[SAME])),
        (f"cheapest type {before} (US$/h)", False, instance("cheapest_before")) if moved else None,
        (f"US$ (interval), cheapest {before}", True, cost("cheapest_before")) if moved else None,
        (f"cheapest type {now} (US$/h)", False, instance("cheapest")),
        (f"US$ (interval), cheapest {now}", True, cost("cheapest")),
        ("change, cheapest types", True, lambda change: _percent(*change.pairs[CHEAPEST])),
        *(
            priced_at(figure, heading, way)
            for figure in priced_by_hour()
            for heading, way in _headings(before, now, moved=moved)
        ),
        ("rank: same instance, cheapest types", False, _ranks),
        *(column for each in _other_ways(repricing) for column in _other_columns(*each)),
        *_carbon_columns(repricing),
        ("validity", False, lambda change: change.row.validity.value),
    ]
    return grid_of(changes, columns, caption=caption, keys=len(keys) + 1)


def _headings(before: str, now: str, *, moved: bool) -> list[tuple[str, str]]:
    """Return the headings of the ways of a change."""
    return [
        (before, "before"),
        (f"same instance {now}", "same"),
        *([(f"cheapest {before}", "cheapest_before")] if moved else []),
        (f"cheapest {now}", "cheapest"),
    ]


def _other_ways(repricing: Repricing) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return tokens and serverless offers, where some row has such a cost: the way, its name, and both dates."""
    ways = ((TOKENS, "tokens", repricing.token_dates), (METERED, "metered", repricing.serverless_dates))
    return [each for each in ways if each[2]]


def _other_columns(way: str, name: str, dates: tuple[str, ...]) -> list[GridColumn[RowChange]]:
    """Return what tokens, or queries at serverless offers, cost at both dates."""

    def cost(side: int) -> Callable[[RowChange], str]:
        return lambda change: number(change.pairs[way][side].cost.value)

    costs = [(f"{name} US$/1M, {date}", True, cost(side)) for side, date in enumerate(dates)]
    return [*costs, (f"change, {name}", True, lambda change: _percent(*change.pairs[way]))]


def _carbon_columns(repricing: Repricing) -> list[GridColumn[RowChange]]:
    """Return the CO2e at both dates; none where they have the same factors."""

    def cell(way: str) -> Callable[[RowChange], str]:
        return lambda change: carbon_cell(replace(change.row, carbon=getattr(change, way)))

    ways = zip(_CARBON_WAYS, repricing.carbon_dates, strict=False)
    return [(f"gCO2e/1M, {date}", True, cell(way)) for way, date in ways]


def _percent(was: PricedRow, is_now: PricedRow) -> str:
    before, now = was.cost.value, is_now.cost.value
    return MISSING if before is None or now is None or before == 0 else f"{(now / before - 1) * 100:+.1f} %"


def _ranks(change: RowChange) -> str:
    pairs = (change.pairs[way] for way in (SAME, CHEAPEST))
    return ", ".join(" → ".join(digits(priced.rank, "d") for priced in pair) for pair in pairs)


def _findings(repricing: Repricing) -> Iterator[str]:
    """Yield a sentence on each finding that no longer holds."""
    words = group_words((change.place for change in repricing.changes), shown=1)
    names = {place: ", ".join(of_place) for place, of_place in words.items()}
    for sentences in (
        [_gone(gone, repricing.now.date) for gone in repricing.gone],
        [_flip(flip, names[flip.place]) for flip in repricing.flips],
        [_best(best, names[best.place]) for best in repricing.best],
    ):
        yield from sentences[:_MOST]
        if len(sentences) > _MOST:
            yield f"... and {len(sentences) - _MOST:,} more of these; JSON holds all"
    if repricing.no_longer_provided:
        yield f"No type provides any more: {', '.join(repricing.no_longer_provided)}."
    if repricing.newly_provided:
        yield f"Provided now and not before: {', '.join(repricing.newly_provided)}."


def _gone(gone: GoneType, date: str) -> str:
    return f"Gone by {date}: {gone.instance_type} ({counted(gone.rows, 'row')}). {gone.note or ''}".rstrip() + "."


def _flip(flip: OrderFlip, name: str) -> str:
    was, now = ([number(value) for value in pair] for pair in (flip.before_usd, flip.now_usd))
    one, two = flip.was_cheaper, flip.is_cheaper
    orders = f"{one} ({was[0]}) cheaper than {two} ({was[1]}), then {two} ({now[1]}) cheaper than {one} ({now[0]})"
    doubt = "; their intervals overlap at one of the dates" if flip.overlap else ""
    return f"Verdict flips on {name} ({flip.way}): {orders}{doubt}."


def _best(best: CheapestChange, name: str) -> str:
    was, now = (joined_by_and([" on ".join(row) for row in rows]) for rows in (best.was, best.now))
    return f"Cheapest row of {name} ({best.way}): {was}, then {now}."


def _sources(repricing: Repricing) -> Iterator[str]:
    for side in (repricing.before, repricing.now):
        yield f"Prices: {side.provider} {side.region}, Linux {side.term}, {side.date} (source: {side.source})."


def _csv_columns(repricing: Repricing) -> list[tuple[str, Callable[[RowChange], Value]]]:
    """Return the columns of the CSV; dates stand in columns, so that only measures change the header."""
    before, now = repricing.before.date, repricing.now.date
    known = {column.name: column for column in all_columns(repricing.measures, ())}

    def fact(name: str) -> tuple[str, Callable[[RowChange], Value]]:
        get = known[name].get
        return name, lambda change: get(change.row)

    def facts(*names: str) -> Iterator[tuple[str, Callable[[RowChange], Value]]]:
        return map(fact, names)

    merged = any(change.row.origin is not None for change in repricing.changes)
    return [
        *facts("system", "hardware_profile", "suite", "dataset", "scenario", "isolation", "validity", "published_type"),
        *facts(*repricing.measures, "latency_mean_ms", "throughput_qps"),
        ("cost_model", lambda change: cost_model(change.row)),
        *(column for way in _WAYS for column in _csv_prices(way, before if way.endswith("before") else now)),
        *(
            column
            for _, name, dates in _other_ways(repricing)
            for way, date in zip((f"{name}_before", name), dates, strict=True)
            for column in _csv_other(way, date)
        ),
        *(column for way in zip(_CARBON_WAYS, repricing.carbon_dates, strict=False) for column in _csv_carbon(*way)),
        *facts("key", "stand_in", *(["origin"] if merged else [])),
    ]


def _csv_prices(way: str, date: str) -> list[tuple[str, Callable[[RowChange], Value]]]:
    priced: Callable[[RowChange], PricedRow] = attrgetter(way)
    return [
        (f"{way}_price_date", lambda _: date),
        (f"{way}_instance_type", reader(f"{way}.price.instance_type")),
        (f"{way}_price_usd_per_hour", reader(f"{way}.price.usd_per_hour")),
        (f"{way}_substitutes", reader(f"{way}.price.substitutes")),
        (f"{way}_usd_per_million_queries", attrgetter(f"{way}.cost.value")),
        (f"{way}_usd_per_million_queries_low", attrgetter(f"{way}.cost.low")),
        (f"{way}_usd_per_million_queries_high", attrgetter(f"{way}.cost.high")),
        (f"{way}_rank", attrgetter(f"{way}.rank")),
        (f"{way}_note", lambda change: priced(change).note or priced(change).cost.reason),
        *((f"{way}_{figure.name}", _read_priced(figure, way)) for figure in priced_by_hour()),
    ]


def _read_priced(figure: Figure, way: str) -> Callable[[RowChange], Value]:
    return lambda change: figure.value(_on_machine(change, way))


def _on_machine(change: RowChange, way: str) -> Row:
    """Return a change's row with the machine of one way."""
    priced: PricedRow = getattr(change, way)
    return row_pricing.on_machine(change.row, priced.price, priced.note)


def _csv_other(way: str, date: str) -> list[tuple[str, Callable[[RowChange], Value]]]:
    return [
        (f"{way}_price_date", lambda _: date),
        (f"{way}_usd_per_million_queries", attrgetter(f"{way}.cost.value")),
        (f"{way}_rank", attrgetter(f"{way}.rank")),
    ]


def _csv_carbon(way: str, date: str) -> list[tuple[str, Callable[[RowChange], Value]]]:
    ends = ((f"{way}_gco2e_per_million_{end}", attrgetter(f"{way}.grams.{end}")) for end in ("low", "high"))
    return [(f"{way}_factors_date", lambda _: date), *ends]


def cost_model(row: Row) -> str:
    """Return the cost model of a row's scenario."""
    return "sequential" if row.scenario == "single_stream" else "saturated"


def _content(repricing: Repricing) -> dict[str, object]:
    """Return all of a repricing; rows have the columns of the CSV, as nested figures of 10,000 rows take seconds."""
    columns = _csv_columns(repricing)
    content: dict[str, object] = {"reprice_version": REPRICE_VERSION}
    for name, value in vars(repricing).items():
        content[name] = [_part(item) for item in value] if isinstance(value, tuple) else _part(value)
    return {**content, "changes": [{name: get(change) for name, get in columns} for change in repricing.changes]}


def _part(item: object) -> object:
    if isinstance(item, OrderFlip | CheapestChange):
        # The fields of the comparison group are on one level with the others, as in a row.
        return {**item.place._asdict(), **{name: value for name, value in vars(item).items() if name != "place"}}
    return item if isinstance(item, str | RowChange) else vars(item)

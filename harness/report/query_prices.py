"""Report on the three prices of a query: few columns for people, every serverless offer for programs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from harness.analysis import bills, notes, query_prices
from harness.analysis.bills import BillPlace
from harness.analysis.query_prices import QueryPrices
from harness.analysis.table import Table
from harness.driver.records import Outcome
from harness.estimate import Estimate
from harness.pricing import cost
from harness.pricing.serverless import ServerlessQuote
from harness.report.bill import place_name
from harness.report.document import (
    MISSING,
    Escape,
    Grid,
    GridColumn,
    ReportDocument,
    Section,
    bounded,
    few_lines,
    grid_of,
    joined_by_and,
    left_out_records,
    lines_of_records,
    number,
    price_facts,
    system_name,
    with_ends,
)
from harness.report.hardware import hardware, machine
from harness.report.row_figures import facts
from harness.report.summary import doubts
from harness.report.writers import narrowed

# Version of the JSON.
QUERY_PRICES_VERSION = 1
_POINTER = "a month's bill at your traffic: --queries-per-month 3M   every serverless offer: --wide, --format csv"
# What decides least, first.
_DROPPED = ("machine", "serverless offer", "hardware")
Groups = Mapping[BillPlace, Sequence[QueryPrices]]
# A system with one of its serverless offers.
Offered = tuple[QueryPrices, ServerlessQuote]


def query_prices_document(table: Table) -> ReportDocument:
    """Return the document: people see three prices of each system, files a line for each model and offer."""
    groups = _groups(table)
    return ReportDocument(
        sections=lambda escape: _sections(groups, table, escape, wide=True),
        lines=lambda: lines_of_records(_records(groups), _CSV),
        content=lambda: {
            "query_prices_version": QUERY_PRICES_VERSION,
            "models": {model.name: asdict(model) for model in cost.MODELS},
            "prices": price_facts(table),
            "systems": [_content(one) for priced in groups.values() for one in priced],
        },
        plain=True,
    )


def prices_answer(table: Table, escape: Escape, width: int | None = None) -> Iterator[Section]:
    """Yield the three prices of each system, a sentence on each model, and at most five notes.

    ``width``: of the terminal; columns that matter least are left out until the grid fits.
    """
    return _sections(_groups(table), table, escape, width)


def _groups(table: Table) -> Groups:
    return {place: query_prices.of_rows(rows) for place, rows in bills.by_place(table.rows).items()}


def _sections(
    groups: Groups, table: Table, escape: Escape, width: int | None = None, *, wide: bool = False
) -> Iterator[Section]:
    dates = {one.single.cost.metered_quote for one in _every(groups) if one.single}
    serverless = sorted({quote.date for quote in dates if quote is not None})
    prices = f"prices {table.price_provider} {table.price_region} {table.price_date}"
    prices += f", serverless {serverless[0]}" if serverless else ""
    for position, (place, priced) in enumerate(groups.items()):
        words = (place_name(place, list(groups)), "US$ per million queries", "" if position else prices)
        title = ", ".join(filter(None, words))
        grid = narrowed(_prices(priced, escape), _DROPPED, width)
        grids = (grid, *([_offers(priced, escape)] if wide else []))
        yield Section(lead=(escape(title),), grids=tuple(grid for grid in grids if grid.cells))
    models = tuple(f"{model.name}: {model.formula if wide else model.meaning}." for model in cost.MODELS)
    rows = [one.row for one in _every(groups)]
    lines = [
        *map(escape, left_out_records(table)),
        *map(escape, notes.dearer_by_query(_every(groups))),
        *map(escape, _dashes(_every(groups))),
        *map(escape, _failed(table)),
        *doubts(rows, escape, ()),
    ]
    yield Section(after=tuple(map(escape, models)), notes=tuple(lines) if wide else few_lines(lines, _POINTER))


def _every(groups: Groups) -> list[QueryPrices]:
    return [one for priced in groups.values() for one in priced]


def _prices(priced: Sequence[QueryPrices], escape: Escape) -> Grid:
    columns: list[GridColumn[QueryPrices] | None] = [
        ("system", False, lambda one: system_name(one.row, escape)),
        ("hardware", False, lambda one: escape(hardware(one.row))),
        ("machine", False, lambda one: escape(machine(one.row))) if any(machine(one.row) for one in priced) else None,
        (cost.SEQUENTIAL.name, True, lambda one: number(one.sequential.value)),
        (cost.SATURATED.name, True, lambda one: number(one.saturated.value)),
        (cost.METERED.name, True, lambda one: number(one.metered.value)),
        ("serverless offer", False, lambda one: escape(_offer(one))),
        ("", False, lambda one: one.row.validity.doubt),
    ]
    return grid_of(priced, columns)


def _offer(one: QueryPrices) -> str:
    quote = one.single and one.single.cost.metered_quote
    return quote.offer if quote else MISSING


def _offers(priced: Sequence[QueryPrices], escape: Escape) -> Grid:
    columns: list[GridColumn[Offered] | None] = [
        ("system", False, lambda pair: system_name(pair[0].row, escape)),
        ("hardware", False, lambda pair: escape(hardware(pair[0].row))),
        ("serverless offer", False, lambda pair: escape(pair[1].offer)),
        ("vCPUs", True, lambda pair: f"{pair[1].vcpus:.3g}"),
        ("GiB", True, lambda pair: f"{pair[1].memory_gib:.4g}"),
        ("US$/hour, billed", True, lambda pair: number(pair[1].usd_per_hour)),
        ("billed ms per query", True, lambda pair: number(pair[1].billed_s, 1e3)),
        ("US$/1M requests", True, lambda pair: number(pair[1].usd_per_million_requests)),
        ("US$/1M (interval)", True, lambda pair: bounded(pair[1].usd)),
        ("US$/1M, each query a start", True, lambda pair: number(pair[1].alone_usd)),
        ("paid", False, lambda pair: _paid(pair[1])),
    ]
    return grid_of([(one, quote) for one in priced for quote in _quotes(one)], columns)


def _paid(quote: ServerlessQuote) -> str:
    return "by the query" if quote.per_request else "all along; a task that is always busy"


def _quotes(one: QueryPrices) -> tuple[ServerlessQuote, ...]:
    return one.single.cost.serverless if one.single else ()


def _dashes(priced: Sequence[QueryPrices]) -> Iterator[str]:
    """Yield why prices are missing, one line for each model and reason."""
    for model in cost.MODELS:
        lacking: dict[str, list[str]] = defaultdict(list)
        for one in priced:
            estimate: Estimate = getattr(one, model.name)
            if estimate.value is None:
                lacking[estimate.reason or "not known"].append(one.row.system)
        for reason, systems in lacking.items():
            names = list(dict.fromkeys(systems))
            who = "" if len(systems) == len(priced) else f" of {joined_by_and(names[:3])}"
            yield f"no {model.name} price{who}{' and others' if who and len(names) > 3 else ''}: {reason}"


def _failed(table: Table) -> Iterator[str]:
    """Yield the rows that failed, which have no price."""
    failed = [f"{row.system} ({hardware(row)}, {row.outcome.value})" for row in table.rows if row.outcome != Outcome.OK]
    if failed:
        yield f"left out: {joined_by_and(failed[:3])}{' and others' if len(failed) > 3 else ''}"


_NAMES = ("dataset", "isolation", "suite", "system", "hardware_profile", "validity")
_USD = "usd_per_million_queries"
_OFFER = ("offer", "provider", "region", "architecture", "per_request", "bills", "vcpus", "memory_gib", "usd_per_hour")
_CSV = (
    *(*_NAMES, "key", "cost_model", _USD, f"{_USD}_low", f"{_USD}_high", "instance_type", "price_usd_per_hour"),
    *("price_date", *_OFFER, "billed_s", "usd_per_million_requests", "usd_per_million_queries_alone", "page"),
    *("metered_over_saturated", "reason"),
)


def _records(groups: Groups) -> Iterator[dict[str, Any]]:
    """Yield a line for each system and model, and one for each serverless offer; the cheapest counts as ``metered``."""
    for one in _every(groups):
        names = {**facts(one.row, *_NAMES), "key": one.row.per_query_key}
        for model, row in ((cost.SEQUENTIAL, one.single), (cost.SATURATED, one.loaded)):
            priced = facts(row, "instance_type", "price_usd_per_hour", "price_date") if row is not None else {}
            yield {**names, "cost_model": model.name, **priced, **_usd(getattr(one, model.name))}
        best = one.single and one.single.cost.metered_quote
        if best is None:
            yield {**names, "cost_model": cost.METERED.name, **_usd(one.metered)}
        for quote in _quotes(one):
            over = one.metered_over_saturated if quote is best else None
            model_name = cost.METERED.name if quote is best else "offer"
            yield {**names, "cost_model": model_name, **_quote(quote), "metered_over_saturated": over}


def _usd(estimate: Estimate) -> dict[str, Any]:
    return {**with_ends(_USD, estimate), "reason": estimate.reason}


def _quote(quote: ServerlessQuote) -> dict[str, Any]:
    return {
        **{name: getattr(quote, name) for name in (*_OFFER, "billed_s", "usd_per_million_requests", "page")},
        "price_date": quote.date,
        "usd_per_million_queries_alone": quote.alone_usd,
        **_usd(quote.usd),
    }


def _content(one: QueryPrices) -> dict[str, Any]:
    return {
        **facts(one.row, *_NAMES),
        "key": one.row.per_query_key,
        **{model.name: asdict(getattr(one, model.name)) for model in cost.MODELS},
        "metered_offer": one.single and one.single.cost.metered_quote and one.single.cost.metered_quote.offer,
        "metered_over_saturated": one.metered_over_saturated,
        "offers": [_quote(quote) for quote in _quotes(one)],
    }

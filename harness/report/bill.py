"""Report on a month's bill: few lines for people, every row and part for programs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from harness.analysis.bills import BillGroup, BillPlace, SystemBill
from harness.analysis.row_pricing import is_own_machine
from harness.analysis.table import Row, Table
from harness.commands import command, option
from harness.errors import counted
from harness.pricing import bill
from harness.pricing.bill import Traffic
from harness.report.document import (
    MISSING,
    Escape,
    Grid,
    GridColumn,
    ReportDocument,
    Section,
    Value,
    bounded,
    few_lines,
    grid_of,
    joined_by_and,
    left_out_records,
    lines_of_records,
    number,
    price_facts,
    system_name,
    usual_reason,
    with_ends,
)
from harness.report.hardware import NOT_MEASURED, hardware
from harness.report.row_figures import COST_HEADER, facts
from harness.report.sentences import noise
from harness.report.summary import doubts, tone
from harness.report.writers import narrowed

# Version of the JSON.
BILL_VERSION = 1
# Stands for less than a cent, or than a hundredth of a per cent.
_LESS = "<0.01"
_TOTAL, _MONTH = "US$/month", "a month"
# What decides least, first.
_DROPPED = ("storage", "builds", "hardware", "tokens", "search", COST_HEADER)


def bill_document(groups: Sequence[BillGroup], traffic: Traffic, table: Table) -> ReportDocument:
    """Return the document: people see each row's bill, CSV has a line for each row, JSON all that is known."""
    return ReportDocument(
        sections=lambda escape: _sections(groups, traffic, escape),
        lines=lambda: lines_of_records(_records(groups, traffic), _CSV),
        content=lambda: {
            "bill_version": BILL_VERSION,
            "traffic": traffic.model_dump(),
            "prices": price_facts(table),
            "groups": [_content(group, traffic) for group in groups],
        },
    )


def answer(
    groups: Sequence[BillGroup],
    traffic: Traffic,
    table: Table,
    escape: Escape,
    width: int | None = None,
    by_hand: str = "",
    quality: str = "",
) -> Iterator[Section]:
    """Yield, for each group, its bills, a sentence on the cheapest, and notes; at most five lines in all at the end.

    Args:
        groups: the bills.
        traffic: of the service.
        table: of the rows.
        escape: of the format.
        width: of the terminal; columns that matter least are left out until the grid fits.
        by_hand: the command that shows the arithmetic of a row's bill.
        quality: the command that shows how well the systems rank.
    """
    prices = f"prices {table.price_provider} {table.price_region} {table.price_date}" if table.price_date else ""
    listed = [quote.date for row in table.rows for quote in row.cost.serverless[:1]]
    prices += f", serverless {listed[0]}" if prices and listed else ""
    for place, group in enumerate(groups):
        title = ", ".join(filter(None, (group_name(group, groups), _words(traffic), "" if place else prices)))
        grid = narrowed(_grid(group, escape), _DROPPED, width)
        notes: tuple[str, ...] = ()
        if group is groups[-1]:
            rows = [one.row for each in groups for one in each.bills]
            lines = [
                *map(escape, left_out_records(table)),
                *map(escape, _assumptions(groups, traffic)),
                *doubts(rows, escape, ()),
                *map(escape, _left_out(groups)),
            ]
            pointer = "all rows and parts: --wide, --format csv"
            pointer += "".join(
                f"   {name}: {text}" for name, text in (("quality", quality), ("by hand", by_hand)) if text
            )
            notes = few_lines(lines, pointer)
        after = (_sentence(group, escape), *_without_machines(group, groups, escape))
        yield Section(lead=(escape(title),), grids=(grid,) if group.bills else (), after=after, notes=notes)


def group_name(group: BillGroup, groups: Sequence[BillGroup]) -> str:
    """Return the dataset, and the facts that tell the group from the dataset's others."""
    return place_name(group.place, [other.place for other in groups])


def place_name(place: BillPlace, places: Sequence[BillPlace]) -> str:
    """Return the dataset, and the facts that tell the place from the dataset's others."""
    rivals = [_place_facts(other) for other in places if other.dataset == place.dataset]
    different = [len(set(column)) > 1 for column in zip(*rivals, strict=True)]
    return ", ".join((place.dataset, *itertools.compress(_place_facts(place), different)))


def _place_facts(place: BillPlace) -> tuple[str, str, str]:
    documents = f"documents {(place.corpus_sha256 or 'unknown')[:8]}"
    return place.isolation, f"suite {place.suite}" if place.suite else "measured", documents


def _words(traffic: Traffic) -> str:
    limits = "".join(
        f", {figure} at most {most}" for figure, _, most in (each.partition("=") for each in traffic.max_latency)
    )
    return (
        f"{large(traffic.queries_per_month)} queries a month ({number(traffic.mean_qps)} a second, "
        f"{number(traffic.peak_qps)} in the busiest hour){limits}"
    )


def large(amount: float) -> str:
    """Return a large number in words of three digits: ``3 million``, ``610 million``, ``1.58 billion``."""
    for size, word in ((1e12, " trillion"), (1e9, " billion"), (1e6, " million"), (1e3, " thousand")):
        if amount >= size * 0.9995:
            return f"{float(f'{amount / size:.3g}'):g}{word}"
    return f"{amount:.3g}"


def brief(amount: float) -> str:
    """Return a large number as the options read it, in three digits: ``96.1M``, ``10G``."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if amount >= size * 0.9995:
            return f"{float(f'{amount / size:.3g}'):g}{letter}"
    return f"{amount:.3g}"


def _money(usd: float | None) -> str:
    """Return US$ in three digits; what is less than a cent says only that."""
    if usd is None or usd == 0 or usd >= 0.01:
        return f"{usd:,.0f}" if usd is not None and usd >= 100 else number(usd)
    return _LESS


def _rounded(usd: float | None) -> str:
    return f"{usd:,.0f}" if usd is not None and usd >= 10 else _money(usd)


def _rented(one: SystemBill, escape: Escape) -> str:
    """Return the machines, marked where they did not measure the row; of an offer its name, with the tasks that run."""
    if one.offer:
        return escape(f"{one.bill.machines} x {one.offer}" if one.bill.machines else one.offer)
    price = one.row.price
    assert price is not None, "a row without a price has no bill"
    mark = "" if is_own_machine(one.row, price) else NOT_MEASURED
    return escape(f"{one.bill.machines} x {price.instance_type}") + mark


def _busy(one: SystemBill) -> str:
    if one.bill.busy is None:
        return MISSING
    percent = 100 * one.bill.busy
    return f"{number(percent) if percent >= 0.01 or not percent else _LESS} %"


def _grid(group: BillGroup, escape: Escape) -> Grid:
    best = {id(one) for one in group.cheapest}
    word = "cheapest" if len(best) == 1 else "within 1 %"
    columns: list[GridColumn[SystemBill] | None] = [
        ("system", False, lambda one: system_name(one.row, escape)),
        ("hardware", False, lambda one: escape(hardware(one.row))),
        ("machines", False, lambda one: _rented(one, escape)),
        ("busy", True, _busy),
        ("search", True, lambda one: _money(one.bill.search_usd)),
        _tokens(group.bills),
        ("builds", True, lambda one: _money(_sum(one.bill.builds_usd, one.bill.changes_usd))),
        ("storage", True, lambda one: _money(one.bill.storage_usd)),
        (_TOTAL, True, lambda one: _money(one.bill.total_usd.value)),
        (COST_HEADER, True, lambda one: number(one.bill.usd_per_million.value)),
        ("", False, lambda one: ", ".join(filter(None, (word if id(one) in best else "", one.row.validity.doubt)))),
    ]
    return grid_of(group.bills, columns, tones=[tone(one.row, good=id(one) in best) for one in group.bills])


def _tokens(bills: Sequence[SystemBill]) -> GridColumn[SystemBill] | None:
    """Return the column of tokens, where some bill has them."""
    known = any(one.bill.tokens_usd is not None for one in bills)
    return ("tokens", True, lambda one: _money(one.bill.tokens_usd)) if known else None


def _sum(*parts: float | None) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def why_no_bill(group: BillGroup) -> str:
    """Say why a group has no bill, by the most frequent reason."""
    return f"No row has a bill ({usual_reason(group.left_out)})."


def _sentence(group: BillGroup, escape: Escape) -> str:
    """Say what the cheapest costs, which others cost the same, and at which traffic that changes."""
    if not group.bills:
        return escape(why_no_bill(group))
    first = group.cheapest[0]
    text = (
        f"{_rented(first, escape).rstrip(NOT_MEASURED)}, US$ {_rounded(first.bill.total_usd.value)} {_MONTH}, "
        f"{_busy(first)} busy"
    )
    change = group.change
    until = "" if change is None else f" up to {large(change.queries_per_month)} queries {_MONTH}"
    are = "is" if len(_systems(group.then)) == 1 else "are"
    then = f"; from there on {_called(group.then, escape)} {are} the cheapest" if change else ""
    if len(_systems(group.cheapest)) == 1:
        text += f": {_called(group.cheapest, escape)} is the cheapest{until}{then}."
    elif len(group.cheapest) == len(group.bills):
        every = "both systems" if len(group.bills) == 2 else f"all {len(group.bills)} rows"
        text += f": {every} cost the same (within 1 %){until}{then}."
    else:
        text += f": {_called(group.cheapest, escape)} cost the same (within 1 %), and are the cheapest{until}{then}."
    return text + noise([one.row for one in (*group.cheapest, *group.then)], escape)


def _without_machines(group: BillGroup, groups: Sequence[BillGroup], escape: Escape) -> Iterator[str]:
    """Say whether paying by the query costs less than machines, and up to which traffic, or why that is not known."""
    one, until = group.by_query, group.until
    if one is None:
        # What all groups lack is one note below them.
        yield from map(escape, _no_serverless([group]) if any(other.by_query for other in groups) else ())
        return
    name = f"{system_name(one.row, escape)} on {escape(one.offer)}"
    kind = "an API" if one.row.token_model and one.offer.startswith("API") else "serverless"
    limit = "at any traffic" if until is None else f"up to {large(until)} queries {_MONTH}"
    if group.saves:
        start_s = one.row.resources.cold_start_s
        start = f"; the first query after an idle time takes {number(start_s)} s" if start_s is not None else ""
        usd = f"US$ {_rounded(one.bill.total_usd.value)} {_MONTH}"
        yield f"{kind[0].upper()}{kind[1:]} costs less: {name}, {usd}, less than machines {limit}{start}."
    elif until is None or until < 1:
        yield "Serverless never costs less than these machines."
    else:
        yield f"Below {large(until)} queries {_MONTH} {kind} costs less: {name}."


def _systems(bills: Sequence[SystemBill]) -> set[str]:
    return {str(one.row.system) for one in bills}


def _called(bills: Sequence[SystemBill], escape: Escape) -> str:
    shown = [system_name(one.row, escape) for one in bills[:3]]
    more = [f"{len(bills) - 3} others"] if len(bills) > 3 else []
    return joined_by_and([*dict.fromkeys(shown), *more])


def _assumptions(groups: Sequence[BillGroup], traffic: Traffic) -> Iterator[str]:
    """Yield what the bills assume: how many queries a machine answers, and how builds grow."""
    bills = [one for group in groups for one in group.bills]
    single = [one for one in bills if not one.loaded]
    if single:
        rows = "" if len(single) == len(bills) else f" (for {counted(len(single), 'row')})"
        yield (
            f"The bill assumes{rows} that a machine answers one query after the other, without waiting; scenario "
            "server measures how many a second it answers within a latency."
        )
    sizes = {one.row.index.documents for one in bills if one.row.index.documents}
    if predicted := [one.row for one in bills if one.row.predicted_from]:
        largest = max(row.predicted_from or 0 for row in predicted)
        at = command("report", at=predicted[0].index.documents)
        yield (
            f"{counted(len(predicted), 'row')} predicted from up to {largest:,} documents: latency, machine, index and"
            f" builds; {at} shows the laws and their exams."
        )
    if traffic.documents and sizes - {traffic.documents}:
        yield (
            f"Builds and storage are scaled linearly from {joined_by_and([f'{size:,}' for size in sorted(sizes)])} to "
            f"{traffic.documents:,} documents; latency is not."
        )
    if "peak" not in traffic.model_fields_set:
        yield f"The bill assumes that the busiest hour has {traffic.peak:g} times the mean rate ({option('peak')})."
    if not any(group.by_query for group in groups):
        yield from _no_serverless(groups)
    if any(one.bill.builds_usd is None for one in bills):
        yield "A dash marks an unknown cost of builds or storage; the sum leaves it out."


def _no_serverless(groups: Sequence[BillGroup]) -> Iterator[str]:
    """Yield why no row has a serverless price, where none has one."""
    rows = [one.row for group in groups for one in group.bills if one.row.scenario == "single_stream"]
    reasons = Counter(row.cost.metered.reason for row in rows if row.cost.metered.reason)
    if reasons and all(row.cost.metered.value is None for row in rows):
        several = len(reasons) > 1
        said = (
            f"{reason} ({counted(count, 'row')})" if several else reason for reason, count in reasons.most_common(2)
        )
        yield f"No row has a serverless price: {'; '.join(map(str, said))}."


def _left_out(groups: Sequence[BillGroup]) -> Iterator[str]:
    """Yield which rows have no bill, by reason."""
    reasons: dict[str, list[str]] = {}
    for group in groups:
        for row, reason in group.left_out:
            reasons.setdefault(reason, []).append(f"{row.system} ({hardware(row)})")
    for reason, rows in reasons.items():
        yield f"left out: {joined_by_and(rows[:3])}{' and others' if len(rows) > 3 else ''}: {reason}"


def _sections(groups: Sequence[BillGroup], traffic: Traffic, escape: Escape) -> Iterator[Section]:
    for group in groups:
        columns: list[GridColumn[SystemBill] | None] = [
            ("system", False, lambda one: system_name(one.row, escape)),
            ("hardware", False, lambda one: escape(hardware(one.row))),
            ("machines", False, lambda one: _rented(one, escape)),
            ("queries/s of one (interval)", True, lambda one: bounded(one.service.capacity_qps)),
            ("busy", True, _busy),
            ("search", True, lambda one: number(one.bill.search_usd)),
            _tokens(group.bills),
            ("builds", True, lambda one: number(one.bill.builds_usd)),
            ("changed documents", True, lambda one: number(one.bill.changes_usd)),
            ("storage", True, lambda one: number(one.bill.storage_usd)),
            (f"{_TOTAL} (interval)", True, lambda one: bounded(one.bill.total_usd)),
            (f"{COST_HEADER} (interval)", True, lambda one: bounded(one.bill.usd_per_million)),
            ("validity", False, lambda one: one.row.validity.value),
        ]
        others: list[GridColumn[SystemBill] | None] = [
            *columns[:2],
            ("without a rented machine", False, lambda one: _rented(one, escape)),
            *(column for column in columns[4:] if column is not None and column[0] != "validity"),
            ("cheaper than its machines at least up to, queries/month", True, _below),
        ]
        grids = ((group.bills, columns), (group.others, others))
        yield Section(
            title=escape(group_name(group, groups)),
            lead=(escape(_words(traffic)),),
            grids=tuple(grid_of(bills, columns_of) for bills, columns_of in grids if bills),
            after=(_sentence(group, escape), *_without_machines(group, groups, escape)),
        )
    formulas = (bill.FORMULA, bill.BY_QUERY_FORMULA) if any(group.others for group in groups) else (bill.FORMULA,)
    lines = (*_assumptions(groups, traffic), *_left_out(groups), *(f"{formula}." for formula in formulas))
    yield Section(notes=tuple(map(escape, lines)))


def _below(one: SystemBill) -> str:
    """Return up to which traffic an offer that is paid by the query costs less than the row's own machines."""
    if one.service.rented:
        return MISSING
    return "any" if one.cheaper_below is None else large(one.cheaper_below)


_NAMES = ("dataset", "scenario", "isolation", "suite", "system", "hardware_profile", "validity")
_PRICED = ("instance_type", "price_usd_per_hour", "price_date")
_CSV = (
    *(*_NAMES, "key", *_PRICED, *Traffic.model_fields, "capacity_qps", "capacity_qps_low", "capacity_qps_high"),
    *("capacity_from", "machines_rented", "busy_share", "usd_search", "usd_tokens", "usd_builds", "usd_changes"),
    *("usd_storage", "usd_month", "usd_month_low", "usd_month_high", "usd_per_million_queries"),
    *("usd_per_million_queries_low", "usd_per_million_queries_high", "cheapest", "offer", "cheaper_below_queries"),
    "reason",
)


def _records(groups: Sequence[BillGroup], traffic: Traffic) -> Iterator[dict[str, Any]]:
    """Yield a line for each row, the least bill first, then one for each offer, then the rows without a bill."""
    for group in groups:
        yield from (_values(one, group, traffic) for one in (*group.bills, *group.others))
        yield from ({**_facts(row), "reason": reason} for row, reason in group.left_out)


def _facts(row: Row) -> dict[str, Value]:
    return {**facts(row, *_NAMES, *_PRICED), "key": row.per_query_key}


def _values(one: SystemBill, group: BillGroup, traffic: Traffic) -> dict[str, Any]:
    found = one.bill
    return {
        **_facts(one.row),
        **traffic.model_dump(),
        "max_latency": " ".join(traffic.max_latency) or None,
        **with_ends("capacity_qps", one.service.capacity_qps),
        "capacity_from": _capacity_from(one),
        "machines_rented": found.machines,
        "busy_share": found.busy,
        "usd_search": found.search_usd,
        "usd_tokens": found.tokens_usd,
        "usd_builds": found.builds_usd,
        "usd_changes": found.changes_usd,
        "usd_storage": found.storage_usd,
        **with_ends("usd_month", found.total_usd),
        **with_ends("usd_per_million_queries", found.usd_per_million),
        "cheapest": any(one is other for other in group.cheapest),
        "offer": one.offer or None,
        "cheaper_below_queries": one.cheaper_below,
    }


def _capacity_from(one: SystemBill) -> str | None:
    if not one.service.rented:
        return None
    return "server" if one.loaded else "one query after the other"


def _content(group: BillGroup, traffic: Traffic) -> dict[str, Any]:
    keys = [one.row.per_query_key for one in group.cheapest]
    return {
        **group.place._asdict(),
        "cheapest": keys,
        "change": None if group.change is None else asdict(group.change),
        "bills": [_values(one, group, traffic) for one in group.bills],
        "without_machines": [_values(one, group, traffic) for one in group.others],
        "by_query": None
        if group.by_query is None
        else {
            "key": group.by_query.row.per_query_key,
            "offer": group.by_query.offer,
            "saves": group.saves,
            "until_queries_per_month": group.until,
        },
        "left_out": [{**_facts(row), "reason": reason} for row, reason in group.left_out],
    }

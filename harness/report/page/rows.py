"""Measured rows as a page's data, and the prices of the machines that they need at every date.

Figures that rank rows are complete, other figures are rounded.  The page itself only multiplies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.analysis import bills, row_pricing
from harness.analysis.axes import cell_of
from harness.analysis.row_pricing import Tariff
from harness.analysis.table import Machine, Price, Row, Table
from harness.commands import command
from harness.driver.records import Outcome, digest
from harness.estimate import Estimate
from harness.pricing import bill, bill_curve, prices
from harness.report import explain, row_figures
from harness.report.figures import Figure, Place
from harness.report.hardware import hardware
from harness.report.plots import curves
from harness.results.schema import glob_of
from harness.untrusted import ForeignText, Text, one_line

# A paragraph: the numbers of its title and of the parts of its text.
ShortParagraph = list[int | None]
# Parts that many rows share end here.
_PARTS = re.compile(r"(?<=[.:;]) ")
# A figure: its value, its interval's ends, the number of its reason; cut after the last of these that is known.
ShortEstimate = list[float | int | None] | None


# Rows with the same need are priced on the same machine, with the same words.
MachineNeed = tuple[str | None, int, int, int, int | None, str | None, ForeignText | None, bool, object]


@dataclass
class SharedValues:
    """Texts and other values that many rows share, each stored once; a row holds numbers.

    Foreign texts pass through ``one_line``.
    """

    texts: dict[str, int] = field(default_factory=dict)
    machines: dict[Machine, int] = field(default_factory=dict)
    needs: dict[MachineNeed, Row] = field(default_factory=dict)

    def number(self, text: Text | None) -> int | None:
        """Return the number of a text; ``None`` for none."""
        return None if text is None else self.texts.setdefault(one_line(text), len(self.texts))

    def need(self, row: Row) -> int:
        """Return the number of a row's machine need."""
        wanted = machine_need(row)
        self.needs.setdefault(wanted, row)
        return list(self.needs).index(wanted)

    def machine(self, machine: Machine | None) -> int | None:
        """Return the number of the machine that measured a row."""
        return None if machine is None else self.machines.setdefault(machine, len(self.machines))


def short_estimate(item: Estimate | None, texts: SharedValues, *, digits: int | None = None) -> ShortEstimate:
    """Return an estimate as a list without trailing nulls.

    Args:
        item: the figure, if the row has it.
        texts: takes its reason.
        digits: significant digits; ``None``: all, for figures that scores are computed from.
    """
    if item is None:
        return None
    parts: list[float | int | None] = [rounded(part, digits) for part in (item.value, item.low, item.high)]
    parts.append(texts.number(item.reason))
    while parts and parts[-1] is None:
        parts.pop()
    return parts or None


def short_paragraphs(paragraphs: Iterable[explain.Paragraph], texts: SharedValues) -> list[ShortParagraph]:
    """Return titled texts as numbers of shared parts, which spaces join."""
    return [
        [texts.number(title), *map(texts.number, _PARTS.split(one_line(text)) if text else ())]
        for title, text in paragraphs
    ]


def rounded(value: float | None, digits: int | None) -> float | int | None:
    """Return a number in significant digits, as an integer where it is whole."""
    if value is None:
        return None
    if digits is not None:
        value = float(f"{value:.{digits - 1}e}")
    return int(value) if value == int(value) and abs(value) < 1e15 else value


def all_tariffs(chosen: Tariff) -> tuple[Tariff, ...]:
    """Return all known prices, the oldest first, with the chosen ones among them.

    Raises:
        FileError: a file of prices or facts is missing or wrong.
    """
    found = [
        row_pricing.tariff(snapshot, chosen.root, chosen.choice, chosen.tokens, chosen.carbon, chosen.serverless)
        for file in prices.snapshot_files(chosen.root)
        for snapshot in prices.read_snapshots(file, chosen.root).values()
    ]
    return tuple(found if chosen.snapshot in [each.snapshot for each in found] else [*found, chosen])


def machine_need(row: Row) -> MachineNeed:
    """Return the facts of a row that decide which machine prices it."""
    measured_type = None if row.machine is None else row.machine.instance_type
    envelope = (row.cpus, row.memory_bytes, row.gpus, row_pricing.gpu_memory_bytes(row))
    told = (row.told.instance, row.told.usd_per_hour) if row.told else None
    measured = row_pricing.measured_architecture(row), measured_type
    return row.published_type, *envelope, *measured, row.isolation.attached, told


def snapshot_records(
    needs: dict[MachineNeed, Row], known: Sequence[Tariff], texts: SharedValues
) -> list[dict[str, Any]]:
    """Return each snapshot with the price of each need, in the order of ``needs``.

    Args:
        needs: every need with one row that has it.
        known: the prices.
        texts: takes the words.
    """
    return [
        {
            "provider": tariff.snapshot.provider,
            "region": tariff.snapshot.region,
            "term": tariff.snapshot.term,
            "date": str(tariff.snapshot.as_of),
            "source": texts.number(tariff.snapshot.source),
            "places": [_price_record(row, tariff, texts) for row in needs.values()],
        }
        for tariff in known
    ]


def _price_record(row: Row, tariff: Tariff, texts: SharedValues) -> dict[str, Any]:
    price, note = row_pricing.choose_machine(row, tariff)
    placed: dict[str, Any] = {"note": texts.number(note)}
    if price is None:
        return placed
    # Ask with a made-up throughput, which the row may lack, whether the row has the whole machine.
    asked = replace(row, scenario="server", outcome=Outcome.OK, throughput_qps=Estimate(1.0))
    part = row_pricing.saturated(asked, price, note)
    return placed | {
        "type": texts.number(price.instance_type),
        "usd": price.usd_per_hour,
        "architecture": texts.number(price.architecture),
        "other": texts.number(row_pricing.other_machine(row, price)),
        "own": row_pricing.is_own_machine(row, price),
        "vcpus": price.vcpus,
        "memory": price.memory_bytes,
        "part": texts.number(part.reason) if part.value is None else None,
    }


# Digits of figures that are only shown, and of a histogram's quantiles.
_SHOWN_DIGITS, _QUANTILE_DIGITS = 5, 3


def row_record(
    row: Row,
    at_one_dollar: Row,
    place: int,
    figures: Sequence[Figure],
    quantiles_s: tuple[float, ...],
    shared: SharedValues,
    tariff: Tariff,
) -> dict[str, Any]:
    """Return the record of a row; keys without a value are left out.

    Args:
        row: as measured, without money.
        at_one_dollar: the row on a machine that costs one US$ an hour.
        place: the number of its comparison group.
        figures: of the page, in its order.
        quantiles_s: of its samples: minimum, every further 2 %, maximum.
        shared: takes the values that other rows have too.
        tariff: the prices that the page opens with.
    """
    ok = row.outcome is Outcome.OK
    opening = row_pricing.price_row(row, tariff)
    content = {
        **_names(row, place, shared),
        "queries": row.queries if ok else None,
        "trials": row.trials if ok else None,
        "onePass": row.one_pass_warmup if ok else None,
        "trialMeans": [rounded(mean_s, _SHOWN_DIGITS) for mean_s in row.latency.trial_means_s] if ok else [],
        "figures": _figures(at_one_dollar, figures, shared) if ok else {},
        "quantiles": [rounded(value, _QUANTILE_DIGITS) for value in quantiles_s],
        "findings": [[each.cause.value, each.validity.value, shared.number(each.text)] for each in row.findings],
        "explained": short_paragraphs(_explained(opening), shared),
        "bill": _bill(opening, shared) if ok else {},
        # A finding's text is not repeated.
        "notes": [shared.number(note) for note in row.own_notes],
    }
    return {name: value for name, value in content.items() if value not in (None, [], {}, ())}


def bill_facts() -> dict[str, Any]:
    """Return the traffic that the page opens with, and the numbers that its bills and curves have in common."""
    return {
        "traffic": bill.USUAL.model_dump(),
        "hours": bill.HOURS,
        "seconds": bill.SECONDS,
        "same": bill.SAME_SHARE,
        "least": bill_curve.LEAST_QUERIES,
        "most": bill_curve.MOST_QUERIES,
        "single": bill_curve.SINGLE_STEPS,
        "share": bill_curve.STEP_SHARE,
        "beyond": bill_curve.BEYOND,
    }


def _bill(row: Row, texts: SharedValues) -> dict[str, Any]:
    """Return the facts of a row's bill: queries a second of one machine, and US$ at the opening prices.

    ``paid``: the cheapest offer that is paid by the query, and its US$ per million queries.
    """
    service = None if row.price is None else bills.service_of(row)
    paid = bills.paid_service(row)
    known = {
        "qps": short_estimate(bills.capacity_of(row), texts),
        "build": service and service.build_usd,
        "storage": service and service.storage_usd_per_month,
        "tokens": service and service.tokens_usd_per_million,
        "paid": paid and [paid[0], paid[1].usd_per_million and paid[1].usd_per_million.value],
        "start_s": paid and row.resources.cold_start_s,
    }
    return {name: value for name, value in known.items() if value is not None}


def _explained(row: Row) -> Iterable[explain.Paragraph]:
    """Yield how the row was made, without the texts that the page fills in: cost, keys of jobs and other figures."""
    others = {figure.title for figure in row_figures.untold()}
    for title, text in explain.row_paragraphs(row):
        if title not in others:
            yield title, "" if title in (explain.COST, explain.BILL, explain.STORED_JOBS) else text


def _names(row: Row, place: int, shared: SharedValues) -> dict[str, Any]:
    return {
        "key": one_line(row.per_query_key),
        "origin": shared.number(row.origin),
        "keys": [one_line(key) for key in row.keys or (row.key,)],
        "place": place,
        "suite": shared.number(row.suite),
        "system": shared.number(row.system),
        "profile": shared.number(row.profile),
        "outcome": row.outcome.value,
        "validity": row.validity.value,
        "detail": shared.number(row.detail),
        "standIn": shared.number(row.stand_in),
        "firstUse": shared.number(row.pinned_at_first_use),
        "sweep": _sweep(row, shared),
        "cpus": row.cpus,
        "gpus": row.gpus,
        "memory": row.memory_limit_bytes,
        "nominal": row.nominal_memory_bytes,
        "need": shared.need(row),
        "machine": shared.machine(row.machine),
        "again": None
        if row.machine is None and not row.isolation.attached
        else shared.number(command("run", "SUITE", fresh=True, only=glob_of(cell_of(row)))),
        "publishedType": shared.number(row.published_type),
        "attached": shared.number(hardware(row)) if row.isolation.attached else None,
        "started": row.started_at,
        "jobs": row.jobs,
        "attempts": row.attempts,
        "apart": row.harness_apart,
        "pageCache": shared.number(row.page_cache),
    }


def _sweep(row: Row, texts: SharedValues) -> list[int | None] | None:
    """Return the swept system, its name in legends, the point's label and its curve, as texts."""
    if row.sweep is None:
        return None
    curve = digest([str(part) for part in curves.curve_key(row) or ()])[:8]
    named = curves.legend_names([row])[row.sweep.system]
    return [texts.number(text) for text in (row.sweep.system, named, row.sweep.label, curve)]


def page_figures(measured: Table, tariff: Tariff) -> tuple[tuple[Figure, ...], tuple[Row, ...]]:
    """Return the figures of a page, and its rows on machines that cost one US$ an hour.

    The page multiplies by the price of an hour; tokens, storage and builds have the tariff's prices.
    """
    rows = tuple(_at_one_dollar(row_pricing.price_row(row, tariff)) for row in measured.rows)
    return row_figures.table_figures(replace(measured, rows=rows), Place.PAGE), rows


def _at_one_dollar(row: Row) -> Row:
    if row.outcome is not Outcome.OK:
        return row
    whole = Price("", "", row.cpus, row.memory_limit_bytes, "", "", 1.0, "", row.gpus)
    return row_pricing.on_machine(row, whole, None)


def _figures(row: Row, figures: Sequence[Figure], texts: SharedValues) -> dict[str, ShortEstimate]:
    """Return the figures of a row by their numbers, for people: a percentage is a percentage."""
    found: dict[str, ShortEstimate] = {}
    for number, figure in enumerate(figures):
        item = figure.estimate(row)
        if figure.percent:
            item = item.map(lambda value: value * 100)
        ranks = Place.PAGE_TABLE in figure.places or figure.name in row.measures
        if (short := short_estimate(item, texts, digits=None if ranks else _SHOWN_DIGITS)) is not None:
            found[str(number)] = short
    return found

"""Measured rows as a page's data, and the prices of the machines that they need at every date.

Figures that rank rows are in full, figures that are only shown in fewer digits.  The page itself only multiplies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.analysis import row_pricing
from harness.analysis.axes import cell_of
from harness.analysis.row_pricing import Tariff
from harness.analysis.table import Machine, Price, Row, Timing
from harness.commands import command
from harness.driver.records import Outcome, digest
from harness.pricing import prices
from harness.report import explain
from harness.report.plots import curves
from harness.results.schema import glob_of
from harness.stats import Estimate
from harness.untrusted import ForeignText, Text, one_line

# A paragraph: the numbers of its title and of the parts of its text.
ShortParagraph = list[int | None]
# Parts that many rows share end here.
_PARTS = re.compile(r"(?<=[.:;]) ")
# A figure: its value, its interval's ends, the number of its reason; cut after the last of these that is known.
ShortEstimate = list[float | int | None] | None


@dataclass
class SharedTexts:
    """Texts that many rows share, each stored once; a row holds numbers.  Foreign ones pass through ``one_line``."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, text: Text | None) -> int | None:
        """Return the number of a text; ``None`` for none."""
        if text is None:
            return None
        return self.numbers.setdefault(one_line(text), len(self.numbers))

    def all(self) -> list[str]:
        """Return the texts in the order of their numbers."""
        return list(self.numbers)


def short_estimate(item: Estimate | None, texts: SharedTexts, *, digits: int | None = None) -> ShortEstimate:
    """Return an estimate as a list without trailing nulls.

    Args:
        item: the figure; ``None``: there is none.
        texts: where its reason is kept.
        digits: significant ones; ``None``: as many as it has, for what scores are made of.
    """
    if item is None:
        return None
    parts: list[float | int | None] = [rounded(part, digits) for part in (item.value, item.low, item.high)]
    parts.append(texts.number(item.reason))
    while parts and parts[-1] is None:
        parts.pop()
    return parts or None


def short_paragraphs(paragraphs: Iterable[explain.Paragraph], texts: SharedTexts) -> list[ShortParagraph]:
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


# Rows with the same need are priced on the same machine, with the same words.
MachineNeed = tuple[str | None, int, int, int, int | None, str | None, ForeignText | None]


def all_tariffs(chosen: Tariff) -> tuple[Tariff, ...]:
    """Return all known prices, the oldest first, with the chosen ones among them.

    Raises:
        FileError: a file of prices or facts is missing or wrong.
    """
    found = [
        row_pricing.tariff(snapshot, chosen.root, chosen.choice, chosen.tokens)
        for file in prices.snapshot_files(chosen.root)
        for snapshot in prices.read_snapshots(file, chosen.root).values()
    ]
    return tuple(found if chosen.snapshot in [each.snapshot for each in found] else [*found, chosen])


def machine_need(row: Row) -> MachineNeed:
    """Return the facts of a row that decide which machine prices it."""
    measured_type = None if row.machine is None else row.machine.instance_type
    envelope = (row.cpus, row.memory_bytes, row.gpus, row_pricing.gpu_memory_bytes(row))
    return row.published_type, *envelope, row_pricing.measured_architecture(row), measured_type


def snapshot_records(
    needs: dict[MachineNeed, Row], known: Sequence[Tariff], texts: SharedTexts
) -> list[dict[str, Any]]:
    """Return each snapshot with the price of each need, in the order of ``needs``.

    Args:
        needs: every need with one row that has it.
        known: the prices.
        texts: where words are kept.
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


def _price_record(row: Row, tariff: Tariff, texts: SharedTexts) -> dict[str, Any]:
    price, note = row_pricing.choose_machine(row, tariff)
    placed: dict[str, Any] = {"note": texts.number(note)}
    if price is None:
        return placed
    # Whether a throughput is of the whole of that machine: asked with a measured one, as the row may lack it.
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
        "gpus": price.gpus,
        "part": texts.number(part.reason) if part.value is None else None,
    }


def throughput_note(row: Row) -> str | None:
    """Return the note on a cost from a row's throughput, the same on every machine."""
    if row.scenario == "single_stream":
        return None
    whole = Price("", "", row.cpus, row.memory_limit_bytes, "", "", 1.0, "", row.gpus)
    return row_pricing.saturated(row, whole, None).reason


# What is only looked at; a histogram is made of quantiles.
_SHOWN_DIGITS, _QUANTILE_DIGITS = 5, 3


@dataclass
class SharedValues:
    """Values that rows share, each stored once and referred to by number."""

    texts: SharedTexts = field(default_factory=SharedTexts)
    machines: dict[Machine, int] = field(default_factory=dict)
    needs: dict[MachineNeed, Row] = field(default_factory=dict)

    def need(self, row: Row) -> int:
        """Return the number of a row's machine need."""
        wanted = machine_need(row)
        self.needs.setdefault(wanted, row)
        return list(self.needs).index(wanted)

    def machine(self, machine: Machine | None) -> int | None:
        """Return the number of the machine that measured a row."""
        return None if machine is None else self.machines.setdefault(machine, len(self.machines))


def row_record(
    row: Row,
    place: int,
    measures: tuple[str, ...],
    quantiles_s: tuple[float, ...],
    shared: SharedValues,
    tariff: Tariff,
) -> dict[str, Any]:
    """Return the record of a row; keys without a value are left out.

    Args:
        row: as measured, without money.
        place: the number of its comparison group.
        measures: in the order of the page.
        quantiles_s: of its samples: minimum, every further 2 %, maximum.
        shared: takes what other rows have as well.
        tariff: the prices that the page opens with.
    """
    texts = shared.texts
    content = {
        **_names(row, place, shared),
        **(_figures(row, measures, texts) if row.outcome is Outcome.OK else {}),
        "quantiles": [rounded(value, _QUANTILE_DIGITS) for value in quantiles_s],
        "findings": [[each.cause.value, each.validity.value, texts.number(each.text)] for each in row.findings],
        "explained": short_paragraphs(_explained(row_pricing.price_row(row, tariff)), texts),
        # A finding's text is not repeated.
        "notes": [texts.number(note) for note in row.own_notes],
    }
    return {name: value for name, value in content.items() if value not in (None, [], {}, ())}


def _explained(row: Row) -> Iterable[explain.Paragraph]:
    """Yield how the row was made; the page fills in its cost at the chosen prices, and its jobs' keys."""
    for title, text in explain.row_paragraphs(row):
        yield title, "" if title in (explain.COST, explain.STORED_JOBS) else text


def _names(row: Row, place: int, shared: SharedValues) -> dict[str, Any]:
    texts = shared.texts
    return {
        "key": one_line(row.per_query_key),
        "origin": texts.number(row.origin),
        "keys": [one_line(key) for key in row.keys or (row.key,)],
        "place": place,
        "suite": texts.number(row.suite),
        "system": texts.number(row.system),
        "profile": texts.number(row.profile),
        "outcome": row.outcome.value,
        "validity": row.validity.value,
        "detail": texts.number(row.detail),
        "standIn": texts.number(row.stand_in),
        "firstUse": texts.number(row.pinned_at_first_use),
        "sweep": _sweep(row, texts),
        "cpus": row.cpus,
        "gpus": row.gpus,
        "memory": row.memory_limit_bytes,
        "nominal": row.nominal_memory_bytes,
        "need": shared.need(row),
        "machine": shared.machine(row.machine),
        "again": None
        if row.machine is None
        else texts.number(command("run", "SUITE", fresh=True, only=glob_of(cell_of(row)))),
        "publishedType": texts.number(row.published_type),
        "started": row.started_at,
        "jobs": row.jobs,
        "attempts": row.attempts,
        "apart": row.harness_apart,
        "pageCache": texts.number(row.page_cache),
    }


def _sweep(row: Row, texts: SharedTexts) -> list[int | None] | None:
    """Return the swept system, its name in legends, the point's label and its curve, as texts."""
    if row.sweep is None:
        return None
    curve = digest([str(part) for part in curves.curve_key(row) or ()])[:8]
    named = curves.legend_names([row])[row.sweep.system]
    return [texts.number(text) for text in (row.sweep.system, named, row.sweep.label, curve)]


def _figures(row: Row, measures: tuple[str, ...], texts: SharedTexts) -> dict[str, Any]:
    def short(item: Estimate | None) -> ShortEstimate:
        return short_estimate(item, texts, digits=_SHOWN_DIGITS)

    def timing(item: Timing | None) -> list[ShortEstimate] | None:
        return None if item is None else [short(item.mean_s), short(item.p50_s)]

    return {
        "queries": row.queries,
        "trials": row.trials,
        "measures": [short_estimate(row.measures.get(name), texts) for name in measures],
        "mean": short_estimate(row.latency_mean_s, texts),
        "onePass": row.one_pass_warmup,
        "throughput": short_estimate(row.throughput_qps, texts),
        "throughputNote": texts.number(throughput_note(row)),
        "p50": short(row.p50_s),
        "p95": short(row.p95_s),
        "p99": short(row.p99_s),
        "atMost": {name: short(item) for name, item in row.at_most_s.items()},
        "service": timing(row.service_s),
        "stages": {one_line(name): timing(item) for name, item in row.stages_s.items()},
        "spread": {name: short(item) for name, item in row.spread_s.items()},
        "trialMeans": [rounded(mean_s, _SHOWN_DIGITS) for mean_s in row.trial_means_s],
        "anon": row.peak_anon_bytes,
        "mapped": row.peak_mapped_bytes,
        "cgroup": row.peak_cgroup_bytes,
        "gpuMemory": row.peak_gpu_bytes,
        "energy": rounded(row.gpu_energy_j, _SHOWN_DIGITS),
        "index": row.index_bytes,
        "load": rounded(row.load_s, _SHOWN_DIGITS),
        "first": rounded(row.first_query_s, _SHOWN_DIGITS),
    }

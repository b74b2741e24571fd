"""What each machine that rows need costs at every date, in every region and on every term: the page only multiplies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from harness.analysis import row_pricing
from harness.analysis.row_pricing import Tariff
from harness.analysis.table import Price, Row
from harness.pricing import prices
from harness.pricing.prices import Snapshot
from harness.records import Outcome
from harness.report.page.compact import Texts
from harness.stats import Estimate

# Rows with the same need are priced on the same machine, with the same words.
Need = tuple[str | None, int, int, int, int | None, str | None]


def tariffs(chosen: Tariff) -> tuple[Tariff, ...]:
    """All prices that are here, oldest first, and among them those that were asked for.

    Raises:
        FileError: a file of prices or facts is missing or wrong.
    """
    found = [
        row_pricing.tariff(snapshot, chosen.root)
        for file in prices.files(chosen.root)
        for snapshot in prices.read(file, chosen.root).values()
    ]
    if not any(_name(each.snapshot) == _name(chosen.snapshot) for each in found):
        found.append(chosen)
    return tuple(found)


def _name(snapshot: Snapshot) -> tuple[str, str, str, str]:
    return snapshot.provider, snapshot.region, snapshot.term, str(snapshot.as_of)


def default(chosen: Tariff, known: Sequence[Tariff]) -> int:
    """Where those that were asked for stand among all."""
    return [_name(each.snapshot) for each in known].index(_name(chosen.snapshot))


def need(row: Row) -> Need:
    """All of a row that says which machine prices it."""
    here = None if row.machine is None else row_pricing.architecture(row.machine.architecture)
    memory = row_pricing.gpu_memory_bytes(row)
    return row.published_type, row.cpus, row.memory_limit_bytes, row.gpus, memory, here


def snapshots(needs: dict[Need, Row], known: Sequence[Tariff], texts: Texts) -> list[dict[str, Any]]:
    """Each snapshot with the place of each need, in the order of ``needs``.

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
            "places": [_place(row, tariff, texts) for row in needs.values()],
        }
        for tariff in known
    ]


def _place(row: Row, tariff: Tariff, texts: Texts) -> dict[str, Any]:
    price, note = row_pricing.choose_machine(row, tariff)
    placed: dict[str, Any] = {"note": texts.number(note)}
    if price is None:
        return placed
    # Whether a throughput is of the whole of that machine: asked with one that was measured, whatever the row's is.
    asked = replace(row, scenario="server", outcome=Outcome.OK, throughput_qps=Estimate(1.0))
    part = row_pricing.saturated(asked, price, note)
    return placed | {
        "type": texts.number(price.instance_type),
        "usd": price.usd_per_hour,
        "architecture": texts.number(price.architecture),
        "vcpus": price.vcpus,
        "memory": price.memory_bytes,
        "gpus": price.gpus,
        "part": texts.number(part.reason) if part.value is None else None,
    }


def throughput_note(row: Row) -> str | None:
    """What is said of a cost that follows from a row's throughput, on whatever machine."""
    if row.scenario == "single_stream":
        return None
    whole = Price("", "", row.cpus, row.memory_limit_bytes, "", "", 1.0, "", row.gpus)
    return row_pricing.saturated(row, whole, None).reason

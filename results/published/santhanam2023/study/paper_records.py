"""Write the paper's tables for programs: one CSV line a row of Tables 1 to 3, or everything as JSON."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from harness.analysis.published import Printed, Published, TableLine
from harness.pricing.offers import Offer
from harness.pricing.prices import Snapshot
from harness.report.document import Value
from harness.report.writers import csv_cell
from harness.untrusted import raw_text

from . import further
from .costs import RepricedCost, reprice
from .errata import find_errata

# Columns of a recomputed cost; a row of Table 1 has none of them.
_COST = (
    "usd_per_hour",
    "price_date",
    "cost_recomputed",
    "cost_lowest",
    "cost_highest",
    "agrees",
    "now_price_date",
    "now_usd_per_hour",
    "now_cost",
    "now_cheapest_type",
    "now_cheapest_cost",
    "now_cheapest_x86_type",
    "now_cheapest_x86_cost",
    "rank",
    "now_rank",
)
_PRINTED = (
    "system",
    "reference",
    "gpu",
    "cpu",
    "ram_gib",
    "instance_type",
    "mrr_at_10",
    "success_at_10",
    "latency_ms",
    "index_gib",
    "cost_usd_per_million",
)


def as_csv(published: Published, follows: Snapshot, now: Snapshot) -> str:
    """Write one line a row: printed figures as printed, recomputed ones in full precision, empty if missing."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    columns = ("table", "row", "dataset", *_PRINTED, *_COST, "errata")
    writer.writerow(columns)
    for row in _rows(published, follows, now):
        writer.writerow([csv_cell(row.get(column)) for column in columns])
    return stream.getvalue()


def as_json(published: Published, follows: Snapshot, now: Snapshot) -> str:
    """Write the source, rows of Tables 1 to 3, all other tables, and the errata.  Missing is null.

    Only ASCII is written, so that control characters of foreign text reach no terminal.
    """
    whole = {
        "published": published.about.model_dump(mode="json"),
        "prices": {"paper": str(follows.as_of), "now": str(now.as_of), "region": now.region, "term": now.term},
        "rows": list(_rows(published, follows, now)),
        "table3c": [_plain(line) for line in published.table3c],
        "scores": {number: [_plain(line) for line in lines] for number, lines in published.scores.items()},
        "table5": [_plain(line) for line in further.examples(published)],
        "table6": [_plain(line) for line in further.lengths(published)],
        "settings": [_plain(line) for line in further.settings(published)],
        "errata": [
            {
                "kind": each.kind,
                "table": each.table,
                "row": each.number,
                "name": each.row,
                "printed": each.printed,
                "follows": each.follows,
                "evidence": each.evidence,
            }
            for each in find_errata(published, follows)
        ],
    }
    return json.dumps(whole, indent=2, ensure_ascii=True, default=raw_text) + "\n"


def _rows(published: Published, follows: Snapshot, now: Snapshot) -> list[dict[str, Any]]:
    first, *_ = published.about.datasets
    found: list[dict[str, Any]] = [
        {"table": "1", "row": number, "dataset": first.name, **_plain(line)}
        for number, line in enumerate(published.table1, start=1)
    ]
    wrong = [(each.table, each.number, f"E{number}") for number, each in enumerate(find_errata(published, follows), 1)]
    datasets = {each.table3: each for each in published.about.datasets}
    for each in reprice(published, follows, now):
        cost, dataset = each.cost, datasets.get(each.cost.table)
        accuracy = published.accuracy(cost.system, dataset) if dataset else cost.taken_from
        line = published.table3[dataset.name][cost.number - 1] if dataset else published.table2[cost.number - 1]
        marks = [mark for table, number, mark in wrong if (table, number) == (cost.table, cost.number)]
        found.append(
            {
                "table": cost.table,
                "row": cost.number,
                **(_plain(accuracy) if accuracy else {}),
                **_plain(line),
                "dataset": (dataset or first).name,
                "latency_ms": str(cost.latency),
                **_priced(each, follows, now),
                "errata": " ".join(marks) or None,
            }
        )
    return found


def _priced(moved: RepricedCost, follows: Snapshot, now: Snapshot) -> dict[str, Value]:
    cost, rent = moved.cost, moved.rent
    values = (
        float(cost.usd_per_hour),
        str(follows.as_of),
        float(cost.exact),
        float(cost.follows.low),
        float(cost.follows.high),
        cost.agrees,
        str(now.as_of),
        _float(rent.same),
        _float(moved.same),
        _type(rent.cheapest),
        _float(moved.cheapest),
        _type(rent.cheapest_x86),
        _float(moved.cheapest_x86),
        moved.rank_then,
        moved.rank,
    )
    return dict(zip(_COST, values, strict=True))


def _plain(line: TableLine) -> dict[str, Value]:
    """Return a row as its file has it: printed figures stay text, because their digits tell the rounding."""
    return {
        column: str(value) if isinstance(value := getattr(line, column), Printed) else value
        for column in type(line).model_fields
    }


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def _type(offer: Offer | None) -> str | None:
    return None if offer is None else offer.instance.instance_type

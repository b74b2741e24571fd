"""Order the rows of :mod:`.table3`, and write them for programs: CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from harness.analysis.table import Row, Table
from harness.estimate import Estimate
from harness.pricing.cost import GIB
from harness.report.document import MIB, Value
from harness.report.writers import csv_cell
from harness.untrusted import raw_text

# Version of the JSON and CSV formats.
VERSION = 1
# The paper's order of systems; others follow by name.
_ORDER = ("bm25", "pyserini", "dpr", "colbertv2-s", "colbertv2-m", "colbertv2-l", "bt-splade-l")
# Measures between 0 and 1, which the paper prints in per cent.
_SHARES = ("RR", "Success", "nDCG", "AP", "P", "R")


@dataclass(frozen=True)
class Block:
    """The rows of one dataset in one suite, in the paper's order: hardware, then systems.

    ``label`` is the dataset's name, with the suite where two have datasets of one name.
    """

    suite: str
    dataset: str
    label: str
    rows: tuple[Row, ...]


def blocks(table: Table) -> tuple[Block, ...]:
    """Group the single-stream rows, which the paper's table shows, by suite and dataset."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in table.rows:
        if row.scenario == "single_stream":
            found[row.suite, row.dataset].append(row)
    times = Counter(dataset for _, dataset in found)
    return tuple(
        Block(
            suite,
            dataset,
            dataset if times[dataset] == 1 else f"{dataset} (suite {suite})",
            tuple(sorted(ordered(rows), key=_hardware)),
        )
        for (suite, dataset), rows in sorted(found.items())
    )


def left_out(table: Table) -> tuple[str, ...]:
    """Say how many rows the table cannot show."""
    others = Counter(row.scenario for row in table.rows if row.scenario != "single_stream")
    if not others:
        return ()
    rows = ", ".join(f"{count} of scenario {name}" for name, count in sorted(others.items()))
    return (f"Left out, because the paper's table is of one query after the other: {rows}; see --layout rows.",)


def ordered(rows: Iterable[Row]) -> list[Row]:
    """Sort rows by system, in the paper's order."""
    return sorted(rows, key=lambda row: (_place(row.system.lower()), row.system))


def _place(system: str) -> int:
    """Return a system's place in the paper's order; ``dpr-small`` has that of ``dpr``."""
    return next((place for place, name in enumerate(_ORDER) if f"{system}-".startswith(f"{name}-")), len(_ORDER))


def scale(measure: str) -> float:
    """Return the factor of a measure's values: 100 if the paper prints per cent."""
    return 100 if re.split(r"[@(]", measure)[0] in _SHARES else 1


def named(measure: str) -> str:
    """Name a measure's column, with its unit."""
    return f"{measure}_percent" if scale(measure) == 100 else measure


def as_csv(table: Table) -> str:
    """Write one line a row: the columns of the paper's tables first; full precision, empty if missing."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    columns = _columns(table)
    writer.writerow(name for name, _ in columns)
    writer.writerows([csv_cell(get(row)) for _, get in columns] for block in blocks(table) for row in block.rows)
    return stream.getvalue()


def as_json(table: Table) -> str:
    """Write a list of rows for each dataset, with the reasons of missing numbers, which are null.

    Only ASCII is written, so that control characters of foreign text reach no terminal.
    """
    whole = {
        "layout": "santhanam2023",
        "layout_version": VERSION,
        "prices": {
            "provider": table.price_provider,
            "region": table.price_region,
            "term": table.price_term,
            "date": table.price_date,
            "source": table.price_source,
        },
        "tables": [
            {"suite": block.suite, "dataset": block.dataset, "rows": [_whole(row, table) for row in block.rows]}
            for block in blocks(table)
        ],
        "notes": [*left_out(table), *table.notes],
    }
    return json.dumps(whole, indent=2, ensure_ascii=True, allow_nan=False, default=raw_text) + "\n"


def _hardware(row: Row) -> tuple[Any, ...]:
    return row.gpus, row.cpus, row.memory_limit_bytes, row.profile, row.isolation.name


def _columns(table: Table) -> list[tuple[str, Callable[[Row], Value]]]:
    """List the columns of the paper's tables as data (``results/published``), then further ones."""
    return [
        ("system", lambda row: row.system),
        ("gpu", lambda row: row.gpus),
        ("cpu", lambda row: row.cpus),
        ("ram_gib", lambda row: _gib(row.memory_limit_bytes)),
        ("instance_type", lambda row: row.price.instance_type if row.price else None),
        ("latency_ms", lambda row: _scaled(row.latency.mean_s.value, 1e3)),
        ("cost_usd_per_million", lambda row: row.usd_per_million.value),
        *(_measure(name) for name in table.measures),
        ("latency_ms_low", lambda row: _scaled(row.latency.mean_s.low, 1e3)),
        ("latency_ms_high", lambda row: _scaled(row.latency.mean_s.high, 1e3)),
        ("cost_usd_per_million_low", lambda row: row.usd_per_million.low),
        ("cost_usd_per_million_high", lambda row: row.usd_per_million.high),
        ("index_mib", lambda row: _scaled(row.index.size_bytes, 1 / MIB)),
        ("outcome", lambda row: row.outcome.value),
        ("validity", lambda row: row.validity.value),
        ("stand_in", lambda row: row.stand_in),
        ("suite", lambda row: row.suite),
        *([("origin", _origin)] if any(_origin(row) for row in table.rows) else []),
        ("dataset", lambda row: row.dataset),
        ("hardware_profile", lambda row: row.profile),
        ("isolation", lambda row: row.isolation.name),
        ("price_usd_per_hour", lambda row: row.price.usd_per_hour if row.price else None),
        ("price_date", lambda row: row.price.date if row.price else None),
        ("detail", lambda row: row.detail),
        ("key", lambda row: row.key),
    ]


def _gib(size: int) -> int | float:
    """Return GiB as the paper's tables do: a whole number where it is one."""
    return size // GIB if size % GIB == 0 else size / GIB


def _origin(row: Row) -> str | None:
    return row.origin


def _measure(name: str) -> tuple[str, Callable[[Row], Value]]:
    return named(name), lambda row: _scaled(row.measures.get(name, Estimate(None)).value, scale(name))


def _whole(row: Row, table: Table) -> dict[str, Any]:
    """Return a line of the CSV with the reasons of missing numbers and the row's notes."""
    figures = {
        "latency_ms": row.latency.mean_s,
        "cost_usd_per_million": row.cost.sequential,
        **{named(name): row.measures.get(name, Estimate(None)) for name in table.measures},
    }
    return {
        **{name: get(row) for name, get in _columns(table)},
        "reasons": {name: figure.reason for name, figure in figures.items() if figure.reason},
        "price_note": row.price_note,
        "notes": list(row.notes),
    }


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale

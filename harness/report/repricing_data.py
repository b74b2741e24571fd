"""A repricing -> CSV and JSON, for programs."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Callable

from harness.report.as_csv import written
from harness.report.columns import Value
from harness.repriced import Best, Change, Flip, Priced, Repricing
from harness.table import Figure, Row

# Version of the JSON and CSV formats.  History:
#   1  first version
#   2  rows: stand_in.  Everything in 1 kept its name and meaning.
#   3  rows: origin.  Everything in 2 kept its name and meaning.
#   4  rows: cheapest_before; flips and best compare it with cheapest.  Everything else in 3 kept its name and meaning.
VERSION = 4
Column = tuple[str, Callable[[Change], Value]]
# The four prices of each row, by the names that programs read.
_WAYS: dict[str, Callable[[Change], Priced]] = {
    "before": lambda each: each.before,
    "same": lambda each: each.same,
    "cheapest_before": lambda each: each.cheapest_before,
    "cheapest": lambda each: each.cheapest,
}


def as_json(found: Repricing) -> str:
    """Everything, a line each; of each row what names it, and its figures that repricing reads."""
    whole: dict[str, object] = {"reprice_version": VERSION}
    for item in dataclasses.fields(found):
        value = getattr(found, item.name)
        whole[item.name] = value if isinstance(value, str) else _parts(value)
    lines = [f"{json.dumps(name)}: {_written(value)}" for name, value in whole.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _parts(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    assert isinstance(value, tuple)
    return [_part(each) for each in value]


def _part(each: object) -> object:
    if isinstance(each, Change):
        return _change(each)
    if isinstance(each, Flip | Best):
        # What is compared stands beside the rest, as in a row.
        return {**each.place._asdict(), **{name: value for name, value in vars(each).items() if name != "place"}}
    return each if isinstance(each, str) else vars(each)


def _written(value: object) -> str:
    """JSON with each member of a list on a line of its own (``indent`` would cost a second for 10,000 rows)."""

    def one(part: object) -> str:
        return json.dumps(part, ensure_ascii=True, allow_nan=False)

    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(one(each) for each in value) + "\n]"
    return one(value)


def _change(each: Change) -> dict[str, object]:
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


def _priced(priced: Priced) -> dict[str, object]:
    price = priced.price
    return {
        "instance_type": price.instance_type if price else None,
        "usd_per_hour": price.usd_per_hour if price else None,
        "substitutes": price.substitutes if price else None,
        "usd_per_million": vars(priced.cost),
        "rank": priced.rank,
        "note": priced.note,
    }


def as_csv(found: Repricing) -> str:
    """One line a row; dates stand in columns, so that the header is always the same but for the measures."""
    columns: list[Column] = [
        ("system", lambda each: each.row.system),
        ("hardware_profile", lambda each: each.row.profile),
        ("suite", lambda each: each.row.suite),
        ("dataset", lambda each: each.row.dataset),
        ("scenario", lambda each: each.row.scenario),
        ("isolation", lambda each: each.row.isolation.value),
        ("validity", lambda each: each.row.validity.value),
        ("published_type", lambda each: each.row.published_type),
        *((name, _measure(name)) for name in found.measures),
        ("latency_mean_ms", lambda each: _scaled(each.row.latency_mean_s.value, 1e3)),
        ("throughput_qps", lambda each: each.row.throughput_qps.value),
        ("cost_model", lambda each: model(each.row)),
    ]
    for way, of in _WAYS.items():
        columns += _priced_columns(way, of, found.before.date if way.endswith("before") else found.now.date)
    columns += [("key", lambda each: each.row.key), ("stand_in", lambda each: each.row.stand_in)]
    if any(each.row.origin is not None for each in found.changes):
        columns.append(("origin", lambda each: each.row.origin))
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(name for name, _ in columns)
    writer.writerows([written(get(each)) for _, get in columns] for each in found.changes)
    return stream.getvalue()


def _priced_columns(way: str, of: Callable[[Change], Priced], date: str) -> list[Column]:
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


def _measure(name: str) -> Callable[[Change], Value]:
    return lambda each: each.row.measures.get(name, Figure(None)).value


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def model(row: Row) -> str:
    """The cost model that a row's scenario has."""
    return "sequential" if row.scenario == "single_stream" else "saturated"

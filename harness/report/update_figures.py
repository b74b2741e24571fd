"""The registry's figures of scenario ``mixed``: updates during the queries, and what they leave behind."""

from __future__ import annotations

from typing import Any

from harness.analysis import notes
from harness.analysis.table import Row
from harness.report.columns import Kind, reader
from harness.report.document import MISSING, Footnotes
from harness.report.figures import DATA, Figure, Place, count_of, figure_of
from harness.report.stage_figures import DETAIL, LIKE

_WIDE = DATA | {Place.WIDE, Place.PAGE, Place.ON_REQUEST, Place.EXPLAIN}
_TOLD = "Updates"


def _figure(name: str, unit: str, meaning: str, read: str, scale: float = 1, **more: Any) -> Figure:
    fixed: dict[str, Any] = {"optional": True, "told": _TOLD, "method": notes.UPDATE_METHOD, "places": _WIDE}
    return figure_of(name, unit, meaning, f"updates.{read}", scale, **(fixed | more))


def _times(name: str, label: str, meaning: str) -> tuple[Figure, ...]:
    """Return mean, median and 95th percentile of a time of the updates."""

    def percentile(short: str, words: str) -> Figure:
        interval = "95 % interval, for other updates"
        told = {"label": f"{label}, {short}", "interval": interval}
        return _figure(f"{name}_{short}_ms", "ms", f"{meaning}: {words}", f"{name}.{short}_s", 1e3, **told)

    mean = {"label": f"{label}, mean", "interval": "95 % interval, for fresh processes", "places": DETAIL}
    return (
        _figure(f"{name}_mean_ms", "ms", f"{meaning}: mean", f"{name}.mean_s", 1e3, **mean),
        percentile("p50", "median"),
        percentile("p95", "95th percentile"),
    )


def _out_of(name: str, label: str, meaning: str, part: str, whole: str) -> tuple[Figure, Figure]:
    """Return two counts: the updates that failed in some way, and all of them, which the wide table shows too."""

    counts = [reader(f"updates.{each}") for each in (part, whole)]

    def cell(row: Row, _: Footnotes) -> str:
        return MISSING if row.updates is None else " of ".join(f"{count(row):,}" for count in counts)

    return (
        _figure(name, "updates", meaning, part, label=label, header=label, cell=cell, kind=Kind.COUNT),
        count_of(f"{name}_of", "updates", f"how many were looked at, for {name}", f"updates.{whole}"),
    )


UPDATES: tuple[Figure, ...] = (
    *_times("insert", "insert", "latency of an insert, from its schedule until the engine has accepted it"),
    *_times("delete", "delete", "latency of a delete, from its schedule until the engine has accepted it"),
    *_times("found", "insert found", "time from an insert until a search finds the document"),
    *_out_of("not_found", "inserts not found", "watched inserts not found within 10 s", "found.missing", "found.count"),
    *_times("gone", "delete seen", "time from a delete until a search no longer finds the document"),
    *_out_of("not_gone", "deletes not seen", "watched deletes not seen within 10 s", "gone.missing", "gone.count"),
    *_out_of(
        "lost_documents",
        "documents lost",
        "documents that were inserted again, and that no search finds after all updates",
        "lost",
        "checked",
    ),
    _figure(
        "updated_recall",
        "fraction",
        "share of the hits of the index as it was built that are hits again after the updates",
        "recall",
        label="recall against a rebuilt index",
        interval=LIKE,
        bounds="95 %",
        decimals=4,
        higher=True,
    ),
    _figure(
        "idle_mean_ms", "ms", "latency before the updates: mean", "idle_mean_s", 1e3, label="latency without updates"
    ),
    _figure(
        "idle_p50_ms",
        "ms",
        "latency before the updates: median",
        "idle_p50_s",
        1e3,
        label="p50 without updates",
        places=DETAIL,
    ),
    _figure("query_rate", "queries/s", "queries that were answered a second during the updates", "query_qps"),
    _figure("update_rate", "updates/s", "inserts and deletes that were answered a second", "update_qps"),
    _figure("failed_updates", "updates", "inserts and deletes that failed", "failed", kind=Kind.COUNT),
    _figure(
        "unsent_updates", "updates", "inserts and deletes that came too late to be sent", "unsent", kind=Kind.COUNT
    ),
)

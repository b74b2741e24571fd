"""Leaked queries, and measures with and without them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from harness import stats
from harness.estimate import INTERVAL_MIN_QUERIES
from harness.evaluation.evaluate import INTERVAL_METHOD
from harness.evaluation.evaluate_runs import count_and_ids
from harness.evaluation.leakage import Effect, Leak, Leakage
from harness.report.document import Escape, GridColumn, ReportDocument, Section, Value, bounded, digits, grid_of

# Version of the JSON.
LEAKAGE_VERSION = 1
# Pairs that people are shown; programs get all.
_LISTED = 50


def leakage_document(samples: Sequence[Leakage]) -> ReportDocument:
    """Return the document of the leaked queries of some samples; CSV has the pairs alone."""
    return ReportDocument(
        sections=lambda escape: (_section(sample, escape) for sample in samples),
        lines=lambda: _lines(samples),
        content=lambda: {"leakage_version": LEAKAGE_VERSION, "samples": [_record(sample) for sample in samples]},
    )


def _section(sample: Leakage, escape: Escape) -> Section:
    compared, leaked = len(sample.queries) - len(sample.not_compared), len(sample.leaked)
    share = f" ({leaked / compared:.1%})" if compared else ""
    which = " that could be compared" if sample.not_compared else ""
    title = f"{leaked:,} of {compared:,} queries{which}{share} are near duplicates of training queries"
    pairs: list[GridColumn[Leak]] = [
        ("cosine", True, lambda leak: digits(leak.cosine, ".4f")),
        ("same text", False, lambda leak: "yes" if leak.same_text else "no"),
        ("query", False, lambda leak: escape(leak.query_id)),
        ("its text", False, lambda leak: escape(sample.queries.get(leak.query_id, ""))),
        ("training query", False, lambda leak: escape(leak.training_id)),
        ("its text", False, lambda leak: escape(sample.training.get(leak.training_id, ""))),
    ]
    effects: list[GridColumn[Effect]] = [
        ("system", False, lambda effect: escape(effect.system)),
        ("measure", False, lambda effect: escape(effect.measure)),
        ("all queries (95 %)", True, lambda effect: bounded(effect.all, decimals=3)),
        ("without the leaked (95 %)", True, lambda effect: bounded(effect.without, decimals=3)),
        ("change", True, lambda effect: digits(_change(effect), "+.3f")),
        ("leaked alone (95 %)", True, lambda effect: bounded(effect.leaked, decimals=3)),
    ]
    grids = (grid_of(sample.leaks[:_LISTED], pairs), grid_of(sample.effects, effects, keys=2))
    return Section(
        title=f"{escape(sample.dataset)}: {title}",
        grids=tuple(grid for grid in grids if grid.cells),
        notes=tuple(map(escape, _notes(sample))),
    )


def _change(effect: Effect) -> float | None:
    before, after = effect.all.value, effect.without.value
    return None if before is None or after is None else after - before


def _notes(sample: Leakage) -> Iterator[str]:
    """Say how pairs were found, what is not shown, and whether the order of systems depends on them."""
    if sample.threshold is None:
        yield (
            "Same texts alone were looked for, but for case, punctuation and white space; --embeddings finds near ones."
        )
    else:
        yield (
            f"Near duplicates: cosine of {sample.threshold:g} or more by {sample.encoder}, or the same text but for "
            "case, punctuation and white space."
        )
    if sample.not_compared:
        yield (
            f"{count_and_ids(sample.not_compared)} of {len(sample.queries):,} queries have no text, or no word in it, "
            "and could not be compared: name a file of texts with --queries, or of vectors with --embeddings."
        )
    if len(sample.leaks) > _LISTED:
        yield f"{len(sample.leaks) - _LISTED:,} more pairs: csv and json list all {len(sample.leaks):,}."
    if sample.effects:
        first = sample.effects[0]
        yield (
            f"Measures over {first.queries:,} judged queries, {first.queries_leaked:,} of them leaked. "
            f"Intervals: {INTERVAL_METHOD}; none of fewer than {INTERVAL_MIN_QUERIES}."
        )
    missing = {(effect.measure, effect.all.reason) for effect in sample.effects if effect.all.value is None}
    yield from (f"{measure}: {reason}." for measure, reason in sorted(missing, key=str))
    for measure in dict.fromkeys(effect.measure for effect in sample.effects):
        effects = [effect for effect in sample.effects if effect.measure == measure and _change(effect) is not None]
        systems = [effect.system for effect in effects]
        before = _order(systems, [effect.all.value for effect in effects])
        after = _order(systems, [effect.without.value for effect in effects])
        if before != after:
            yield f"The order by {measure} changes without them: {before} becomes {after}."
    yield from sample.notes


def _order(systems: Sequence[str], values: Sequence[float | None]) -> str:
    """Return the systems, best first; ``=`` stands between equal ones."""
    ranks = stats.competition_ranks(values, descending=True)
    groups: dict[int, list[str]] = {}
    for rank, system in sorted((rank, system) for rank, system in zip(ranks, systems, strict=True) if rank is not None):
        groups.setdefault(rank, []).append(system)
    return ", ".join(" = ".join(names) for names in groups.values())


def _lines(samples: Sequence[Leakage]) -> Iterator[Sequence[Value]]:
    yield "dataset", "query_id", "query", "training_id", "training_query", "same_text", "cosine"
    for sample in samples:
        for leak in sample.leaks:
            texts = sample.queries.get(leak.query_id, ""), sample.training.get(leak.training_id, "")
            yield sample.dataset, leak.query_id, texts[0], leak.training_id, texts[1], leak.same_text, leak.cosine


def _record(sample: Leakage) -> dict[str, Any]:
    return {
        "dataset": sample.dataset,
        "queries": len(sample.queries),
        "training_queries": len(sample.training),
        "leaked": list(sample.leaked),
        "not_compared": list(sample.not_compared),
        "threshold": sample.threshold,
        "encoder": sample.encoder,
        "pairs": [
            asdict(leak)
            | {"query": sample.queries.get(leak.query_id), "training_query": sample.training.get(leak.training_id)}
            for leak in sample.leaks
        ],
        "effects": [asdict(effect) for effect in sample.effects],
        "notes": list(_notes(sample)),
    }

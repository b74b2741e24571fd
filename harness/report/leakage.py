"""Leaked queries, and measures with and without them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from harness.evaluation.evaluate import INTERVAL_METHOD
from harness.evaluation.evaluate_runs import count_and_ids
from harness.evaluation.leakage import Effect, Leak, Leakage
from harness.report.document import (
    MISSING,
    Escape,
    GridColumn,
    ReportDocument,
    Section,
    Value,
    bounded,
    formatted,
    grid_of,
)
from harness.stats import INTERVAL_MIN_QUERIES

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
    grids = []
    if sample.leaks:
        pairs: list[GridColumn[Leak]] = [
            ("cosine", True, lambda leak: formatted(leak.cosine, ".4f")),
            ("same text", False, lambda leak: "yes" if leak.same_text else "no"),
            ("query", False, lambda leak: escape(leak.query_id)),
            ("its text", False, lambda leak: escape(sample.queries.get(leak.query_id, ""))),
            ("training query", False, lambda leak: escape(leak.training_id)),
            ("its text", False, lambda leak: escape(sample.training.get(leak.training_id, ""))),
        ]
        grids.append(grid_of(sample.leaks[:_LISTED], pairs))
    if sample.effects:
        effects: list[GridColumn[Effect]] = [
            ("system", False, lambda effect: escape(effect.system)),
            ("measure", False, lambda effect: escape(effect.measure)),
            ("all queries (95 %)", True, lambda effect: bounded(effect.all, decimals=3)),
            ("without the leaked (95 %)", True, lambda effect: bounded(effect.without, decimals=3)),
            ("change", True, _change),
            ("leaked alone (95 %)", True, lambda effect: bounded(effect.leaked, decimals=3)),
        ]
        grids.append(grid_of(sample.effects, effects, keys=2))
    return Section(
        title=f"{escape(sample.dataset)}: {title}",
        grids=tuple(grids),
        notes=tuple(escape(note) for note in _notes(sample)),
    )


def _change(effect: Effect) -> str:
    if effect.all.value is None or effect.without.value is None:
        return MISSING
    return f"{effect.without.value - effect.all.value:+.3f}"


def _notes(sample: Leakage) -> tuple[str, ...]:
    """Say how pairs were found, what is not shown, and whether the order of systems depends on them."""
    notes = []
    if sample.threshold is None:
        notes.append(
            "Same texts alone were looked for, but for case, punctuation and white space; --embeddings finds near ones."
        )
    else:
        notes.append(
            f"Near duplicates: cosine of {sample.threshold:g} or more by {sample.encoder}, or the same text but for "
            "case, punctuation and white space."
        )
    if sample.not_compared:
        notes.append(
            f"{count_and_ids(sample.not_compared)} of {len(sample.queries):,} queries have no text, or no word in it, "
            "and could not be compared: name a file of texts with --queries, or of vectors with --embeddings."
        )
    if len(sample.leaks) > _LISTED:
        notes.append(f"{len(sample.leaks) - _LISTED:,} more pairs: csv and json list all {len(sample.leaks):,}.")
    if sample.effects:
        first = sample.effects[0]
        notes.append(
            f"Measures over {first.queries:,} judged queries, {first.queries_leaked:,} of them leaked. "
            f"Intervals: {INTERVAL_METHOD}; none of fewer than {INTERVAL_MIN_QUERIES}."
        )
    notes += _reasons(sample.effects)
    measures = dict.fromkeys(effect.measure for effect in sample.effects)
    notes += [text for measure in measures if (text := _order(sample, measure))]
    return (*notes, *sample.notes)


def _reasons(effects: Sequence[Effect]) -> list[str]:
    """Say why a mean over all queries is missing."""
    missing = {(effect.measure, effect.all.reason) for effect in effects if effect.all.value is None}
    return [f"{measure}: {reason}." for measure, reason in sorted(missing, key=str)]


def _order(sample: Leakage, measure: str) -> str | None:
    effects = [effect for effect in sample.effects if effect.measure == measure]
    known = [effect for effect in effects if effect.all.value is not None and effect.without.value is not None]
    before = [effect.system for effect in sorted(known, key=lambda effect: -(effect.all.value or 0))]
    after = [effect.system for effect in sorted(known, key=lambda effect: -(effect.without.value or 0))]
    if before == after:
        return None
    return f"The order by {measure} changes without them: {', '.join(before)} becomes {', '.join(after)}."


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

"""Leaked queries, and measures with and without them, as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from harness.evaluation.evaluate import INTERVAL_METHOD
from harness.evaluation.evaluate_runs import count_and_ids
from harness.evaluation.leakage import Effect, Leakage
from harness.report import writer
from harness.report.csv_json import written
from harness.report.markdown import escape, grid
from harness.report.sheet import MISSING
from harness.stats import INTERVAL_MIN_QUERIES, Estimate

FORMATS = ("md", "csv", "json")
# Version of the JSON.
LEAKAGE_VERSION = 1
# Pairs that people are shown; programs get all.
_LISTED = 50


def render(found: Sequence[Leakage], form: str) -> str:
    """Write what leaked.

    Raises:
        UnknownName: there is no such format.
    """
    return writer({"md": _markdown, "csv": _csv, "json": _json}, form)(found)


def _markdown(found: Sequence[Leakage]) -> str:
    return "\n\n".join("\n".join(_of_one(each)) for each in found) + "\n"


def _of_one(each: Leakage) -> Iterator[str]:
    compared, leaked = len(each.queries) - len(each.not_compared), len(each.leaked)
    share = f" ({leaked / compared:.1%})" if compared else ""
    which = " that could be compared" if each.not_compared else ""
    said = f"{leaked:,} of {compared:,} queries{which}{share} are near duplicates of training queries"
    yield f"**{escape(each.dataset)}: {said}**"
    if each.leaks:
        yield ""
        head = ("cosine", "same text", "query", "its text", "training query", "its text")
        yield from grid(head, (True, False, False, False, False, False), list(_pairs(each)), padded=True)
    if each.effects:
        yield ""
        head = ("system", "measure", "all queries (95 %)", "without the leaked (95 %)", "change", "leaked alone (95 %)")
        cells = [_cells(effect) for effect in each.effects]
        yield from grid(head, (False, False, True, True, True, True), cells, padded=True)
    yield ""
    yield from (f"- {escape(note)}" for note in notes(each))


def _pairs(each: Leakage) -> Iterator[tuple[str, ...]]:
    for leak in each.leaks[:_LISTED]:
        yield (
            MISSING if leak.cosine is None else f"{leak.cosine:.4f}",
            "yes" if leak.same_text else "no",
            escape(leak.query_id),
            escape(each.queries.get(leak.query_id, "")),
            escape(leak.training_id),
            escape(each.training.get(leak.training_id, "")),
        )


def _cells(effect: Effect) -> tuple[str, ...]:
    change = MISSING
    if effect.all.value is not None and effect.without.value is not None:
        change = f"{effect.without.value - effect.all.value:+.3f}"
    names = escape(effect.system), escape(effect.measure)
    return (*names, _shown(effect.all), _shown(effect.without), change, _shown(effect.leaked))


def _shown(figure: Estimate) -> str:
    if figure.value is None:
        return MISSING
    if figure.low is None or figure.high is None:
        return f"{figure.value:.3f}"
    return f"{figure.value:.3f} ({figure.low:.3f}–{figure.high:.3f})"


def notes(each: Leakage) -> tuple[str, ...]:
    """How pairs were found, what is not shown, and whether the order of systems depends on them."""
    said = []
    if each.threshold is None:
        said.append(
            "Same texts alone were looked for, but for case, punctuation and white space; --embeddings finds near ones."
        )
    else:
        said.append(
            f"Near duplicates: cosine of {each.threshold:g} or more by {each.encoder}, or the same text but for case, "
            "punctuation and white space."
        )
    if each.not_compared:
        said.append(
            f"{count_and_ids(each.not_compared)} of {len(each.queries):,} queries have no text, or no word in it, and could not"
            " be compared: name a file of texts with --queries, or of vectors with --embeddings."
        )
    if len(each.leaks) > _LISTED:
        said.append(f"{len(each.leaks) - _LISTED:,} more pairs: csv and json list all {len(each.leaks):,}.")
    if each.effects:
        first = each.effects[0]
        said.append(
            f"Measures over {first.queries:,} judged queries, {first.queries_leaked:,} of them leaked. "
            f"Intervals: {INTERVAL_METHOD}; none of fewer than {INTERVAL_MIN_QUERIES}."
        )
    said += _reasons(each.effects)
    said += [
        text for measure in dict.fromkeys(effect.measure for effect in each.effects) if (text := _order(each, measure))
    ]
    return (*said, *each.notes)


def _reasons(effects: Sequence[Effect]) -> list[str]:
    """Why a mean over all queries is missing; where the leaked alone have none, there are none."""
    missing = {(effect.measure, effect.all.reason) for effect in effects if effect.all.value is None}
    return [f"{measure}: {reason}." for measure, reason in sorted(missing, key=str)]


def _order(each: Leakage, measure: str) -> str | None:
    effects = [effect for effect in each.effects if effect.measure == measure]
    known = [effect for effect in effects if effect.all.value is not None and effect.without.value is not None]
    before = [effect.system for effect in sorted(known, key=lambda effect: -(effect.all.value or 0))]
    after = [effect.system for effect in sorted(known, key=lambda effect: -(effect.without.value or 0))]
    if before == after:
        return None
    return f"The order by {measure} changes without them: {', '.join(before)} becomes {', '.join(after)}."


def _csv(found: Sequence[Leakage]) -> str:
    """The pairs; the measures stand in the other formats."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(("dataset", "query_id", "query", "training_id", "training_query", "same_text", "cosine"))
    for each in found:
        for leak in each.leaks:
            texts = each.queries.get(leak.query_id, ""), each.training.get(leak.training_id, "")
            cells = (each.dataset, leak.query_id, texts[0], leak.training_id, texts[1], leak.same_text, leak.cosine)
            writer.writerow([written(cell) for cell in cells])
    return stream.getvalue()


def _json(found: Sequence[Leakage]) -> str:
    content = {
        "leakage_version": LEAKAGE_VERSION,
        "samples": [
            {
                "dataset": each.dataset,
                "queries": len(each.queries),
                "training_queries": len(each.training),
                "leaked": list(each.leaked),
                "not_compared": list(each.not_compared),
                "threshold": each.threshold,
                "encoder": each.encoder,
                "pairs": [
                    asdict(leak)
                    | {"query": each.queries.get(leak.query_id), "training_query": each.training.get(leak.training_id)}
                    for leak in each.leaks
                ],
                "effects": [asdict(effect) for effect in each.effects],
                "notes": list(notes(each)),
            }
            for each in found
        ],
    }
    return json.dumps(content, indent=2, ensure_ascii=True, allow_nan=False) + "\n"

"""Report on reading beyond the first part: gains over FirstP, and what they cost."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from harness.analysis.long_documents import RATIOS, LongDocuments, LongGroup, MeanGain, ReadingOn
from harness.analysis.pareto_front import FrontState
from harness.analysis.table import Row
from harness.analysis.verdict import ComparisonVerdict
from harness.driver.records import Outcome
from harness.errors import counted, listed
from harness.estimate import Estimate, best_of
from harness.report.document import (
    MISSING,
    Escape,
    Grid,
    GridColumn,
    ReportDocument,
    Section,
    Value,
    cut,
    digits,
    few_lines,
    grid_of,
    joined_by_and,
    lines_of_records,
    number,
    stand_ins,
    system_name,
    with_ends,
)
from harness.report.hardware import hardware
from harness.report.summary import BAD, failure, tone
from harness.report.writers import narrowed

# Version of the JSON.
LONG_DOCUMENTS_VERSION = 1

METHOD = (
    "Gain: the measure less the FirstP's, query by query; its interval decides. It comes from the paired "
    "randomisation test and is corrected for all gains as p is (Holm). In per cent: of FirstP's mean, taken as exact.",
    "x: the figure over FirstP's. Latency is the whole query with its first stage; score is the time of the reranker's "
    "model, without its head; both only if one machine measured both. FLOP and tokens are counted, the same on every "
    "machine: FLOP on padded lengths, tokens without padding.",
    "Front: no other system, and not FirstP itself, has a better gain at a lower ratio, as far as the intervals tell; "
    "contested: another one has by the figures alone. The first screen has the front of latency, else of FLOP.",
    "FirstP is named by the suite: the same model over a document's first part ([firstp]).",
)
# Columns that decide least, first.
_DROPPED = ("score", "gain %", "tokens", "FLOP")
_HEADERS = {"latency": "latency", "score": "score", "flop": "FLOP", "tokens": "tokens"}
_STATES = {FrontState.FRONT: "front", FrontState.CONTESTED: "contested", FrontState.DOMINATED: ""}


def long_documents_document(made: LongDocuments) -> ReportDocument:
    """Return the document; CSV has a line for each system, JSON all that is known."""
    return ReportDocument(
        sections=lambda escape: _sections(made, escape),
        lines=lambda: lines_of_records(
            [_values(group, each, made.measure) for group in made.groups for each in group.systems], _CSV
        ),
        content=lambda: {
            "long_documents_version": LONG_DOCUMENTS_VERSION,
            "measure": made.measure,
            "unnamed": list(made.unnamed),
            "groups": [_record(group, made.measure) for group in made.groups],
            "mean_gains": [dataclasses.asdict(mean) for mean in made.mean_gains()],
        },
    )


def answer(made: LongDocuments, escape: Escape, width: int | None) -> Section:
    """Return the grids of few columns, a sentence for each of at most two groups, and at most five lines.

    ``width``: of the terminal; columns that decide least are left out until the grids fit.
    """
    grids = tuple(narrowed(_grid(group, made.measure, escape), _DROPPED, width) for group in made.groups)
    sentences = [_sentence(group, made.measure, escape) for group in made.groups]
    if len(sentences) > 2:
        sentences = [_counted(made)]
    elif len(sentences) == 2:
        sentences = [
            f"{escape(_name(group, made.groups))}: {text}" for group, text in zip(made.groups, sentences, strict=True)
        ]
    notes = [*_notes(made, escape), *map(escape, stand_ins(_rows(made)))]
    lead = (
        f"Gain in points of {made.measure} over FirstP, and costs over FirstP's"
        if made.groups
        else _nothing(made, escape)
    )
    pointer = "all columns, methods: --wide   picture: --format png -o DIR"
    return Section(lead=(lead,), grids=grids, after=tuple(sentences), notes=few_lines(notes, pointer))


def _counted(made: LongDocuments) -> str:
    """Say how many gains are surely above and below 0, over all groups."""
    gains = [each.gain for group in made.groups for each in group.systems if each.gain is not None]
    better, worse = (
        sum(gain.verdict is verdict for gain in gains)
        for verdict in (ComparisonVerdict.BETTER, ComparisonVerdict.WORSE)
    )
    return f"Of {counted(len(gains), 'gain')} over FirstP {better} are surely above 0, and {worse} below (Holm)."


def _nothing(made: LongDocuments, escape: Escape) -> str:
    systems = escape(listed(made.unnamed)) or "any system"
    return f"Nothing to compare: no suite of these results names the FirstP of {systems} ([firstp] in its file)."


def rows_of(group: LongGroup) -> list[Row]:
    """Return the rows of a group: each FirstP, then the systems."""
    return [*group.firsts, *(each.row for each in group.systems)]


def hardware_of(group: LongGroup) -> str:
    """Return a group's hardware in words."""
    return next(hardware(row) for row in rows_of(group) if row.profile == group.profile)


def _rows(made: LongDocuments) -> list[Row]:
    return [row for group in made.groups for row in rows_of(group)]


def _name(group: LongGroup, groups: Sequence[LongGroup]) -> str:
    """Return what a group is: its dataset, and scenario and hardware where groups differ in them."""
    parts = [group.place.dataset]
    if len({other.place.scenario for other in groups}) > 1 or group.place.scenario != "single_stream":
        parts.append(group.place.scenario)
    parts.append(f"on {hardware_of(group)}")
    return ", ".join(parts)


def _grid(group: LongGroup, measure: str, escape: Escape) -> Grid:
    """Return each FirstP followed by its systems in order of gain; a system that is not compared says why.

    The line of a FirstP has no FirstP of its own, and every ratio is 1.
    """
    columns: list[GridColumn[ReadingOn]] = [
        ("system", False, lambda each: system_name(each.row, escape)),
        (measure, True, lambda each: digits(each.row.measured(measure), ".3f")),
        ("gain (95 %)", True, lambda each: _points(each) if each.first else "FirstP"),
        ("gain %", True, lambda each: digits(each.relative.value, "+.1f") if each.first else ""),
        *(_ratio_column(axis.name) for axis in RATIOS),
        ("", False, _remark),
    ]
    ranked = sorted(group.systems, key=_by_gain)
    lines: list[ReadingOn] = []
    for first in sorted(group.firsts, key=lambda row: min(_by_gain(each) for each in ranked if each.first is row)):
        lines += [ReadingOn(first, None), *(each for each in ranked if each.first is first and each.reason is None)]
    lines += [each for each in ranked if each.reason is not None]
    return grid_of(
        lines,
        columns,
        caption=escape(_caption(group)),
        tones=map(_tone, lines),
        message=lambda each: each.reason and escape(_why(each)),
    )


def _tone(each: ReadingOn) -> str:
    if each.reason is not None:
        return BAD
    return tone(each.row, good="front" in _remark(each)) if each.first else ""


def _by_gain(each: ReadingOn) -> float:
    return math.inf if each.relative.value is None else -each.relative.value


def _why(each: ReadingOn) -> str:
    """Return in a few words why a system is not compared."""
    return cut(failure(each.row) if each.row.outcome is not Outcome.OK else each.reason or "")


def _caption(group: LongGroup) -> str:
    depth = {row.first_stage.depth for row in group.firsts if row.first_stage is not None}
    stage = {row.first_stage.system for row in group.firsts if row.first_stage is not None}
    shared = f", after {stage.pop()} over {depth.pop()} documents" if len(depth) == len(stage) == 1 else ""
    return f"{_name(group, [group])}{shared}"


def _points(each: ReadingOn) -> str:
    gain = each.gain
    if gain is None or gain.a is None or gain.b is None:
        return MISSING
    interval = gain.interval
    text = f"{100 * (gain.b - gain.a):+.1f}"
    if interval.low is None or interval.high is None:
        return f"{text} ({MISSING})"
    return f"{text} ({100 * interval.low:.1f}–{100 * interval.high:.1f})"


def _ratio_column(name: str) -> GridColumn[ReadingOn]:
    def cell(each: ReadingOn) -> str:
        value = each.ratios.get(name, Estimate(None)).value
        return "1" if each.first is None else MISSING if value is None else f"{number(value)}x"

    return _HEADERS[name], True, cell


def _remark(each: ReadingOn) -> str:
    """Return the place on the front and the doubt of a row."""
    state = each.front.get("latency") or each.front.get("flop")
    return ", ".join(word for word in (_STATES[state] if state else "", each.row.validity.doubt) if word)


def _sentence(group: LongGroup, measure: str, escape: Escape) -> str:
    """Say which system gains most over its FirstP, by a tested difference, and at which cost."""
    gained = [each for each in group.systems if each.gain is not None and each.relative.value is not None]
    if not gained:
        return "No system can be compared with its FirstP."
    better = [each for each in gained if each.gain and each.gain.verdict is ComparisonVerdict.BETTER]
    best, *equal = best_of(better or gained, lambda each: each.relative.value)
    assert best.gain is not None and best.first is not None
    spent = [
        f"{number(ratio.value)}x its {words}"
        for name, words in (("latency", "time"), ("flop", "FLOP"), ("tokens", "tokens"))
        if (ratio := best.ratios[name]).value is not None
    ]
    cost = f", at {', '.join(spent)}" if spent else ", and its costs are not known"
    system, first = escape(best.row.system), escape(best.first.system)
    text = f"{_points(best)} points {measure}, {best.relative.value:+.1f} %"
    if equal:
        cost = f"{cost}; {joined_by_and([escape(each.row.system) for each in equal])} as much"
    if better:
        return f"Reading on pays most in {system}: {text} over {first}{cost}."
    return f"No system is surely better than its FirstP on these queries; {system} comes nearest: {text}{cost}."


def _notes(made: LongDocuments, escape: Escape) -> Iterator[str]:
    """Yield, once for each reason, which systems or ratios are missing."""
    missing: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for group in made.groups:
        for each in group.systems:
            for axis in RATIOS if each.reason is None else ():
                ratio = each.ratios[axis.name]
                # A single stage has no score to tell apart.
                if ratio.value is None and axis.name != "score":
                    missing[ratio.reason or "not measured"][each.row.system].append(axis.label)
    for reason, systems in missing.items():
        (first, labels), *others = systems.items()
        more = f" and {len(others)} more" if others else ""
        yield escape(f"no ratio of {' and '.join(dict.fromkeys(labels))} for {first}{more}: {reason}")
    if made.unnamed and made.groups:
        yield escape(f"no FirstP named ([firstp] of the suite), so not compared: {listed(made.unnamed)}")


def _sections(made: LongDocuments, escape: Escape) -> Iterator[Section]:
    for group in made.groups:
        yield Section(
            title=escape(_name(group, made.groups)),
            grids=(dataclasses.replace(_grid(group, made.measure, escape), caption=""),),
            after=(_sentence(group, made.measure, escape),),
        )
    if means := made.mean_gains():
        yield _mean_gains(means, escape)
    if not made.groups:
        yield Section(lead=(_nothing(made, escape),))
    yield Section(notes=(*_notes(made, escape), *map(escape, stand_ins(_rows(made))), *map(escape, METHOD)))


def _mean_gains(means: Sequence[MeanGain], escape: Escape) -> Section:
    columns: list[GridColumn[MeanGain]] = [
        ("system", False, lambda mean: escape(mean.system)),
        ("scenario", False, lambda mean: escape(mean.scenario)),
        ("hardware profile", False, lambda mean: escape(mean.profile)),
        ("datasets", True, lambda mean: str(len(mean.datasets))),
        ("mean gain %", True, lambda mean: f"{mean.percent:+.1f}"),
    ]
    return Section(
        title="Mean gain over datasets",
        grids=(grid_of(means, columns),),
        notes=("Each dataset counts once. Compare only systems of the same datasets; the mean has no test.",),
    )


_CSV = (
    *("dataset", "scenario", "hardware_profile", "system", "firstp", "measure", "value", "firstp_value"),
    *("gain", "gain_low", "gain_high", "p_holm", "gain_percent", "gain_percent_low", "gain_percent_high"),
    *(f"{axis.name}_ratio{end}" for axis in RATIOS for end in ("", "_low", "_high")),
    *(f"front_{axis.name}" for axis in RATIOS),
    "reason",
)


def _values(group: LongGroup, each: ReadingOn, measure: str) -> dict[str, Value]:
    """Return the cells of a measured system by column; missing ones are left out."""
    interval = Estimate(None) if each.gain is None else each.gain.interval
    estimates = {"gain": interval, "gain_percent": each.relative}
    estimates |= {f"{name}_ratio": ratio for name, ratio in each.ratios.items()}
    values: dict[str, Value] = {
        "dataset": group.place.dataset,
        "scenario": group.place.scenario,
        "hardware_profile": group.profile,
        "system": each.row.system,
        "firstp": each.first.system if each.first else None,
        "measure": measure,
        "value": each.row.measured(measure),
        "firstp_value": each.first.measured(measure) if each.first else None,
        "p_holm": each.gain.p_holm if each.gain else None,
        "reason": each.reason,
    }
    for name, estimate in estimates.items():
        values |= with_ends(name, estimate)
    return values | {f"front_{name}": state.value for name, state in each.front.items()}


def _record(group: LongGroup, measure: str) -> dict[str, Any]:
    """Return a group for programs: its systems with the columns of the CSV, and their jobs."""
    systems = [
        {
            **_values(group, each, measure),
            "keys": list(each.row.keys),
            "firstp_keys": list(each.first.keys) if each.first else [],
        }
        for each in group.systems
    ]
    return {**group.place._asdict(), "profile": group.profile, "systems": systems}

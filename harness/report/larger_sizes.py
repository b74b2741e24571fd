"""Predictions at a number of documents that was not measured: the answer, and the laws with their exams."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from harness.analysis import larger_sizes
from harness.analysis.larger_sizes import (
    BUILD,
    FIGURES,
    INDEX,
    LATENCY,
    MEMORY,
    CostCrossing,
    Pricing,
    SizedSystem,
    SizeFigure,
    SizeGroup,
    SystemAtSize,
)
from harness.analysis.scaling import MOST_TIMES, Exam, ExaminedLaw, ScalingLaw
from harness.analysis.table import Row, Table, Validity
from harness.errors import UsageError
from harness.estimate import CONFIDENCE
from harness.report.document import (
    MISSING,
    Escape,
    GridColumn,
    ReportDocument,
    Section,
    Value,
    bounded,
    few_lines,
    grid_of,
    lines_of_records,
    number,
    price_facts,
    with_ends,
)

# A note names at most this many rows.
_NAMED = 3
# Version of the JSON.
SIZES_VERSION = 1
METHOD = (
    "law: constant + factor x growth(documents), with growth a power, a logarithm or n log n. An interval holds what"
    " every law predicts that the measured sizes do not refute (95 %, profile likelihood).",
    "exam: the largest size is held out, and the law of the smaller ones must predict it within its interval. A figure"
    f" that fails has no prediction, and none goes beyond {MOST_TIMES} times the largest measured size.",
    "memory: anonymous and shared memory with the pages of mapped files. The machine is the cheapest type that has the"
    " profile's CPUs and holds the high end; the cost takes the latency to be the same there.",
    "quality is not predicted: it depends on the documents that come, and not on their number.",
)


@dataclass(frozen=True)
class GroupAtSize:
    """A group's systems at a number of documents, and where their order changes."""

    group: SizeGroup
    systems: tuple[SystemAtSize, ...]
    flips: tuple[CostCrossing, ...]

    @property
    def name(self) -> str:
        """Dataset, scenario and hardware profile."""
        return f"{self.group.dataset} {self.group.scenario} {self.group.profile}"


@dataclass(frozen=True)
class SizeReport:
    """Groups at a number of documents; ``prices``: the facts behind their costs; ``priced`` prices a row."""

    documents: int
    groups: tuple[GroupAtSize, ...]
    prices: Mapping[str, str]
    priced: Pricing


def predicted(table: Table, processes: Mapping[str, Sequence[Row]], documents: int, priced: Pricing) -> SizeReport:
    """Predict all systems of a table at a number of documents.

    Args:
        table: priced rows of several sizes.
        processes: rows of each process alone, by ``per_query_key``.
        documents: the size to predict.
        priced: prices a row.

    Raises:
        UsageError: no system was measured at several sizes, or the size is below them, or far beyond.
    """
    groups = larger_sizes.groups(table.rows, processes)
    if not groups:
        raise UsageError(
            "no system was measured at several sizes; put `[sizes] documents = [10_000, 30_000, 100_000, 300_000]` into"
            " the suite, and run it"
        )
    least = min(system.rows[0].index.documents or 0 for group in groups for system in group.systems)
    if documents < least:
        raise UsageError(f"--at {documents:,} is below the smallest measured size, {least:,}; name a larger one")
    largest = max(system.largest for group in groups for system in group.systems)
    if documents > MOST_TIMES * largest:
        raise UsageError(
            f"--at {documents:,} is beyond {MOST_TIMES} times the largest measured size, {largest:,}, and no law is"
            " believed there; measure a larger size"
        )
    made = []
    for group in groups:
        systems = tuple(larger_sizes.at_size(system, documents, priced) for system in group.systems)
        made.append(GroupAtSize(group, systems, tuple(larger_sizes.flips(systems, priced))))
    return SizeReport(documents, tuple(made), price_facts(table), priced)


def sizes_document(report: SizeReport) -> ReportDocument:
    """Return the document of predictions at a number of documents."""
    records = [
        _record(report, of.group, each, figure) for of in report.groups for each in of.systems for figure in FIGURES
    ]
    return ReportDocument(
        sections=lambda escape: _whole(report, escape),
        lines=lambda: lines_of_records(records, [*records[0]]),
        content=lambda: {
            "sizes_version": SIZES_VERSION,
            "confidence": CONFIDENCE,
            "documents": report.documents,
            "prices": dict(report.prices),
            "notes": [note for of in report.groups for note in _notes(report, of)],
            "method": list(METHOD),
            "costs": [_cost_record(of.group, each) for of in report.groups for each in of.systems],
            "flips": [
                {"dataset": of.group.dataset, "hardware_profile": of.group.profile, **asdict(flip)}
                for of in report.groups
                for flip in of.flips
            ],
            "figures": records,
        },
        answer=lambda escape: _answer(report, escape),
        plain=True,
    )


def _answer(report: SizeReport, escape: Escape) -> Iterator[Section]:
    """Yield the predicted cost, latency, memory and machine of each system."""
    for of in report.groups:
        columns: list[GridColumn[SystemAtSize]] = [
            ("system", False, lambda each: escape(each.of.system)),
            _column(of, LATENCY),
            _column(of, MEMORY),
            ("machine", False, lambda each: each.row.price.instance_type if each.row.price else MISSING),
            ("US$ per million", True, lambda each: bounded(each.row.usd_per_million)),
            _column(of, INDEX),
            _column(of, BUILD),
        ]
        lead = (
            f"{of.name}, predicted at {report.documents:,} documents (95 %);"
            f" measured up to {_measured_up_to(of.group.systems)}"
        )
        notes = [*map(escape, _notes(report, of, (LATENCY, MEMORY, INDEX, BUILD))), "laws and exams: --wide"]
        yield Section(
            lead=(escape(lead),),
            grids=(grid_of(sorted(of.systems, key=_by_cost), columns),),
            notes=few_lines(notes),
        )


def _measured_up_to(systems: Sequence[SizedSystem]) -> str:
    """Return the largest measured size, and the systems whose own is smaller."""
    largest = max(system.largest for system in systems)
    smaller: dict[int, list[str]] = defaultdict(list)
    for system in systems:
        if system.largest < largest:
            smaller[system.largest].append(system.system)
    others = [f"{', '.join(names)}: {size:,}" for size, names in sorted(smaller.items(), reverse=True)]
    return f"{largest:,}" + (f" ({'; '.join(others)})" if others else "")


def _by_cost(each: SystemAtSize) -> tuple[bool, float]:
    cost = each.row.usd_per_million.value
    return cost is None, cost or 0.0


def _column(of: GroupAtSize, figure: SizeFigure) -> GridColumn[SystemAtSize]:
    """Return the column of a figure."""
    unit, scale = unit_of(of, figure)
    return f"{figure.title}, {unit}", True, lambda each: bounded(each.figures[figure], scale)


def unit_of(of: GroupAtSize, figure: SizeFigure) -> tuple[str, float]:
    """Return a figure's unit with its scale: the larger unit where the largest prediction has one of it."""
    if figure.larger_unit is not None:
        name, many = figure.larger_unit
        if max((each.figures[figure].value or 0) * figure.scale for each in of.systems) >= many:
            return name, figure.scale / many
    return figure.unit, figure.scale


def _notes(report: SizeReport, of: GroupAtSize, shown: Sequence[SizeFigure] = FIGURES) -> Iterator[str]:
    """Yield where the order changes, what of these figures is not predicted and why, and which memory is outgrown."""
    for flip in of.flips:
        sure = "" if flip.sure else f" (not sure: their intervals overlap at {report.documents:,})"
        yield (
            f"{flip.cheaper_after} costs less than {flip.cheaper_before} from about {_round(flip.documents)} documents"
            f" on{sure}"
        )
    for each in of.systems:
        for figure in shown:
            reason = each.figures[figure].reason
            if reason is None or not each.of.laws[figure].sizes:
                continue
            yield f"{each.of.system}, {figure.title}: not predicted, {reason}{_failed(each.of.laws[figure], figure)}"
    doubted = [row for each in of.systems for row in each.of.rows if row.validity is not Validity.CLEAN]
    if doubted:
        named = [f"{row.system} at {row.index.documents:,} ({row.validity.value})" for row in doubted[:_NAMED]]
        more = f", and {len(doubted) - _NAMED} more" if len(doubted) > _NAMED else ""
        yield f"these rows are in doubt, and they count: {', '.join(named)}{more}"
    for each in of.systems:
        memory_bytes = each.of.rows[-1].memory_bytes
        if (documents := larger_sizes.outgrown(each.of, memory_bytes, report.documents)) is not None:
            limit = f"{memory_bytes / 2**30:.3g} GiB of {of.group.profile}"
            yield f"{each.of.system} outgrows the {limit} at about {_round(documents)} documents"


def _failed(law: ExaminedLaw, figure: SizeFigure) -> str:
    if law.exam is None or law.exam.passed:
        return ""
    exam = law.exam
    return (
        f": {bounded(exam.predicted, figure.scale)} {figure.unit} for {exam.documents:,} documents, and"
        f" {number(exam.measured, figure.scale)} were measured"
    )


def _round(documents: int) -> str:
    """Return a number of documents in two digits."""
    return f"{float(f'{documents:.1e}'):,.0f}"


def _whole(report: SizeReport, escape: Escape) -> Iterator[Section]:
    """Yield the law, the exam and the prediction of each figure."""

    def of_exam(write: Callable[[Exam, SizeFigure], str]) -> Callable[[tuple[SystemAtSize, SizeFigure]], str]:
        return lambda each: MISSING if (exam := each[0].of.laws[each[1]].exam) is None else write(exam, each[1])

    for of in report.groups:
        columns: list[GridColumn[tuple[SystemAtSize, SizeFigure]]] = [
            ("system", False, lambda each: escape(each[0].of.system)),
            ("figure", False, lambda each: f"{each[1].title}, {each[1].unit}"),
            ("measured", False, lambda each: _measured(each[0].of, each[1])),
            ("law", False, lambda each: law_text(each[0].of.laws[each[1]].law, each[1])),
            ("exam: predicted", True, of_exam(lambda exam, figure: bounded(exam.predicted, figure.scale))),
            ("measured", True, of_exam(lambda exam, figure: number(exam.measured, figure.scale))),
            ("exam", False, of_exam(lambda exam, _: "passed" if exam.passed else "failed")),
            (f"at {report.documents:,} (95 %)", True, lambda each: bounded(each[0].figures[each[1]], each[1].scale)),
        ]
        rows = [(each, figure) for each in of.systems for figure in FIGURES]
        notes = tuple(map(escape, _notes(report, of)))
        yield Section(lead=(escape(of.name),), grids=(grid_of(rows, columns, keys=2),), notes=notes)
    yield Section(notes=METHOD)


def _measured(system: SizedSystem, figure: SizeFigure) -> str:
    sizes = system.laws[figure].sizes
    return " ".join(f"{size.documents:,}: {number(size.mean, figure.scale)}" for size in sizes) or MISSING


def law_text(law: ScalingLaw | None, figure: SizeFigure) -> str:
    """Return a law in the figure's unit: ``0.05 + 1.2e-06 n``."""
    if law is None:
        return MISSING
    constant, factor = f"{law.constant * figure.scale:.3g}", f"{law.factor * figure.scale:.3g} {law.growth.name}"
    return factor if not law.constant else constant if not law.factor else f"{constant} + {factor}"


def _record(report: SizeReport, group: SizeGroup, each: SystemAtSize, figure: SizeFigure) -> dict[str, Value]:
    law, found = each.of.laws[figure], each.figures[figure]
    exam = law.exam
    return {
        "system": each.of.system,
        "dataset": group.dataset,
        "scenario": group.scenario,
        "hardware_profile": group.profile,
        "documents": report.documents,
        "figure": figure.name,
        "unit": figure.unit,
        **with_ends("predicted", found.map(lambda value: value * figure.scale)),
        "reason": found.reason,
        "sizes": " ".join(str(size.documents) for size in law.sizes),
        "measured": " ".join(f"{size.mean * figure.scale:.6g}" for size in law.sizes),
        "growth": law.law.growth.name if law.law else None,
        "constant": law.law.constant * figure.scale if law.law else None,
        "factor": law.law.factor * figure.scale if law.law else None,
        "exam_documents": exam.documents if exam else None,
        **with_ends("exam_predicted", exam.predicted.map(lambda value: value * figure.scale) if exam else found),
        "exam_measured": exam.measured * figure.scale if exam else None,
        "exam_passed": exam.passed if exam else None,
    }


def _cost_record(group: SizeGroup, each: SystemAtSize) -> dict[str, Value]:
    row = each.row
    return {
        "system": each.of.system,
        "dataset": group.dataset,
        "hardware_profile": group.profile,
        "machine": row.price.instance_type if row.price else None,
        "usd_per_hour": row.price.usd_per_hour if row.price else None,
        **with_ends("usd_per_million", row.usd_per_million),
        "reason": row.usd_per_million.reason,
    }

"""A figure over commits or dates, in a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from harness.analysis.history import Point, Series
from harness.report.document import (
    MISSING,
    Escape,
    GridColumn,
    ReportDocument,
    Section,
    Value,
    grid_of,
    lines_of_records,
    with_ends,
)
from harness.report.figures import Figure

# Version of the JSON.
HISTORY_VERSION = 1
# Points of a series that the first screen shows: the newest.
_SHOWN = 10
_INSTALL = "points of change are found where Apache Otava is installed: uv tool install apache-otava"

# Points of change of a series, by the number of the point: the share by which the mean changed (``None``: it was 0).
Changes = Mapping[int, float | None]


@dataclass(frozen=True)
class History:
    """The series of a figure, with the points of change of each; ``None``: Otava was not there to find them."""

    figure: Figure
    series: tuple[Series, ...]
    changes: tuple[Changes, ...] | None = None
    notes: tuple[str, ...] = ()

    def changes_of(self, number: int) -> Changes:
        """Return the points of change of a series, by its number."""
        return {} if self.changes is None else self.changes[number]


def history_document(found: History) -> ReportDocument:
    """Return the document of a history, which has a point at least."""
    records = list(_records(found))
    return ReportDocument(
        sections=lambda escape: _sections(found, escape, None),
        lines=lambda: lines_of_records(records, [*records[0]]),
        content=lambda: {
            "history_version": HISTORY_VERSION,
            "figure": found.figure.name,
            "notes": list(found.notes),
            "change_points_by": None if found.changes is None else "Apache Otava",
            "points": records,
        },
        answer=lambda escape: _sections(found, escape, _SHOWN),
        plain=True,
    )


def _sections(found: History, escape: Escape, most: int | None) -> Iterator[Section]:
    notes = [*map(escape, found.notes), *([_INSTALL] if found.changes is None else [])]
    if any(point.scale is not None for each in found.series for point in each.points):
        notes.append("scaled: by the speed of fixed processor work, to the machine of the first point")
    for number, each in enumerate(found.series):
        points = list(enumerate(each.points))
        hidden = len(points) - most if most is not None and len(points) > most else 0
        columns = _columns(found.figure, each, found.changes_of(number), escape)
        last = number == len(found.series) - 1
        more = [f"{hidden} earlier: --wide"] if hidden else []
        yield Section(
            lead=(escape(series_name(each)),),
            grids=(grid_of(points[hidden:], columns, keys=2),),
            notes=(*more, *(notes if last else ())),
        )


def _columns(
    figure: Figure, each: Series, changes: Changes, escape: Escape
) -> list[GridColumn[tuple[int, Point]] | None]:
    """Return the columns of a series, for its numbered points."""
    return [
        ("date", False, lambda item: item[1].started_at[:16].replace("T", " ")),
        ("results", False, lambda item: escape(item[1].label)),
        (figure.wide_header, True, lambda item: figure.written(item[1].value)),
        ("change", True, lambda item: _percent(each.change(item[0]))),
        ("the mean changed", True, lambda item: _percent(changes.get(item[0]))) if changes else None,
        ("", False, lambda item: escape(_remark(item[1]))),
    ]


def series_name(each: Series) -> str:
    """Name a series: its cell and its machine."""
    cell = f"{each.system} {each.dataset} {each.scenario} {each.profile}"
    return f"{cell}, {each.machine}" if each.machine else cell


def _percent(share: float | None) -> str:
    return MISSING if share is None else f"{share * 100:+.1f} %"


def _remark(point: Point) -> str:
    texts = (
        point.value.reason if point.value.value is None else None,
        point.validity if point.validity != "clean" else None,
        "scaled" if point.scale is not None else None,
    )
    return ", ".join(filter(None, texts))


def _records(found: History) -> Iterator[dict[str, Value]]:
    for place, each in enumerate(found.series):
        changes = found.changes_of(place)
        for number, point in enumerate(each.points):
            yield {
                "system": each.system,
                "dataset": each.dataset,
                "scenario": each.scenario,
                "hardware_profile": each.profile,
                "machine": point.machine,
                "results": point.label,
                "started_at": point.started_at,
                "figure": found.figure.name,
                "unit": found.figure.unit,
                **with_ends("value", point.value),
                "change": each.change(number),
                "change_point": changes.get(number),
                "scale": point.scale,
                "validity": point.validity,
                "reason": point.value.reason,
            }

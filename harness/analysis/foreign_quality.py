"""Quality that others report of a row's model, matched by model and revision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from harness.analysis.table import Row, Table
from harness.commands import option
from harness.driver.records import Outcome
from harness.estimate import Estimate
from harness.results.foreign import MARK, ForeignFigures, ForeignQuality


def model_of(row: Row, figures: ForeignFigures) -> str | None:
    """Return ``model@revision`` of a row: as its user says, else of the one model that its system has.

    Others measure one model alone, so a system of several stages or models has none.
    """
    if (told := figures.models.get(row.system)) is not None:
        return told
    return row.models[0] if len(row.models) == 1 and row.first_stage is None else None


def matches(quality: ForeignQuality, model: str) -> bool:
    """Return whether ``model@revision`` has a quality; a revision that one side does not name is any."""
    name, _, revision = model.partition("@")
    return quality.model.lower() == name.lower() and (
        not revision or quality.revision is None or quality.revision.startswith(revision)
    )


def other_revisions(qualities: Iterable[ForeignQuality], rows: Iterable[Row], figures: ForeignFigures) -> Iterator[str]:
    """Yield a sentence for each system whose model is there, at another revision."""
    of_systems = {row.system: model for row in rows if (model := model_of(row, figures)) is not None}
    known = list(qualities)
    for system, model in of_systems.items():
        name, _, revision = model.partition("@")
        others = {each.revision for each in known if each.model.lower() == name.lower()} - {None}
        if revision and others and not any(other.startswith(revision) for other in others if other):
            other = sorted(filter(None, others))[0]
            yield (
                f"{system} has {name} at {revision[:12]}, and these figures are of {other[:12]}; if the weights are"
                f" the same, add {option('model', f'{system}={name}@{other}')}"
            )


def with_foreign(table: Table, figures: ForeignFigures | None) -> Table:
    """Return a table whose rows have the quality that others report of their models."""
    if figures is None or not figures.qualities:
        return table
    rows = tuple(_row(row, figures) for row in table.rows)
    known = {name for row in rows for name in row.foreign}
    columns = dict.fromkeys(each.column for each in figures.qualities if each.column in known)
    return replace(table, rows=rows, foreign=tuple(columns))


def _row(row: Row, figures: ForeignFigures) -> Row:
    model = model_of(row, figures)
    if model is None or row.outcome is not Outcome.OK:
        return row
    found: dict[str, Estimate] = {}
    # One of a known revision comes before one that names none.
    for each in sorted(figures.qualities, key=lambda quality: quality.revision is None):
        if matches(each, model) and each.column not in found:
            at = f" at {each.revision[:12]}" if each.revision else ""
            reason = (
                f"{MARK} {each.source} reports it of {each.model}{at}, {each.task} {each.split}, imported"
                f" {figures.imported}: not measured here"
            )
            found[each.column] = Estimate(each.value, reason=reason)
    return replace(row, foreign=found) if found else row

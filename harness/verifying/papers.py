"""Published tables: what in them does not follow is known as errata; reports of them can be made again."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness import prices
from harness.errors import FileError
from harness.prices import Snapshot
from harness.published import as_rows, tables
from harness.published.errata import errata
from harness.published.tables import Published
from harness.remembered import Made
from harness.report import paper
from harness.verifying import reports
from harness.verifying.mismatch import Mismatch, differences
from harness.verifying.reports import Report


def look(root: Path, reported: Report | None) -> Iterator[Mismatch]:
    """The errata; and, where a report of these tables is given, what in it does not follow from them.

    Raises:
        FileError: a file is missing or wrong; names the file, the line and the column.
        UsageError: the report is of a kind that cannot be made again.
    """
    published = tables.read(root)
    follows = published.follows()
    for each in errata(published, follows):
        place = f"Table {each.table} row {each.number} ({each.row}): {each.kind.value}"
        yield Mismatch(place, each.printed, f"{each.follows}; {each.evidence}")
    if reported is None:
        return
    if "published" in reported.content:
        yield from _paper(reported, published, follows)
    else:
        # Published rows have their own measures, whatever is asked for.
        yield from reports.against(reported, lambda _: Made(as_rows.measurements(published, follows), ()))


def _paper(reported: Report, published: Published, follows: Snapshot) -> Iterator[Mismatch]:
    """What ``harness report`` writes of such a folder."""
    asked = reported.content.get("prices")
    try:
        if not isinstance(asked, Mapping):
            raise TypeError("no prices in it")
        as_of, region, term = datetime.date.fromisoformat(asked["now"]), asked["region"], asked["term"]
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"{reported.path}: damaged: {error}; make it again") from error
    now = prices.snapshot(as_of, region=region, term=term)
    again = json.loads(paper.render(published, follows, now, "json"))
    yield from differences(reported.path.name, dict(reported.content), again)

"""Published tables: what in them does not follow is known as errata; a report of them can be made again."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path

from harness import prices
from harness.errors import FileError, UsageError
from harness.published import tables
from harness.published.errata import errata
from harness.report import paper
from harness.verifying.derived_rows import Report
from harness.verifying.mismatch import Mismatch, differences


def look(root: Path, reported: Report | None) -> Iterator[Mismatch]:
    """The errata; and, where a report of these tables is given, what in it does not follow from them.

    Raises:
        FileError: a file is missing or wrong; names the file, the line and the column.
        UsageError: the report is none of published tables.
    """
    published = tables.read(root)
    follows = published.follows()
    for each in errata(published, follows):
        place = f"Table {each.table} row {each.number} ({each.row}): {each.kind.value}"
        yield Mismatch(place, each.printed, f"{each.follows}; {each.evidence}")
    if reported is None:
        return
    if "published" not in reported.content:
        raise UsageError(f"{reported.path}: is no report of published tables; give what `harness report {root}` wrote")
    try:
        asked = reported.content["prices"]
        as_of = datetime.date.fromisoformat(asked["now"])
        region, term = asked["region"], asked["term"]
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"{reported.path}: damaged: {error}; make it again") from error
    now = prices.snapshot(as_of, region=region, term=term)
    again = json.loads(paper.render(published, follows, now, "json"))
    yield from differences(reported.path.name, dict(reported.content), again)

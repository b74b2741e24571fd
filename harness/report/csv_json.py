"""A table as JSON: everything that is known, missing numbers as ``null`` with their reasons."""

from __future__ import annotations

import csv
import dataclasses
import io
import json

from harness.analysis.table import Table
from harness.report import columns
from harness.report.columns import Value
from harness.untrusted import one_line

# MERGED harness.report.csv_json: A table as CSV: one column a figure, units in the names, full precision, empty where
# missing.


def render_csv(table: Table) -> str:
    """CSV with a header line, as RFC 4180 but for lines that end with a newline alone.

    Numbers read back unchanged.  Texts are one printable line (JSON keeps them as they are); one that a
    spreadsheet would take for a formula gets an apostrophe in front.
    """
    shown = columns.of(table)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(column.name for column in shown)
    writer.writerows([written(column.get(row)) for column in shown] for row in table.rows)
    return stream.getvalue()


def written(value: Value) -> str:
    """A cell: numbers that read back unchanged, texts that no spreadsheet takes for a formula."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = one_line(value)
        return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
    return repr(value)


# Version of this format.
REPORT_VERSION = 1


def render_json(table: Table) -> str:
    """JSON with the field names of :mod:`harness.analysis.table`; units as in the names.  Ends with a newline.

    Texts are kept whole; ASCII alone is written, so that a stranger's control characters reach no terminal.
    """
    content = {"report_version": REPORT_VERSION, **dataclasses.asdict(table)}
    return json.dumps(content, indent=2, ensure_ascii=True, allow_nan=False) + "\n"

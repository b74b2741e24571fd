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


# Version of this format.  History:
#   1  first version
#   2  overhead; rows: latency_these_queries_s, at_most_s, throughput_qps, service_s, stages_s, spread_s,
#      peak_mapped_bytes, gpu_energy_j, jobs, keys, transient, page_cache, harness_apart, findings; money: price_term,
#      cost_formulas, usd_per_million_saturated, usd_build_per_million_documents, usd_storage_per_month, build_price,
#      build_envelope, corpus_documents, latency_target_s, latency_percentile, published_type,
#      gpu_memory_bytes; validity may be "unknown" (published rows).
#      Everything in 1 kept its name and meaning.
#   3  rows: stand_in.  Everything in 2 kept its name and meaning.
#   4  rows and overhead: origin; rounded_to; measures have intervals.  Everything in 3 kept its name and meaning.
#   5  rows: unjudged_share, unjudged_depth, rejudged.  Everything in 4 kept its name and meaning.
#   6  latencies and costs have one interval (other queries, fresh processes); rows: like_queries_s and these_queries_s,
#      which it is made of; latency_these_queries_s is gone; rows: one_pass_warmup.
REPORT_VERSION = 6


def render_json(table: Table) -> str:
    """JSON with the field names of :mod:`harness.analysis.table`; units as in the names.  Ends with a newline.

    Texts are kept whole; ASCII alone is written, so that a stranger's control characters reach no terminal.
    """
    content = {"report_version": REPORT_VERSION, **dataclasses.asdict(table)}
    return json.dumps(content, indent=2, ensure_ascii=True, allow_nan=False) + "\n"

"""A table as JSON: everything that is known, missing numbers as ``null`` with their reasons."""

from __future__ import annotations

import dataclasses
import json

from harness.table import Table

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


def render(table: Table) -> str:
    """JSON with the field names of :mod:`harness.table`; units as in the names.  Ends with a newline.

    Texts are kept whole; ASCII alone is written, so that a stranger's control characters reach no terminal.
    """
    content = {"report_version": REPORT_VERSION, **dataclasses.asdict(table)}
    return json.dumps(content, indent=2, ensure_ascii=True, allow_nan=False) + "\n"

"""After how many queries the dearer build pays back: right values reckoned by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.analysis import break_even, comparison
from harness.analysis.break_even import PayBack
from harness.analysis.comparison import Comparison
from harness.analysis.table import Row, Validity
from harness.estimate import Estimate
from harness.evaluation.per_query import PerQuery
from harness.report import writers
from harness.report.comparison import comparison_document
from tests.analysis.test_comparison import IDS, row
from tests.support import sample_records

# 3,600 queries of a second cost US$ 0.36.
HOUR = 0.36
BASE = np.tile([0.01, 0.03], len(IDS) // 2)
SWAY = np.tile([0.002, 0.002, -0.002, -0.002], len(IDS) // 4)


def side(name: str, mean_s: float, build_usd: float | None, usd_per_hour: float = HOUR, **changes: Any) -> Row:
    """Return a row of three processes alike, with an index of 500,000 documents."""
    build = Estimate(None if build_usd is None else build_usd * 2)
    fields = {
        "latency_mean_s": Estimate(mean_s),
        "trial_means_s": (mean_s,) * 3,
        "price": sample_records.price("t", usd_per_hour, 1, 1 << 30),
        "usd_per_million": Estimate(mean_s * usd_per_hour / 3600 * 1e6),
        "usd_build_per_million_documents": build,
        "corpus_documents": 500_000,
    }
    return row(name, **{**fields, **changes})


def compared(a: Row, b: Row, more_s: np.ndarray | None) -> Comparison:
    """Compare rows; ``more_s``: what B's queries take more than A's (None: not measured by query)."""
    values = (None, None) if more_s is None else (PerQuery("a", IDS, BASE, {}), PerQuery("b", IDS, BASE + more_s, {}))
    (pair,) = comparison.corrected([comparison.compare(a, b, *values, ())])
    return pair


# B's build costs US$ 2 more.  A query that takes 10 ms less saves US$ 0.000001: 2 million queries pay for it.
FASTER = np.full(len(IDS), -0.01)


@pytest.mark.parametrize(
    ("a", "b", "more_s", "dearer", "verdict", "queries"),
    [
        (side("a", 0.02, 1), side("b", 0.01, 3), FASTER, "b", PayBack.AFTER, (2e6, 2e6, 2e6)),
        (side("a", 0.02, 3), side("b", 0.03, 1), -FASTER, "a", PayBack.AFTER, (2e6, 2e6, 2e6)),
        (side("a", 0.02, 1), side("b", 0.03, 3), -FASTER, "b", PayBack.NEVER, (None, None, None)),
        # Without values by query the costs alone decide.
        (side("a", 0.02, 1), side("b", 0.01, 3), None, "b", PayBack.AFTER, (2e6, None, None)),
        # B is as fast, on a machine of half the price: a query of 20 ms saves US$ 0.000001.
        (side("a", 0.02, 1), side("b", 0.02, 3, HOUR / 2), 0 * BASE, "b", PayBack.AFTER, (2e6, None, None)),
        # Tokens of US$ 0.5 a million queries take half of what the machine saves.
        (
            side("a", 0.02, 1),
            side("b", 0.01, 3, token_model="m", usd_tokens_per_million=Estimate(0.5)),
            FASTER,
            "b",
            PayBack.AFTER,
            (4e6, 4e6, 4e6),
        ),
    ],
)
def test_queries_pay_the_dearer_build_back(
    a: Row, b: Row, more_s: np.ndarray | None, dearer: str, verdict: PayBack, queries: tuple[float | None, ...]
) -> None:
    found = break_even.of(compared(a, b, more_s))
    assert found is not None
    assert (found.dearer, found.verdict, found.more_usd) == (dearer, verdict, 2)
    assert found.queries.value == (pytest.approx(queries[0]) if queries[0] else None)
    for end, expected in zip((found.queries.low, found.queries.high), queries[1:], strict=True):
        assert expected is None or end == pytest.approx(expected)


def test_an_interval_that_holds_zero_reaches_never() -> None:
    # SWAY has mean 0 and spread 2 ms; Student's t over 300 queries reaches 1.968 x 2.0033 ms / sqrt(300) = 0.2276 ms.
    for gain_ms, value in ((0.1, 2e8), (-0.1, None)):
        pair = compared(side("a", 0.02, 1), side("b", 0.02 - gain_ms / 1e3, 3), SWAY - gain_ms / 1e3)
        found = break_even.of(pair)
        assert found is not None and found.verdict is PayBack.UNCLEAR
        assert found.queries.value == (pytest.approx(value) if value else None)
        assert found.queries.low == pytest.approx(2 / ((0.2276 + gain_ms) / 1e3 * HOUR / 3600), rel=0.01)
        assert found.queries.high is None


def test_an_unknown_cost_or_equal_builds_have_no_break_even() -> None:
    known = side("a", 0.02, 1)
    for other in (side("b", 0.01, None), side("b", 0.01, 1), replace(side("b", 0.01, 3), token_model="m")):
        assert break_even.of(compared(known, other, FASTER)) is None


@pytest.mark.parametrize(
    ("mean_s", "more_s", "sentence", "columns"),
    [
        (0.01, FASTER, "less: it pays back after 2,000,000 queries [2,000,000, 2,000,000]", "1.0,3.0,b,after,"),
        (0.01, None, "less: it pays back after 2,000,000 queries (published, or", "1.0,3.0,b,after,"),
        (0.03, -FASTER, "do not cost less: it never pays back", "1.0,3.0,b,never,,,"),
        (0.0199, SWAY - 1e-4, "which may be chance: it pays back after 200,000,000 queries [61", "b,cannot tell,"),
        (0.0201, SWAY + 1e-4, "pays back after 157,000,000 queries at the earliest, or never", "b,cannot tell,,15"),
    ],
)
def test_one_line_says_it_and_files_have_columns(
    mean_s: float, more_s: np.ndarray | None, sentence: str, columns: str
) -> None:
    noisy = side("b", mean_s, 3, build_validity=Validity.NOISY)
    document = comparison_document([compared(side("a", 0.02, 1), noisy, more_s)])
    assert document.answer is not None
    (shown,) = document.answer(str)
    line, doubt = (next(note for note in shown.notes if note.startswith(start)) for start in ("break-even: ", "builds"))
    assert line.startswith("break-even: B's build costs US$ 2.00 more, and its queries ") and sentence in line
    assert doubt == "builds: B's is noisy"
    assert columns in writers.write(document, "csv") and "break-even: B" in writers.write(document, "md")

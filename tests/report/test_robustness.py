"""A leaderboard's robustness as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from harness.analysis.robustness import Condition, ConditionKind, RankedSystem, Robustness
from harness.estimate import Estimate
from harness.report import writers
from harness.report.robustness import percent, robustness_document, share_error

FLIPS = ((None, 0.004, 0.5), (0.004, None, None), (0.5, None, None))
QUERIES = Condition(ConditionKind.QUERIES, "resampled", 1000, FLIPS, Estimate(0.81, -0.333, 1.0))
MEASURE = Condition(ConditionKind.MEASURE, "AP", 1000, FLIPS, Estimate(0.5, 0.0, 1.0), tau_whole=1.0)
NONE = Condition(
    ConditionKind.JUDGEMENTS, "50 % of all", 0, (), Estimate(None), reason="no relevant document is judged"
)
FOUND = Robustness(
    "a|b",
    "nDCG@10",
    1234,
    (
        RankedSystem("best*", 0.5, 1, 1, 1, 0.996),
        RankedSystem("two", 0.4, 2.5, 1, 3, 0.004),
        RankedSystem("=cmd", 0.4, 2.5, None, None, None),
    ),
    (QUERIES, NONE, MEASURE),
    ("two: 1 judged query (q1) without hits count 0",),
)


def render(boards: Sequence[Robustness], form: str) -> str:
    return writers.write(robustness_document(boards), form)


def test_robustness_is_written_as_markdown() -> None:
    lines = [" ".join(line.split()) for line in render([FOUND], "md").splitlines()]
    assert lines[0] == r"**a\|b, by nDCG@10, 1,234 judged queries**"
    assert r"| 1 | best* | 0.5000 | 1 | 1 | 100% |" in lines
    assert "| 2 | two | 0.4000 | 2.5 | 1 to 3 | 0% |" in lines
    assert "| 3 | =cmd | 0.4000 | 2.5 | — | — |" in lines
    assert r"| other queries: resampled | 1,000 | 3.1 | 0.81 (-0.33 to 1.00) | 1 of 2 | best* and =cmd: 50 % |" in lines
    assert "| fewer judgements: 50 % of all | — | — | — | — | no relevant document is judged |" in lines
    assert r"| another measure: AP | 1,000 | 3.1 | 1.00; 0.50 (0.00 to 1.00) | 1 of 2 | best* and =cmd: 50 % |" in lines
    assert lines.count("| 2 two | <1 | |") == 2 and lines.count("| 3 =cmd | 50 | — |") == 2
    assert "- two: 1 judged query (q1) without hits count 0" in lines
    assert any(
        line.startswith("- A pair flips where its order differs from the leaderboard's; a tie counts half")
        for line in lines
    )


def test_pairs_that_flip_equally_often_are_counted() -> None:
    flips = ((None, 0.5, 0.5), (0.5, None, 0.1), (0.5, 0.1, None))
    text = render([replace(FOUND, conditions=(replace(QUERIES, flips=flips),))], "md")
    assert r"best* and two, and 1 other pair: 50 %" in " ".join(text.split())


def test_answer_says_that_flips_are_no_test() -> None:
    document = robustness_document([FOUND, FOUND])
    assert document.answer is not None
    *_, last = document.answer(str)
    assert last.notes[0].startswith("Flips count resamples and test nothing; harness compare tests each pair")
    assert render([FOUND], "md").count("Flips count resamples and test nothing") == 1


def test_matrix_of_many_systems_is_not_a_table() -> None:
    many = 16
    flips = tuple(tuple(None if one == two else 0.0 for two in range(many)) for one in range(many))
    standings = tuple(RankedSystem(f"s{each}", 1 - each / 100, each + 1, None, None, None) for each in range(many))
    board = Robustness(
        "d", "RR@10", 20, standings, (Condition(ConditionKind.QUERIES, "resampled", 10, flips, Estimate(1, 1, 1)),), ()
    )
    text = render([board], "md")
    assert "The 16 systems' matrices are in --format csv and json, and in the picture." in text
    assert "flips, % of draws" not in text
    assert "| none " in text, "nothing flips"


def test_csv_has_a_line_for_each_pair_under_each_condition() -> None:
    lines = list(csv.DictReader(io.StringIO(render([FOUND], "csv"))))
    assert len(lines) == 9
    first = [lines[0][name] for name in ("a", "b", "flips", "tau", "draws")]
    assert first == ["best*", "two", "0.004", "0.81", "1000"]
    assert [line["flips"] for line in lines[:3]] == ["0.004", "0.5", ""]
    assert lines[1]["b"] == "'=cmd", "no spreadsheet takes a name for a formula"
    assert {line["reason"] for line in lines[3:6]} == {"no relevant document is judged"}
    assert lines[6]["tau_whole"] == "1.0"
    assert [line["flips_error"][:6] for line in lines[::3]] == ["0.0309", "", "0.0309"]


def test_robustness_is_written_as_json() -> None:
    content = json.loads(render([FOUND], "json"))
    assert content["robustness_version"] == 1
    (board,) = content["leaderboards"]
    assert [each["system"] for each in board["standings"]] == ["best*", "two", "=cmd"]
    assert board["conditions"][0]["flips"] == [list(line) for line in FLIPS]
    assert [each["error"] for each in board["conditions"]] == [pytest.approx(0.031, abs=1e-4), None, share_error(1000)]
    assert [each["cause"] for each in board["conditions"]] == ["other queries", "fewer judgements", "another measure"]


@pytest.mark.parametrize(
    ("share", "message"),
    [(0, "0"), (0.005, "<1"), (0.0099, "<1"), (0.01, "1"), (0.5, "50"), (0.991, ">99"), (1, "100")],
)
def test_rare_share_is_not_rounded_to_never(share: float, message: str) -> None:
    assert percent(share) == message


def test_share_error_follows_from_the_number_of_draws() -> None:
    """Check with coin tosses that about 95 in 100 shares lie within the error."""
    shares = np.random.default_rng(1).binomial(100, 0.5, 20_000) / 100
    error = share_error(100)
    assert error is not None and 0.94 < np.mean(np.abs(shares - 0.5) <= error) < 0.97
    assert share_error(400) == pytest.approx(error / 2) and share_error(1) is share_error(0) is None

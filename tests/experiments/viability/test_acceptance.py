"""Options are read, or refused in one line that says what to write."""

from __future__ import annotations

import pytest

from harness.errors import UsageError
from harness.experiments.viability import acceptance
from harness.experiments.viability.acceptance import Criteria


def test_targets_and_measures_are_read() -> None:
    criteria = acceptance.parse_criteria(["p95=200ms", "mean=0.05s"], ["RR@10=0.3", "AP(rel=2)@100=0"])
    assert criteria == Criteria({"p95": 0.2, "mean": 0.05}, {"RR@10": 0.3, "AP(rel=2)@100": 0.0})
    assert acceptance.parse_criteria([], []) == Criteria()


@pytest.mark.parametrize(
    ("targets", "least", "message"),
    [
        (["p59=1ms"], [], "unknown latency figure 'p59'. Did you mean 'p99'"),
        (["200ms"], [], "unknown latency figure '200ms'"),
        (["p95"], [], "write it as p95=200ms"),
        (["p95=200"], [], "write it as p95=200ms"),
        (["p95=-1ms"], [], "write it as p95=200ms"),
        (["p95=0ms"], [], "write it as p95=200ms"),
        (["p95=nanms"], [], "write it as p95=200ms"),
        (["p95=1ms", "p95=2ms"], [], "p95 is asked twice"),
        ([], ["RR@10"], "write a measure and its least value"),
        ([], ["RR@10=much"], "write a measure and its least value"),
        ([], ["RR@10=2"], r"'RR@10=2': RR@10 is at most 1, so no limit could keep it; write e.g. RR@10=0.3"),
        ([], ["=0.3"], "write a measure and its least value"),
        ([], ["Nonsense@10=0.3"], "unknown measure 'Nonsense@10'"),
        ([], ["RR@10=0.1", "RR@10=0.3"], "RR@10 is asked twice"),
    ],
)
def test_malformed_targets_and_measures_are_refused(targets: list[str], least: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("(", r"\(").replace("?", r"\?")):
        acceptance.parse_criteria(targets, least)


def test_percentile_needs_enough_queries() -> None:
    criteria = acceptance.parse_criteria(["p95=1ms"], [])
    acceptance.check_sample_size(criteria, 130, 130)
    acceptance.check_sample_size(acceptance.parse_criteria(["mean=1ms"], []), 1, 1)
    with pytest.raises(UsageError) as raised:
        acceptance.check_sample_size(criteria, 129, 300)
    assert str(raised.value) == (
        "129 timed queries show no p95, which takes 130; raise --queries (the dataset has 300 judged queries), or ask"
        " --max-latency mean=..."
    )


def test_more_queries_are_never_asked_of_a_dataset_that_has_no_more() -> None:
    with pytest.raises(UsageError) as raised:
        acceptance.check_sample_size(acceptance.parse_criteria(["p95=1ms"], []), 30, 30)
    assert str(raised.value) == (
        "30 timed queries show no p95, which takes 130; the dataset has only 30 judged queries: time others too"
        " (--unjudged), judge more, or ask --max-latency mean=..."
    )


def test_numbers_and_sizes_are_read_or_refused() -> None:
    assert acceptance.parse_whole_numbers("2, 1,2", "--cpus") == (1, 2)
    assert acceptance.parse_size(" 2GiB ", "--step") == 2 << 30
    for wrong in ("", "0", ",", "x", "-1", "1.5", "²"):
        with pytest.raises(UsageError, match=r"--cpus .*write whole numbers from 1 on"):
            acceptance.parse_whole_numbers(wrong, "--cpus")
    for wrong in ("", "16", "0MiB", "16MB", "-1MiB"):
        with pytest.raises(UsageError, match=r"--step: .* is not a memory size"):
            acceptance.parse_size(wrong, "--step")

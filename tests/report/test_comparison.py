"""A comparison is one sentence and a table, in each format."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.analysis import comparison
from harness.analysis.comparison import Comparison, ComparisonSide
from harness.analysis.paired_differences import QueryChoice
from harness.analysis.table import Row, Validity
from harness.analysis.verdict import ComparisonVerdict
from harness.driver.records import Outcome
from harness.estimate import Estimate
from harness.evaluation.per_query import PerQuery
from harness.report import writers
from harness.report.comparison import comparison_document, summary
from tests.analysis.test_comparison import row
from tests.support import sample_records

COUNT = 300
IDS = tuple(f"q{number:03}" for number in range(COUNT))
RNG = np.random.default_rng(5)
BASE = RNG.uniform(0, 0.5, COUNT)


def render(pairs: Sequence[Comparison], form: str) -> str:
    return writers.write(comparison_document(pairs), form)


PRICE = sample_records.price("a1.large", 0.051, 2, 4 << 30)


def found(system: str, values: np.ndarray, slower: float = 0.0, measure: str = "RR@10") -> PerQuery:
    latency = BASE / 10 + 0.01 + slower
    return PerQuery(system, IDS, latency, {measure: values})


def compared(a: Row, b: Row, ours: PerQuery | None, theirs: PerQuery | None, measure: str = "RR@10") -> Comparison:
    (made,) = comparison.corrected([comparison.compare(a, b, ours, theirs, (measure,))])
    return made


def pair(values: np.ndarray, a: Row | None = None, b: Row | None = None, slower: float = 0.1) -> Comparison:
    one, two = a or row("a"), b or row("b", trial_means_s=(0.12, 0.1201, 0.1199))
    return compared(one, two, found("a", BASE), found("b", values, slower))


def priced(system: str, usd: float, **changes: Any) -> Row:
    return row(system, price=PRICE, usd_per_million=Estimate(usd), **changes)


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


SWAY = np.where(np.arange(COUNT) % 2, 0.2, -0.2)
SLOW = {"latency_mean_s": Estimate(0.12), "trial_means_s": (0.12, 0.1201, 0.1199)}
FAST = {"latency_mean_s": Estimate(0.002), "trial_means_s": (0.002, 0.00201, 0.00199)}


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            pair(BASE + 0.02 + SWAY / 4, priced("a", 0.1), priced("b", 0.6, **SLOW)),
            r"B costs 6\.0x \[5\.\d+, 6\.\d+\] and wins 2\.0 points RR@10 \[1\.\d, 2\.\d\]\.",
        ),
        (
            pair(BASE - 0.02, priced("a", 0.1), priced("b", 0.01, **FAST)),
            r"B costs 0\.1x \[0\.0\d+, 0\.1\d*\] and loses 2\.0 points RR@10 .*",
        ),
        (
            pair(BASE + 0.003 + SWAY, priced("a", 0.1), priced("b", 0.6, **SLOW)),
            r"B costs 6\.0x \[5\.\d+, 6\.\d+\], with no difference that these 300 queries can show, where 35,\d\d\d "
            r"would: \+0\.3 points RR@10 \[-.\.., .\..\]\.",
        ),
        (
            pair(BASE, row("a"), row("b", **SLOW)),
            r"B takes 6\.0x \[5\.\d+, 6\.\d+\] and has the same RR@10 on each of these 300 queries\.",
        ),
        (
            pair(
                BASE + 0.1,
                priced("a", 0.1, validity=Validity.NOISY),
                priced("b", 120.0, latency_mean_s=Estimate(24.0), trial_means_s=(24.0, 24.01, 23.99)),
            ),
            r"B costs 1200x \[\d\d\d, 1\d\d\d\] and wins 10\.0 points RR@10 \(every .* no interval\) "
            r"\(A is noisy: so is what B costs\)\.",
        ),
        (pair(BASE, row("a"), row("b", outcome=Outcome.OOM)), r"B ended oom: there is nothing to weigh\."),
    ],
)
def test_the_headline_is_one_sentence(made: Comparison, message: str) -> None:
    assert re.fullmatch(message, summary(made, 2)), summary(made, 2)


def test_cost_from_a_latency_that_is_not_shown_has_a_note() -> None:
    sway = row("a", latency_mean_s=Estimate(0.02), price=PRICE, usd_per_million=Estimate(0.1))
    other = row("b", latency_mean_s=Estimate(0.0202), price=PRICE, usd_per_million=Estimate(0.101))
    noise = np.where(np.arange(COUNT) % 2, 0.01, -0.0099)
    theirs = PerQuery("b", IDS, BASE / 10 + 0.01 + noise, {"RR@10": BASE + 0.1})
    made = compared(sway, other, found("a", BASE), theirs)
    assert summary(made, 2).startswith(
        "B costs 1.0x (of its latency: no difference that these 300 queries can show, where 311,864 would) and wins "
    )


@pytest.mark.parametrize(
    ("queries", "differ", "latency", "measure"),
    [
        (
            16,
            16,
            "too few queries to tell, 16 where an interval needs 30",
            "no difference that these 16 queries can show",
        ),
        (9, 9, "too few queries to tell, 9 where an interval needs 30", "too few queries to tell, 9 where"),
        (40, 4, "slower", "too few queries to tell, 4 of 40 differ where a test needs 6: +"),
    ],
)
def test_too_few_queries_are_said_to_be_too_few(queries: int, differ: int, latency: str, measure: str) -> None:
    gain = np.where(np.arange(queries) < differ, np.where(np.arange(queries) % 2, 0.2, -0.19), 0.0)
    ours, theirs = (
        PerQuery(name, IDS[:queries], taken[:queries], {"RR@10": BASE[:queries] + more})
        for name, taken, more in (("a", BASE / 10, 0 * gain), ("b", BASE / 5, gain))
    )
    made = compared(row("a"), row("b", **SLOW), ours, theirs)
    lines = {each.metric: each for each in made.differences}
    assert (lines["latency"].verdict_text, lines["RR@10"].queries) == (latency, queries)
    assert measure in summary(made, 2) and ("can show" not in measure or ", where " in summary(made, 2))
    wide = render([made], "md")
    assert latency in wide and ("this sample can show" in wide) == ("can show" in measure)


def test_published_figures_are_compared_without_a_test() -> None:
    a, b = row("a"), row("b", measures={"RR@10": Estimate(0.45)}, latency_mean_s=Estimate(0.05))
    made = compared(a, b, None, None)
    message = "B takes 2.5x, with -5.0 points RR@10, which nothing tests: published, or not measured by query."
    assert summary(made, 0) == message
    assert "randomisation" not in render([made], "md")


def test_counting_measures_are_not_shown_in_percentage_points() -> None:
    a, b = (row(name, measures={"NumRelRet": Estimate(value)}) for name, value in (("a", 1.0), ("b", 3.0)))
    ours = found("a", np.full(COUNT, 1.0), measure="NumRelRet")
    theirs = found("b", np.full(COUNT, 3.0), measure="NumRelRet")
    made = compared(a, b, ours, theirs, "NumRelRet")
    assert "wins 2.0 NumRelRet a query (every query differs by the same: no interval)" in summary(made, 2)
    assert "+2 (—) a query" in render([made], "md")


@pytest.mark.slow
def test_claim_of_a_single_comparison_is_withdrawn_among_many() -> None:
    """One pair whose p is near 0.02 is claimed alone, and not among seven pairs."""
    values = BASE + 2.3 * 0.2 / COUNT**0.5 + SWAY
    pairs = [(values, f"b{number}") for number in range(7)]
    made = [
        comparison.compare(row("a"), row(name, **SLOW), found("a", BASE), found(name, each, 0.1), ("RR@10",))
        for each, name in pairs
    ]
    (alone,) = comparison.corrected(made[:1])
    rr = alone.of("RR@10")
    assert rr is not None and rr.verdict is ComparisonVerdict.BETTER and rr.p_holm is not None and rr.p_holm <= 0.05
    among = comparison.corrected(made)[0]
    taken = among.of("RR@10")
    assert taken is not None and taken.verdict is ComparisonVerdict.UNCORRECTED
    assert taken.p_holm is not None and taken.p_holm > 0.05
    assert rr.interval.low is not None and rr.interval.low > 0, "what is printed decides, here and there"
    assert taken.interval.low is not None and taken.interval.low < 0 < (taken.interval.high or 0)
    latency = among.of("latency")
    assert latency is not None and latency.verdict is ComparisonVerdict.SLOWER, "what is clear stays claimed"
    message = summary(among, 14)
    assert "no difference that holds among 14 comparisons (Holm's p " in message
    assert "no difference that holds among all comparisons made" in render([among], "md")
    document = comparison_document([among])
    assert document.answer is not None
    (shown,) = document.answer(str)
    assert [row[-1] for row in shown.grids[0].cells] == ["slower", "not shown to differ"]
    assert shown.notes[-1].startswith(
        "2 comparisons are tested together (Holm's p); the line below the table of harness report tests one measure"
        " alone, and may show more   tests, "
    )
    why = "different when tested alone, not when corrected for 2 comparisons (Holm): RR@10"
    assert why not in shown.notes, "the sentence says it"
    document = comparison_document([replace(among, by="latency")])
    assert document.answer is not None and why in next(iter(document.answer(str))).notes


def test_few_differing_queries_bound_p_by_their_signs() -> None:
    """Five of them, all won, are 2 of 2^5, which fewer comparisons do not bring below 0.05."""
    one = pair(BASE)
    few = pair(BASE + np.where(np.arange(COUNT) < 5, 0.3, 0.0))
    (alone,) = comparison.corrected([replace(few, differences=few.differences[1:])])
    assert "So few queries differ that no p can be below 0.062." in render([alone], "md")
    (equal,) = comparison.corrected([replace(one, differences=one.differences[1:])])
    assert "So few queries differ that no p can be below 1." in render([equal], "md")
    assert "compare fewer" not in render([alone], "md") + render([equal], "md")


@pytest.mark.slow
@pytest.mark.parametrize(("count", "least"), [(1, None), (2, "0.062"), (40, "1")])
def test_p_is_never_above_1(count: int, least: str | None) -> None:
    """Six queries that differ are 2 of 2^6, times the comparisons."""
    six = pair(BASE + np.where(np.arange(COUNT) < 6, 0.3, 0.0))
    each = replace(six, differences=six.differences[1:])
    made = comparison.corrected([replace(each, b=ComparisonSide(str(n), row(f"b{n}"))) for n in range(count)])
    assert ("compare fewer" in render(made, "md")) == (least is not None)
    assert least is None or f"no corrected p can be below {least}: compare fewer" in render(made, "md")


def test_processes_that_are_too_few_are_named_where_queries_would_not_help() -> None:
    (one,) = comparison.corrected([pair(BASE)])
    latency = one.of("latency")
    assert latency is not None
    unrepeated = replace(latency, verdict=ComparisonVerdict.UNREPEATED, needed=7)
    text = render([replace(one, differences=(unrepeated,))], "md")
    assert "| more processes |" in " ".join(text.split()) and "raise protocol.trials" in text
    shown = render([replace(one, differences=(replace(unrepeated, verdict=ComparisonVerdict.NONE),))], "md")
    assert "more processes |" not in " ".join(shown.split())


def test_p_is_never_0() -> None:
    """All of 16 queries won are 2 of 2^16."""
    made = pair(BASE + np.where(np.arange(COUNT) < 16, 0.3, 0.0))
    rr = made.of("RR@10")
    assert rr is not None and rr.tested is not None and rr.tested.p == 2 / 2**16
    (line,) = [line for line in render([made], "md").splitlines() if re.match(r"\| RR@10 +\| +<0\.0001 \|", line)]
    assert line.count("<0.0001") == 2, "that of Holm too"
    ((cell,),) = [[each["p"]] for each in rows_of(render([made], "csv")) if each["metric"] == "RR@10"]
    assert float(cell) == 2 / 2**16


def test_one_ranking_on_several_profiles_is_tested_once() -> None:
    """Latencies differ by profile; measures do not, whichever of the two comes first."""
    values = BASE + 2.3 * 0.2 / COUNT**0.5 + SWAY
    ours, theirs = found("a", BASE), found("b", values, 0.1)
    profiles = [(row("a", profile=name), row("b", profile=name, **SLOW)) for name in ("p1", "p2", "p3")]
    made = [
        comparison.compare(a, b, ours, replace(theirs, latency_s=BASE / 10 + 0.1 + number / 50), ("RR@10",))
        for number, (a, b) in enumerate(profiles)
    ]
    turned = comparison.compare(*reversed(profiles[0]), theirs, ours, ("RR@10",))
    once = comparison.corrected(made[:1])[0].of("RR@10")
    every = comparison.corrected([*made, turned])
    assert len(comparison.family(every)) == 3 + 1 + 1, "latencies, that of the turned one too, and one measure"
    for each in every:
        rr = each.of("RR@10")
        assert once is not None and rr is not None
        assert rr.p_holm == once.p_holm, "the largest p of a family is multiplied by 1"
    text = render(every, "md")
    assert "for all 5 comparisons made here; 3 more are the same again, of systems that rank alike" in text
    content = json.loads(render(every, "json"))
    assert content["comparisons_tested"] == 5
    assert not {"fingerprint", "column"} & content["comparisons"][0]["differences"][0].keys()
    other = replace(made[1], b=ComparisonSide("c", row("c", profile="p2")))
    assert len(comparison.family([made[0], other])) == 4, "another system's ranking is another test, were it the same"


def test_query_texts_are_escaped_and_truncated() -> None:
    texts = {"q000": "a | b <script> \x1b[31m" + "long " * 40, "q001": ""}
    values = BASE.copy()
    values[0] += 0.5
    values[1] -= 0.5
    made = comparison.compare(
        row("a"), row("b"), found("a", BASE), found("b", values), ("RR@10",), QueryChoice("RR@10", 5, texts)
    )
    assert [each.query_id for each in made.changed] == ["q000", "q001"]
    text = render(comparison.corrected([made]), "md")
    (line,) = [each for each in text.splitlines() if each.startswith("| q000")]
    assert r"a \| b &lt;script&gt; \\x1b[31mlong" in line and " ... |" in line and "\x1b" not in text
    assert "long " * 40 in render([made], "json")
    (line,) = [each for each in text.splitlines() if each.startswith("| q001")]
    assert "| — " in line

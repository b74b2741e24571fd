"""Rendered verdicts: coarse, missing and unsharp ones are marked."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

from harness.errors import UsageError
from harness.experiments.viability import curve, render, render_minimum
from harness.experiments.viability.acceptance import Criteria
from harness.experiments.viability.at_size import limits_at
from harness.experiments.viability.minimum import Minimum
from harness.experiments.viability.probe import MIB
from harness.experiments.viability.smallest import ViabilityVerdict, smallest
from harness.pricing import offers, prices
from harness.pricing.instances import DEFAULT_CHOICE, TypeChoice
from harness.pricing.prices import Snapshot
from harness.report import writers
from tests.experiments.viability.conftest import Questions, needs

pytestmark = pytest.mark.slow


@pytest.fixture
def verdict(questions: Questions) -> ViabilityVerdict:
    return smallest(questions(needs(129))[0], 1)


@pytest.fixture
def market() -> Snapshot:
    return prices.snapshot()


def rendered(verdicts: list[ViabilityVerdict], market: Snapshot, form: str, choice: TypeChoice = DEFAULT_CHOICE) -> str:
    minimum = Minimum("planted", "tiny", 0, tuple(verdicts), {}, None)
    return writers.write(render_minimum.minima_document([minimum], Criteria(), market, choice), form)


def test_price_is_of_the_cheapest_type_with_room_for_limit_and_host(
    verdict: ViabilityVerdict, market: Snapshot
) -> None:
    large = replace(verdict, architecture="x86_64", limit_bytes=3 * 1024 * MIB)
    chosen = render_minimum.offer_of(large, market)
    anywhere = render_minimum.offer_of(large, market, TypeChoice("any", "any"))
    assert chosen is not None and anywhere is not None
    assert chosen.instance.architecture == "x86_64" and chosen.instance.current_generation
    assert anywhere.usd_per_hour <= chosen.usd_per_hour
    for offer in (chosen, anywhere):
        assert offers.host_reserve().left(offer.instance.memory_bytes) >= 3 * 1024 * MIB
    rented = rendered([large], market, "md", TypeChoice("arm64", "any"))
    assert "arm64), US$ " in rented and "; measured on x86_64." in rented


def test_envelope_that_no_type_provides_is_one_line_of_the_verdict(verdict: ViabilityVerdict, market: Snapshot) -> None:
    huge = replace(verdict, architecture="x86_64", limit_bytes=1 << 50)
    assert f"- To rent: the prices of {market} list no type that provides it with" in rendered([huge], market, "md")
    whole = json.loads(rendered([huge], market, "json"))
    assert whole["minima"][0]["verdicts"][0]["rent"] is None


def test_coarse_verdict_names_its_bracket(verdict: ViabilityVerdict, market: Snapshot) -> None:
    coarse = replace(verdict, limit_bytes=192 * MIB, below_bytes=128 * MIB, probes=8)
    text = rendered([coarse], market, "md")
    assert "The 8 probes leave the edge between these two, coarser than --step." in text
    assert "coarser" not in rendered([verdict], market, "md")


def test_verdict_without_a_limit_has_no_price(verdict: ViabilityVerdict, market: Snapshot) -> None:
    none = replace(verdict, limit_bytes=None, margin_bytes=None, sharp=False)
    text = rendered([none], market, "md")
    assert "No limit was confirmed" in text and "To rent" not in text
    assert json.loads(rendered([none], market, "json"))["minima"][0]["verdicts"][0]["rent"] is None


def test_limit_with_none_smaller_has_a_reason(verdict: ViabilityVerdict, market: Snapshot) -> None:
    least = replace(verdict, below_bytes=None, binding=(), lowest=True)
    assert "less than that starts no container." in rendered([least], market, "md")
    flaky = rendered([replace(least, sharp=False)], market, "md")
    assert "less than that starts no container, but not all jobs passed there." in flaky
    assert "all 3 probes passed" in rendered([replace(least, lowest=False, sharp=False)], market, "md")


def test_passed_limit_is_never_reported_as_failed(verdict: ViabilityVerdict, market: Snapshot) -> None:
    passing = tuple(
        replace(job, finding="passes", causes=()) if job.limit_bytes == 128 * MIB else job for job in verdict.evidence
    )
    moved = rendered([replace(verdict, binding=(), sharp=False, evidence=passing)], market, "md")
    assert "128 MiB passed as well, and after 4 moves the search ended" in moved and "128 MiB fails" not in moved
    assert "- Not sharp: 2 of 2 jobs with 128 MiB passed." in moved
    mixed = (*verdict.evidence, replace(passing[-1]))
    at_times = rendered([replace(verdict, sharp=False, evidence=mixed)], market, "md")
    assert "128 MiB fails at times, but the edge is not sharp." in at_times


def test_image_output_is_escaped_in_both_formats(questions: Questions, market: Snapshot) -> None:
    strange = "\x1b[2J| <b>\u202e"
    drawn = curve.measure_curve(questions(needs(129))[0], 1, (144 * MIB,))
    drawn = replace(drawn, points=tuple(replace(job, disturbed=strange) for job in drawn.points))
    for form in ("md", "json"):
        text = writers.write(render.curve_document(drawn), form)
        assert "\x1b" not in text and "\u202e" not in text and text.isascii()
    assert "| <b>" not in writers.write(render.curve_document(drawn), "md").partition("disturbed machine")[2]


def test_every_job_has_a_row(verdict: ViabilityVerdict, market: Snapshot) -> None:
    text = rendered([verdict], market, "md")
    for job in verdict.evidence:
        assert job.job.rpartition("/")[2] in text
    assert text.count("\n| 144 MiB") == 4
    for job in verdict.unconstrained.jobs:
        assert job.rpartition("/")[2] in text, "also those that the targets come from"


def test_limits_of_several_sizes_give_one_at_another(verdict: ViabilityVerdict, market: Snapshot) -> None:
    def minimum(system: str, documents: int, limit_mib: int | None) -> Minimum:
        own = replace(verdict, architecture="x86_64", limit_bytes=limit_mib and limit_mib * MIB)
        return Minimum(system, f"mine@{documents}", 0, (own,), {}, None)

    sizes = {10_000: 144, 30_000: 224, 100_000: 512, 300_000: 1312}
    minima = [minimum("engine", documents, mib) for documents, mib in sizes.items()]
    minima += [minimum("cliff", documents, mib if documents < 300_000 else 9_000) for documents, mib in sizes.items()]
    minima += [minimum("short", 10_000, 64), minimum("short", 30_000, None)]
    found = {each.system: each for each in limits_at(minima, 3_000_000, market)}
    limit, offer = found["engine"].limit_bytes, found["engine"].offer
    assert limit.low is not None and limit.high is not None and limit.low < 12_100 * MIB < limit.high
    assert limit.value == pytest.approx(12_100 * MIB, rel=0.1)
    assert offer is not None and offers.host_reserve().left(offer.instance.memory_bytes) >= limit.high
    assert found["cliff"].limit_bytes.reason == "its law failed the exam"
    assert found["short"].limit_bytes.reason == "a law needs 4 sizes, and 1 have this figure"
    document = render_minimum.minima_document(minima, Criteria(), market, suite="s", predicted=list(found.values()))
    text = writers.write(document, "md")
    assert "mine, predicted at 3,000,000 documents (95 %)" in text and offer.instance.instance_type in text
    assert "cliff: not predicted, its law failed the exam: " in text and "and 9000 were found" in text
    predicted = json.loads(writers.write(document, "json"))["predicted"]
    assert [each["exam_passed"] for each in predicted] == [True, False, None]
    lines = list(csv.DictReader(io.StringIO(writers.write(document, "csv"))))
    engine, cliff, short = [line for line in lines if line["predicted_from"]]
    assert engine["dataset"] == "mine@3000000" and engine["instance_type"] == offer.instance.instance_type
    assert engine["predicted_from"] == "10000 30000 100000 300000" and short["predicted_from"] == "10000"
    ends = ("predicted_low_bytes", "predicted_limit_bytes", "predicted_high_bytes")
    assert [float(engine[name]) for name in ends] == [limit.low, limit.value, limit.high]
    assert cliff["predicted_limit_bytes"] == "" and cliff["failure"] == "its law failed the exam"
    for documents, fault in (
        (9_999, "below the smallest size that was searched, 10,000"),
        (10**6, "no limit was found"),
    ):
        with pytest.raises(UsageError, match=fault):
            limits_at(minima if documents < 10**6 else [], documents, market)

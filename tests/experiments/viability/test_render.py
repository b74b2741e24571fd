"""Rendered verdicts: coarse, missing and unsharp ones are marked."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from harness.experiments.viability import curve, render
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
    return writers.write(render.verdicts_document(verdicts, market, choice), form)


def test_price_is_of_the_cheapest_type_with_room_for_limit_and_host(
    verdict: ViabilityVerdict, market: Snapshot
) -> None:
    rent = render.rental_offers(replace(verdict, architecture="x86_64", limit_bytes=3 * 1024 * MIB), market)
    assert rent is not None
    chosen, same, anywhere = rent.values()
    assert chosen is not None and same is not None and anywhere is not None
    assert chosen.instance.architecture == same.instance.architecture == "x86_64"
    assert chosen.instance.current_generation
    assert anywhere.usd_per_hour <= same.usd_per_hour <= chosen.usd_per_hour
    for offer in (chosen, same, anywhere):
        assert offers.host_reserve().left(offer.instance.memory_bytes) >= 3 * 1024 * MIB


def test_envelope_that_no_type_provides_is_one_line_of_the_verdict(verdict: ViabilityVerdict, market: Snapshot) -> None:
    huge = replace(verdict, architecture="x86_64", limit_bytes=1 << 50)
    assert f"- To rent: the prices of {market} list no type that provides it with" in rendered([huge], market, "md")
    whole = json.loads(rendered([huge], market, "json"))
    assert whole["verdicts"][0]["rent"]["chosen"] is None


def test_types_to_rent_are_named_once_and_marked_if_not_measured(verdict: ViabilityVerdict, market: Snapshot) -> None:
    small = replace(verdict, architecture="x86_64", limit_bytes=144 * MIB)

    def rented(*choice: str) -> list[str]:
        text = rendered([small], market, "md", TypeChoice(*choice))
        lines = text[text.index("- To rent") :].splitlines()
        return [line.partition(": ")[2].split(" ")[0] + line[-10:] for line in lines if " per hour" in line]

    unmeasured = "as x86_64."
    assert rented() == ["c7a.medium per hour.", "m1.small per hour.", f"a1.medium{unmeasured}"]
    assert rented("measured", "any") == ["m1.small per hour.", f"a1.medium{unmeasured}"]
    assert rented("arm64") == [f"c6g.medium{unmeasured}", f"a1.medium{unmeasured}"]
    assert rented("any", "any") == [f"a1.medium{unmeasured}"]


def test_coarse_verdict_names_its_bracket(verdict: ViabilityVerdict, market: Snapshot) -> None:
    coarse = replace(verdict, limit_bytes=192 * MIB, below_bytes=128 * MIB, probes=8)
    text = rendered([coarse], market, "md")
    assert "The 8 probes leave the edge between these two, coarser than --step." in text
    assert "coarser" not in rendered([verdict], market, "md")


def test_verdict_without_a_limit_has_no_price(verdict: ViabilityVerdict, market: Snapshot) -> None:
    none = replace(verdict, limit_bytes=None, margin_bytes=None, headroom={}, sharp=False)
    text = rendered([none], market, "md")
    assert "No limit was confirmed" in text and "To rent" not in text
    assert json.loads(rendered([none], market, "json"))["verdicts"][0]["rent"] is None


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

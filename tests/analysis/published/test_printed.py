"""A printed figure stands for all numbers that round to it."""

from __future__ import annotations

from fractions import Fraction

import pytest

from harness.analysis.published.rounding import Interval, Printed


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [("19", "18.5", "19.5"), ("14.90", "14.895", "14.905"), ("0", "0", "0.5"), ("19.127", "19.1265", "19.1275")],
)
def test_a_figure_stands_for_half_a_unit_to_both_sides_and_never_below_zero(text: str, low: str, high: str) -> None:
    assert Printed(text).interval == Interval(Fraction(low), Fraction(high))


def test_printed_digits_are_kept() -> None:
    assert str(Printed("14.90")) == "14.90"
    assert Printed("14.90").decimals == 2
    assert Printed("14.90") != Printed("14.9")


@pytest.mark.parametrize("text", ["", "-1", "1e3", "nan", "1,5", ".5", "5.", "٣", " 1", "1\n"])
def test_what_no_paper_prints_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no number as papers print them"):
        Printed(text)


def test_intervals_meet_at_their_ends_and_no_further() -> None:
    interval = Interval(Fraction(1), Fraction(2))
    assert interval.meets(Interval(Fraction(2), Fraction(3)))
    assert interval.meets(Interval(Fraction(0), Fraction(5)))
    assert not interval.meets(Interval(Fraction(2) + Fraction(1, 10**9), Fraction(3)))
    assert not Interval(Fraction(3), Fraction(4)).meets(interval)

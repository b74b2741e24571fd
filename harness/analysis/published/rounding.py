"""A figure as a paper prints it stands for every number that rounds to it: exact fractions, exact intervals."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

_PRINTED = re.compile(r"[0-9]{1,9}(\.([0-9]{1,6}))?", flags=re.ASCII)


@dataclass(frozen=True)
class Interval:
    """All numbers from ``low`` to ``high``, both included."""

    low: Fraction
    high: Fraction

    def times(self, factor: Fraction) -> Interval:
        """Scaled by a factor that is not negative."""
        return Interval(self.low * factor, self.high * factor)

    def meets(self, other: Interval) -> bool:
        """Whether some number lies in both."""
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True)
class Printed:
    """A number as text, whose last digit is rounded."""

    text: str

    def __post_init__(self) -> None:
        if not _PRINTED.fullmatch(self.text):
            raise ValueError(f"{self.text!r} is no number as papers print them; write digits and at most one point")

    def __str__(self) -> str:
        """As it was printed."""
        return self.text

    @property
    def decimals(self) -> int:
        """Digits behind the point."""
        return len(self.text.partition(".")[2])

    @property
    def value(self) -> Fraction:
        """The number that is printed, exactly."""
        return Fraction(self.text)

    @property
    def interval(self) -> Interval:
        """Every number that may stand behind it: half a unit of the last digit to both sides.

        Both ends belong to it, as how a paper rounds a tie is not known.
        """
        half = Fraction(1, 2 * 10**self.decimals)
        return Interval(max(self.value - half, Fraction(0)), self.value + half)


def decimal(number: Fraction | float, decimals: int) -> str:
    """A number for people, rounded to ``decimals`` digits behind the point."""
    return f"{float(number):.{decimals}f}"

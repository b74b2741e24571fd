"""The verdict on a difference of two systems, as sentences and stored tests need it: without numpy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from harness.estimate import Estimate


class ComparisonVerdict(str, Enum):
    """Verdict on B against A."""

    FASTER = "faster"
    SLOWER = "slower"
    BETTER = "better"
    WORSE = "worse"
    EQUAL = "equal on every query"
    NONE = "no difference that this sample can show"
    TOO_FEW = "too few queries to tell"
    UNREPEATED = "no difference that so few processes can show"
    UNCORRECTED = "no difference that holds among all comparisons made"
    UNKNOWN = "cannot be compared"


@dataclass(frozen=True)
class QualityDifference:
    """B less A in a measure: both values, the interval of the test in the measure's unit, and the verdict on B.

    ``verdict_text`` has the verdict in words.  Without values by query the verdict is ``UNKNOWN``.
    """

    a: float | None
    b: float | None
    interval: Estimate
    verdict: ComparisonVerdict
    verdict_text: str

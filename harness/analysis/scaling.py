"""A law of size: how a figure grows with the number of documents, its exam, and a prediction with an interval.

A law is ``constant + factor · growth(n)``, with neither below 0, where ``growth`` is a power of n, its logarithm (the
search of a graph: Malkov and Yashunin 2020, section 4.2) or ``n log n`` (sorting).  No single form is believed: a
prediction holds what every law that the measured sizes do not refute predicts (a profile likelihood), so that it is as
wide as these laws differ.  Sizes have errors of their own besides the noise between processes, because no law is exact:
caches fill, and trees get another level.

The largest measured size is the exam: the law of the smaller ones must predict it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from harness.estimate import Estimate, Z
from harness.stats import Floats

# Fewest sizes: three make a law, and the largest is its exam.
MIN_SIZES = 4
# No law is believed further than this many times the largest measured size.
MOST_TIMES = 100
# Standard deviation of the logarithm of a size's own error, of figures with a clock, and of counted ones.
OWN_ERROR, COUNTED_ERROR = 0.05, 0.01
# The largest power of n in a law of times, and in a law of memory or of an index, which store each document once.
STEEPEST, STORED_STEEPEST = 1.5, 1.0
# Twice the log-likelihood that a law may lose.  Chi-square's 95 % (3.84) holds the truth less often where it has no
# constant, because none may be below 0; its 97.5 % holds 95 % there (``python -m benchmarks.coverage --only sizes``).
_LOSS = 5.023886187314888


@dataclass(frozen=True)
class MeasuredSize:
    """A figure at a number of documents: its value in each process, or its only value."""

    documents: int
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over the processes."""
        return math.fsum(self.values) / len(self.values)


@dataclass(frozen=True)
class Growth:
    """A form of growth, relative to the smallest measured size."""

    name: str
    of: Callable[[float], float]


@dataclass(frozen=True)
class ScalingLaw:
    """The law that fits best: ``constant + factor · growth(n)``."""

    growth: Growth
    constant: float
    factor: float

    def at(self, documents: float) -> float:
        """Return the figure at a number of documents."""
        return self.constant + self.factor * self.growth.of(documents)


@dataclass(frozen=True)
class Exam:
    """The exam of a law: what the smaller sizes predicted for the largest one, and what was measured there."""

    documents: int
    predicted: Estimate
    measured: float

    @property
    def passed(self) -> bool:
        """Return whether the measured figure is within the prediction's interval."""
        low, high = self.predicted.low, self.predicted.high
        return low is not None and high is not None and low <= self.measured <= high


@functools.cache
def growths(steepest: float = STEEPEST) -> tuple[Growth, ...]:
    """Return the forms of growth: logarithm, powers up to the steepest, and n log n if that is steeper than n."""

    def power(exponent: float) -> Growth:
        return Growth("n" if exponent == 1 else f"n^{exponent:g}", lambda n: n**exponent)

    powers = [power(number / 20) for number in range(2, 31) if number / 20 <= steepest]
    powers += [Growth("n log n", lambda n: n * math.log(n))] if steepest > 1 else []
    return Growth("log n", math.log), *powers


def examined(sizes: Iterable[MeasuredSize], own_error: float = OWN_ERROR, steepest: float = STEEPEST) -> ExaminedLaw:
    """Return the law of measured sizes, in any order, with its exam.

    Args:
        sizes: with figures above 0.
        own_error: of a size, besides the noise between processes.
        steepest: the largest power of n.
    """
    return ExaminedLaw(tuple(sorted(sizes, key=lambda size: size.documents)), own_error, steepest)


@dataclass(frozen=True)
class ExaminedLaw:
    """The law of measured sizes, the smallest first, with its exam; both are missing where the sizes are too few."""

    sizes: tuple[MeasuredSize, ...]
    own_error: float
    steepest: float

    @cached_property
    def _fits(self) -> list[_Fit]:
        """All forms of growth fitted to the sizes, the best first."""
        fits = (_Fit(growth, self.sizes, self.own_error) for growth in growths(self.steepest))
        return sorted(fits, key=lambda fit: fit.loss)

    @property
    def law(self) -> ScalingLaw | None:
        """The law that fits best."""
        return self._fits[0].law if len(self.sizes) >= MIN_SIZES else None

    @cached_property
    def exam(self) -> Exam | None:
        """The largest size, predicted from the others."""
        if len(self.sizes) < MIN_SIZES:
            return None
        *smaller, largest = self.sizes
        predicted = replace(self, sizes=tuple(smaller)).extrapolate(largest.documents)
        return Exam(largest.documents, predicted, largest.mean)

    @property
    def reason(self) -> str | None:
        """The reason to predict nothing; ``None``: the law predicts, up to ``MOST_TIMES`` the largest size."""
        if self.exam is None:
            return f"a law needs {MIN_SIZES} sizes, and {len(self.sizes)} have this figure"
        return None if self.exam.passed else "its law failed the exam"

    def predict(self, documents: int) -> Estimate:
        """Return the figure at a number of documents; without a value, its reason says why."""
        reason = self.reason
        if reason is None and documents > MOST_TIMES * self.sizes[-1].documents:
            reason = f"beyond {MOST_TIMES} times the largest measured size, {self.sizes[-1].documents:,} documents"
        return Estimate(None, reason=reason) if reason else self.extrapolate(documents)

    def extrapolate(self, documents: float) -> Estimate:
        """Return the figure at a number of documents without an exam, with the 95 % interval of all laws that fit."""
        value, most = self._fits[0].law.at(documents), self._fits[0].loss + _LOSS
        ends = [fit.ends(documents, most) for fit in self._fits if fit.loss <= most]
        # What is measured there has an error of its own.
        own = Z * math.hypot(self.own_error, _process_noise(self.sizes))
        low = value / math.exp(math.hypot(math.log(value / min(low for low, _ in ends)), own))
        high = value * math.exp(math.hypot(math.log(max(high for _, high in ends) / value), own))
        return Estimate(value, low, high)


class _Fit:
    """One form of growth, fitted to measured sizes by least squares of relative errors, with no parameter below 0."""

    def __init__(self, growth: Growth, sizes: Sequence[MeasuredSize], own_error: float) -> None:
        from scipy.optimize import nnls

        means = np.array([size.mean for size in sizes])
        noise = _process_noise(sizes)
        spread = np.array([math.hypot(own_error, noise / math.sqrt(len(size.values))) for size in sizes])
        grown = np.array([growth.of(size.documents) for size in sizes])
        # Each row divided by its error; growth relative to the largest, as powers of n overflow no solver then.
        self._scale = float(grown.max())
        self._rows: Floats = np.stack([np.ones(len(sizes)), grown / self._scale], axis=1) / (means * spread)[:, None]
        self._wanted: Floats = 1 / spread
        (constant, factor), residual = nnls(self._rows, self._wanted)
        self.law = ScalingLaw(growth, float(constant), float(factor) / self._scale)
        self.loss = float(residual) ** 2

    def ends(self, documents: float, most_loss: float) -> tuple[float, float]:
        """Return the least and the largest prediction of this form with at most this loss."""
        from scipy.optimize import brentq

        middle = self.law.at(documents)
        reach = self.law.growth.of(documents) / self._scale

        def beyond(value: float) -> float:
            return self._loss_at(value, reach) - most_loss

        low, high = middle, middle
        while beyond(low) < 0 and low > middle * 1e-6:
            low /= 2
        while beyond(high) < 0 and high < middle * 1e6:
            high *= 2
        found_low = float(brentq(beyond, low, middle)) if beyond(low) > 0 else low
        found_high = float(brentq(beyond, middle, high)) if beyond(high) > 0 else high
        return found_low, found_high

    def _loss_at(self, value: float, reach: float) -> float:
        """Return the least loss of parameters that predict ``value`` where growth is ``reach`` times the largest."""
        # With constant = value - factor * reach, the loss is a parabola of the factor.
        fixed = self._wanted - self._rows[:, 0] * value
        moved = self._rows[:, 1] - self._rows[:, 0] * reach
        curve = float(moved @ moved)
        factor = float(moved @ fixed) / curve if curve else 0.0
        factor = min(max(factor, 0.0), value / reach)
        return float(np.sum((fixed - moved * factor) ** 2))


def _process_noise(sizes: Sequence[MeasuredSize]) -> float:
    """Return the standard deviation of the logarithm between processes of one size, over all sizes."""
    squares = [float(np.sum((np.log(size.values) - np.log(size.values).mean()) ** 2)) for size in sizes]
    degrees = sum(len(size.values) - 1 for size in sizes)
    return math.sqrt(math.fsum(squares) / degrees) if degrees else 0.0

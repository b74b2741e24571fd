"""Numbers of axes as a person writes them, such as ``latency=50,cost=2``: weights, exchange rates, thresholds.

Each function raises UsageError for a text that it cannot parse.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from harness.analysis import axes, leaderboard
from harness.analysis.leaderboard import Bound
from harness.errors import UnknownName, UsageError
from harness.untrusted import finite_number, split_list

_EXAMPLE = "accuracy=0.5,cost=0.25,latency=0.25"
PRESETS = {preset.word: preset.weights for preset in leaderboard.PRESETS}


def parse_weights(text: str) -> Mapping[str, float]:
    """Parse a preset's name, or weights of axes that sum to 1."""
    if text in PRESETS:
        return PRESETS[text]
    if "=" not in text:
        raise UnknownName("preset of weights", text, tuple(PRESETS), f"or weigh each axis: {_EXAMPLE}")
    weights = _numbers(text, "--weights")
    total = sum(weights.values())
    if any(weight < 0 for weight in weights.values()) or abs(total - 1) > 1e-6:
        raise UsageError(
            f"--weights {text}: weights must not be negative and must sum to 1, these sum to {total:g}; e.g. {_EXAMPLE}"
        )
    return weights


def parse_rates(text: str) -> dict[str, float]:
    """Parse exchange rates of axes."""
    rates = _numbers(text, "--amrs")
    for name, rate in rates.items():
        if name == "accuracy" or rate <= 0:
            raise UsageError(
                f"--amrs {name}={rate:g}: a rate must be above 0, and accuracy's is always 1; leave it out"
            )
    return rates


def parse_front(text: str) -> tuple[str, ...]:
    """Parse the two or three axes of a Pareto front."""
    names = tuple(dict.fromkeys(split_list(text)))
    if not 2 <= len(names) <= 3:
        raise UsageError(f"--front {text}: name two or three axes, e.g. accuracy,cost")
    return names


def parse_bounds(at_most: str | None, at_least: str | None) -> tuple[Bound, ...]:
    """Parse thresholds on axes."""
    maximum = {} if at_most is None else _numbers(at_most, "--at-most")
    minimum = {} if at_least is None else _numbers(at_least, "--at-least")
    return tuple(Bound(name, maximum.get(name), minimum.get(name)) for name in dict.fromkeys((*maximum, *minimum)))


def _numbers(text: str, option: str) -> dict[str, float]:
    """Parse ``a=1,b=2`` as numbers by axis."""
    numbers: dict[str, float] = {}
    for part in split_list(re.sub(r"\s*=\s*", "=", text)) or (text,):
        name, equals, value = part.partition("=")
        try:
            number = finite_number(value)
        except ValueError:
            number = math.nan
        if not equals or not math.isfinite(number):
            raise UsageError(f"{option} {text}: {part!r} is not axis=number; write e.g. latency=50")
        if name in numbers:
            raise UsageError(f"{option} {text}: {name} appears twice; keep one")
        axes.axis(name, "")
        numbers[name] = number
    return numbers

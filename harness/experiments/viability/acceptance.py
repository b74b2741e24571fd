"""What a system must keep under a limit, as the command line writes it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from harness.errors import UnknownName, UsageError
from harness.evaluation import measure_names
from harness.pricing import instances
from harness.stats import MIN_QUERIES

MEAN = "mean"
# How much slower than unconstrained a system may become where no target is given.
SLOWER = 1.25
_FIGURES = (MEAN, "p50", "p90", "p95", "p99")
_UNITS = {"ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Target:
    """A latency (``mean`` or a percentile) of at most so many seconds."""

    figure: str
    at_most_s: float

    def __str__(self) -> str:
        return f"{self.figure} <= {self.at_most_s * 1e3:.4g} ms"


@dataclass(frozen=True)
class Least:
    """An effectiveness measure of at least so much."""

    measure: str
    at_least: float

    def __str__(self) -> str:
        return f"{self.measure} >= {self.at_least:g}"


@dataclass(frozen=True)
class Criteria:
    """What is asked beside answers and rankings.  No target: the mean within 25 % of unconstrained."""

    targets: tuple[Target, ...] = ()
    least: tuple[Least, ...] = ()


def criteria(targets: Iterable[str], least: Iterable[str]) -> Criteria:
    """From ``--max-latency p95=200ms`` and ``--min RR@10=0.3``.

    Raises:
        UsageError: one of them is not written so, names no figure or measure, or stands twice.
    """
    found = Criteria(tuple(map(_target, targets)), tuple(map(_least, least)))
    names = [each.figure for each in found.targets] + [each.measure for each in found.least]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise UsageError(f"{', '.join(sorted(twice))} is asked twice; keep the stricter one")
    return found


def check_proves(wanted: Criteria, queries: int) -> None:
    """Refuse a percentile that a sample of so many queries cannot show.

    Raises:
        UsageError: it cannot.
    """
    for target in wanted.targets:
        floor = MIN_QUERIES.get(target.figure, 1)
        if queries < floor:
            raise UsageError(
                f"a sample of {queries} queries shows no {target.figure}, which takes {floor}; raise --queries, choose"
                f" a dataset with more judged queries, or ask --max-latency {MEAN}=..."
            )


def whole_numbers(text: str, option: str, least: int = 1) -> tuple[int, ...]:
    """``"1,2"`` -> (1, 2), ascending and each once.

    Raises:
        UsageError: it is not written so.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,6}", part, flags=re.ASCII) and int(part) >= least for part in parts):
        raise UsageError(f"{option} {text!r}: write whole numbers from {least} on, e.g. {option} 1,2")
    return tuple(sorted({int(part) for part in parts}))


def size(text: str, option: str) -> int:
    """``"16MiB"`` -> bytes.

    Raises:
        UsageError: it is no whole number of MiB or GiB.
    """
    try:
        return instances.parse_memory(text.strip())
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def _target(text: str) -> Target:
    figure, _, amount = text.partition("=")
    if figure not in _FIGURES:
        raise UnknownName("latency figure", figure, _FIGURES)
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(ms|s)", amount, flags=re.ASCII)
    if match is None or float(match[1]) <= 0:
        raise UsageError(f"--max-latency {text!r}: write it as {figure}=200ms or {figure}=0.2s")
    return Target(figure, float(match[1]) * _UNITS[match[2]])


def _least(text: str) -> Least:
    measure, _, amount = text.rpartition("=")
    if not measure or not re.fullmatch(r"[0-9]+(\.[0-9]+)?", amount, flags=re.ASCII):
        raise UsageError(f"--min {text!r}: write a measure and its least value, e.g. --min RR@10=0.3")
    (parsed,) = measure_names.parse([measure])
    return Least(str(parsed), float(amount))

"""Acceptance criteria of a system under a limit, as the command line writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from harness.commands import words
from harness.errors import UnknownName, UsageError
from harness.estimate import MIN_QUERIES
from harness.evaluation import measure_names
from harness.pricing import instances
from harness.untrusted import split_list

MEAN = "mean"
# The allowed slowdown relative to the unconstrained system, if the user gives no target.
SLOWER = 1.25
_FIGURES = (MEAN, "p50", "p90", "p95", "p99")
_UNITS = {"ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Criteria:
    """Criteria in addition to answers and rankings.

    ``targets``: the most seconds of the ``mean`` or a percentile; without any, the mean within 25 % of unconstrained.
    ``least``: the minimum of each measure.
    """

    targets: dict[str, float] = field(default_factory=dict)
    least: dict[str, float] = field(default_factory=dict)


def parse_criteria(targets: Iterable[str], least: Iterable[str]) -> Criteria:
    """Parse ``--max-latency p95=200ms`` and ``--min RR@10=0.3``.

    Raises:
        UsageError: a criterion is malformed, repeated, or names an unknown figure or measure.
    """
    criteria = Criteria()
    for bounds, parsed in ((criteria.targets, map(_target, targets)), (criteria.least, map(_least, least))):
        for name, bound in parsed:
            if name in bounds:
                raise UsageError(f"{name} is asked twice; keep the stricter one")
            bounds[name] = bound
    return criteria


def check_sample_size(criteria: Criteria, queries: int, judged: int) -> None:
    """Raise UsageError for a percentile that a sample cannot show.

    Args:
        criteria: what the user asked for.
        queries: number of queries in the sample.
        judged: number of queries that the dataset has judged, of which the sample is drawn.
    """
    for figure in criteria.targets:
        floor = MIN_QUERIES.get(figure, 1)
        if queries < floor:
            if judged >= floor:
                more = f"raise --queries (the dataset has {judged} judged queries)"
            else:
                more = f"the dataset has only {judged} judged queries: time others too (--unjudged), judge more"
            raise UsageError(
                f"{queries} timed queries show no {figure}, which takes {floor}; {more}, or ask"
                f" --max-latency {words(MEAN)}=..."
            )


def parse_whole_numbers(text: str, option: str) -> tuple[int, ...]:
    """Parse ``"1,2"`` into (1, 2), ascending, without duplicates."""
    parts = split_list(text)
    if not parts or not all(re.fullmatch(r"[0-9]{1,6}", part, flags=re.ASCII) and int(part) for part in parts):
        raise UsageError(f"{option} {text!r}: write whole numbers from 1 on, e.g. {option} 1,2")
    return tuple(sorted({int(part) for part in parts}))


def parse_sizes(text: str, option: str) -> tuple[int, ...]:
    """Parse a list of sizes, like ``"64MiB,96 MiB"``, into bytes."""
    sizes = split_list(re.sub("([0-9]) +([MG]iB)", r"\1\2", text))
    return tuple(parse_size(size, option) for size in sizes or (text,))


def parse_size(text: str, option: str) -> int:
    """Parse a whole number of MiB or GiB, like ``"16MiB"``, into bytes."""
    try:
        return instances.parse_memory(text.strip())
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def _target(text: str) -> tuple[str, float]:
    figure, _, amount = text.partition("=")
    if figure not in _FIGURES:
        raise UnknownName("latency figure", figure, _FIGURES)
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(ms|s)", amount, flags=re.ASCII)
    if match is None or float(match[1]) <= 0:
        raise UsageError(f"--max-latency {text!r}: write it as {figure}=200ms or {figure}=0.2s")
    return figure, float(match[1]) * _UNITS[match[2]]


def _least(text: str) -> tuple[str, float]:
    measure, _, amount = text.rpartition("=")
    if not measure or not re.fullmatch(r"[0-9]+(\.[0-9]+)?", amount, flags=re.ASCII):
        raise UsageError(f"--min {text!r}: write a measure and its least value, e.g. --min RR@10=0.3")
    (parsed,) = measure_names.parse([measure])
    if float(amount) > 1 and parsed.NAME in measure_names.AT_MOST_ONE:
        raise UsageError(f"--min {text!r}: {parsed} is at most 1, so no limit could keep it; write e.g. {parsed}=0.3")
    return str(parsed), float(amount)

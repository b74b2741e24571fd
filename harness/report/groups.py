"""Names of comparison groups: the dataset, and the facts that tell it from the dataset's other groups."""

from __future__ import annotations

from collections.abc import Iterable

from harness.analysis.axes import ComparisonGroup


def group_words(groups: Iterable[ComparisonGroup], shown: int = 0) -> dict[ComparisonGroup, tuple[str, ...]]:
    """Return the words of each group: its dataset, then the facts in which groups of that dataset differ.

    ``shown``: how many of scenario, isolation and number of hits are said even where they are the same.
    """
    facts = {group: _facts(group) for group in groups}
    words = {}
    for group, own in facts.items():
        columns = zip(*(other for each, other in facts.items() if each.dataset == group.dataset), strict=True)
        told = (
            fact
            for place, (fact, column) in enumerate(zip(own, columns, strict=True))
            if place < shown or len(set(column)) > 1
        )
        words[group] = (group.dataset, *told)
    return words


def _facts(group: ComparisonGroup) -> tuple[str, ...]:
    target_s = group.latency_target_s
    target = "no latency target" if target_s is None else f"{group.latency_percentile:g} % within {target_s * 1e3:g} ms"
    return (
        group.scenario,
        group.isolation,
        f"top {group.k}",
        group.suite or "measured",
        target,
        f"queries {(group.sample_sha256 or 'unknown')[:8]}",
        f"documents {(group.corpus_sha256 or 'unknown')[:8]}",
    )

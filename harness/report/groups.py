"""Names of comparison groups: the dataset, and the facts that tell it from the dataset's other groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.analysis import axes
from harness.analysis.axes import ComparisonGroup
from harness.analysis.table import Row


def group_words(groups: Iterable[ComparisonGroup], shown: int = 0) -> dict[ComparisonGroup, tuple[str, ...]]:
    """Return the words of each group: its dataset, then the facts in which groups of that dataset differ.

    ``shown``: how many of scenario, isolation and number of hits are said even where they are the same.
    """
    held: dict[str, list[ComparisonGroup]] = defaultdict(list)
    for group in groups:
        held[group.dataset].append(group)
    words = {name: _different(of_dataset, shown) for name, of_dataset in held.items()}
    return {group: (name, *told) for name, of_dataset in words.items() for group, told in of_dataset.items()}


@dataclass(frozen=True)
class RivalName:
    """Name that tells a group from others of its dataset and scenario: its suites, and facts if these are the same."""

    suites: str
    facts: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return the name in one text."""
        return ", ".join(filter(None, (self.suites, *self.facts)))

    @property
    def words(self) -> str:
        """Return the name in a sentence: ``suite demo``, ``process``."""
        return f"suite {self.text}" if self.suites else self.text


def rival_names(rows: Iterable[Row]) -> dict[ComparisonGroup, RivalName]:
    """Name each group of rows that shares dataset and scenario with another group, which it must not be compared to."""
    suites = {group: ", ".join(sorted({row.suite for row in held})) for group, held in axes.group_rows(rows).items()}
    rivals: dict[tuple[str, str], list[ComparisonGroup]] = defaultdict(list)
    for group in suites:
        rivals[group.dataset, group.scenario].append(group)
    names = {}
    for groups in rivals.values():
        if len(groups) > 1:
            several = len({suites[group] for group in groups}) > 1
            for name in dict.fromkeys(suites[group] for group in groups):
                alike = [group for group in groups if suites[group] == name]
                for group, told in _different(alike).items():
                    names[group] = RivalName(name if several else "", told)
    return names


def _different(groups: Sequence[ComparisonGroup], shown: int = 0) -> dict[ComparisonGroup, tuple[str, ...]]:
    """Return the facts of each group in which these groups differ, and the first ``shown`` facts."""
    facts = [_facts(group) for group in groups]
    told = [place for place, column in enumerate(zip(*facts, strict=True)) if place < shown or len(set(column)) > 1]
    return {group: tuple(own[place] for place in told) for group, own in zip(groups, facts, strict=True)}


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

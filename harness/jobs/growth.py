"""Growth of index builds, indexes and memory with the number of documents: one sweep, whose figures ship with harness.

Machines and texts differ.  Its ratios scale what was measured elsewhere.  Its own figures are used only where nothing
was measured.
"""

from __future__ import annotations

import csv
import functools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from typing import Literal, get_args

from harness import config
from harness.results.schema import base_system

Figure = Literal["build_s", "index_bytes", "memory_bytes"]


def at(sizes: Mapping[int, float], documents: int) -> float:
    """Return a figure at a number of documents: on the line through the nearest two sizes; of one size, in proportion.

    Args:
        sizes: documents -> the figure; not empty.
    """
    if documents in sizes:
        return sizes[documents]
    known = sorted(sizes)
    low, high = known[0], known[-1]
    if len(known) > 1:
        upper = min(max(bisect_left(known, documents), 1), len(known) - 1)
        low, high = known[upper - 1], known[upper]
    if low == high:
        return sizes[low] * documents / low
    slope = max(0.0, (sizes[high] - sizes[low]) / (high - low))
    least = sizes[low] * min(1.0, documents / low)  # a small corpus costs something
    return max(least, sizes[low] + slope * (documents - low))


def shipped(system: str, figure: Figure, documents: int) -> float | None:
    """Return a system's figure in the shipped sweep; ``None``: the sweep does not have the system."""
    sizes = _sweep().get((base_system(system), figure))
    return at(sizes, documents) if sizes else None


def times(system: str, figure: Figure, documents: int, than: int) -> float:
    """Return how many times as large a figure is as at another number of documents; in proportion where unknown."""
    sizes = _sweep().get((base_system(system), figure))
    known = at(sizes, than) if sizes else 0.0
    return at(sizes, documents) / known if sizes and known else documents / than


@functools.cache
def _sweep() -> Mapping[tuple[str, str], Mapping[int, float]]:
    found: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    with (config.published_folder() / "growth.csv").open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            for figure in get_args(Figure):
                found[line["system"], figure][int(line["documents"])] = float(line[figure])
    return found

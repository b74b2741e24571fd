"""The k best documents by one rule: higher scores first, and of equal scores the lower key (a document's row or id).

Search libraries keep any of the documents that equal the k-th, so that more of them are asked for where this happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Key = TypeVar("Key", int, str)


def best(search: Callable[[int], Sequence[tuple[float, Key]]], k: int) -> list[tuple[float, Key]]:
    """Return the ``k`` best pairs of score and key, ranked; fewer where the search finds fewer.

    Args:
        search: returns that many pairs, best first, or all that it finds.
    """
    asked = k + 1
    while True:
        found = search(asked)
        # Of those that equal the last one, some may be missing.
        if len(found) < asked or found[-1][0] < found[k - 1][0]:
            return sorted(found, key=lambda pair: (-pair[0], pair[1]))[:k]
        asked *= 2

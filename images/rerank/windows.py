"""Rules that cut a document into windows of tokens."""

from __future__ import annotations

from collections.abc import Callable

Span = tuple[int, int]


def first(tokens: int, window: int, _stride: int) -> list[Span]:
    """Return the one window at the start (FirstP)."""
    return [(0, min(tokens, window))]


def disjoint(tokens: int, window: int, _stride: int) -> list[Span]:
    """Cut into as few windows as possible, of equal length but for the last (AvgP, CEDR)."""
    count = max(1, -(-tokens // window))
    length = -(-tokens // count)
    return [(number * length, min((number + 1) * length, tokens)) for number in range(count)]


def sliding(tokens: int, window: int, stride: int) -> list[Span]:
    """Start a window every ``stride`` tokens, until one reaches the end (MaxP, PARADE)."""
    count = -(-max(0, tokens - window) // stride) + 1
    return [(number * stride, min(number * stride + window, tokens)) for number in range(count)]


SPLITS: dict[str, Callable[[int, int, int], list[Span]]] = {"first": first, "disjoint": disjoint, "sliding": sliding}
"""name -> spans (start, end) of a document of ``tokens`` tokens; an empty document has one empty window."""

"""Parameters that nothing reads are refused: a misspelt one would rank as if it were not there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def check(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Compare names.

    Args:
        what: reads the known ones, for people: ``the method splade``.

    Raises:
        ValueError: one is unknown.
    """
    names = sorted(known)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"{what} reads {', '.join(names)}"
            raise ValueError(f"unknown parameter {name!r}; {hint}")

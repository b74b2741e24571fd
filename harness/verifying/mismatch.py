"""One thing that does not follow, and how two records are compared figure by figure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Sums in another order differ in their last digits on another processor.
_CLOSE = 1e-9
_LONGEST = 120


@dataclass(frozen=True)
class Mismatch:
    """What is stored at a place, and what should be there as far as everything else says."""

    place: str
    stored: str
    follows: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.place}: stored: {self.stored}; follows: {self.follows}"


def differences(place: str, stored: Any, follows: Any) -> Iterator[Mismatch]:
    """Every figure in which two nested values differ; floats may differ in their last digits.

    Args:
        place: names both.
        stored: dicts, lists and plain values.
        follows: the same, made again.
    """
    if isinstance(stored, dict) and isinstance(follows, dict):
        for name in dict.fromkeys((*stored, *follows)):
            yield from differences(f"{place}: {name}", stored.get(name, _ABSENT), follows.get(name, _ABSENT))
    elif isinstance(stored, list | tuple) and isinstance(follows, list | tuple):
        if len(stored) != len(follows):
            yield Mismatch(place, f"{len(stored)} of them", f"{len(follows)}")
        for number, (one, other) in enumerate(zip(stored, follows, strict=False), start=1):
            yield from differences(f"{place} {number}", one, other)
    elif not _same(stored, follows):
        yield Mismatch(place, shown(stored), shown(follows))


def shown(value: Any) -> str:
    """A value for people, on one short line."""
    text = "missing" if value is None else "not there" if value is _ABSENT else str(getattr(value, "value", value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=_CLOSE) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


def below(root: Path, path: Path) -> str:
    """Return a place as people find it: below the folder that they named, where it lies there."""
    top = root.absolute()
    return str(path.absolute().relative_to(top)) if path.absolute().is_relative_to(top) else str(path)


class _Absent:
    """A key that one of the two has not: something else than a missing value."""


_ABSENT = _Absent()

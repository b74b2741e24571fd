"""How numbers and repeated texts stand in a page's data: short, and read back as what they were."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from harness.stats import Estimate
from harness.untrusted import one_line

# A figure: its value, its interval's ends, the number of its reason; cut after the last of these that is known.
Short = list[float | int | None] | None


@dataclass
class Texts:
    """Texts that many rows share, each stored once; a row holds numbers.  Foreign ones pass through ``one_line``."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, text: str | None) -> int | None:
        """The number of a text; ``None`` for none."""
        if text is None:
            return None
        return self.numbers.setdefault(one_line(text), len(self.numbers))

    def all(self) -> list[str]:
        """The texts in the order of their numbers."""
        return list(self.numbers)


def figure(item: Estimate | None, texts: Texts, *, digits: int | None = None) -> Short:
    """A figure as a list without trailing nulls.

    Args:
        item: the figure; ``None``: there is none.
        texts: where its reason is kept.
        digits: significant ones; ``None``: as many as it has, for what scores are made of.
    """
    if item is None:
        return None
    parts: list[float | int | None] = [rounded(part, digits) for part in (item.value, item.low, item.high)]
    parts.append(texts.number(item.reason))
    while parts and parts[-1] is None:
        parts.pop()
    return parts or None


def rounded(value: float | None, digits: int | None) -> float | int | None:
    """A number of so many significant digits, whole where it is."""
    if value is None:
        return None
    if digits is not None:
        value = float(f"{value:.{digits - 1}e}")
    return int(value) if value == int(value) and abs(value) < 1e15 else value


def numbers(values: Iterable[float], digits: int) -> list[float | int | None]:
    """Many numbers, rounded."""
    return [rounded(value, digits) for value in values]

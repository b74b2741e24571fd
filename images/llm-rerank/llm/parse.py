"""A ranking read from the text that an LLM wrote, whatever it wrote."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"[0-9]+")


def permutation(answer: str, documents: int) -> list[int]:
    """Return the numbers 0 to ``documents`` - 1 in the order that the answer gives them.

    Identifiers in the answer count from 1.  All but digits is skipped, the first mention counts, a number that is no
    identifier is dropped, and documents that the answer leaves out follow in their old order (``rank_llm``'s rule).
    """
    # A number longer than any identifier is dropped unread: Python refuses to convert thousands of digits.
    most = len(str(documents))
    digits = (match.lstrip("0") for match in _NUMBER.findall(answer))
    named = [int(each) - 1 for each in digits if 0 < len(each) <= most]
    return list(dict.fromkeys([number for number in named if number < documents] + list(range(documents))))

"""Answer recall (``R@2kt``): the measure, the file that it is computed from, and its values by query.

XOR-TyDi's evaluator joins the tokens of a query's hits, best first, cuts the list at 2,000 or 5,000, and searches it
for an answer.  So L tokens are enough if and only if the shortest list with an answer has at most L.  That length is
stored once, with the judged hits, as lines ``query<TAB>found<TAB>tokens`` (``found`` is ``-`` where the first
``tokens`` have no answer).  Where questions name their languages, that is a fourth field, and questions without hits
have a line too: the mean over languages needs all of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from harness.untrusted import read_fields, whole_number

# Splitting a text into tokens takes a millisecond, so a query's first tokens alone are searched, at most for R@10kt.
MAX_TOKENS = 10_000
_MAX_LINES, _MAX_LINE_BYTES = 1_000_000, 4096


@dataclass(frozen=True)
class AnswerRecall:
    """``R@2kt``: whether the first 2,000 retrieved tokens have an answer.

    Its ``NAME``, ``params`` and text are as ir_measures' measures have them.  ``R(mean='languages')@2kt`` is the mean
    over languages of their means, as XOR-TyDi reports.
    """

    tokens: int
    by_language: bool = False
    params: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    NAME: ClassVar[str] = "R@kt"

    def __str__(self) -> str:
        mean = "(mean='languages')" if self.by_language else ""
        return f"R{mean}@{self.tokens // 1000}kt"

    def values(self, depths: AnswerDepths, queries: Collection[str]) -> dict[str, float]:
        """Return 1 for each query with an answer in its first tokens, else 0; weighted if the mean is by language."""
        found = {query for query, depth in depths.items() if depth.found is not None and depth.found <= self.tokens}
        values = {query: float(query in found) for query in queries}
        if not self.by_language:
            return values
        languages = {query: depth.language for query, depth in depths.items() if query in values}
        counts = Counter(languages.values())
        # With these weights the mean over queries is the mean over languages of each language's mean.
        return {
            query: value * len(values) / (len(counts) * counts[languages[query]]) for query, value in values.items()
        }

    def truncated(
        self, depths: AnswerDepths, rankings: Mapping[str, tuple[str, ...]], queries: Collection[str]
    ) -> TruncatedHits | None:
        """Return the queries that count 0 although their hits end before the measure's tokens, if there are any."""
        searched = {
            query: depth.tokens for query, depth in depths.items() if depth.found is None and rankings.get(query)
        }
        short = {query: searched[query] for query in queries if searched.get(query, self.tokens) < self.tokens}
        if not short:
            return None
        hits = {query: len(rankings.get(query, ())) for query in short}
        needed = max(math.ceil(hits[query] * self.tokens / max(short[query], 1)) for query in short)
        return TruncatedHits(tuple(short), needed)


@dataclass(frozen=True)
class TruncatedHits:
    """Queries without an answer whose hits end before a measure's tokens; ``k`` hits would mostly be enough."""

    queries: tuple[str, ...]
    k: int


@dataclass(frozen=True)
class AnswerDepth:
    """Length of the shortest token list with an answer (``found``), and the number of ``tokens`` searched.

    All tokens of the hits are searched, up to ``MAX_TOKENS`` or the answer.  ``language``: the question's, or ``""``.
    """

    found: int | None
    tokens: int
    language: str = ""


AnswerDepths = Mapping[str, AnswerDepth]


def render_depths(depths: AnswerDepths) -> bytes:
    """Return the content of the file."""
    rows = (
        (query, "-" if depth.found is None else str(depth.found), str(depth.tokens), depth.language)
        for query, depth in depths.items()
    )
    return "".join("\t".join(row).rstrip("\t") + "\n" for row in rows).encode("utf-8")


def read_depths(path: Path) -> dict[str, AnswerDepth]:
    """Read a gzipped file of :func:`render_depths`; raise FileError with file and line if it is damaged."""
    return dict(read_fields(path, _depth, _MAX_LINE_BYTES, _MAX_LINES))


def _depth(fields: list[str]) -> tuple[str, AnswerDepth]:
    query, found, tokens, *language = fields
    depth = AnswerDepth(None if found == "-" else whole_number(found), whole_number(tokens), *language[:1])
    if len(language) > 1:
        raise ValueError("more than four fields")
    if not 0 <= (depth.found or 0) <= depth.tokens:
        raise ValueError("found beyond its tokens")
    return query, depth

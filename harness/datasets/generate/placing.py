"""Documents around one relevant passage among fillers: ``far-relevant``, ``uniform`` and ``placed``.

``far-relevant`` follows appendix B.2 of the study (arXiv 2207.01262): the passage starts beyond ``min_tokens``.  The
text there draws a target length that its bound then ignores; here the drawn length is the bound.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

from harness.datasets.generate.collection import CollectionWriter
from harness.datasets.generate.passages import Fillers, Passage, PassageSource
from harness.errors import UsageError

# Fillers of a document by number, the place of the relevant passage among them, its depth, and the target length.
_Layout = tuple[list[int], int, float | None, int | None]


@dataclass(frozen=True)
class Placing:
    """Geometry of documents: lengths in tokens, and depths from 0 (first) to 1 (last)."""

    kind: str
    min_tokens: int = 0
    max_tokens: int = 0
    lengths: tuple[int, ...] = ()
    depths: tuple[float, ...] = ()

    def check(self, source: PassageSource) -> None:
        """Raise UsageError if passages of this source cannot fill such documents."""
        longest = source.cut.high
        if self.kind == "placed":
            least, most, needed = min(self.lengths), max(self.lengths), longest + source.cut.low
        else:
            # The first part overshoots by less than a passage, and the relevant one follows.
            least, most, needed = self.max_tokens, self.max_tokens, self.min_tokens + 2 * longest
        if least < needed:
            raise UsageError(
                f"{least} tokens hold no passages of up to {longest}: {needed} are needed; "
                "name longer documents, or a lower end of --passage-tokens"
            )
        if source.fillers.total < 2 * most:
            raise UsageError(
                f"{source.dataset.name}: has {source.fillers.total:,} tokens of fillers, documents of {most:,} take "
                f"{2 * most:,}; name a larger source or shorter documents"
            )

    def layout(self, number: int, passage: Passage, fillers: Fillers, rng: random.Random) -> _Layout:
        """Draw the document of a passage; ``number`` counts documents, so that depths take turns."""
        if self.kind == "placed":
            depth = self.depths[number % len(self.depths)]
            target = self.lengths[number // len(self.depths) % len(self.lengths)]
            room = target - passage.tokens
            drawn = _close(fillers.draw(room, rng), fillers, room)
            return drawn, _place_at(depth, [fillers.tokens[filler] for filler in drawn]), depth, target
        target = rng.randint(self.min_tokens + passage.tokens, self.max_tokens)
        first = fillers.draw(self.min_tokens, rng, over=True) if self.kind == "far-relevant" else []
        drawn = fillers.draw(target - passage.tokens, rng, first)
        if self.kind == "uniform":
            depth = (0.0, 1.0, round(rng.random(), 3))[number % 3]
            return drawn, _place_at(depth, [fillers.tokens[filler] for filler in drawn]), depth, None
        second = drawn[len(first) :]
        rng.shuffle(second)
        return [*first, *second], len(first) + rng.randint(0, len(second)), None, None


def _close(drawn: list[int], fillers: Fillers, most: int) -> list[int]:
    """Add the longest fillers that still fit, until less than the shortest unused one is missing from ``most``."""
    taken, left = set(drawn), most - sum(fillers.tokens[each] for each in drawn)
    longest_first = reversed(fillers.by_length[: bisect_right(fillers.by_length, left, key=fillers.tokens.__getitem__)])
    for each in longest_first:
        if left < fillers.tokens[fillers.by_length[0]]:
            break
        if each not in taken and fillers.tokens[each] <= left:
            drawn = [*drawn, each]
            left -= fillers.tokens[each]
    return drawn


def _place_at(depth: float, tokens: list[int]) -> int:
    """Return the border between fillers that is nearest to a relative depth."""
    borders = [0, *accumulate(tokens)]
    return min(range(len(borders)), key=lambda place: abs(borders[place] - depth * borders[-1]))


def write_placed(writer: CollectionWriter, source: PassageSource, placing: Placing, queries: int) -> None:
    """Write one document for each of at most ``queries`` queries.

    Raises:
        UsageError: the source has no usable query, or too little text.
    """
    placing.check(source)
    writer.total = queries
    for number, (query, passage) in enumerate(source.relevant_passages(queries)):
        rng = random.Random(f"{placing.kind}:{source.seed}:{query.query_id}")
        drawn, place, depth, target = placing.layout(number, passage, source.fillers, rng)
        writer.add_around(f"d{number + 1}", query, passage, source.fillers.pick(drawn), place, depth, target)
    if not writer.written.documents:
        raise UsageError(
            f"{source.dataset.name}: no query has a usable relevant passage ({_reasons(source)}); try other "
            "--passage-tokens or --passages"
        )


def _reasons(source: PassageSource) -> str:
    return "; ".join(f"{count:,} {reason}" for reason, count in source.left_out.items() if count) or "none is judged"

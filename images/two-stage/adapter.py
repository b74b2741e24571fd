"""A first stage finds documents, and a reranker orders the best of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from joined.engine import Joined

from harness.driver.component import Ranking
from harness.driver.records import MAX_DEPTH, Envelope, Hit, Scalar


class TwoStage(Joined):
    """The first component searches, the second scores.

    Parameter: ``depth``, the documents of the first stage that the second scores.  0 is the first stage alone.
    """

    engine = "two-stage"

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        depth = self.own.pop("depth", None)
        if type(depth) is not int or not 0 <= depth <= MAX_DEPTH:
            raise ValueError(f"depth is {depth!r}, must be a whole number of documents from 0 to {MAX_DEPTH}")
        if self.own:
            raise ValueError(f"{min(self.own)!r} is no parameter of two stages, which have depth")
        self._depth = depth
        self._first, self._second = self.components
        self._found: Ranking = ([], [])
        self._given = 0  # of these to the reranker
        self._took_s = (0.0, 0.0, 0.0)

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Find ``depth`` documents, or ``k`` if that is more, and score the first ``depth`` of them."""
        clock = time.perf_counter
        start = clock()
        ids, scores = self._found = self._first.ranked(query, max(k, self._depth))
        found = clock()
        given = ids[: self._depth]
        second = self._second.scored(query, given) if given else []
        scored = clock()
        hits = merged(ids, scores, second, k)
        self._given = len(given)
        self._took_s = (found - start, scored - found, clock() - scored)
        return hits

    def stages_s(self) -> dict[str, float]:
        """Return the stages of the last search, which sum to its time: ``retrieve``, the reranker's own, ``merge``.

        ``fetch`` includes the way of ids and scores between the two processes.  What the first stage says of itself
        stands as ``retrieve.<stage>``.
        """
        found_s, scored_s, merged_s = self._took_s
        first = {f"retrieve.{stage}": seconds for stage, seconds in self._first.stages_s().items()}
        inner = self._second.stages_s()
        if not self._given:  # these are of an earlier query; this one took no time there
            inner = dict.fromkeys(inner, 0.0)
        known_s = sum(seconds for stage, seconds in inner.items() if "." not in stage)
        fetched_s = inner.get("fetch", 0.0) + max(0.0, scored_s - known_s)
        return {"retrieve": found_s, **first, **inner, "fetch": fetched_s, "merge": merged_s}

    def counts(self) -> dict[str, int]:
        """Return the work of both stages together; a reranker that is given nothing does none."""
        counts = self._first.counts()
        for name, count in self._second.counts().items():
            done = count if self._given or name == "parameters" else 0  # the models are as large for every query
            counts[name] = counts.get(name, 0) + done
        return counts

    def first_stage(self) -> Sequence[Hit]:
        """Return the ranking of the first stage."""
        return [Hit(*pair) for pair in zip(*self._found, strict=True)]


def merged(ids: Sequence[str], first: Sequence[float], second: Sequence[float], k: int) -> list[Hit]:
    """Return the ``k`` best: documents with a second score in its order, and below them the others in theirs.

    Args:
        ids: documents in the order of the first stage.
        first: their scores there; they remain where nothing was scored again.
        second: scores of the first of them.  Equal scores stay in the order of the first stage.
    """
    if not second:
        return [Hit(*pair) for pair in zip(ids[:k], first[:k], strict=True)]
    order = sorted(range(len(second)), key=second.__getitem__, reverse=True)[:k]
    lowest = min(second)
    below = [Hit(doc_id, lowest - rank) for rank, doc_id in enumerate(ids[len(second) : k], 1)]
    return [Hit(ids[rank], second[rank]) for rank in order] + below


ENGINE = TwoStage

"""Two systems in one envelope, asked one after the other, and their rankings fused."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import rank_fusion
from joined.component import Component
from joined.engine import Joined

from harness.driver.component import Ranking
from harness.driver.records import Envelope, Hit, Scalar


class Fusion(Joined):
    """Fuses the rankings of two systems.

    Parameters: ``depth`` (hits requested of each), ``method`` and the method's own (``rank_fusion.METHODS``).
    """

    engine = "fusion"

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        depth = self.own.pop("depth", None)
        if type(depth) is not int or depth < 1:
            raise ValueError(f"depth is {depth!r}, must be a whole number of hits above 0")
        self._depth = depth
        self._fuse = rank_fusion.fuse(self.own)
        self._stages_s: dict[str, float] = {}
        self._batched = False

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Get ``depth`` hits of both and fuse them."""
        self._batched = False
        return self._fused(k, lambda each: [each.ranked(query, self._depth)])[0]

    def search_batch(self, queries: Sequence[str], k: int) -> Sequence[Sequence[Hit]]:
        """Send all queries to each at once, then fuse."""
        self._batched = True
        return self._fused(k, lambda each: each.ranked_batch(queries, self._depth))

    def stages_s(self) -> dict[str, float]:
        """Return the stages of the last search or batch: each system, its own as ``<system>.<stage>``, and ``fuse``."""
        stages = dict(self._stages_s)
        for each in self.components:
            inner = each.stages_in_batch_s() if self._batched else each.stages_s()
            stages.update({f"{each.name}.{stage}": seconds for stage, seconds in inner.items()})
        return stages

    def counts(self) -> dict[str, int]:
        """Return the work of both systems together."""
        total: dict[str, int] = {}
        for each in self.components:
            for name, count in each.counts().items():
                total[name] = total.get(name, 0) + count
        return total

    def _fused(self, k: int, ask: Callable[[Component], list[Ranking]]) -> list[list[Hit]]:
        """Fuse the rankings of each query, and time each step."""
        if k > self._depth:
            raise ValueError(f"asked for {k} hits, fused from {self._depth} of each system; set depth to {k} at least")
        clock, stages, answers = time.perf_counter, {}, []
        start = clock()
        for each in self.components:
            answers.append(ask(each))
            stages[each.name] = (now := clock()) - start
            start = now
        fused = [rank_fusion.ranked(self._fuse(lists), k) for lists in zip(*answers, strict=True)]
        stages["fuse"] = clock() - start
        self._stages_s = stages
        return fused


ENGINE = Fusion

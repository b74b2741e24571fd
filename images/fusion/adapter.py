"""Two systems in one envelope, asked one after the other, and their rankings fused."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import component
import rank_fusion

from harness.driver.adapter import Adapter, Corpus
from harness.driver.component import Ranking
from harness.records import Envelope, Hit, Scalar

_META = "fusion.json"
_VERSION = 1  # of what lies in an index; a change refuses older ones


class Fusion(Adapter):
    """Two systems, each in its own process with the whole envelope; only one works at a time.

    Parameters: ``depth`` (hits requested of each), ``method`` and the method's own (``rank_fusion.METHODS``); those of
    the systems under ``<system>.<name>``.
    """

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        systems = component.read_components()
        own, theirs = _divided(params, [each.name for each in systems])
        depth = own.pop("depth", None)
        if type(depth) is not int or depth < 1:
            raise ValueError(f"depth is {depth!r}, must be a whole number of hits above 0")
        self._depth = depth
        self._fuse = rank_fusion.fuse(own)
        self._components = [
            component.Component(each, theirs[each.name], envelope, assets, last=systems[-1]) for each in systems
        ]
        self._stages_s: dict[str, float] = {}
        self._batched = False

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Write which systems are joined; harness lays the index of each into the folder of its name."""
        facts = {"engine": "fusion", "version": _VERSION, "systems": self._names()}
        (index_dir / _META).write_text(json.dumps(facts), encoding="utf-8")
        progress(len(corpus))

    def load(self, index_dir: Path) -> None:
        """Load both systems, one after the other.

        Raises:
            ValueError: the index is of other systems, another order, engine or version.
        """
        try:
            found = json.loads((index_dir / _META).read_text(encoding="utf-8"))
            made_by, systems = (found["engine"], found["version"]), " and ".join(found["systems"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"the index has no readable {_META}: not made by this engine, or damaged; build it again"
            ) from error
        if made_by != ("fusion", _VERSION):
            raise ValueError(
                f"the index is of engine {made_by[0]!r}, version {made_by[1]!r}; this is 'fusion', version {_VERSION}:"
                " build it again"
            )
        if found["systems"] != self._names():
            raise ValueError(f"the index is of {systems}, not of {' and '.join(self._names())}; build it again")
        for each in self._components:
            with each.named():
                each.load(index_dir / each.name)

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
        for each in self._components:
            inner = each.stages_in_batch_s() if self._batched else each.stages_s()
            stages.update({f"{each.name}.{stage}": seconds for stage, seconds in inner.items()})
        return stages

    def threads(self) -> dict[str, int]:
        """Return each system's threads as ``<system>.<pool>``, not added up because one works at a time."""
        return {f"{each.name}.{pool}": count for each in self._components for pool, count in each.threads().items()}

    def libraries(self) -> dict[str, str]:
        """Return each system's libraries as ``<system>.<library>``."""
        return {f"{each.name}.{name}": text for each in self._components for name, text in each.libraries().items()}

    def device(self) -> str:
        """Return the device of both systems, or of each if they differ."""
        devices = {each.name: each.device() for each in self._components}
        if len(set(devices.values())) == 1:
            return next(iter(devices.values()))
        return ", ".join(f"{name}: {device}" for name, device in devices.items())

    def close(self) -> None:
        """Close both."""
        for each in self._components:
            with each.named():
                each.close()

    def _fused(self, k: int, ask: Callable[[component.Component], list[Ranking]]) -> list[list[Hit]]:
        """Fuse the rankings of each query, and time each step."""
        if k > self._depth:
            raise ValueError(f"asked for {k} hits, fused from {self._depth} of each system; set depth to {k} at least")
        clock, stages, answers = time.perf_counter, {}, []
        start = clock()
        for each in self._components:
            answers.append(ask(each))
            stages[each.name] = (now := clock()) - start
            start = now
        fused = [rank_fusion.ranked(self._fuse(lists), k) for lists in zip(*answers, strict=True)]
        stages["fuse"] = clock() - start
        self._stages_s = stages
        return fused

    def _names(self) -> list[str]:
        return [each.name for each in self._components]


ENGINE = Fusion


def _divided(params: dict[str, Scalar], systems: list[str]) -> tuple[dict[str, Scalar], dict[str, dict[str, Scalar]]]:
    """Divide the parameters into the fusion's own and those of each system."""
    own: dict[str, Scalar] = {}
    theirs: dict[str, dict[str, Scalar]] = {name: {} for name in systems}
    for key, value in params.items():
        # The longest: a system's name may begin with another's and a dot.
        owner = max((name for name in systems if key.startswith(f"{name}.")), key=len, default=None)
        if owner is None:
            own[key] = value
        else:
            theirs[owner][key.removeprefix(f"{owner}.")] = value
    return own, theirs

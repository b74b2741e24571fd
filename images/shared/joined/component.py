"""One of the systems that are joined, as a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.driver.adapter import BadAnswer
from harness.driver.component import Ranking, unpack, unpack_scores
from harness.driver.records import Envelope, Scalar
from harness.driver.subprocess_adapter import EngineFailed, JsonLines

# Variables of an image; the launcher's others are for every process of the job.
_ITS_OWN = ("PYTHONPATH", "HARNESS_ASSETS")


@dataclass(frozen=True)
class ComponentFacts:
    """A system's entry of ``components.json``, written when its image is built."""

    name: str
    engine: str
    adapter_sha256: str
    environment: dict[str, str]


def read_components() -> list[ComponentFacts]:
    """Read the joined systems, in the order of the TOML.

    Raises:
        ValueError: there are none.
    """
    path = Path(__file__).parents[2] / "components.json"
    entries = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    if not entries:
        raise ValueError("nothing is joined here; the system's TOML has to name two 'components'")
    return [ComponentFacts(**entry) for entry in entries]


class Component(JsonLines):
    """Speaks JSON lines with the adapter of one system.

    Args:
        facts: the system's entry.
        params: its own parameters, by its own names.
        last: the entry whose environment the image has.
    """

    arguments = (sys.executable, "-m", "harness.driver.component")

    def __init__(
        self,
        facts: ComponentFacts,
        params: dict[str, Scalar],
        envelope: Envelope,
        assets: Path,
        *,
        last: ComponentFacts,
    ) -> None:
        super().__init__(params, envelope, Path(facts.environment.get("HARNESS_ASSETS", assets)))
        self.name = facts.name
        # An image that says nothing of PATH gets one from its launcher, unless the joined image says something.
        self.environment = {"PATH": os.defpath, **environment(os.environ, facts.environment, last.environment)}
        self._adapter_sha256 = facts.adapter_sha256

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Say of what goes wrong whose it is."""
        try:
            yield
        except (EngineFailed, BadAnswer, MemoryError) as error:
            raise type(error)(f"{self.name}: {error}") from error

    def ranked(self, query: str, k: int) -> Ranking:
        """``search``, packed: see ``harness/driver/component.py``."""
        with self.named():
            return unpack(self._searched({"verb": "search", "query": query, "k": k, "packed": True}, k))

    def ranked_batch(self, queries: Sequence[str], k: int) -> list[Ranking]:
        """``search_batch`` likewise."""
        if not self._batches:
            return [self.ranked(query, k) for query in queries]
        with self.named():
            request = {"verb": "search_batch", "queries": list(queries), "k": k, "packed": True}
            return [unpack(answer) for answer in self._searched(request, len(queries) * k)["answers"]]

    def scored(self, query: str, doc_ids: Sequence[str]) -> list[float]:
        """Return its score for each given document, in their order.

        Raises:
            BadAnswer: it gave another number of them.
        """
        with self.named():
            reply = self._searched({"verb": "score", "query": query, "doc_ids": list(doc_ids)}, len(doc_ids))
            scores = unpack_scores(reply)
            if len(scores) != len(doc_ids):
                raise BadAnswer(f"{len(scores)} scores for {len(doc_ids)} documents")
            return scores

    def stages_in_batch_s(self) -> dict[str, float]:
        """Its stages of the last batch; none where it was asked query by query, and knows the last query's alone."""
        return self.stages_s() if self.shares_batches() else {}

    def _surroundings(self, index_dir: Path) -> dict[str, Any]:
        return {**super()._surroundings(index_dir), "adapter_sha256": self._adapter_sha256}


def environment(here: Mapping[str, str], own: Mapping[str, str], last: Mapping[str, str]) -> dict[str, str]:
    """Merge a component's environment: its own image's variables under those of the launcher.

    Args:
        here: this process's variables.
        own: those of the component's image.
        last: those of the image that the joined one is made from, which are here too and are not the component's.
    """
    launched = {name: value for name, value in here.items() if name not in _ITS_OWN and last.get(name) != value}
    return {**own, **launched}

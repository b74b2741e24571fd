"""Times and sizes in the results that ship with harness, for a machine that has measured nothing yet."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from harness import config
from harness.driver.records import Outcome
from harness.results.reader import stored_jobs
from harness.results.schema import Cell, Environment, IndexFacts, Result, base_system


@dataclass(frozen=True)
class ShippedIndex:
    """An index build: its seconds without its components' builds, the bytes of the index, its corpus.

    ``joins``: it joins the indexes of components, and has no documents of its own.
    """

    dataset: str
    documents: int
    build_s: float
    index_bytes: int
    joins: bool = False

    def times(self, dataset: str, documents: int) -> float | None:
        """Return how many times as large another corpus is; ``None``: its size is unknown.

        Args:
            dataset: the name of the other corpus.
            documents: their number; 0: unknown.
        """
        if self.joins or (dataset == self.dataset and not documents):
            return 1.0
        return documents / self.documents if documents else None


class ShippedRuns:
    """Jobs, indexes and images of the systems in shipped results, by name; a version of a system finds the system's."""

    def __init__(self, results: Iterable[Result]) -> None:
        self._jobs: dict[tuple[str, str], list[Result]] = defaultdict(list)
        self._indexes: dict[str, ShippedIndex] = {}
        self._image_bytes: dict[str, int] = {}
        self._host: Environment | None = None
        for result in results:
            cell, made_of = result.spec.cell, result.provenance
            self._host = result.environment
            if result.wall_s > 0:
                self._jobs[cell.system, cell.scenario].append(result)
            if made_of.image_bytes:
                self._image_bytes[cell.system] = made_of.image_bytes
            if result.index is not None and made_of.corpus_documents:
                self._add_index(cell.system, cell.dataset, made_of.corpus_documents, result.index)

    def _add_index(self, system: str, dataset: str, documents: int, facts: IndexFacts) -> None:
        for name, part in facts.components.items():
            self._add_index(name, dataset, documents, part)
        parts = facts.components.values()
        size = facts.index_bytes - sum(part.index_bytes for part in parts)
        self._indexes[system] = ShippedIndex(dataset, documents, facts.own_build_s, size, bool(parts))

    @property
    def machine(self) -> str:
        """The machine that measured them; empty without results."""
        return f"{self._host.cpu_model}, {self._host.host_cpus} CPUs" if self._host else ""

    def jobs(self, cell: Cell) -> list[Result]:
        """Return a system's jobs in this scenario: of this dataset and profile, else those that ended well."""
        known = self._jobs.get((base_system(cell.system), cell.scenario), [])
        place = (cell.dataset, cell.profile)
        same = [job for job in known if (job.spec.cell.dataset, job.spec.cell.profile) == place]
        return same or [job for job in known if job.outcome is Outcome.OK]

    def build_s(self, system: str, dataset: str, documents: int) -> float | None:
        """Return the seconds of an index build by a shipped build; ``None``: there is none.

        Args:
            system: whose index it is.
            dataset: its name.
            documents: of its corpus; 0: unknown.
        """
        index, times = self._index(system, dataset, documents)
        return index.build_s * times if index else None

    def index_bytes(self, system: str, dataset: str, documents: int) -> int | None:
        """Return the size of an index by a shipped index, as :meth:`build_s` does."""
        index, times = self._index(system, dataset, documents)
        return round(index.index_bytes * times) if index else None

    def _index(self, system: str, dataset: str, documents: int) -> tuple[ShippedIndex | None, float]:
        """Return a shipped index, and how many times as large the other one is; none where that is unknown."""
        index = self._indexes.get(base_system(system))
        times = index.times(dataset, documents) if index else None
        return (None, 0.0) if times is None else (index, times)

    def image_bytes(self, system: str) -> int | None:
        """Return the size of a system's image; ``None``: the shipped results do not have it."""
        return self._image_bytes.get(base_system(system))


@functools.cache
def shipped_runs() -> ShippedRuns:
    """Read the results that ship with harness."""
    return ShippedRuns(job.result for job in stored_jobs(config.published_folder()))

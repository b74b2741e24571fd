"""Times and sizes in the results that ship with harness, for a machine that has measured nothing yet."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from harness import config
from harness.driver.records import Outcome
from harness.jobs import growth
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

    def figure(
        self, system: str, dataset: str, documents: int, figure: Literal["build_s", "index_bytes"]
    ) -> float | None:
        """Return a figure of an index by a shipped one, scaled to its corpus, else by the shipped sweep.

        Args:
            system: whose index it is.
            dataset: its name.
            documents: of its corpus; 0: unknown.
            figure: the seconds of its build, or its size.

        Returns:
            ``None``: neither has it.
        """
        index = self._indexes.get(base_system(system))
        if index is None:
            return growth.shipped(system, figure, documents) if documents else None
        own: float = getattr(index, figure)
        if index.joins or (dataset == index.dataset and not documents):
            return own
        return own * growth.times(system, figure, documents, index.documents) if documents else None

    def image_bytes(self, system: str) -> int | None:
        """Return the size of a system's image; ``None``: the shipped results do not have it."""
        return self._image_bytes.get(base_system(system))


@functools.cache
def shipped_runs() -> ShippedRuns:
    """Read the results that ship with harness."""
    return ShippedRuns(job.result for job in stored_jobs(config.published_folder()))

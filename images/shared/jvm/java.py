"""The Java machine of one job: its heap and options by the system's parameters, and the indexer that runs in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.driver.records import Envelope, Scalar
from jvm import indexing, runtime


@dataclass
class Java:
    """The Java machine of a job.

    Attributes:
        params: the system's; :data:`runtime.PARAMETERS` of them count here.
        assets: folder that has the jar.
        builds: True while the job builds an index: its heap is then ``build_heap_mib``, else ``heap_mib``.
    """

    params: Mapping[str, Scalar]
    envelope: Envelope
    assets: Path
    builds: bool = False

    def start(self) -> None:
        """Start it in this process."""
        runtime.start(self.options(), runtime.jar(self.assets))

    def options(self) -> list[str]:
        """Return its options."""
        made, heap = (runtime.options, "build_heap_mib") if self.builds else (runtime.search_options, "heap_mib")
        return made(int(self.params[heap]), self.envelope.cpus)

    def libraries(self) -> dict[str, str]:
        """Return the versions of Anserini, Lucene and Java, and the options."""
        return runtime.libraries(self.assets, self.options())

    def indexer(self, collection: str, options: Sequence[str]) -> indexing.Indexer:
        """Return Anserini's indexer; the arguments are those of :class:`indexing.Indexer`."""
        return indexing.Indexer(
            collection=collection,
            options=options,
            force_merge=bool(self.params["force_merge"]),
            assets=self.assets,
            heap_mib=int(self.params["build_heap_mib"]),
            cpus=self.envelope.cpus,
        )

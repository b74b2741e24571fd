"""Frechet distances of stored runs, by the vectors that are kept beside the results."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import HarnessError, UsageError
from harness.evaluation import embeddings
from harness.evaluation.embeddings import Embeddings
from harness.evaluation.frechet import RESAMPLES, Distance, Distances, Settings, distances
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.measure_names import DistanceName
from harness.stats import Estimate

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """A distance, or the reason for none; and a sentence on what it stands on."""

    figure: Estimate
    note: str | None = None


@dataclass
class Vectors:
    """The vectors beside a folder of results; each file is read once, and each ranking is looked at once."""

    folder: Path
    _read: dict[Path, Embeddings] = field(default_factory=dict)
    _made: dict[tuple[str, ...], Found] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What is made with these files is made with no others."""
        stats = {path: path.lstat() for path in embeddings.embedding_files(self.folder)}
        facts = [(str(path), each.st_ino, each.st_size, each.st_mtime_ns) for path, each in stats.items()]
        return hashlib.sha256(repr(facts).encode("utf-8", "surrogateescape")).hexdigest()

    def look(self, name: DistanceName, runs: JudgedRuns, content: str) -> Found:
        """The distance of the one run in ``runs``.

        Args:
            name: which.
            runs: one run, and what it is judged by.
            content: names that run and its judgements; what has one content is computed once.
        """
        key = (str(name), content, runs.corpus_sha256 or "")
        if key not in self._made:
            self._made[key] = self._look(name, runs)
        return self._made[key]

    def _look(self, name: DistanceName, runs: JudgedRuns) -> Found:
        try:
            found = self._of(name, runs)
            if not self._made:
                log.info(
                    "%s: Frechet distances, %s bootstraps each, take seconds a system", self.folder, f"{RESAMPLES:,}"
                )
            settings = Settings(name.judged, name.unlabelled)
            made = distances(runs, found, (name.k,), settings)
        except HarnessError as error:
            return Found(Estimate(None, reason=f"{name}: {error}"))
        (measured,) = made.systems.values()
        each = measured[-1]  # unlabelled ones stand behind labelled ones
        return Found(each.figure, _note(name, made, each))

    def _of(self, name: DistanceName, runs: JudgedRuns) -> Embeddings:
        paths = embeddings.find_embeddings(self.folder, "document", runs.corpus_sha256 or "")
        self._read |= {path: embeddings.read(path) for path in paths if path not in self._read}
        fitting = [each for path in paths if name.encoder in (None, (each := self._read[path]).encoder)]
        if not fitting:
            encoder = name.encoder or "minilm"
            raise UsageError(
                f"no vectors of its documents{f' by {name.encoder}' if name.encoder else ''} are kept beside the"
                f" results; make them with harness embed {encoder} {runs.dataset} --results {self.folder}"
            )
        if len(fitting) > 1:
            raise UsageError(
                f"vectors by {', '.join(each.encoder for each in fitting)} are kept; ask for those of one, e.g."
                f" FD(encoder='{fitting[0].encoder}')@{name.k}"
            )
        return fitting[0]


def _note(name: DistanceName, made: Distances, each: Distance) -> str:
    hits = "first hits" if name.k == 1 else f"first {name.k} hits"
    skipped = ", judged ones skipped," if name.unlabelled else ""
    said = (
        f"{name}: Frechet distance between the {hits}{skipped} of {made.queries:,} queries and {made.judged:,}"
        f" judged documents, by {made.encoder} (checkpoint {made.checkpoint_sha256[:12]}); smaller is better, and only"
        " distances over the same queries may be compared"
    )
    short = (
        f"; {each.short:,} queries have fewer than {name.k} documents there, and fewer documents are farther by"
        " themselves: harness frechet compares systems on common queries"
    )
    return said + (short if each.short else "")

"""The vectors of an exact index, as the engine ``dense`` keeps them.

An image has written them: every file is read as one of a stranger, and nothing of it is executed or followed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import JobError
from harness.evaluation.embeddings import Vectors
from harness.records import Outcome, digest
from harness.untrusted import open_regular, read_start

ENGINE = "dense"
KIND = "flat"
_FACTS_BYTES = 1 << 20
# They say how much there is, not what a vector is.
_OF_SIZE = ("documents",)


@dataclass(frozen=True)
class FlatIndex:
    """``documents`` vectors of ``dimensions``; ``made_with`` names all that decides a vector besides its text."""

    folder: Path
    documents: int
    dimensions: int
    checkpoint_sha256: str
    made_with: str

    def take(self, wanted: Collection[str] | None) -> tuple[tuple[str, ...], Vectors]:
        """Ids and vectors of these texts as far as they are there, in the order of the index; ``None``: of all.

        Raises:
            JobError: the index is damaged, or a vector of it is not finite.
        """
        try:
            known = None if wanted is None else set(wanted)
            rows, ids = [], []
            for row, name in enumerate(self._ids()):
                if known is None or name in known:
                    rows.append(row)
                    ids.append(name)
            with open_regular(self.folder / "vectors.f32") as file:
                shape = (self.documents, self.dimensions)
                vectors = np.array(np.memmap(file, dtype="<f4", mode="r", shape=shape)[rows], dtype=np.float32)
        except (OSError, ValueError) as error:
            raise _damaged(self.folder, error) from error
        if not np.isfinite(vectors).all():
            raise _damaged(self.folder, "a vector is not finite")
        return tuple(ids), vectors

    def _ids(self) -> Iterator[str]:
        with open_regular(self.folder / "ids.npy") as file:
            ends: Any = np.load(file, allow_pickle=False)
        if ends.shape != (self.documents,):
            raise ValueError(f"{ends.shape} ids for {self.documents} vectors")
        start = 0
        with open_regular(self.folder / "ids.bin") as file:
            for end in ends.tolist():
                yield file.read(max(end - start, 0)).decode("utf-8")
                start = end


def read(folder: Path) -> FlatIndex:
    """What an index says of itself.

    Raises:
        JobError: it is damaged, or of another kind.
    """
    try:
        told: dict[str, Any] = json.loads(read_start(folder / "built-with.json", _FACTS_BYTES))
        if (told["engine"], told["index"]) != (ENGINE, KIND):
            raise ValueError(f"an index {told['index']!r} of {told['engine']!r}")
        found = FlatIndex(
            folder,
            int(told["documents"]),
            int(told["dimensions"]),
            str(told["checkpoint_sha256"]),
            digest({name: value for name, value in told.items() if name not in _OF_SIZE}),
        )
        with open_regular(folder / "vectors.f32") as file:
            size = file.seek(0, 2)
        if found.documents < 1 or found.dimensions < 1 or size != 4 * found.documents * found.dimensions:
            raise ValueError(f"{size} bytes for {found.documents} vectors of {found.dimensions}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, error) from error
    return found


def _damaged(folder: Path, why: object) -> JobError:
    said = f"{folder}: no vectors can be read from this index ({why}); remove its folder, and it is built again"
    return JobError(Outcome.BAD_OUTPUT, said)

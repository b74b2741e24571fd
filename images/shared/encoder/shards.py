"""Work over a corpus in shards that survive an interruption: what is finished is not done again."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from harness.driver.adapter import Document

# Does one shard: documents, an empty folder to write into, and a call that tells documents done within the shard.
Work = Callable[[list[Document], Path, Callable[[int], None]], None]

_DONE = "done.json"
_KEY = "key.json"


class Shards:
    """Shards below one folder, in the order of the corpus.

    Shards are cut at the same documents in every attempt, so that work that was interrupted ends in the same bytes.

    Args:
        folder: for the shards alone; kept between attempts.
        key: what decides the work (parameters, weights); shards of another key are thrown away.
        size: documents in a shard; the last may have fewer.
    """

    def __init__(self, folder: Path, key: dict[str, Any], size: int) -> None:
        self.folder = folder
        self._size = size
        self.resumed_s = 0.0
        said = json.dumps({**key, "shard_documents": size}, sort_keys=True)
        if folder.is_dir() and (not (folder / _KEY).is_file() or (folder / _KEY).read_text(encoding="utf-8") != said):
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _KEY).write_text(said, encoding="utf-8")

    def run(self, corpus: Iterable[Document], work: Work, progress: Callable[[int], None]) -> list[Path]:
        """Encode the shards that are not finished.

        Args:
            corpus: all documents, in their order.
            work: see :data:`Work`; its shard is kept when it returns.
            progress: is told the documents done.

        Returns:
            The folders of all shards, in order; afterwards ``resumed_s`` is the seconds that earlier attempts spent
            on shards that were found.

        Raises:
            ValueError: the corpus is empty.
        """
        folders: list[Path] = []
        done = 0
        progress(0)
        for documents in runs(corpus, self._size):
            place = self.folder / f"{len(folders):06d}"
            seconds = _finished(place, documents)
            if seconds is None:
                _make(place, documents, work, lambda within, before=done: progress(before + within))
            else:
                self.resumed_s += seconds
            done += len(documents)
            progress(done)
            folders.append(place)
        if not folders:
            raise ValueError("the corpus is empty")
        return folders


def runs(corpus: Iterable[Document], size: int) -> Iterator[list[Document]]:
    """Yield the corpus in lists of ``size`` documents; the last may be shorter."""
    found: list[Document] = []
    for document in corpus:
        found.append(document)
        if len(found) == size:
            yield found
            found = []
    if found:
        yield found


def _finished(place: Path, documents: list[Document]) -> float | None:
    """Seconds that the shard took, or ``None`` when it has still to be done."""
    try:
        noted = json.loads((place / _DONE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if noted["ids"] != [documents[0].doc_id, documents[-1].doc_id, len(documents)]:
        return None
    return float(noted["seconds"])


def _make(place: Path, documents: list[Document], work: Work, tell: Callable[[int], None]) -> None:
    fresh = place.with_suffix(".new")
    for left in (fresh, place):
        if left.exists():
            shutil.rmtree(left)
    fresh.mkdir()
    start = time.perf_counter()
    work(documents, fresh, tell)
    seconds = time.perf_counter() - start
    noted = {"ids": [documents[0].doc_id, documents[-1].doc_id, len(documents)], "seconds": seconds}
    (fresh / _DONE).write_text(json.dumps(noted), encoding="utf-8")
    for path in fresh.iterdir():
        # What a rename promises must be on the disk before it.
        with path.open("rb") as file:
            os.fsync(file.fileno())
    fresh.rename(place)

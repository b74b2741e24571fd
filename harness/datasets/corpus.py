"""A prepared corpus on disk: what jobs read, and where the text of each id stands in it."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from harness import filesystem
from harness.errors import FileError
from harness.records import digest

# MERGED harness.datasets.corpus: Files -> a name of their content.  Hashing gigabytes takes its time, so it is
# done once for each state of a file.


_SETTLED_NS = 2_000_000_000


def key(kind: Sequence[object], files: Sequence[Path], cache: Path) -> str:
    """Names what files hold (as they lie there, compressed or not), and the way in which they are read.

    Args:
        kind: how they are read.
        files: in their order.
        cache: remembers hashes by name, inode, size and times of change; nothing else of a file is looked at then.

    Raises:
        FileError: a file cannot be read.
    """
    return digest([*kind, [_hash(path, cache) for path in files]])


def state(folder: Path) -> list[list[str | int]]:
    """What is known of all files of a folder without reading them; it differs once one of them was changed."""
    found = []
    # Collections of terabytes are linked into their places.
    for place, _, names in os.walk(folder, followlinks=True):
        for path in (Path(place, name) for name in names):
            if path.is_file():
                found.append(_stamp(path))
    return sorted(found)


def _hash(path: Path, cache: Path) -> str:
    started, stamp = time.time_ns(), _stamp(path)
    known = cache / "hashes" / f"{digest(stamp)[:32]}.txt"
    try:
        found = known.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        found = ""
    if len(found) == 64:
        return found
    try:
        content = filesystem.sha256(path)
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}; restore it") from error
    # Else somebody wrote to it meanwhile, or still may within one tick of the clock that stamps it.
    if _stamp(path) == stamp and started - path.stat().st_ctime_ns > _SETTLED_NS:
        with filesystem.scratch_folder(known.parent, known.stem) as scratch:
            whole = scratch / known.name
            whole.write_text(content, encoding="ascii")
            whole.replace(known)
    return content


def _stamp(path: Path) -> list[str | int]:
    try:
        found = path.stat()
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}; restore it") from error
    # The time of change alone can be set back (cp -p, tar, touch); the kernel's own time of it cannot.
    return [str(path.resolve()), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


CORPUS = "corpus.jsonl"
IDS = "ids.txt"
FACTS = "facts.json"
# Ids' hashes in ascending order, and, in the same order, where their lines begin; both uint64.
HASHES = "hashes.npy"
STARTS = "starts.npy"


@dataclass(frozen=True)
class Corpus:
    """Documents made ready for jobs: ``folder/corpus.jsonl`` and ``folder/ids.txt``, one id a line.

    ``empty`` of the ``size`` documents have neither title nor text; they are kept.
    """

    folder: Path
    size: int
    sha256: str
    empty: int = 0

    def unknown(self, doc_ids: set[str]) -> set[str]:
        """Those ids that no document has.  Streams: the corpus' ids are never held whole."""
        missing = set(doc_ids)
        with (self.folder / IDS).open(encoding="utf-8", newline="\n") as lines:
            for line in lines:
                missing.discard(line.rstrip("\n"))
                if not missing:
                    break
        return missing

    def texts(self, doc_ids: Iterable[str]) -> Iterator[tuple[str, str]]:
        """(id, text) of those documents that there are, in no order; reads those lines alone."""
        for document in self.documents(doc_ids):
            yield document["_id"], document["text"]

    def documents(self, doc_ids: Iterable[str]) -> Iterator[dict[str, str]]:
        """``_id``, ``title`` and ``text`` of those documents that there are, as :meth:`texts`."""
        wanted = list(dict.fromkeys(doc_ids))
        hashes = np.load(self.folder / HASHES, mmap_mode="r")
        starts = np.load(self.folder / STARTS, mmap_mode="r")
        places = np.searchsorted(hashes, np.array([id_hash(doc_id) for doc_id in wanted], dtype=np.uint64))
        with (self.folder / CORPUS).open("rb") as file:
            for doc_id, first in zip(wanted, places.tolist(), strict=True):
                for place in range(first, len(hashes)):
                    if int(hashes[place]) != id_hash(doc_id):
                        break
                    document = read_line(file, int(starts[place]))
                    if document["_id"] == doc_id:
                        yield document
                        break


def id_hash(doc_id: str) -> int:
    """64 bits of an id.  Equal hashes are no equal ids: whoever finds some compares the ids."""
    return int.from_bytes(hashlib.blake2b(doc_id.encode("utf-8"), digest_size=8).digest(), "little")


def read_line(file: IO[bytes], start: int) -> dict[str, str]:
    """The prepared document whose line begins there."""
    file.seek(start)
    found: dict[str, str] = json.loads(file.readline())
    return found

"""Prepare a corpus in the cache, once for each content, and look up its documents.

The corpus is streamed.  Hashes and offsets of ids are sorted in runs on disk, so memory does not grow with the corpus.
Repeated hashes are looked up, so that no repeated id escapes.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import time
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from harness import filesystem
from harness.datasets.source import DocumentStream, check_id, fields_of
from harness.driver.records import Filter, corpus_line, digest, fits
from harness.errors import FileError
from harness.progress import Progress, silent
from harness.untrusted import reading

CORPUS = "corpus.jsonl"
_IDS = "ids.txt"
_FACTS = "facts.json"
# Ids' hashes in ascending order, and, in the same order, the offsets of their lines; both uint64.
_HASHES = "hashes.npy"
_OFFSETS = "starts.npy"
_FORMAT = 2  # of the prepared corpus; a change prepares all of them again
_PROGRESS_STEP = 2000
# Documents whose hashes and offsets are sorted in memory at once: some 60 MiB.
_RUN = 1 << 20
# A file may change again within one tick of the clock that stamps it.
_SETTLED_NS = 2_000_000_000


@dataclass(frozen=True)
class PreparedCorpus:
    """Documents ready for jobs: ``folder/corpus.jsonl`` and ``folder/ids.txt``, one id a line.

    ``empty`` of the ``size`` documents have neither title nor text; they are kept.
    """

    folder: Path
    size: int
    sha256: str
    empty: int = 0

    @property
    def file_bytes(self) -> int:
        """The size of the documents' file."""
        return (self.folder / CORPUS).stat().st_size

    def unknown(self, doc_ids: set[str]) -> set[str]:
        """Return the ids that no document has.  Streams: memory never holds all ids."""
        missing = set(doc_ids)
        for doc_id in self.ids():
            missing.discard(doc_id)
            if not missing:
                break
        return missing

    def ids(self) -> Iterator[str]:
        """Yield the ids of all documents in their order; memory holds one."""
        with (self.folder / _IDS).open(encoding="utf-8", newline="\n") as lines:
            for line in lines:
                yield line.rstrip("\n")

    @property
    def id_hashes(self) -> NDArray[np.uint64]:
        """Return the hashes of all ids in ascending order; shape (size,)."""
        hashes: NDArray[np.uint64] = np.load(self.folder / _HASHES, mmap_mode="r")
        return hashes

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield ``_id``, ``title``, ``text`` and any ``metadata`` of all documents in their order; memory holds one."""
        with (self.folder / CORPUS).open("rb") as file:
            yield from map(json.loads, file)

    def matching(self, wanted: Collection[Filter]) -> dict[Filter, int]:
        """Count the documents that each filter lets through; reads the corpus once, and not without a filter."""
        counts = dict.fromkeys(wanted, 0)
        for document in self if counts else ():
            metadata = document.get("metadata", {})
            for each in counts:
                counts[each] += fits(metadata, each)
        return counts

    def misfits(self, wanted: Filter, doc_ids: Collection[str]) -> set[str]:
        """Return the existing documents among these that a filter does not let through."""
        found = self.documents(doc_ids)
        return {document["_id"] for document in found if not fits(document.get("metadata", {}), wanted)}

    def draw(self, count: int, seed: int) -> tuple[dict[str, Any], ...]:
        """Return ``count`` documents drawn by a seed, in the order drawn, as :meth:`__iter__` yields them."""
        rows = random.Random(f"documents:{seed}").sample(range(self.size), min(count, self.size))
        chosen = set(rows)
        wanted = {row: doc_id for row, doc_id in enumerate(self.ids()) if row in chosen}
        return tuple(self.documents(wanted[row] for row in rows))

    def texts(self, doc_ids: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield (id, text) of the existing documents in no order; read their lines only."""
        return ((document["_id"], document["text"]) for document in self.documents(doc_ids))

    def documents(self, doc_ids: Iterable[str]) -> Iterator[dict[str, Any]]:
        """Yield ``_id``, ``title``, ``text`` and any ``metadata`` of the existing documents, as :meth:`texts` does."""
        names = list(dict.fromkeys(doc_ids))
        hashes = self.id_hashes
        offsets = np.load(self.folder / _OFFSETS, mmap_mode="r")
        rows = np.searchsorted(hashes, np.array([id_hash(name) for name in names], dtype=np.uint64))
        with (self.folder / CORPUS).open("rb") as file:
            for name, first in zip(names, rows.tolist(), strict=True):
                for row in range(first, len(hashes)):
                    if int(hashes[row]) != id_hash(name):
                        break
                    document = _read_line(file, int(offsets[row]))
                    if document["_id"] == name:
                        yield document
                        break


def id_hash(doc_id: str) -> int:
    """Return 64 bits of an id; ids of equal hashes may differ, so compare the ids."""
    return int.from_bytes(hashlib.blake2b(doc_id.encode("utf-8"), digest_size=8).digest(), "little")


def _read_line(file: IO[bytes], offset: int) -> dict[str, Any]:
    file.seek(offset)
    document: dict[str, Any] = json.loads(file.readline())
    return document


def corpus_folder(documents: DocumentStream, cache: Path, fields: Collection[str]) -> Path:
    """Return the folder that :func:`prepare_corpus` makes of these documents."""
    how = [_FORMAT, documents.kind, *([sorted(fields)] if fields else [])]
    return cache / "corpora" / content_key(how, documents.files, cache)[:24]


def prepare_corpus(
    documents: DocumentStream, cache: Path, progress: Progress = silent, fields: Collection[str] = ()
) -> PreparedCorpus:
    """Check a corpus and write it for jobs, unless one of this content is ready.

    Args:
        documents: as their files have them.
        cache: holds prepared corpora.
        progress: gets the numbers of documents written and of all (0: unknown).
        fields: the fields that queries filter on; documents keep no others.

    Raises:
        FileError: a document is wrong, an id repeats, or the corpus is empty.
    """
    folder = corpus_folder(documents, cache, fields)
    if not folder.is_dir():
        with filesystem.scratch_folder(folder.parent, folder.name) as partial:
            _write(documents, partial, progress, fields)
            for path in partial.iterdir():
                path.chmod(0o644)  # a job's user must read it
            partial.chmod(0o755)
            if not folder.is_dir():  # another run was faster
                partial.rename(folder)
    return PreparedCorpus(folder, **json.loads((folder / _FACTS).read_text(encoding="utf-8")))


def _write(documents: DocumentStream, folder: Path, progress: Progress, fields: Collection[str]) -> None:
    content, empty, offset, total = hashlib.sha256(), 0, 0, documents.total()
    with (folder / CORPUS).open("w+b") as written, (folder / _IDS).open("wb") as ids:
        lines = _LineIndex(folder)
        for place, doc_id, title, text, metadata in documents.read():
            check_id(place, doc_id)
            line = corpus_line(doc_id, title, text, fields_of(place, "metadata", metadata, fields) if fields else None)
            content.update(line)
            written.write(line)
            ids.write(doc_id.encode("utf-8") + b"\n")
            lines.add(doc_id, offset)
            offset += len(line)
            empty += not (title.strip() or text.strip())
            if lines.size % _PROGRESS_STEP == 0:
                progress(lines.size, total)
        if not lines.size:
            raise FileError(f"{documents.label}: no documents in it; give at least one")
        if len(doubtful := lines.finish()):
            _refuse_repeated_ids(doubtful, documents, written)
    facts = {"size": lines.size, "sha256": content.hexdigest(), "empty": empty}
    (folder / _FACTS).write_text(json.dumps(facts), encoding="utf-8")


class _LineIndex:
    """Hashes of ids with the offsets of their lines, sorted by hash in runs on disk, which are then merged."""

    def __init__(self, folder: Path) -> None:
        self.size = 0
        self._folder = folder
        self._hashes, self._offsets = array("Q"), array("Q")
        self._runs: list[Path] = []

    def add(self, doc_id: str, offset: int) -> None:
        """Add the next document's line."""
        self.size += 1
        self._hashes.append(id_hash(doc_id))
        self._offsets.append(offset)
        if len(self._hashes) == _RUN:
            self._end_run()

    def _end_run(self) -> None:
        hashes, offsets = (np.frombuffer(each, np.uint64) for each in (self._hashes, self._offsets))
        order = np.argsort(hashes, kind="stable")
        self._runs.append(self._folder / f"run-{len(self._runs)}")
        with self._runs[-1].open("wb") as file:
            hashes[order].tofile(file)
            offsets[order].tofile(file)
        self._hashes, self._offsets = array("Q"), array("Q")

    def finish(self) -> NDArray[np.uint64]:
        """Write both files; return the offsets of lines whose hashes are not unique, in the order of the corpus."""
        if self._hashes:
            self._end_run()
        doubtful = [np.array([], dtype=np.uint64)]
        with (self._folder / _HASHES).open("wb") as hashes, (self._folder / _OFFSETS).open("wb") as offsets:
            for file in (hashes, offsets):
                header = {"descr": "<u8", "fortran_order": False, "shape": (self.size,)}
                np.lib.format.write_array_header_1_0(file, header)
            for pairs in self._ranges():
                by_hash, starts = pairs[:, np.argsort(pairs[0], kind="stable")]
                again = by_hash[1:] == by_hash[:-1]
                doubtful.append(starts[np.append(again, False) | np.append(False, again)] if len(starts) else starts)
                by_hash.tofile(hashes)
                starts.tofile(offsets)
        for path in self._runs:
            path.unlink()
        return np.sort(np.concatenate(doubtful))

    def _ranges(self) -> Iterator[NDArray[np.uint64]]:
        """Yield hashes and offsets of all runs in one range of hashes, about as many as a run has; shape (2, many)."""
        bounds = np.array([2**64 // len(self._runs) * number for number in range(1, len(self._runs))], np.uint64)
        cuts = []
        for path in self._runs:
            size = path.stat().st_size // 16
            run = np.memmap(path, np.uint64, "r", shape=(size,))
            cuts.append([0, *np.searchsorted(run, bounds).tolist(), size])
        for number in range(len(self._runs)):
            parts = [
                [
                    np.fromfile(path, np.uint64, cut[number + 1] - cut[number], offset=8 * (start + cut[number]))
                    for start in (0, cut[-1])
                ]
                for path, cut in zip(self._runs, cuts, strict=True)
            ]
            yield np.concatenate(parts, axis=1)


def _refuse_repeated_ids(offsets: NDArray[np.uint64], documents: DocumentStream, written: IO[bytes]) -> None:
    """Raise FileError if two of the lines have one id; read the source once more to name the place."""
    ids: set[str] = set()
    for offset in offsets.tolist():
        doc_id = _read_line(written, offset)["_id"]
        if doc_id in ids:
            places = (document.place for document in documents.read() if document.doc_id == doc_id)
            place = next(itertools.islice(places, 1, None), documents.label)
            raise FileError(f"{place}: id {doc_id!r} comes twice; rename or remove one")
        ids.add(doc_id)


def content_key(kind: Sequence[object], files: Sequence[Path], cache: Path) -> str:
    """Return a hash of files' stored content and of the way in which they are read.

    Args:
        kind: how they are read.
        files: in their order.
        cache: keeps each file's hash by its name, inode, size and times of change.

    Raises:
        FileError: a file cannot be read.
    """
    return digest([*kind, [_file_hash(path, cache) for path in files]])


def folder_state(folder: Path) -> list[list[str | int]]:
    """Return name, inode, size and times of all files of a folder; it differs after any change."""
    stamps = []
    # Collections of terabytes are linked into their places.
    for parent, _, names in os.walk(folder, followlinks=True):
        for path in filesystem.without_litter(Path(parent, name) for name in names):
            if path.is_file():
                stamps.append(_stamp(path))
    return sorted(stamps)


def _file_hash(path: Path, cache: Path) -> str:
    started, stamp = time.time_ns(), _stamp(path)
    cached = cache / "hashes" / f"{digest(stamp)[:32]}.txt"
    try:
        content = cached.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        content = ""
    if len(content) == 64:
        return content
    with reading(path, "restore it"):
        content = filesystem.sha256(path)
    # A file that changed meanwhile, or still may under the same stamp, is hashed again next time.
    if _stamp(path) == stamp and started - path.stat().st_ctime_ns > _SETTLED_NS:
        cached.parent.mkdir(parents=True, exist_ok=True)
        with filesystem.atomic_write(cached) as partial:
            partial.write_text(content, encoding="ascii")
    return content


def _stamp(path: Path) -> list[str | int]:
    with reading(path, "restore it"):
        stat = path.stat()
    # Users can set mtime back (cp -p, tar, touch), but not ctime.
    return [str(path.resolve()), stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]

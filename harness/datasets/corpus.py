"""A prepared corpus on disk: what jobs read, and where the text of each id stands in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

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


def line(doc_id: str, title: str, text: str) -> bytes:
    """A prepared document; the hash of a corpus is that of all its lines."""
    document = {"_id": doc_id, "title": title, "text": text}
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def sha256_of(texts: Mapping[str, str]) -> str:
    """The hash that the corpus of these texts, without titles and in this order, has."""
    content = hashlib.sha256()
    for doc_id, text in texts.items():
        content.update(line(doc_id, "", text))
    return content.hexdigest()


def read_line(file: IO[bytes], start: int) -> dict[str, str]:
    """The prepared document whose line begins there."""
    file.seek(start)
    found: dict[str, str] = json.loads(file.readline())
    return found

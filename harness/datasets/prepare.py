"""Documents of any format -> a prepared corpus in the cache, in one streaming pass.

Eight bytes of hash and eight of place are all that is held of a document, so that millions of passages fit into a few
hundred MB; hashes that come twice are looked up, so that no id that comes twice gets by.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from harness import leftovers
from harness.datasets import contents, corpus
from harness.datasets.checks import check_id
from harness.datasets.corpus import Corpus
from harness.datasets.records import Documents
from harness.errors import FileError

# Documents done, and in all (0: unknown).
Progress = Callable[[int, int], None]

_FORMAT = 2  # of the prepared corpus; a change makes all of them again
_STEP = 2000


def prepare(documents: Documents, cache: Path, progress: Progress | None = None) -> Corpus:
    """Check the corpus and write it where jobs can read it; done once for each content.

    Raises:
        FileError: a document is wrong, an id comes twice, or there is none at all.
    """
    folder = cache / "corpora" / contents.key([_FORMAT, documents.kind], documents.files, cache)[:24]
    if not folder.is_dir():
        partial = leftovers.in_the_making(folder)
        partial.mkdir(parents=True)
        try:
            _write(documents, partial, progress or (lambda _done, _total: None))
            for made in partial.iterdir():
                made.chmod(0o644)  # a job's user must read it
            partial.chmod(0o755)
            if not folder.is_dir():  # another run was faster
                partial.rename(folder)
        finally:
            leftovers.remove(partial)
    facts = json.loads((folder / corpus.FACTS).read_text(encoding="utf-8"))
    return Corpus(folder, facts["size"], facts["sha256"], facts["empty"])


def _write(documents: Documents, folder: Path, progress: Progress) -> None:
    content, empty, position, total = hashlib.sha256(), 0, 0, documents.total()
    hashes, starts = array("Q"), array("Q")
    with (folder / corpus.CORPUS).open("w+b") as written, (folder / corpus.IDS).open("wb") as ids:
        for place, doc_id, title, text in documents.read():
            check_id(place, doc_id)
            line = corpus.line(doc_id, title, text)
            content.update(line)
            written.write(line)
            ids.write(doc_id.encode("utf-8") + b"\n")
            hashes.append(corpus.id_hash(doc_id))
            starts.append(position)
            position += len(line)
            empty += not (title.strip() or text.strip())
            if len(hashes) % _STEP == 0:
                progress(len(hashes), total)
        if not hashes:
            raise FileError(f"{documents.label}: no documents in it; give at least one")
        _index(np.frombuffer(hashes, np.uint64), np.frombuffer(starts, np.uint64), documents, written, folder)
    facts = {"size": len(hashes), "sha256": content.hexdigest(), "empty": empty}
    (folder / corpus.FACTS).write_text(json.dumps(facts), encoding="utf-8")


def _index(
    hashes: NDArray[np.uint64], starts: NDArray[np.uint64], documents: Documents, written: IO[bytes], folder: Path
) -> None:
    """Write where each id's line begins, by hash.

    Args:
        hashes, starts: (documents,) in the order of the corpus.

    Raises:
        FileError: an id comes twice.
    """
    order = np.argsort(hashes, kind="stable")
    by_hash = hashes[order]
    again = by_hash[1:][by_hash[1:] == by_hash[:-1]]
    if len(again):
        _refuse_twice(order[np.isin(by_hash, again)].tolist(), starts, documents, written)
    np.save(folder / corpus.HASHES, by_hash)
    np.save(folder / corpus.STARTS, starts[order])


def _refuse_twice(rows: list[int], starts: NDArray[np.uint64], documents: Documents, written: IO[bytes]) -> None:
    """Look at the ids of those rows whose hashes come twice.

    Raises:
        FileError: two of them are one id; the sources are read once more, to name the place.
    """
    seen: set[str] = set()
    for row in sorted(rows):
        doc_id = corpus.read_line(written, int(starts[row]))["_id"]
        if doc_id in seen:
            document = next(itertools.islice(documents.read(), row, None), None)
            place = document.place if document else documents.label
            raise FileError(f"{place}: id {doc_id!r} comes twice")
        seen.add(doc_id)

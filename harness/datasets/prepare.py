"""Documents of any format -> a prepared corpus in the cache, in one streaming pass.

Eight bytes of hash and eight of place are all that is held of a document, so that millions of passages fit into a few
hundred MB; hashes that come twice are looked up, so that no id that comes twice gets by.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from array import array
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from harness import filesystem
from harness.datasets import corpus
from harness.datasets.corpus import Corpus
from harness.datasets.records import Documents
from harness.driver.adapter import MAX_ID_CHARS
from harness.errors import FileError
from harness.progress import Progress, silent
from harness.records import Query, corpus_line

# MERGED harness.datasets.prepare: What holds for the ids, topics and judgements of every format.


def check_id(place: str, value: str) -> None:
    """Refuse an id that a TREC run or a list of ids, one a line, cannot hold.

    Raises:
        FileError: it is empty, too long, or has a blank or something unprintable in it.
    """
    if not 0 < len(value) <= MAX_ID_CHARS or not value.isprintable() or " " in value:
        raise FileError(f"{place}: id {value!r} must be 1 to {MAX_ID_CHARS} characters with no blanks")


def topics(rows: Iterable[tuple[str, str, str]]) -> tuple[Query, ...]:
    """Queries from (place, id, text).

    Raises:
        FileError: an id is no good or comes twice.
    """
    found: dict[str, Query] = {}
    for place, query_id, text in rows:
        if query_id in found:
            raise FileError(f"{place}: id {query_id!r} comes twice")
        check_id(place, query_id)
        # A lone surrogate cannot be written as UTF-8; the corpus is treated alike.
        found[query_id] = Query(query_id, text.encode("utf-8", "replace").decode("utf-8"))
    return tuple(found.values())


def judgements(
    rows: Iterable[tuple[str, str, str, str]], queries: Iterable[Query] | None = None, topics_file: str = ""
) -> bytes:
    """The text of a TREC qrels file from (place, query, document, grade).

    Args:
        queries: refuse judgements of other queries; ``None``: take them as they come, they play no part.
        topics_file: what to call the file of the queries in errors.

    Raises:
        FileError: a grade is no whole number, a query is unknown, an id is no good, or a pair comes twice.
    """
    known: Collection[str] | None = None if queries is None else {query.query_id for query in queries}
    lines: list[str] = []
    seen: set[tuple[str, str]] = set()
    for place, query_id, doc_id, grade in rows:
        if not re.fullmatch(r"-?[0-9]+", grade):
            raise FileError(f"{place}: grade {grade!r} is no whole number")
        if known is not None and query_id not in known:
            raise FileError(f"{place}: query {query_id!r} is not in {topics_file}")
        if (query_id, doc_id) in seen:
            raise FileError(f"{place}: document {doc_id!r} is judged twice for {query_id!r}")
        check_id(place, query_id)
        check_id(place, doc_id)
        seen.add((query_id, doc_id))
        lines.append(f"{query_id} 0 {doc_id} {grade}\n")
    return "".join(lines).encode("utf-8")


# Documents done, and in all (0: unknown).
_FORMAT = 2  # of the prepared corpus; a change makes all of them again
_STEP = 2000


def prepare(documents: Documents, cache: Path, progress: Progress = silent) -> Corpus:
    """Check the corpus and write it where jobs can read it; done once for each content.

    Raises:
        FileError: a document is wrong, an id comes twice, or there is none at all.
    """
    folder = cache / "corpora" / corpus.key([_FORMAT, documents.kind], documents.files, cache)[:24]
    if not folder.is_dir():
        partial = filesystem.staging_path(folder)
        partial.mkdir(parents=True)
        try:
            _write(documents, partial, progress)
            for made in partial.iterdir():
                made.chmod(0o644)  # a job's user must read it
            partial.chmod(0o755)
            if not folder.is_dir():  # another run was faster
                partial.rename(folder)
        finally:
            filesystem.remove_tree(partial)
    facts = json.loads((folder / corpus.FACTS).read_text(encoding="utf-8"))
    return Corpus(folder, facts["size"], facts["sha256"], facts["empty"])


def _write(documents: Documents, folder: Path, progress: Progress) -> None:
    content, empty, position, total = hashlib.sha256(), 0, 0, documents.total()
    hashes, starts = array("Q"), array("Q")
    with (folder / corpus.CORPUS).open("w+b") as written, (folder / corpus.IDS).open("wb") as ids:
        for place, doc_id, title, text in documents.read():
            check_id(place, doc_id)
            line = corpus_line(doc_id, title, text)
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

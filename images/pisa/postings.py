"""Postings in PISA's uncompressed format, inverted in runs on disk.

Memory holds the vocabulary and one run.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy

# What is sorted in memory at once; some 32 bytes each.
RUN_POSTINGS = 4 << 20


class Postings:
    """Files ``fwd.documents``, ``fwd.terms``, ``inv.docs``, ``inv.freqs`` and ``inv.sizes`` of a folder.

    Numbers have 32 bits, and each list comes behind its length.  Terms are in ascending order, which PISA searches by
    halves, and so are the documents of a term.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._vocabulary: dict[str, int] = {}  # in the order of coming
        self._terms, self._counts, self._distinct = array("i"), array("I"), array("I")
        self._lengths, self._documents = array("I"), 0
        self._runs: list[_Run] = []
        self._sizes = (folder / "inv.sizes").open("wb")
        self._sizes.write(bytes(4))  # the number of documents, once it is known
        self._ids = (folder / "fwd.documents").open("w", encoding="utf-8")

    def add(self, doc_id: str, tokens: Sequence[str]) -> None:
        """Add the next document."""
        found = Counter(tokens)
        number = self._vocabulary.setdefault
        self._terms.extend(number(each, len(self._vocabulary)) for each in found)
        self._counts.extend(found.values())
        self._distinct.append(len(found))
        self._lengths.append(len(tokens))
        self._ids.write(f"{doc_id}\n")
        if len(self._terms) >= RUN_POSTINGS:
            self._end_run()

    def _end_run(self) -> None:
        first, self._documents = self._documents, self._documents + len(self._lengths)
        rows = numpy.arange(first, self._documents, dtype=numpy.uint32)
        terms, distinct, counts = map(numpy.asarray, (self._terms, self._distinct, self._counts))
        path = self._folder / f"run{len(self._runs)}"
        self._runs.append(_Run(path, terms, numpy.repeat(rows, distinct), counts))
        self._lengths.tofile(self._sizes)
        self._terms, self._counts, self._distinct = array("i"), array("I"), array("I")
        self._lengths = array("I")

    def finish(self) -> None:
        """Merge the runs, and write what remains."""
        if not self._vocabulary:  # PISA has no index without postings
            self._vocabulary[" "] = 0
            self._terms, self._counts, self._distinct[0] = array("i", [0]), array("I", [1]), 1
        if self._terms:
            self._end_run()
        self._lengths.tofile(self._sizes)  # of documents without terms, which come last
        documents = numpy.uint32(self._documents + len(self._lengths))
        self._sizes.seek(0)
        self._sizes.write(documents.tobytes())
        self._sizes.close()
        self._ids.close()
        names = sorted(self._vocabulary)
        (self._folder / "fwd.terms").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        order = numpy.array([self._vocabulary[name] for name in names])
        with (self._folder / "inv.docs").open("wb") as found, (self._folder / "inv.freqs").open("wb") as counts:
            numpy.array([1, documents], dtype=numpy.uint32).tofile(found)
            for terms in self._groups(order):
                self._write(terms, found, counts)
        for run in self._runs:
            run.path.unlink()

    def _groups(self, order: Any) -> list[Any]:
        """Cut the terms into groups of at most a run's postings; a term across a cut is a group of its own."""
        ends = numpy.cumsum(sum(run.sizes(order) for run in self._runs))
        across = numpy.flatnonzero(numpy.diff(ends // RUN_POSTINGS, prepend=0))
        return [group for group in numpy.split(order, numpy.union1d(across, across + 1)) if len(group)]

    def _write(self, terms: Any, *files: Any) -> None:
        """Append the lists of these terms, in this order, to the files of documents and counts."""
        sizes = sum(run.sizes(terms) for run in self._runs)
        if len(terms) == 1:  # which may have more postings than a run
            for number, file in enumerate(files):
                sizes.astype(numpy.uint32).tofile(file)
                for run in self._runs:
                    run.lists(terms)[number].tofile(file)
            return
        begins = numpy.cumsum(sizes) - sizes
        places = [numpy.repeat(numpy.arange(len(terms)), run.sizes(terms)) for run in self._runs]
        by_term = numpy.argsort(numpy.concatenate(places), kind="stable")
        lists = [run.lists(terms) for run in self._runs]
        for number, file in enumerate(files):
            values = numpy.concatenate([each[number] for each in lists])[by_term]
            numpy.insert(values, begins, sizes).tofile(file)


class _Run:
    """Postings of some documents on disk, by term in the order of coming, with the terms that they have."""

    def __init__(self, path: Path, terms: Any, rows: Any, counts: Any) -> None:
        order = numpy.argsort(terms, kind="stable")
        known, sizes = numpy.unique(terms, return_counts=True)
        lists = numpy.array([rows[order], counts[order]], dtype=numpy.uint32)
        index = numpy.array([known, sizes, numpy.cumsum(sizes) - sizes], dtype=numpy.uint32)
        with path.open("wb") as file:
            lists.tofile(file)
            index.tofile(file)
        self.path = path
        self._lists = numpy.memmap(path, dtype=numpy.uint32, mode="r", shape=lists.shape)
        self._index = numpy.memmap(path, dtype=numpy.uint32, mode="r", offset=lists.nbytes, shape=index.shape)

    def _places(self, terms: Any) -> tuple[Any, Any]:
        """Return where the index of terms has these, and which of them it has."""
        places = numpy.searchsorted(self._index[0], terms)
        places[places == self._index.shape[1]] = 0
        return places, self._index[0][places] == terms

    def sizes(self, terms: Any) -> Any:
        """Return how many postings each of these terms has here."""
        places, known = self._places(terms)
        return numpy.where(known, self._index[1][places], 0).astype(numpy.int64)

    def lists(self, terms: Any) -> Any:
        """Return documents and counts of these terms, one list after the other; shape (2, their sizes' sum)."""
        places, known = self._places(terms)
        sizes, begins = self._index[1:, places[known]].astype(numpy.int64)
        shifts = begins - (numpy.cumsum(sizes) - sizes)
        return self._lists[:, numpy.repeat(shifts, sizes) + numpy.arange(sizes.sum())]

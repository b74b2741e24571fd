"""Learned sparse retrieval: neural encoders, and Seismic's approximate index over weights of terms."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy
import seismic
from term_weights.engine import TermWeights

from harness.driver.adapter import Corpus
from harness.driver.records import Envelope, Hit, Scalar

# Names of the index's file and its classes, with components of 16 bits and of 32.
_SHORT = ("short", seismic.SeismicDataset, seismic.SeismicIndex)
_LONG = ("long", seismic.SeismicDatasetLV, seismic.SeismicIndexLV)
_COMPONENTS = 1 << 16
_ENDING = ".index.seismic"  # Seismic adds it itself
_HEAVIEST = 2048  # Seismic keeps weights as half-precision floats, which hold whole numbers up to this one
_TEXT = seismic.get_seismic_string()


class Seismic(TermWeights):
    """SPLADE and uniCOIL over lists of documents in blocks, each with a summary that decides if it is read.

    Bruch, Nardini, Rulli and Venturini, *Efficient Inverted Indexes for Approximate Retrieval over Learned Sparse
    Representations*, SIGIR 2024.

    Parameters: those of :class:`TermWeights`; ``n_postings`` (a term's list has so many documents on average at most),
    ``max_fraction`` (the longest list, in ``n_postings``), ``centroid_fraction`` (blocks of a list, by its length),
    ``min_cluster_size``, ``summary_energy`` (share of a block's weight that its summary keeps), ``doc_cut`` (terms of
    a document that decide its block); ``query_cut`` (a query's heaviest terms whose lists are read) and
    ``heap_factor`` (a block is read if its summary's score is above this share of the last hit's; 0 reads all).
    """

    name = "seismic"
    shaping = ("n_postings", "max_fraction", "centroid_fraction", "min_cluster_size", "summary_energy", "doc_cut")
    own = (*shaping, "query_cut", "heap_factor")
    _left_out = 0  # documents without any term

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        if missing := [name for name in self.own if name not in params]:
            raise ValueError(f"the parameter {missing[0]!r} is missing")
        if int(params["query_cut"]) < 1 or float(params["heap_factor"]) < 0:
            raise ValueError("query_cut must be at least 1, and heap_factor at least 0")

    def index(self, files: Sequence[Path], index_dir: Path, staged: Path) -> None:  # noqa: ARG002
        """Read the weights shard by shard and build Seismic's index.

        Raises:
            ValueError: a weight is too large to be kept exactly.
        """
        numbers = {name: number for number, name in enumerate(self.names)}
        stem, dataset_class, index_class = _SHORT if len(numbers) <= _COMPONENTS else _LONG
        dataset = dataset_class(dim=len(numbers))
        self._left_out = 0
        for file in files:
            ids, components, weights, ends = _read(file, numbers)
            self._left_out += len(ids) - dataset.add_documents_by_id(ids, components, weights, ends)
        chosen = {name: self.params[name] for name in self.shaping}
        made = index_class.build_from_dataset(dataset, num_threads=self.envelope.cpus, **chosen)
        made.save(str(index_dir / stem))

    def verify_index(self, corpus: Corpus, index_dir: Path) -> None:
        """Open the index and count its documents; those without any term are left out."""
        found, expected = _load(index_dir).len, len(corpus) - self._left_out
        if found != expected:
            raise ValueError(f"the index has {found} documents, not {expected}")

    def open(self, index_dir: Path) -> None:
        """Read the index into memory."""
        self._index = _load(index_dir)
        self._numbers = {name: str(number) for number, name in enumerate(self.names)}
        self._cut, self._factor = int(self.params["query_cut"]), float(self.params["heap_factor"])

    def find(self, query: Mapping[str, int], k: int) -> list[Hit]:
        """Rank by sums of products of weights."""
        components = numpy.array([self._numbers[name] for name in query], dtype=_TEXT)
        weights = numpy.fromiter(query.values(), dtype=numpy.float32, count=len(query))
        found = self._index.search("", components, weights, k, self._cut, self._factor)
        return [Hit(doc_id, score) for _, score, doc_id in found]

    def threads(self) -> dict[str, int]:
        """Return the threads of a search, and those of the encoder's backend."""
        return {"seismic": 1, **super().threads()}

    def index_libraries(self) -> Mapping[str, str]:
        """Return Seismic's version."""
        return {"pyseismic-lsr": version("pyseismic-lsr")}

    def index_version(self) -> Mapping[str, Scalar]:
        """Return Seismic's version."""
        return {"pyseismic-lsr": version("pyseismic-lsr")}

    def close(self) -> None:
        """Let go of index and encoder."""
        del self._index
        super().close()


def _load(index_dir: Path) -> Any:
    for stem, _, index_class in (_SHORT, _LONG):
        file = index_dir / f"{stem}{_ENDING}"
        if file.is_file():
            return index_class.load(str(file))
    raise ValueError(f"the index is damaged: {_SHORT[0]}{_ENDING} is missing; build it again")


def _read(file: Path, numbers: Mapping[str, int]) -> tuple[list[str], Any, Any, Any]:
    """Return a shard's document ids, the components of all documents in rising order, their weights, and the ends."""
    ids, components, weights, ends = [], [], [], [0]
    for line in file.open(encoding="utf-8"):
        document = json.loads(line)
        vector = sorted((numbers[name], weight) for name, weight in document["vector"].items())
        ids.append(document["id"])
        components += [number for number, _ in vector]
        weights += [weight for _, weight in vector]
        ends.append(len(components))
    if weights and max(weights) > _HEAVIEST:
        raise ValueError(
            f"a document has a weight of {max(weights)}; Seismic keeps whole numbers up to {_HEAVIEST}: lower"
            " quantisation"
        )
    as_ids = numpy.array(components, dtype=numpy.int64), numpy.array(weights, dtype=numpy.float32)
    return ids, *as_ids, numpy.array(ends, dtype=numpy.int64)


ENGINE = Seismic

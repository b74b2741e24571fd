"""Locality-sensitive hashes of token vectors, and the similarity of two texts estimated from them.

A restatement of the idea of DESSERT (Engels et al., NeurIPS 2023, arXiv 2210.15748) from the theory alone.  A table
hashes a vector to the signs of ``bits`` Gaussian projections, and two vectors at the angle ``a`` share a hash with
probability ``(1 - a / pi) ** bits``.  So from ``c`` shared hashes in ``L`` tables ``(c / L) ** (1 / bits)`` estimates
the angular similarity ``1 - a / pi``.  A document scores the mean, over the query's vectors, of its largest estimate.

Numpy alone: the tests import it without PyTorch.
"""

from __future__ import annotations

from typing import Any

import numpy

MOST_BITS = 16
# Hashes compared at once: counts and comparisons of a block stay in the processor's cache.
_BLOCK = 8192


def width(bits: int) -> int:
    """Return the bytes of a hash."""
    return 1 if bits <= 8 else 2


class Signatures:
    """The hash tables of an index.

    Args:
        projections: (tables, bits, dimensions) float32.
    """

    def __init__(self, projections: Any) -> None:
        self.projections = projections
        self.tables, self.bits, self.dimensions = projections.shape
        self._flat = projections.reshape(-1, self.dimensions).T
        self._type = numpy.uint8 if width(self.bits) == 1 else numpy.uint16
        self._weights = (1 << numpy.arange(self.bits)).astype(self._type)
        # By the number of shared hashes: rank by counts, and take roots of one number a query vector.
        self._estimates = (numpy.arange(self.tables + 1) / self.tables) ** (1 / self.bits)

    @classmethod
    def drawn(cls, dimensions: int, tables: int, bits: int, seed: int) -> Signatures:
        """Draw dense Gaussian projections; equal seeds give equal tables."""
        drawn = numpy.random.default_rng(seed).standard_normal((tables, bits, dimensions), dtype=numpy.float32)
        return cls(drawn)

    def hash(self, vectors: Any) -> Any:
        """Hash vectors (any number, dimensions) to (number, tables)."""
        hashes = numpy.empty((len(vectors), self.tables), dtype=self._type)
        for start in range(0, len(vectors), _BLOCK):
            signs = vectors[start : start + _BLOCK].astype(numpy.float32) @ self._flat > 0
            bits = signs.reshape(-1, self.tables, self.bits)
            numpy.matmul(bits.astype(self._type), self._weights, out=hashes[start : start + _BLOCK])
        return hashes

    def shared(self, query: Any, document: Any) -> Any:
        """Count the tables in which each vector of a query shares its hash with each of a document's.

        Args:
            query: (query vectors, tables), of ``hash``.
            document: (document vectors, tables), likewise.

        Returns:
            (query vectors, document vectors), uint8 or uint16.
        """
        # A count reaches the number of tables.
        counts = numpy.zeros((len(query), len(document)), dtype=numpy.uint8 if self.tables < 256 else numpy.uint16)
        by_table = numpy.ascontiguousarray(document.T)
        equal = numpy.empty(counts.shape, dtype=bool)
        for table in range(self.tables):
            numpy.equal(query[:, table, None], by_table[table], out=equal)
            numpy.add(counts, equal.view(numpy.uint8), out=counts)
        return counts

    def estimate(self, counts: Any) -> Any:
        """Return the angular similarities that numbers of shared hashes stand for."""
        return self._estimates[counts]

    def scores(self, query: Any, documents: Any, lengths: Any) -> Any:
        """Score documents: the mean, over the query's vectors, of the largest estimate.

        Args:
            query: (query vectors, tables), of ``hash``.
            documents: hashes of the vectors of all documents, one document after the other.
            lengths: vectors of each document, at least one.

        Returns:
            one number a document, between 0 and 1.
        """
        ends = numpy.cumsum(lengths)
        starts = ends - lengths
        scores = numpy.empty(len(lengths))
        first = 0
        while first < len(lengths):
            # Whole documents, a block of vectors or one longer document.
            last = max(first + 1, int(numpy.searchsorted(ends, starts[first] + _BLOCK, side="right")))
            counts = self.shared(query, documents[starts[first] : ends[last - 1]])
            most = numpy.maximum.reduceat(counts, starts[first:last] - starts[first], axis=1)
            scores[first:last] = self.estimate(most).mean(axis=0)
            first = last
        return scores

"""Centroids and the documents near each: candidates of a query, by numpy alone."""

from __future__ import annotations

from typing import Any

import numpy


class Lists:
    """The centroids of an index, and the documents that have a vector near each.

    Args:
        centroids: (number, dimensions).
        members: documents of all centroids, one centroid after the other.
        ends: where each centroid's end.
    """

    def __init__(self, centroids: Any, members: Any, ends: Any) -> None:
        self._centroids = centroids.astype(numpy.float32)
        self._members, self._ends = members, ends

    def candidates(self, query: Any, probed: int, most: int) -> tuple[Any, int]:
        """Find documents by the nearest centroids of each query vector.

        A document is worth the sum, over the query's vectors, of the similarity of its best probed centroid.

        Args:
            query: (query vectors, dimensions).
            probed: centroids for each query vector.
            most: documents to return.

        Returns:
            the best documents, ascending; and how many were found.
        """
        similar = query @ self._centroids.T
        probed = min(probed, similar.shape[1])
        cells = numpy.argpartition(-similar, probed - 1, axis=1)[:, :probed]
        # Ascending: of two centroids that hold a document, the better one is written last.
        order = numpy.argsort(numpy.take_along_axis(similar, cells, 1), axis=1, kind="stable")
        cells = numpy.take_along_axis(cells, order, 1)
        members = [self._of(cell) for cell in cells.ravel()]
        numbers, places = numpy.unique(numpy.concatenate(members), return_inverse=True)
        best = numpy.zeros((len(query), len(numbers)), dtype=numpy.float32)
        start = 0
        for place, (cell, found) in enumerate(zip(cells.ravel(), members, strict=True)):
            row = place // probed
            best[row, places[start : start + len(found)]] = similar[row, cell]
            start += len(found)
        if len(numbers) <= most:
            return numbers, len(numbers)
        kept = numpy.argpartition(-best.sum(axis=0), most - 1)[:most]
        return numbers[numpy.sort(kept)], len(numbers)

    def _of(self, cell: int) -> Any:
        return self._members[self._ends[cell - 1] if cell else 0 : self._ends[cell]]

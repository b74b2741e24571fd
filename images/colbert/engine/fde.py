"""Fixed-dimensional encodings: one vector a text, whose inner product stands for the texts' MaxSim.

From the definition in MUVERA (Dhulipala et al., NeurIPS 2024, arXiv 2405.19504).  Each repetition cuts the space with
``planes`` random planes into ``2 ** planes`` cells.  A query's block of a cell is the sum of its vectors there, a
document's the mean of its own; an empty cell of a document takes the vector whose cell differs in the fewest planes.
Random signs project each block to ``inner`` dimensions, blocks and repetitions are concatenated, and a count sketch may
add the result up in ``final`` dimensions.  Both sides are divided by the root of the repetitions, so that an inner
product is their mean: it does not grow with them.

Numpy alone: the tests import it without PyTorch.
"""

from __future__ import annotations

from typing import Any

import numpy


class FixedEncodings:
    """The random draws of an index, and encodings by them.

    Args:
        dimensions: of a token vector.
        repetitions, planes, inner, final: see above; no projection where ``inner`` is ``dimensions`` or ``final`` 0.
        seed: equal seeds give equal encodings.
    """

    def __init__(self, dimensions: int, *, repetitions: int, planes: int, inner: int, final: int, seed: int) -> None:
        draw = numpy.random.default_rng(seed)
        self.repetitions, self.planes, self.inner, self.cells = repetitions, planes, inner, 1 << planes
        self.normals = draw.standard_normal((repetitions, planes, dimensions), dtype=numpy.float32)
        self.projections: Any = None
        if inner != dimensions:
            signs = draw.integers(0, 2, (repetitions, inner, dimensions)) * 2 - 1
            self.projections = (signs / numpy.sqrt(inner)).astype(numpy.float32)
        whole = repetitions * self.cells * inner
        self.dimensions = final or whole
        self.places: Any = None
        if final:
            self.places = draw.integers(0, final, whole)
            self.signs = (draw.integers(0, 2, whole) * 2 - 1).astype(numpy.float32)
        cells = numpy.arange(self.cells)
        self._apart = numpy.array([[int(one ^ other).bit_count() for other in cells] for one in cells])

    def query(self, vectors: Any) -> Any:
        """Encode a query's vectors (number, token dimensions) to (dimensions,) float32."""
        blocks = numpy.zeros((self.repetitions, self.cells, self.inner), dtype=numpy.float32)
        for repetition, block in enumerate(blocks):
            numpy.add.at(block, self._cells(vectors, repetition), self._projected(vectors, repetition))
        return self._finished(blocks.reshape(1, -1))[0]

    def documents(self, vectors: Any, lengths: Any) -> Any:
        """Encode documents to (documents, dimensions) float32.

        Args:
            vectors: of all documents, one document after the other.
            lengths: vectors of each, at least one.
        """
        vectors, lengths = vectors.astype(numpy.float32), numpy.asarray(lengths)
        starts = numpy.cumsum(lengths) - lengths
        owners = numpy.repeat(numpy.arange(len(lengths)), lengths)
        blocks = numpy.empty((len(lengths), self.repetitions, self.cells, self.inner), dtype=numpy.float32)
        for repetition in range(self.repetitions):
            cells = self._cells(vectors, repetition)
            projected = self._projected(vectors, repetition)
            # The first of a document's vectors nearest to each cell: of a cell that holds one, its first.
            ranks = self._apart[cells] * len(vectors) + numpy.arange(len(vectors))[:, None]
            nearest = numpy.minimum.reduceat(ranks, starts, axis=0) % len(vectors)
            blocks[:, repetition] = projected[nearest]
            flat = owners * self.cells + cells
            order = numpy.argsort(flat, kind="stable")
            filled, firsts, sizes = numpy.unique(flat[order], return_index=True, return_counts=True)
            means = numpy.add.reduceat(projected[order], firsts, axis=0) / sizes[:, None]
            blocks[filled // self.cells, repetition, filled % self.cells] = means
        return self._finished(blocks.reshape(len(lengths), -1))

    def _cells(self, vectors: Any, repetition: int) -> Any:
        return (vectors @ self.normals[repetition].T > 0) @ (1 << numpy.arange(self.planes))

    def _projected(self, vectors: Any, repetition: int) -> Any:
        return vectors if self.projections is None else vectors @ self.projections[repetition].T

    def _finished(self, whole: Any) -> Any:
        whole = whole / numpy.float32(numpy.sqrt(self.repetitions))
        if self.places is None:
            return whole
        sketch = numpy.zeros((self.dimensions, len(whole)), dtype=numpy.float32)
        numpy.add.at(sketch, self.places, (whole * self.signs).T)
        return numpy.ascontiguousarray(sketch.T)

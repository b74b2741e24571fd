"""MUVERA's encodings equal a restatement in loops, and their inner products tend to MaxSim."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import numpy
import pytest

from harness.launch.images import catalog

pytestmark = pytest.mark.slow

DIMENSIONS = 24


@pytest.fixture
def fde(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(catalog.images_dir() / "colbert"))
    return importlib.import_module("engine.fde")


def texts(seed: int, count: int, dimensions: int = DIMENSIONS) -> tuple[Any, Any]:
    """Unit vectors of texts, around a direction of each text; and how many each has."""
    draw = numpy.random.default_rng(seed)
    lengths = draw.integers(1, 30, count)
    themes = numpy.repeat(draw.standard_normal((count, dimensions)), lengths, axis=0)
    vectors = themes + 1.5 * draw.standard_normal((lengths.sum(), dimensions))
    return (vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True)).astype(numpy.float32), lengths


SHAPES = [
    {"repetitions": 3, "planes": 3, "inner": 8, "final": 0},
    {"repetitions": 2, "planes": 0, "inner": DIMENSIONS, "final": 0},
    {"repetitions": 4, "planes": 5, "inner": 4, "final": 50},
]


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_encodings_equal_a_restatement_in_loops(fde: ModuleType, shape: dict[str, int]) -> None:
    made = fde.FixedEncodings(DIMENSIONS, **shape, seed=4)
    vectors, lengths = texts(1, 20)
    found = made.documents(vectors, lengths)
    assert found.shape == (20, shape["final"] or shape["repetitions"] * 2 ** shape["planes"] * shape["inner"])
    start = 0
    for document, length in zip(found, lengths, strict=True):
        alone = vectors[start : start + length]
        assert document == pytest.approx(_restated(made, alone, shape, query=False), abs=1e-5)
        assert made.query(alone) == pytest.approx(_restated(made, alone, shape, query=True), abs=1e-5)
        start += length


def _restated(made: Any, vectors: Any, shape: dict[str, int], *, query: bool) -> list[float]:
    """One text's encoding as the paper defines it, cell by cell."""
    whole: list[float] = []
    for repetition in range(shape["repetitions"]):
        signs = [tuple(bool(plane @ vector > 0) for plane in made.normals[repetition]) for vector in vectors]
        for cell in range(2 ** shape["planes"]):
            wanted = tuple(bool(cell >> bit & 1) for bit in range(shape["planes"]))
            inside = [vector for vector, each in zip(vectors, signs, strict=True) if each == wanted]
            if query:
                block = sum(inside, numpy.zeros(DIMENSIONS))
            elif inside:
                block = sum(inside) / len(inside)
            else:
                apart = [sum(a != b for a, b in zip(each, wanted, strict=True)) for each in signs]
                block = vectors[apart.index(min(apart))]
            if shape["inner"] != DIMENSIONS:
                block = made.projections[repetition] @ block
            whole += [float(value) / shape["repetitions"] ** 0.5 for value in block]
    if not shape["final"]:
        return whole
    sketch = [0.0] * shape["final"]
    for value, place, sign in zip(whole, made.places, made.signs, strict=True):
        sketch[place] += sign * value
    return sketch


@pytest.mark.slow
def test_projections_are_of_signs_and_keep_inner_products_on_average(fde: ModuleType) -> None:
    made = fde.FixedEncodings(DIMENSIONS, repetitions=4000, planes=0, inner=2, final=0, seed=0)
    assert numpy.unique(numpy.abs(made.projections)) == pytest.approx(2**-0.5)
    vectors, _ = texts(2, 5)
    one, other = vectors[:1], vectors[1:2]
    product = made.query(one) @ made.documents(other, [1])[0]
    assert product == pytest.approx(float(one[0] @ other[0]), abs=0.05)
    sketched = fde.FixedEncodings(DIMENSIONS, repetitions=400, planes=2, inner=4, final=2000, seed=0)
    assert sketched.query(one) @ sketched.documents(one, [1])[0] == pytest.approx(1, abs=0.15)


@pytest.mark.slow
def test_more_repetitions_and_cells_come_nearer_to_maxsim(fde: ModuleType) -> None:
    vectors, lengths = texts(3, 60)
    starts = numpy.cumsum(lengths) - lengths
    asked, ends = texts(4, 12)
    queries = numpy.split(asked, numpy.cumsum(ends)[:-1])
    exact = numpy.stack([numpy.maximum.reduceat(vectors @ query.T, starts).sum(1) for query in queries])

    def apart(repetitions: int, planes: int) -> tuple[float, float]:
        """The mean correlation with MaxSim over documents, and the inner product's mean share of MaxSim."""
        made = fde.FixedEncodings(DIMENSIONS, repetitions=repetitions, planes=planes, inner=8, final=0, seed=6)
        documents = made.documents(vectors, lengths)
        found = numpy.stack([documents @ made.query(query) for query in queries])
        alike = [numpy.corrcoef(ours, theirs)[0, 1] for ours, theirs in zip(found, exact, strict=True)]
        return float(numpy.mean(alike)), float(found.mean() / exact.mean())

    by_repetitions = [apart(repetitions, 4)[0] for repetitions in (1, 4, 16, 64, 256)]
    assert by_repetitions == sorted(by_repetitions), by_repetitions
    assert by_repetitions[0] < 0.5 and by_repetitions[-1] > 0.7, by_repetitions
    # A cell's mean is at most its best vector: the product stays below MaxSim, and finer cells come nearer.
    shares = [apart(64, planes)[1] for planes in (0, 2, 4, 6)]
    assert shares == sorted(shares) and shares[-1] < 1, shares

"""The hashes of DESSERT follow the theory; a plain restatement gives the same scores."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import numpy
import pytest

from harness.launch.images import catalog

pytestmark = pytest.mark.slow

DIMENSIONS = 32


@pytest.fixture
def signatures(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(catalog.images_dir() / "colbert"))
    return importlib.import_module("engine.signatures")


def units(draw: Any, *shape: int) -> Any:
    """Random directions."""
    vectors = draw.standard_normal((*shape, DIMENSIONS), dtype=numpy.float32)
    return vectors / numpy.linalg.norm(vectors, axis=-1, keepdims=True)


def at_cosine(draw: Any, vectors: Any, cosines: Any) -> Any:
    """Random directions, each at a cosine to one of ``vectors``."""
    across = units(draw, *vectors.shape[:-1])
    across -= (across * vectors).sum(-1, keepdims=True) * vectors
    across /= numpy.linalg.norm(across, axis=-1, keepdims=True)
    cosines = numpy.asarray(cosines, dtype=numpy.float32)[..., None]
    return cosines * vectors + numpy.sqrt(1 - cosines**2) * across


@pytest.mark.slow
@pytest.mark.parametrize("bits", [2, 7])
def test_share_of_equal_hashes_is_the_theorys(signatures: ModuleType, bits: int) -> None:
    draw = numpy.random.default_rng(bits)
    pairs, tables = 10_000, 1024
    cosines = draw.uniform(0, 1, pairs)
    one = units(draw, pairs)
    other = at_cosine(draw, one, cosines)
    hashing = signatures.Signatures.drawn(DIMENSIONS, tables, bits, seed=5)
    shares = (hashing.hash(one) == hashing.hash(other)).mean(axis=1)
    wanted = (1 - numpy.arccos(cosines) / numpy.pi) ** bits
    errors = numpy.sqrt(wanted * (1 - wanted) / tables)
    assert (numpy.abs(shares - wanted) <= 3 * errors).mean() >= 0.99
    # So the estimate is that of the angle.
    estimates = hashing.estimate(numpy.rint(shares * tables).astype(int))
    assert numpy.abs(estimates - (1 - numpy.arccos(cosines) / numpy.pi)).mean() < 0.02


def planted(draw: Any, queries: int, tokens: int, documents: int) -> tuple[Any, Any]:
    """Queries, and for each a document with a vector at cosine .9 to every query vector; all others are at most at .5.

    Returns:
        (queries, tokens, dimensions) and (queries, documents, tokens, dimensions); the planted document's number is the
        query's, modulo the documents.
    """
    # Right angles within a query, so that no vector is near a query vector that it was not made for.
    asked = numpy.linalg.qr(draw.standard_normal((queries, DIMENSIONS, tokens)))[0].swapaxes(1, 2)
    cosines = draw.uniform(0, 0.5, (queries, documents, tokens, 1))
    for number in range(queries):
        cosines[number, number % documents] = 0.9
    away = units(draw, queries, documents, tokens)
    away -= (away @ asked.swapaxes(1, 2)[:, None]) @ asked[:, None]
    away /= numpy.linalg.norm(away, axis=-1, keepdims=True)
    return asked, cosines * asked[:, None] + numpy.sqrt(1 - cosines**2) * away


def firsts(signatures: ModuleType, asked: Any, given: Any, tables: Any) -> list[int]:
    """The best document of each query by hashes in the first ``tables`` tables."""
    projections = signatures.Signatures.drawn(DIMENSIONS, 256, 7, seed=9).projections[:tables]
    hashing = signatures.Signatures(projections)
    lengths = numpy.full(given.shape[1], given.shape[2])
    return [
        int(hashing.scores(hashing.hash(query), hashing.hash(texts.reshape(-1, DIMENSIONS)), lengths).argmax())
        for query, texts in zip(asked, given, strict=True)
    ]


@pytest.mark.slow
def test_planted_documents_are_found_and_more_tables_agree_more(signatures: ModuleType) -> None:
    draw = numpy.random.default_rng(3)
    asked, given = planted(draw, queries=200, tokens=4, documents=20)
    similar = numpy.einsum("qtd,qnsd->qnts", asked, given).max(-1)
    best = similar.sum(-1).argmax(-1)
    assert (best == numpy.arange(200) % 20).all()
    ranked = numpy.sort(similar, axis=1)
    assert ranked[:, -1] == pytest.approx(0.9, abs=1e-5) and ranked[:, -2].max() <= 0.5 + 1e-6
    agreement = [
        float((numpy.array(firsts(signatures, asked, given, tables)) == best).mean())
        for tables in (8, 16, 32, 64, 128, 256)
    ]
    assert agreement == sorted(agreement), agreement
    assert agreement[0] < 0.99 <= agreement[3], "few tables fail, so that the test can"


@pytest.mark.slow
def test_scores_equal_a_restatement_with_buckets(signatures: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signatures, "_BLOCK", 10)  # several blocks, and documents longer than one
    draw = numpy.random.default_rng(1)
    query, lengths = units(draw, 3), [1, 12, 4, 2, 25, 1, 1]
    vectors = units(draw, sum(lengths))
    for tables, bits in ((5, 3), (300, 2), (4, 11)):
        hashing = signatures.Signatures.drawn(DIMENSIONS, tables, bits, seed=0)
        hashes = hashing.hash(vectors)
        assert hashes.shape == (len(vectors), tables) and hashes.itemsize == signatures.width(bits)
        found = hashing.scores(hashing.hash(query), hashes, numpy.array(lengths))
        start = 0
        for number, length in enumerate(lengths):
            wanted = _restated(hashing.projections, query, vectors[start : start + length])
            assert found[number] == pytest.approx(wanted, abs=1e-12)
            start += length


def _restated(projections: Any, query: Any, document: Any) -> float:
    """Score one document: its tables from bucket to vectors, as the paper describes it."""
    tables: list[dict[tuple[bool, ...], list[int]]] = []
    for projection in projections:
        buckets: dict[tuple[bool, ...], list[int]] = {}
        for number, vector in enumerate(document):
            buckets.setdefault(tuple(bool(vector @ each > 0) for each in projection), []).append(number)
        tables.append(buckets)
    total = 0.0
    for vector in query:
        counts = [0] * len(document)
        for projection, buckets in zip(projections, tables, strict=True):
            for number in buckets.get(tuple(bool(vector @ each > 0) for each in projection), []):
                counts[number] += 1
        total += max((count / len(tables)) ** (1 / projections.shape[1]) for count in counts)
    return total / len(query)


@pytest.mark.slow
def test_candidates_are_the_documents_of_the_nearest_centroids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(catalog.images_dir() / "colbert"))
    lists = importlib.import_module("engine.lists")
    draw = numpy.random.default_rng(2)
    centroids, query = units(draw, 9), units(draw, 3)
    members = [sorted(draw.choice(30, size, replace=False).tolist()) for size in (3, 1, 5, 2, 0, 7, 4, 6, 2)]
    ready = lists.Lists(
        centroids, numpy.concatenate(members).astype(numpy.int32), numpy.cumsum([len(each) for each in members])
    )
    for probed in (1, 3, 20):
        worth: dict[int, float] = {}
        for vector in query:
            best: dict[int, float] = {}
            nearest = sorted(range(9), key=lambda cell, vector=vector: -float(vector @ centroids[cell]))[:probed]
            for cell in reversed(nearest):
                best.update({number: float(vector @ centroids[cell]) for number in members[cell]})
            for number, similar in best.items():
                worth[number] = worth.get(number, 0.0) + similar
        for most in (2, 5, 100):
            found, seen = ready.candidates(query, probed, most)
            assert seen == len(worth)
            wanted = sorted(worth.values(), reverse=True)[:most]
            assert (numpy.diff(found) > 0).all()
            assert sorted((worth[number] for number in found.tolist()), reverse=True) == pytest.approx(wanted)

"""The bi-encoder engine in its image."""

from __future__ import annotations

import docker
import pytest

from tests.images.conftest import DOCUMENTS, Probe

pytestmark = pytest.mark.docker

BUILT = """
minilm = engine()
done = []
minilm.build(corpus, index, done.append)
minilm = engine()
minilm.load(index)
"""


def test_it_ranks_by_meaning_and_says_how(probe: Probe) -> None:
    lines = """
for query in ("frozen water", "eruption of lava", "a hot drink"):
    say([[hit.doc_id, hit.score] for hit in minilm.search(query, 10)])
say([done[0], done[-1], minilm.threads(), minilm.device(), sorted(minilm.stages_s())])
say([hit.doc_id for hit in minilm.search("", 1)])
minilm.close()
"""
    *rankings, facts, empty = probe("minilm", BUILT + lines)
    best = [ranking[0][0] for ranking in rankings]
    assert best[0] == "glacier"
    assert best[1] in ("volcano", "twin")  # the same text twice
    assert best[2] == DOCUMENTS[2]["_id"]
    for ranking in rankings:
        scores = [score for _, score in ranking]
        assert len(ranking) == len(DOCUMENTS)  # asked for ten, there are four
        assert scores == sorted(scores, reverse=True)
        assert all(-1.001 < score < 1.001 for score in scores)
    first, last, threads, *rest = facts
    assert [first, last, *rest] == [0, len(DOCUMENTS), "cpu", ["encode", "retrieve"]]
    assert threads.keys() > {"torch_intraop", "torch_interop", "faiss_omp"}, "and the pools under them"
    assert set(threads.values()) == {1}
    assert len(empty) == 1


def test_a_batch_is_answered_as_its_queries_are(probe: Probe) -> None:
    lines = """
queries = ["frozen water", "eruption of lava", "a hot drink " * 40, ""]
say([[[hit.doc_id, hit.score] for hit in hits] for hits in minilm.search_batch(queries, 3)])
say([[[hit.doc_id, hit.score] for hit in minilm.search(query, 3)] for query in queries])
calls = []
encode = minilm._encode
minilm._encode = lambda texts, tokens: calls.append(len(texts)) or encode(texts, tokens)
minilm.search_batch(queries, 3)
say([calls, sorted(minilm.stages_s())])
"""
    batched, alone, (calls, stages) = probe("minilm", BUILT + lines)
    for ours, theirs in zip(batched, alone, strict=True):
        assert [score for _, score in ours] == pytest.approx([score for _, score in theirs], abs=1e-4)
        assert {doc_id for doc_id, _ in ours} == {doc_id for doc_id, _ in theirs}
    assert calls == [4] and stages == ["encode", "retrieve"]


def test_padding_does_not_move_a_vector(probe: Probe) -> None:
    # Mean pooling over real tokens alone, then L2 norm: padding (a longer text in the batch) must not matter.
    lines = """
alone = minilm._encode(["That is a happy person"], 256)
padded = minilm._encode(["That is a happy person", "word " * 200], 256)
say([float((alone[0] ** 2).sum()), float(abs(alone[0] - padded[0]).max()), int(alone.shape[1])])
long = minilm._encode(["word " * 5000], 256)
say(list(long.shape))
"""
    (norm, difference, dimensions), shape = probe("minilm", BUILT + lines)
    assert norm == pytest.approx(1, abs=1e-5)
    assert difference < 1e-4
    assert dimensions == 384
    assert shape == [1, 384]


def test_an_index_of_other_parameters_is_refused(probe: Probe) -> None:
    lines = """
try:
    engine(document_tokens=128).load(index)
except ValueError as error:
    say(str(error))
try:
    engine(pooling="median")
except ValueError as error:
    say(str(error))
"""
    other, unknown = probe("minilm", BUILT + lines)
    assert other == "the index was made with document_tokens 256, the system asks for 128"
    assert "'median'" in unknown


def test_a_gpu_that_is_missing_is_said(probe: Probe) -> None:
    lines = """
import dataclasses
minilm = engine()
minilm.envelope = dataclasses.replace(minilm.envelope, gpus=1)
try:
    minilm.build(corpus, index, lambda _: None)
except RuntimeError as error:
    say(str(error))
"""
    (message,) = probe("minilm", lines)
    assert "1 GPUs" in message
    assert "no CUDA device" in message


def test_a_quarter_of_a_gibibyte_is_too_little(probe: Probe) -> None:
    with pytest.raises(docker.errors.ContainerError) as caught:
        probe("minilm", BUILT, "256m")
    assert caught.value.exit_status == 137

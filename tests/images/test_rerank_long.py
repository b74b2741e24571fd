"""Rerankers that read a long document in one window, against restatements (``long_loops``) and transformers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.docker

Lines = Callable[[str], list[Any]]
KINDS = ("longformer", "bigbird", "jina", "mosaic", "tinyllama")

SETUP = """
import shutil
import numpy, torch
import long_loops as loops
import rerank_loops as short
assets = Path("/index/assets")
"""


@pytest.fixture
def lines(rerank_probe: Callable[..., list[Any]]) -> Lines:
    """Run lines in the engine's image, beside the restatement and the maker of small checkpoints."""
    return lambda text: rerank_probe(SETUP + text, "rerank_loops", "long_loops")


def test_published_formats_score_as_their_restatements(lines: Lines) -> None:
    answers = lines("""
corpus = short.write_corpus(Path("/tmp/corpus.jsonl"), loops.LENGTHS)
for kind in loops.HEADS:
    loops.make(assets, kind)
    say([kind, loops.compare(assets, Path("/index") / kind, corpus, kind)])
# One index serves every length that is read.
say(["jina, 100", loops.compare(assets, Path("/index/jina"), corpus, "jina", window=100)])
""")
    assert [kind for kind, _ in answers] == [*KINDS, "jina, 100"]
    for kind, found in answers:
        assert found["pairs"] == 44 and found["spread"] > 0.05, "scores that are all alike prove nothing"
        assert found["difference"] <= 1e-5, kind


def test_score_depends_on_nothing_but_its_pair(lines: Lines) -> None:
    answers = lines("""
lengths = (1, *loops.LENGTHS[2:], *(40 + 9 * n for n in range(20)))
corpus = short.write_corpus(Path("/tmp/corpus.jsonl"), lengths)
ids = [each.doc_id for each in corpus]
for kind in loops.HEADS:
    loops.make(assets, kind)
    ready = loops.engine(assets, kind, Path("/index") / kind, corpus, batch_tokens=1)
    queries = [short.words(1 + n % 8, n) for n in range(16)]
    few = [ids[0]] * 20 if kind == "bigbird" else [ids[0]]
    forward = [ready.score(query, ids[10:13]) for query in queries]
    ready.score("ice", few)
    backward = [ready.score(query, ids[10:13]) for query in reversed(queries)][::-1]
    alone = ready.score(queries[3], ids)
    off = 0.0
    for tokens in (600, 5000, 20000):
        other = loops.engine(assets, kind, Path("/index") / kind, batch_tokens=tokens)
        found = dict(zip(ids[::-1], other.score(queries[3], ids[::-1])))
        off = max(off, *(abs(found[each] - score) for each, score in zip(ids, alone)))
    moved = float(abs(numpy.array(forward) - numpy.array(backward)).max())
    say([kind, moved, off, other.counts()["calls"] < len(ids)])
""")
    assert [kind for kind, *_ in answers] == list(KINDS)
    for kind, moved, off, batched in answers:
        assert moved <= 1e-6, kind
        assert batched and off <= 1e-5, kind


def test_long_window_finds_a_word_that_the_first_window_does_not_reach(lines: Lines) -> None:
    answers = lines("""
topics, others = short.WORDS[:8], short.WORDS[8:]
texts = [" ".join(others[(n + place) % 3] for place in range(150)) + f" {each} of {each}"
         for n, each in enumerate(topics)]
Path("/tmp/far.jsonl").write_text("".join(
    json.dumps({"_id": each, "title": "", "text": text}) + "\\n" for each, text in zip(topics, texts)))
corpus = Corpus(Path("/tmp/far.jsonl"), len(topics))
for kind in ("bigbird", "jina", "mosaic"):
    loops.make(assets, kind, plant=True, hidden=128, heads=1)
    found = []
    for name, window in (("first", 100), ("long", 200)):
        ready = loops.engine(assets, kind, Path("/index") / kind, corpus, document_tokens=200, aggregation=name,
                             window=window)
        scores = numpy.array([ready.score(each, list(topics)) for each in topics])
        found.append(int((scores.argmax(1) == numpy.arange(len(topics))).sum()))
    say([kind, *found])
""")
    assert [(kind, far) for kind, _, far in answers] == [(kind, 8) for kind in ("bigbird", "jina", "mosaic")]
    assert all(near <= 3 for _, near, _ in answers), "FirstP ranks by chance: one of eight"


def test_work_counts_padding_and_sparse_attention(lines: Lines) -> None:
    slopes, sparse, dense, counts = lines("""
from encoder.alibi import slopes
say(slopes(12))
from encoder.config import KINDS, Config
sizes = {"num_hidden_layers": 12, "hidden_size": 768, "attention_window": [512] * 12}
base = {name: Config(name, KINDS[name], 50265, 4096, sizes) for name in ("longformer", "big_bird", "bert")}
say([base["longformer"].padded(1466), base["big_bird"].padded(1466), base["big_bird"].padded(3)])
say([base[name].flop(1, 1466, 35) / 1e9 for name in base])
corpus = short.write_corpus(Path("/tmp/corpus.jsonl"), (5, 40))
for kind in ("longformer", "bigbird"):
    loops.make(assets, kind)
ready = [loops.engine(assets, kind, Path("/index") / kind, corpus) for kind in ("longformer", "bigbird")]
for each in ready:
    each.score("ice rock", ["d0", "d1"])
pairs = [loops.Pairs(assets / kind) for kind in ("longformer", "bigbird")]
read = [[len(each("ice rock", document.text)[0]) for document in corpus] for each in pairs]
say([[each.counts(), lengths] for each, lengths in zip(ready, read)])
""")
    assert slopes == [2.0**-power for power in (1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5)]
    assert sparse == [1536, 1472, 768]
    # Longformer: 1,536 tokens see 513 and are seen by 35; BigBird: 23 blocks of 64, of which two see all.
    hidden, seen = 768, 1536 * 513 + 2 * 35 * 1536
    longformer = 12 * (24 * 1536 * hidden**2 + 4 * hidden * seen + (4 * 1536 + 2 * 35) * hidden**2)
    bigbird = 12 * (24 * 1472 * hidden**2 + 4 * hidden * 64**2 * (2 * 23 + 2 * 7 + 19 * 8))
    bert = 12 * 1466 * (24 * hidden**2 + 4 * 1466 * hidden)
    assert dense == pytest.approx([longformer / 1e9, bigbird / 1e9, bert / 1e9])
    for (found, lengths), padded in zip(counts, (16 * math.ceil(max(counts[0][1]) / 16), 64), strict=True):
        assert found["tokens"] == sum(lengths) and found["padded_tokens"] == 2 * padded


def test_wrong_tensors_and_backends_are_refused_by_name(lines: Lines) -> None:
    answers = lines("""
import rerank_prepare
from encoder.graph import Graph
from safetensors.torch import load_file, save_file
wrong = {
    "longformer": ("longformer.encoder.layer.1.attention.self.key_global.weight", "cls.bias"),
    "bigbird": ("bert.encoder.layer.0.attention.self.value.bias",),
    "jina": ("encoder.layer.1.attention.self.key.weight", "encoder.layer.0.mlp.wo.bias"),
    "mosaic": ("bert.encoder.layer.1.attention.self.Wqkv.weight", "bert.encoder.layer.0.mlp.gated_layers.weight"),
    "tinyllama": ("model.layers.1.mlp.up_proj.weight",),
}

def prepared(kind, change, **params):
    shutil.rmtree(assets / kind, ignore_errors=True)
    path = loops.make(assets, kind) / "model.safetensors"
    state = load_file(path)
    change(state)
    save_file(state, path, metadata={"format": "pt"})
    given = {"model": kind, "head": loops.HEADS[kind], "document_tokens": 100, "aggregation": "long", **params}
    return refused(lambda: rerank_prepare.make_ready(assets, given))

for kind, names in wrong.items():
    for name in names:
        for change in (lambda state: state.pop(name), lambda state: state.update({name: torch.zeros(7, 7)})):
            say([kind, ".".join(name.split(".")[-2:]), prepared(kind, change)])
    strange = lambda state: state.update({"strange.weight": torch.zeros(3)})
    say([kind, "strange.weight", prepared(kind, strange)])
    say([kind, "torch and torch-bf16", prepared(kind, lambda _: None, backend="onnxruntime")])
for kind in ("longformer", "bigbird", "mosaic"):  # they have no logits over the vocabulary
    say([kind, "without its head over the vocabulary", refused(lambda: Graph(assets / kind, "splade"))])
norm = "encoder.layer.0.attention.self.layer_norm_q.weight"
say(["jina", "layer_norm_q", prepared("jina", lambda state: state.update({norm: torch.ones(32)}))])
say(["jina", "", "" if prepared("jina", lambda _: None) else "as it is"])
""")
    *refusals, (_, _, accepted) = answers
    assert accepted == "as it is" and len(refusals) == 30
    assert [each for each in refusals if each[1] not in each[2]] == []

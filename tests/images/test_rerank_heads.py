"""CEDR, PARADE and LATEIR against their formulas, restated in float64 (``rerank_heads``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.docker

Lines = Callable[[str], list[Any]]

BEFORE = """
import numpy, torch
import rerank_heads as loops
from rerank_heads import *
"""
# A cosine at the border of two bins falls into either, by rounding: such pairs are left out, and are few.
MOST_LEFT_OUT = 0.15


@pytest.fixture
def lines(rerank_probe: Callable[..., list[Any]]) -> Lines:
    """Run lines in the engine's image, beside the restatement and the maker of small checkpoints."""
    return lambda text: rerank_probe(BEFORE + text, "rerank_heads")


def test_heads_equal_their_formulas_alone_and_in_batches(lines: Lines) -> None:
    answers = lines("""
for name in NAMES:
    for pad, padding in (("real", "masked"), ("s3", "masked"), ("s3", "s3")):
        if padding == "masked" or name.startswith("cedr"):
            say([name, pad, compare(name, pad, padding)])
""")
    assert len(answers) == 24 + 3
    pairs: dict[str, int] = {}
    for name, pad, found in answers:
        assert found["difference"] <= 1e-5, (name, pad)
        assert found["batches"] <= 1e-5, (name, pad)
        assert found["spread"] > 1e-3, "scores that are all alike prove nothing"
        assert found["left_out"] <= (MOST_LEFT_OUT * found["pairs"] if name == "cedr-drmm" else 0), (name, pad)
        pairs[name] = pairs.get(name, 0) + found["pairs"]
    assert min(pairs.values()) >= 120


def test_each_head_refuses_wrong_tensors_by_name(lines: Lines) -> None:
    answers = lines("""
def refusal(name, tensors):
    return refused(lambda: make(name, "real", tensors))

for name in NAMES:
    own = shapes(name)
    for tensor in own:
        lacking = Tensors(own)
        del lacking[tensor]
        wrong = Tensors({**own, tensor: torch.zeros(7, 7)})
        say([name, tensor, refusal(name, lacking), refusal(name, wrong)])
    start = next(iter(own)).partition(".")[0]
    say([name, f"{start}.stranger", refusal(name, Tensors({**own, f"{start}.stranger": torch.zeros(1)})), ""])
    assert refusal(name, Tensors({**own, "bert.other": torch.zeros(1)})) == "", "those are the transformer's"
say(refused(lambda: make("cedr-knrm", "real", Tensors(shapes("cedr-knrm")), "s3")))
""")
    *answers, padding = answers
    assert "pad_windows = s3" in padding
    assert len(answers) > 200
    for name, tensor, *messages in answers:
        for message in messages[: 1 if tensor.endswith("stranger") else 2]:
            assert tensor in message, (name, tensor)


CORPUS = """
words = "the river of north one ice rock ash moves down".split()
place = Path("/tmp/corpus.jsonl")
texts = [" ".join((words * 30)[number:][:length]) for number, length in enumerate(lengths)]
documents = [{"_id": str(number), "title": "", "text": text} for number, text in enumerate(texts)]
place.write_text("".join(json.dumps(each) + "\\n" for each in documents))
corpus, assets = Corpus(place, len(texts)), Path("/index/assets")
index.rmdir()
"""


def test_engine_scores_as_the_formulas_over_windows_encoded_one_by_one(lines: Lines) -> None:
    answers = lines(
        "lengths = (0, 1, 24, 25, 37, 78, 155, 260)"
        + CORPUS
        + """
from checkpoints.rerank_heads import KINDS
for kind in KINDS:
    for pad in ("real", "s3") if kind in ("cedr-knrm", "parade-attn", "lateir") else ("real",):
        say([kind, pad, *engine_differs(kind, pad, assets, corpus, Path("/index"))])
"""
    )
    assert len(answers) == 18
    for kind, pad, difference, spread, pairs in answers:
        assert difference <= 1e-5 and spread > 1e-3, (kind, pad)
        assert pairs == 24


# Largest difference to PyTorch in float32, in standard deviations of the scores.
TOLERANCES = {"onnxruntime": 1e-4, "openvino": 1e-4, "onnxruntime-int8": 0.5, "openvino-bf16": 0.3}


def test_backends_agree_with_torch_for_every_head(lines: Lines) -> None:
    answers = lines(
        "lengths = (0, 1, 12, 23, 24, 25, 36, 60)"
        + CORPUS
        + """
import rerank_prepare
from checkpoints import rerank_heads
from harness.driver.records import Envelope

wanted = {"cedr-knrm": "cedr-knrm", "cedr-drmm": "cedr-drmm", "cedr-pacrr": "cedr-pacrr", "lateir": "lateir",
          "parade-transformer": "parade-transformer-pretr-l6", "parade-attn": "parade-attn-deberta"}
for aggregation, kind in wanted.items():
    few = aggregation in ("cedr-drmm", "lateir")
    expected, threads = None, []
    for backend in ("torch", "onnxruntime", "openvino", *(() if few else ("onnxruntime-int8", "openvino-bf16"))):
        name = f"{aggregation}-{backend}"
        rerank_heads.make(assets / name, kind, texts=[" ".join(words)], query_tokens=8)
        params = {"model": name, "document_tokens": 231, "query_tokens": 8, "aggregation": aggregation,
                  "window": 24, "stride": 24 if "cedr" in name else 12, "backend": backend}
        rerank_prepare.make_ready(assets, params)
        ready = adapter.ENGINE(params, Envelope("test", 1, 1 << 30), assets)
        made = Path("/index") / name
        made.mkdir()
        ready.build(corpus, made, lambda _: None)
        ready.load(made)
        found = numpy.array([ready.score(query, ready.doc_ids()) for query in ("ice", "the river of the north")])
        expected = found if expected is None else expected
        files = sorted(path.suffix for path in (assets / name).iterdir())
        one_thread = set(ready.threads().values()) == {1}
        difference, spread = float(abs(found - expected).max()), float(expected.std())
        say([aggregation, backend, difference, spread, one_thread, files, ready.libraries()])

rerank_heads.make(assets / "wrong", "parade-attn", query_tokens=8)
say(refused(lambda: rerank_prepare.make_ready(assets, {**params, "model": "wrong", "attention": "per_dimension"})))
"""
    )
    *answers, refusal = answers
    assert refusal.startswith("wrong: ") and "att.weight" in refusal
    assert len(answers) == 4 * 5 + 2 * 3
    for name, backend, difference, spread, one_thread, files, libraries in answers:
        assert spread > 1e-3, name
        if backend != "torch":
            assert difference <= TOLERANCES[backend] * (1 if TOLERANCES[backend] < 1e-3 else spread), (name, backend)
            assert backend.split("-")[0] in libraries
            assert ".onnx" in files or ".xml" in files
        assert one_thread, (name, backend)

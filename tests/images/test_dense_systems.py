"""Dense systems in their image, compared with plain scripts of their libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.images.conftest import Probe
from tests.images.dense import put_small_checkpoints

pytestmark = pytest.mark.docker


# Two encoders, as `dpr` is declared, over small checkpoints.
DPR = """
import dataclasses
import small
import numpy, torch
from encoder.prepare import prepare
texts = ["rivers of ice that move slowly", "molten rock and ash"]
params = {"document_model": "context", "query_model": "question", "pooling": "dpr", "title": "pair",
          "document_tokens": 128, "query_tokens": 32}
def made(place, **changes):
    for seed, side in enumerate(("question", "context")):
        small.make(Path(place) / side, f"dpr-{side}", texts=texts, seed=seed)
    prepare(Path(place), {**params, **changes})
    return adapter.ENGINE({**params, **changes}, Envelope("test", 1, 1 << 30), Path(place))
"""


def test_dpr_equals_the_classes_of_transformers(probe: Probe, tmp_path: Path) -> None:
    put_small_checkpoints(tmp_path)
    lines = """
from transformers import AutoTokenizer, DPRContextEncoder, DPRQuestionEncoder
dpr = made("/index/assets")
dpr.build(corpus, index, lambda _: None)
dpr.load(index)
small.make(Path("/index/q"), "dpr-question", texts=texts, seed=0)
small.make(Path("/index/c"), "dpr-context", texts=texts, seed=1)
question = DPRQuestionEncoder.from_pretrained("/index/q").eval()
context = DPRContextEncoder.from_pretrained("/index/c").eval()
tokenizer = AutoTokenizer.from_pretrained("/index/q")

def vector(model, *text):
    batch = tokenizer(*text, truncation=True, max_length=128, return_tensors="pt")
    # DPR was trained with token type 0 throughout, pairs included.
    batch["token_type_ids"] = torch.zeros_like(batch["token_type_ids"])
    with torch.inference_mode():
        return model(**batch).pooler_output[0].numpy()

documents = {each.doc_id: vector(context, *([each.title] if each.title else []), each.text) for each in corpus}
for query in ("frozen water", "ash", ""):
    asked = vector(question, query)
    expected = {doc_id: float(asked @ row) for doc_id, row in documents.items()}
    hits = dpr.search(query, 10)
    say([[hit.doc_id for hit in hits], max(abs(hit.score - expected[hit.doc_id]) for hit in hits),
         sorted(expected, key=lambda doc_id: -expected[doc_id])])
"""
    for found, difference, expected in probe("minilm-torch", DPR + lines):
        assert difference < 1e-4
        assert len(found) == 4
        if found != expected:  # two documents have one text
            assert {found.index("twin"), found.index("volcano")} == {expected.index("twin"), expected.index("volcano")}


def test_short_texts_are_spread_over_stretched_positions(probe: Probe, tmp_path: Path) -> None:
    put_small_checkpoints(tmp_path)
    answers = probe(
        "minilm-torch",
        """
import shutil, numpy, small, torch
from transformers import AutoTokenizer, BertModel
from encoder.model import Model
from encoder.prepare import prepare
small.make(Path("/index/m"), "bert-4k", texts=["ice rock ash river"])
tokenizer, model = AutoTokenizer.from_pretrained("/index/m"), BertModel.from_pretrained("/index/m").eval()
texts = ["ice rock", "ash " * 510, "river " * 511, "ice ash " * 300]

def theirs(text, spread):
    batch = tokenizer(text, return_tensors="pt")
    places = torch.arange(batch["input_ids"].shape[1])[None] * spread
    with torch.inference_mode():
        return model(**batch, position_ids=places).last_hidden_state[0].mean(0).numpy()

wanted = numpy.array([theirs(text, 8 if number < 2 else 1) for number, text in enumerate(texts)])
for backend in ("torch", "onnxruntime"):
    shutil.copytree("/index/m", Path("/index") / backend / "m")
    given = {"model": "m", "pooling": "mean", "backend": backend, "document_backend": backend, "document_tokens": 4096,
             "query_tokens": 512, "original_positions": 512}
    prepare(Path("/index") / backend, given)
    ours = Model.load(Path("/index") / backend / "m", "mean", backend, params=given)
    # In one batch each text has the positions of its own length.
    say([backend, float(abs(ours(texts, 4096) - wanted).max()), float(abs(wanted[0] - theirs(texts[0], 1)).max())])
say(refused(lambda: Model.load(Path("/index/m"), "mean", params={"original_positions": 4096})))
""",
    )
    *compared, refusal = answers
    assert [backend for backend, *_ in compared] == ["torch", "onnxruntime"]
    assert all(off <= 1e-5 < other for _, off, other in compared), "and other positions give other vectors"
    assert "original_positions 4096" in refusal


def test_nan_ends_a_build_and_a_search(probe: Probe, tmp_path: Path) -> None:
    put_small_checkpoints(tmp_path)
    lines = """
import torch
import small
folder = Path("/index/assets/m")
small.make(folder, "bert", texts=["rivers of ice", "molten rock and ash"])
params = {"model": "m", "pooling": "mean", "document_tokens": 64, "query_tokens": 32}
make = lambda: adapter.ENGINE(params, Envelope("test", 1, 1 << 30), Path("/index/assets"))
make().build(corpus, index, lambda _: None)
dense = make()
dense.load(index)
row = (folder / "vocab.txt").read_text().splitlines().index("ash")
with torch.inference_mode():
    dense._model._backend._graph.transformer.embeddings.word_embeddings.weight[row] = float("nan")
say(len(dense.search("rivers of ice", 10)))
say(refused(lambda: dense.search("ash", 10)))
say(refused(lambda: dense.search_batch(["ice", "ash"], 10)))
state = torch.load(folder / "pytorch_model.bin")
state["embeddings.word_embeddings.weight"][row] = float("nan")
small.write_weights(folder, state, safetensors=False)
say(refused(lambda: make().build(corpus, index, lambda _: None)))
"""
    found, one, batch, build = probe("minilm-torch", lines)
    assert found == 4
    assert one.startswith("m: 1 of 1 texts become NaN or infinity under torch;")
    assert batch.startswith("m: 1 of 2 texts become NaN")
    assert build.startswith("m: 2 of 4 texts become NaN"), "the volcano and its twin"


def test_index_depends_on_its_tokeniser_and_configuration(probe: Probe, tmp_path: Path) -> None:
    put_small_checkpoints(tmp_path)
    lines = """
import shutil
import small
from encoder.prepare import prepare
params = {"model": "m", "pooling": "mean", "document_tokens": 64, "query_tokens": 32}
def edit(name, before, after):
    path = plain / name
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))
plain = Path("/index/plain/m")
small.make(plain, "bert", texts=["rivers of ice", "molten rock and ash"])

def load(prepared):
    place = Path("/index") / str(len(seen))
    shutil.copytree(plain, place / "m")
    if prepared:
        prepare(place, params)
    seen.append(place)
    dense = adapter.ENGINE(params, Envelope("test", 1, 1 << 30), place)
    if len(seen) == 1:
        dense.build(corpus, index, lambda _: None)
    say(refused(lambda: dense.load(index)))

seen = []
load(True)
load(True)
load(False)
edit("vocab.txt", "\\nrock\\n", "\\nrack\\n")
load(True)
edit("vocab.txt", "\\nrack\\n", "\\nrock\\n")
edit("tokenizer_config.json", '"do_lower_case": true', '"do_lower_case": false')
load(True)
edit("tokenizer_config.json", '"do_lower_case": false', '"do_lower_case": true')
edit("config.json", '"layer_norm_eps": 1e-12', '"layer_norm_eps": 1e-5')
load(True)
"""
    *same, vocabulary, case, config = probe("minilm-torch", lines)
    assert same == [""] * 3
    for message in (vocabulary, case, config):
        assert message.startswith("the index was built with checkpoint_sha256")

"""LLM rerankers in their image: small random decoders against transformers itself, and the real SmolLM2."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import docker
import pytest

from harness.config import data_root
from harness.launch.images import builder, catalog
from tests.images.conftest import CACHE, GIVEN, IMPORTS, Probe
from tests.images.dense import SCIFACT
from tests.images.inside import Warmth

pytestmark = pytest.mark.docker

# A small Llama in /tmp/assets/small, an index of 50 passages of very different lengths, 50 queries.
SMALL = """
import sys
sys.path.insert(0, "/job")
import small, torch
from transformers import AutoTokenizer, LlamaForCausalLM
given = json.loads(Path("/job/given.json").read_text())
assets = Path("/tmp/assets")
small.make(assets / "small", texts=given["texts"])
def engine(**params):
    made = adapter.ENGINE({"model": "small", **params}, Envelope("test", 1, 1 << 30), assets)
    made.load(index)
    return made
with open("/tmp/corpus.jsonl", "w") as file:
    for number, text in enumerate(given["texts"]):
        print(json.dumps({"_id": str(number), "title": "", "text": text}), file=file)
adapter.ENGINE({"model": "small", "method": "rankgpt"}, Envelope("test", 1, 1 << 30), assets).build(
    Corpus(Path("/tmp/corpus.jsonl"), len(given["texts"])), index, lambda _: None
)
ids = [str(number) for number in range(len(given["texts"]))]
tokenizer = AutoTokenizer.from_pretrained(assets / "small")
model = LlamaForCausalLM.from_pretrained(assets / "small", dtype=torch.float32).eval()
before = lambda text: f"Passage: {text}\\nPlease write a question based on this passage.\\nQuestion: "
"""


@pytest.fixture
def ask(engine: docker.DockerClient, warmth: Warmth, tmp_path: Path) -> Probe:
    """Run lines in the engine's image, with a small Llama."""

    def run(lines: str) -> list[Any]:
        # A system's, which has its weights as well: one container is warm for all tests of this file.
        image = builder.ImageBuilder(engine, CACHE).ensure(catalog.system("smollm2-qlm"))
        job = tmp_path / "job"
        job.mkdir()
        documents, queries = SCIFACT.texts(40, 50)
        texts = ["", "a", " \n ", *documents, *(text[:80] for text in documents[:7])]
        (job / "given.json").write_text(json.dumps({"texts": texts, "queries": queries}), encoding="utf-8")
        (job / "params.json").write_text("{}")
        shutil.copy(data_root() / "checkpoints" / "llm.py", job / "small.py")
        (job / "probe.py").write_text(GIVEN + SMALL + lines, encoding="utf-8")
        return warmth.of(image.digest, IMPORTS["llm-rerank"]).ask(job)

    return run


def test_query_likelihood_is_transformers_own_in_any_batch(ask: Probe) -> None:
    lines = """
def direct(text, query):
    first = before(text)
    whole = tokenizer(first + query, return_offsets_mapping=True)
    tokens = whole["input_ids"]
    start = next(place for place, (_, end) in enumerate(whole["offset_mapping"]) if end > len(first))
    labels = torch.tensor([[-100] * start + tokens[start:]])
    with torch.no_grad():
        return -model(torch.tensor([tokens]), labels=labels).loss.item(), len(tokens)

qlm = engine(method="query_likelihood", passage_words="none", batch_tokens=4096)
alone = engine(method="query_likelihood", passage_words="none", batch_tokens=1)
pairs = list(zip(given["queries"], given["texts"], strict=True))
expected = [direct(text, query) for query, text in pairs]
found = []
for number, (query, _) in enumerate(pairs):
    found.append([qlm.score(query, [str(number)])[0], qlm.counts()["prompt_tokens"]])
say([expected, found])
query = given["queries"][0]
say([qlm.score(query, ids), qlm.counts(), alone.score(query, ids), alone.counts(), qlm.score(query, ids[::-1])])
say([len(tokenizer(before(text) + query)["input_ids"]) for text in given["texts"]])
say([qlm.score("", ids[:2]), qlm.score(query, []), sorted(qlm.stages_s()), qlm.threads(), qlm.device()])
cut = engine(method="query_likelihood", passage_words=20)
say([abs(cut.score(query, ids[5:6])[0] - direct(" ".join(given["texts"][5].split()[:20]), query)[0])])
"""
    (expected, found), whole, lengths, edges, (cut,) = ask(lines)
    assert len(found) == 50 and len({round(score, 3) for score, _ in found}) > 40
    for (score, tokens), (ours, counted) in zip(expected, found, strict=True):
        assert ours == pytest.approx(score, abs=1e-3) and counted == tokens
    batched, counts, alone, counts_alone, backward = whole
    assert batched == pytest.approx(alone, abs=1e-5) and backward[::-1] == pytest.approx(batched, abs=1e-5)
    assert counts["tokens"] == counts["prompt_tokens"] == sum(lengths) == counts_alone["padded_tokens"]
    assert counts["pairs"] == counts["windows"] == counts_alone["calls"] == 50 > counts["calls"] > 1
    assert sum(lengths) < counts["padded_tokens"] and counts["flop"] > counts_alone["flop"]
    assert counts["parameters"] == counts_alone["parameters"] > 2 * 12 * 32**2
    assert counts_alone["flop"] == sum(2 * n * (24 * 32**2 + 4 * n * 32) for n in lengths)
    empty, none, stages, threads, device = edges
    assert empty == [0.0, 0.0] and none == [] and stages == ["fetch", "score", "tokenise"]
    assert set(threads.values()) == {1} and "torch_interop" in threads and device == "cpu"
    assert cut < 1e-3


def test_judgement_is_the_logit_of_1_less_that_of_0_in_any_batch(ask: Probe) -> None:
    lines = """
import transformers
from llm import prompts
small.make(assets / "qwen", "qwen2", texts=given["texts"])
model = transformers.Qwen2ForCausalLM.from_pretrained(assets / "qwen", dtype=torch.float32).eval()
tokenizer = AutoTokenizer.from_pretrained(assets / "qwen")
one, zero = tokenizer.convert_tokens_to_ids(["1", "0"])
query = given["queries"][0]
def direct(text):
    chat = tokenizer.apply_chat_template(prompts.judgement(query, text), add_generation_prompt=True, tokenize=False)
    tokens = tokenizer(chat, add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0, -1]
    return (logits[one] - logits[zero]).item(), len(tokens), chat

say([direct(text) for text in given["texts"]])
for batch_tokens in (4096, 1):
    judge = engine(model="qwen", method="judgement", passage_words="none", batch_tokens=batch_tokens)
    say([judge.score(query, ids), judge.counts()])
say([judge.score(query, []), judge.score(query, ids[3:4] * 2)])
"""
    expected, (batched, counts), (alone, counts_alone), (none, twice) = ask(lines)
    scores, lengths, chats = zip(*expected, strict=True)
    assert "query: " in chats[3] and "\ndocument: " in chats[3] and chats[3].endswith("<|im_start|>assistant\n")
    assert batched == pytest.approx(scores, abs=1e-4) and alone == pytest.approx(scores, abs=1e-4)
    assert len({round(score, 3) for score in scores}) > 40
    assert counts["tokens"] == counts["prompt_tokens"] == sum(lengths) == counts_alone["padded_tokens"]
    assert counts["pairs"] == counts_alone["calls"] == 50 > counts["calls"] > 1
    assert none == [] and twice == [alone[3]] * 2


def test_listwise_counts_the_tokens_of_the_whole_prompt(ask: Probe) -> None:
    lines = """
from llm import prompts
ranker = engine(method="rankgpt", passage_words=30, max_new_tokens=8)
shown = [prompts.cut(text, 30) for text in given["texts"]]
for query in given["queries"]:
    scores = ranker.score(query, ids[:12])
    chat = tokenizer.apply_chat_template(prompts.ranking(query, shown[:12]), add_generation_prompt=True, tokenize=True)
    chat = chat["input_ids"] if hasattr(chat, "keys") else chat
    counts = ranker.counts()
    say([counts["prompt_tokens"], len(chat), counts["completion_tokens"], sorted(scores)])
model.generation_config.pad_token_id = 0
written = model.generate(torch.tensor([chat]), do_sample=False, max_new_tokens=8)[0, len(chat):].tolist()
answer = ranker._transport(prompts.ranking(query, shown[:12]))
say([answer.text, tokenizer.decode(written, skip_special_tokens=True), answer.completion_tokens, len(written), counts])
ranker.score(query, ids[:25])
say(ranker.counts()["calls"])
def refusal(**params):
    say(refused(lambda: engine(**params).score(query, ids)))
refusal(method="rankgpt", passage_words="none")
refusal(method="query_likelihood", model="none")
small.make(assets / "broken", texts=given["texts"])
from safetensors.torch import load_file, save_file
weights = load_file(assets / "broken/model.safetensors")
name = "model.layers.1.mlp.up_proj.weight"
gone = weights.pop(name)
for more in ({}, {name: gone.T.contiguous()}, {name: gone, "extra.weight": gone.clone()}):
    save_file({**weights, **more}, assets / "broken/model.safetensors", {"format": "pt"})
    refusal(method="query_likelihood", model="broken")
"""
    *queries, answer, calls, too_long, no_folder, missing, misshaped, extra = ask(lines)
    assert len(queries) == 50
    for counted, whole, written, scores in queries:
        assert counted == whole > 500 and 1 <= written <= 8
        assert scores == [float(-rank) for rank in range(12, 0, -1)]
    text, expected, written, tokens, counts = answer
    assert (text, written) == (expected, tokens) and counts["tokens"] == counts["padded_tokens"]
    lengths = [counts["prompt_tokens"], *([1] * (counts["completion_tokens"] - 1))]
    assert counts["flop"] > 2 * lengths[0] * (24 * 32**2 + 4 * lengths[0] * 32)
    assert calls == 2
    assert "small: the prompt of a window needs" in too_long and "the model has 2048" in too_long
    assert no_folder.startswith("none: no config.json")
    assert missing == "broken: the checkpoint lacks tensor model.layers.1.mlp.up_proj.weight (1 such)"
    assert "misshapes tensor" in misshaped and "model.layers.1.mlp.up_proj.weight" in misshaped
    assert extra == "broken: the checkpoint has an unknown tensor extra.weight (1 such)"


def test_smollm2_read_from_its_gguf_writes_english_and_knows_what_a_query_is_about(probe: Probe) -> None:
    lines = """
qlm = engine()
qlm.build(corpus, index, lambda _: None)
qlm.load(index)
for query in ("rivers of ice", "lava and ash from mountains", "where do people drink coffee"):
    say(sorted(zip(qlm.score(query, qlm.doc_ids()), qlm.doc_ids()))[-1][1])
exact = engine(dtype="float32")
exact.load(index)
ids = qlm.doc_ids()
say(max(abs(a - b) for a, b in zip(qlm.score("rivers of ice", ids), exact.score("rivers of ice", ids), strict=True)))
answer = qlm._model([{"role": "user", "content": "What is the capital of France? Answer in one word."}])
say([answer.text, answer.completion_tokens])
"""
    ice, lava, coffee, rounding, (text, written) = probe("smollm2-qlm", lines)
    assert ice == "glacier" and lava in ("volcano", "twin") and coffee.startswith("caf\u00e9")
    assert 0 < rounding <= 0.1, "thirty layers of bfloat16"
    assert "Paris" in text and written < 120

"""Tests of uniCOIL, DeepCT and docT5query against plain models."""

from __future__ import annotations

import pytest

from tests.images.impact import BUILT, SEARCHED_APART, Ask

pytestmark = pytest.mark.docker


def test_unicoil_weights_equal_plain_torch(ask: Ask) -> None:
    """Documents use a term's largest weight, queries the sum; expansions follow the document."""
    lines = """
import torch
from transformers import AutoTokenizer, BertConfig, BertModel
folder = "/job/models/unicoil"
tokenizer, state = AutoTokenizer.from_pretrained(folder), torch.load(folder + "/pytorch_model.bin")
bert = BertModel(BertConfig.from_pretrained(folder)).eval()
of_bert = {name.removeprefix("coil_encoder.bert."): value for name, value in state.items() if ".bert." in name}
bert.load_state_dict(of_bert)
def plain(ids, join):
    with torch.inference_mode():
        hidden = bert(torch.tensor([ids])).last_hidden_state[0]
        weights = torch.relu(hidden @ state["coil_encoder.tok_proj.weight"][0] + state["coil_encoder.tok_proj.bias"])
    found = {}
    for token, weight in zip(tokenizer.convert_ids_to_tokens(ids), weights.tolist()):
        if token != "[CLS]":
            found[token] = join(found[token], weight) if token in found else weight
    return {token: round(weight * 51.2) for token, weight in found.items() if round(weight * 51.2)}
from term_weights import methods
writer = methods.writer(params, assets, 1, "cpu")
say(type(writer._expander).__name__)
texts = [text for text in documents.values()]
order = sorted(range(len(texts)), key=lambda number: -len(texts[number]))
for start in range(0, 8, 2):
    numbers = order[start : start + 2]
    written = writer._expander([texts[number] for number in numbers], "name")
    writer._expander = type("", (), {"batch": 2, "__call__": lambda self, given, name: written})()
    lines = writer.lines([list(corpus)[number] for number in numbers], lambda _: None)
    writer = methods.writer(params, assets, 1, "cpu")
    for number, queries_of, line in zip(numbers, written, lines):
        own = tokenizer.encode(texts[number], add_special_tokens=False)[:400]
        extra = tokenizer.encode(" ".join(queries_of), add_special_tokens=False)[:100]
        ids = [2, *own, 3, *[each for each in dict.fromkeys(extra) if each not in own], 3]
        say([line["vector"], plain(ids, max)])
for query in ("the river the river", "old", ""):
    say([system._queries([query])[0], plain(tokenizer(query).input_ids, lambda a, b: a + b)])
say([hit.doc_id for hit in system.search("the old river of the north", 3)])
"""
    torch = {"document_backend": "torch", "backend": "torch"}  # another backend may round a weight the other way
    name, *pairs, ranking = ask("unicoil", BUILT + lines, **torch)
    assert name == "Expander"
    assert len(pairs) == 11
    for ours, theirs in pairs:
        assert ours == theirs and ours
    assert len(ranking) == 3


def test_deepct_term_frequencies_equal_a_plain_model(ask: Ask) -> None:
    lines = """
import torch
from jnius import autoclass
from transformers import AutoModelForTokenClassification, AutoTokenizer
folder = "/job/models/deepct"
tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForTokenClassification.from_pretrained(folder).eval()
total = {}
from term_weights import methods
lines = methods.writer(params, assets, 1, "cpu").lines(list(corpus), lambda _: None)
for line, text in zip(lines, documents.values()):
    given = tokenizer(text, truncation=True, max_length=128, return_tensors="pt")
    with torch.inference_mode():
        weights = model(**given).logits[0, :, 0].tolist()
    words = []
    for token, weight in zip(tokenizer.convert_ids_to_tokens(given.input_ids[0]), weights):
        if token.startswith("##"):
            words[-1][0] += token[2:]
        else:
            words.append([token, weight])
    best = {}
    for word, weight in words[1:-1]:
        best[word] = max(best.get(word, 0), round(100 * max(weight, 0)))
    best = {word: frequency for word, frequency in best.items() if frequency}
    found = {}
    for word in line["contents"].split():
        found[word] = found.get(word, 0) + 1
    say([found, best])
    for word, frequency in best.items():
        total[word] = total.get(word, 0) + frequency
reader = system._searcher._reader
count = autoclass("io.anserini.index.IndexReaderUtils").getTermCounts
for word, stem in (("market", "market"), ("north", "north"), ("castle", "castl")):
    say([count(reader, word).get("collectionFreq"), total[word]])
"""
    (loaded, before, ranking, stages), *pairs = ask("deepct", BUILT + SEARCHED_APART + lines)
    assert (loaded, before, stages) == ([], [], ["retrieve"])  # a search needs no encoder
    assert len(ranking) == 3
    assert len(pairs) == 24 + 3
    for ours, theirs in pairs:
        assert ours == theirs
    assert pairs[-1][0] > 50


def test_doct5query_appends_the_queries_of_a_plain_model(ask: Ask) -> None:
    lines = """
import hashlib
import torch
from term_weights import methods
from transformers import AutoTokenizer, T5ForConditionalGeneration
folder = "/job/models/doct5query"
tokenizer, model = AutoTokenizer.from_pretrained(folder), T5ForConditionalGeneration.from_pretrained(folder).eval()
batch = list(corpus)[:2]
lines = methods.writer(params, assets, 1, "cpu").lines(batch, lambda _: None)
say(lines == methods.writer(params, assets, 1, "cpu").lines(batch, lambda _: None))
texts = sorted((documents[each.doc_id] for each in batch), key=len, reverse=True)
first = next(each.doc_id for each in batch if documents[each.doc_id] == texts[0])
torch.manual_seed(int.from_bytes(hashlib.sha256(f"{params['seed']}\\0{first}".encode()).digest()[:7], "big"))
given = tokenizer(texts, padding=True, return_tensors="pt")
written = model.generate(**given, do_sample=True, top_k=10, num_return_sequences=3, max_new_tokens=8)
queries = tokenizer.batch_decode(written, skip_special_tokens=True)
expected = {texts[0]: " ".join([texts[0], *queries[:3]]), texts[1]: " ".join([texts[1], *queries[3:]])}
say([[line["contents"] for line in lines], [expected[documents[each.doc_id]] for each in batch]])
say([hit.doc_id for hit in system.search("the old river of the north", 24)])
say([hit.doc_id for hit in system.search("market", 24)])
empty = methods.writer(params, assets, 1, "cpu").lines(list(corpus)[-1:], lambda _: None)
say(empty)
"""
    (loaded, *_), same, (ours, theirs), ranking, market, empty = ask("doct5query", BUILT + SEARCHED_APART + lines)
    assert loaded == [] and same
    assert ours == theirs
    assert {"twin a", "twin b"} <= set(ranking) and "empty" not in ranking
    assert "long" in market
    assert empty == [{"id": "empty", "contents": ""}]

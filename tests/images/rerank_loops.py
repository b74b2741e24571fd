"""Rerankers of passages restated from their formulas: float64, one window at a time, no batching.

Imported inside an engine's image, beside the engine and the package ``checkpoints``.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import adapter
import numpy
import torch
from safetensors.numpy import load_file

from checkpoints import rerank
from harness.driver.adapter import Corpus
from harness.driver.records import Envelope

# A sixth of the published geometry with the same numbers of windows: 3 disjoint, 14 and 19 sliding.
QUERY, LONGEST = 8, 231
RULES = {
    "first": (77, 77),
    "avg": (77, 77),
    "max": (24, 16),
    "sum": (24, 16),
    "parade-max": (24, 12),
}
LENGTHS = (0, 1, 12, 23, 24, 25, 36, 40, 76, 77, 78, 154, 155, 230, 231, 260)
QUERIES = (0, 1, 8, 10)
WORDS = ("river", "ice", "rock", "ash", "moves", "slowly", "down", "mountains", "molten", "of", "the")
CLS, SEP, PAD = 2, 3, 0


def words(count: int, seed: int) -> str:
    """Text of known words, each one token."""
    return " ".join(random.Random(seed).choices(WORDS, k=count))


def make(assets: Path, kind: str = "linear", name: str = "m", **changes: Any) -> None:
    """A small checkpoint that knows the words."""
    rerank.make(assets / name, kind, texts=[" ".join(WORDS)], **changes)


def write_corpus(place: Path, lengths: tuple[int, ...] = LENGTHS) -> Corpus:
    """A document of each length, titles in some."""
    documents = []
    for number, length in enumerate(lengths):
        whole = words(length, number).split()
        cut = 1 if number % 3 == 2 else 0
        title, text = " ".join(whole[:cut]), " ".join(whole[cut:])
        documents.append({"_id": f"d{number}", "title": title, "text": text})
    place.write_text("".join(json.dumps(each) + "\n" for each in documents))
    return Corpus(place, len(documents))


def engine(assets: Path, index: Path, corpus: Corpus | None = None, **params: Any) -> Any:
    """The engine, loaded; the index is built where there is none."""
    given = {"model": "m", "head": "linear", "document_tokens": LONGEST, "query_tokens": QUERY, **params}
    made = adapter.ENGINE(given, Envelope("test", 1, 1 << 30), assets)
    if corpus is not None and not index.exists():
        index.mkdir(parents=True)
        made.build(corpus, index, lambda _: None)
    made.load(index)
    return made


class Restated:
    """Tensors in float64, and what the transformers have in common."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        found = load_file(folder / "model.safetensors")
        self.tensors = {name.removeprefix(prefix): each.astype(numpy.float64) for name, each in found.items()}
        self.heads = self.config["num_attention_heads"]
        self.size = self.config["hidden_size"] // self.heads

    def linear(self, states: Any, name: str) -> Any:
        made = states @ self.tensors[f"{name}.weight"].T
        return made + self.tensors[f"{name}.bias"] if f"{name}.bias" in self.tensors else made

    def norm(self, states: Any, name: str) -> Any:
        centred = states - states.mean(-1, keepdims=True)
        scaled = centred / numpy.sqrt((centred**2).mean(-1, keepdims=True) + self.config["layer_norm_eps"])
        return scaled * self.tensors[f"{name}.weight"] + self.tensors[f"{name}.bias"]

    def attended(self, query: Any, key: Any, value: Any, bias: Any = 0.0) -> Any:
        """One token's attention over some others, head by head; ``bias`` has a row for each head."""
        row = []
        for head, own in enumerate(numpy.broadcast_to(bias, (self.heads, len(key)))):
            mine = slice(head * self.size, (head + 1) * self.size)
            logits = key[:, mine] @ query[mine] / math.sqrt(self.size) + own
            weights = numpy.exp(logits - logits.max())
            row.append(weights / weights.sum() @ value[:, mine])
        return numpy.concatenate(row)

    def score(self, vector: Any) -> float:
        return float(vector @ self.tensors["cls.weight"][0] + self.tensors["cls.bias"][0])


def gelu(values: Any) -> Any:
    return values * 0.5 * (1 + torch.erf(torch.from_numpy(values / math.sqrt(2))).numpy())


class Bert(Restated):
    """BERT with one linear map over its first token, in float64."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "bert.")
        tokens = (folder / "vocab.txt").read_text().split("\n")
        self.vocabulary = {token: number for number, token in enumerate(tokens)}

    def ids(self, text: str) -> list[int]:
        return [self.vocabulary[word] for word in text.split()]

    def first(self, ids: list[int], mask: list[int], types: list[int]) -> Any:
        """The last layer's state of the first token."""
        read, part = self.tensors, "embeddings"
        states = (
            read[f"{part}.word_embeddings.weight"][ids]
            + read[f"{part}.position_embeddings.weight"][: len(ids)]
            + read[f"{part}.token_type_embeddings.weight"][types]
        )
        states = self.norm(states, f"{part}.LayerNorm")
        hidden = numpy.where(numpy.array(mask) == 1, 0.0, -numpy.inf)
        for layer in range(self.config["num_hidden_layers"]):
            name = f"encoder.layer.{layer}"
            query, key, value = (
                self.linear(states, f"{name}.attention.self.{each}") for each in ("query", "key", "value")
            )
            heads = []
            for head in range(self.heads):
                mine = slice(head * self.size, (head + 1) * self.size)
                logits = query[:, mine] @ key[:, mine].T / math.sqrt(self.size) + hidden
                weights = numpy.exp(logits - logits.max(1, keepdims=True))
                heads.append(weights / weights.sum(1, keepdims=True) @ value[:, mine])
            joined = self.linear(numpy.concatenate(heads, 1), f"{name}.attention.output.dense")
            states = self.norm(states + joined, f"{name}.attention.output.LayerNorm")
            wide = self.linear(states, f"{name}.intermediate.dense")
            states = self.norm(states + self.linear(gelu(wide), f"{name}.output.dense"), f"{name}.output.LayerNorm")
        return states[0]


def cut(length: int, aggregation: str, whole: int) -> list[tuple[int, int]]:
    """First token and tokens of each window of a document that is taken to be ``whole`` tokens long."""
    window, stride = RULES[aggregation]
    if aggregation == "first":
        return [(0, min(whole, window))]
    if aggregation == "avg":
        chunks = max(1, math.ceil(whole / window))
        window = stride = math.ceil(whole / chunks)
    else:
        chunks = math.ceil(max(0, whole - window) / stride) + 1
    fixed = whole != length
    return [(n * stride, window if fixed else max(0, min(window, whole - n * stride))) for n in range(chunks)]


def expected(bert: Bert, query: str, text: str, aggregation: str, pad: str) -> float:
    """The score of one pair, from the formulas."""
    asked, document = bert.ids(query)[:QUERY], bert.ids(text)[:LONGEST]
    fixed = pad == "s3"
    spans = cut(-1 if fixed else len(document), aggregation, LONGEST if fixed else len(document))
    vectors, real = [], []
    for start, length in spans:
        part = document[start : start + length]
        filler = QUERY - len(asked) if fixed else 0
        room = length - len(part)
        ids = [CLS, *asked, *[PAD] * filler, SEP, *part, *[PAD] * room, SEP]
        mask = [1, *[1] * len(asked), *[0] * filler, 1, *[1] * len(part), *[0] * room, 1]
        types = [0] * (len(asked) + filler + 2) + [1] * (length + 1)
        vectors.append(bert.first(ids, mask, types))
        real.append(bool(part))
    stacked = numpy.array(vectors)
    match aggregation:
        case "first":
            return bert.score(stacked[0])
        case "avg":
            return bert.score(stacked.sum(0) / max(1, sum(real)))
        case "max":
            return max(bert.score(vector) for vector in stacked)
        case "sum":
            return sum(bert.score(vector) for vector in stacked)
        case _:
            return bert.score(stacked.max(0))


def compare(assets: Path, index: Path, corpus: Corpus, aggregation: str, pad: str) -> dict[str, Any]:
    """Largest difference between engine and formulas over all lengths of documents and queries."""
    bert = Bert(assets / "m")
    window, stride = RULES[aggregation]
    ready = engine(assets, index, corpus, aggregation=aggregation, pad_windows=pad, window=window, stride=stride)
    return compared(ready, corpus, QUERIES, lambda query, text: expected(bert, query, text, aggregation, pad))


def compared(
    ready: Any, corpus: Corpus, lengths: tuple[int, ...], right: Callable[[str, str], float]
) -> dict[str, Any]:
    """Largest difference between the engine's scores and the right ones, for queries of these lengths."""
    texts = {each.doc_id: f"{each.title} {each.text}".strip() for each in corpus}
    off, spread, pairs = 0.0, 0.0, 0
    for length in lengths:
        query = words(length, 100 + length)
        found = ready.score(query, list(texts))
        wanted = [right(query, text) for text in texts.values()]
        off = max(off, *(abs(one - other) for one, other in zip(found, wanted, strict=True)))
        spread, pairs = max(spread, max(wanted) - min(wanted)), pairs + len(found)
    return {"difference": off, "spread": spread, "pairs": pairs}

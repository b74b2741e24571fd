"""Transformers of long documents restated from their formulas: float64, one text at a time, loops for sums.

Imported inside an engine's image, beside ``rerank_loops`` and the package ``checkpoints``.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy
import rerank_loops as short
import torch
from encoder import tokens
from encoder.config import read_config
from safetensors.numpy import load_file

from checkpoints import rerank_long
from harness.driver.adapter import Corpus

LONGEST, QUERY = 150, 8
LENGTHS = (0, 1, 7, 8, 9, 15, 16, 17, 30, 54, 55, 63, 64, 65, 100, 127, 128, 129, 149, 150, 151, 200)
HEADS = {"longformer": "linear", "bigbird": "linear", "jina": "linear_mean", "mosaic": "linear"}
HEADS["tinyllama"] = "linear_mean"


def make(assets: Path, kind: str, **changes: Any) -> Path:
    """A small checkpoint that knows the words."""
    rerank_long.make(assets / kind, kind, texts=[" ".join(short.WORDS)], **changes)
    return assets / kind


def engine(assets: Path, kind: str, index: Path, corpus: Corpus | None = None, **params: Any) -> Any:
    """The engine, loaded; the index is built where there is none."""
    given = {"model": kind, "head": HEADS[kind], "aggregation": "long", "document_tokens": LONGEST, **params}
    return short.engine(assets, index, corpus, query_tokens=QUERY, **given)


class Pairs:
    """Token ids of a pair, by the checkpoint's own tokeniser: query first, then the document's first tokens."""

    def __init__(self, folder: Path) -> None:
        self._tokens = tokens.Tokens(tokens.read(folder), read_config(folder).vocabulary)
        self._form = self._tokens.pair_form()

    def __call__(self, query: str, text: str, longest: int = LONGEST) -> tuple[list[int], int]:
        """Return the ids, and how many of them stand before the document."""
        form = self._form
        asked, document = self._tokens.ids(query)[:QUERY], self._tokens.ids(text)[:longest]
        before = [*form.before, *asked, *form.between]
        return [*before, *document, *form.after], len(before)


class Longformer(short.Restated):
    """A window of tokens and the global ones; a global token sees all, by projections of its own."""

    def states(self, ids: list[int], marked: set[int]) -> Any:
        read, part = self.tensors, "embeddings"
        places = [number + 2 for number in range(len(ids))]
        states = read[f"{part}.word_embeddings.weight"][ids] + read[f"{part}.position_embeddings.weight"][places]
        states = self.norm(states + read[f"{part}.token_type_embeddings.weight"][0], f"{part}.LayerNorm")
        for layer in range(self.config["num_hidden_layers"]):
            name = f"encoder.layer.{layer}"
            reach = self.config["attention_window"][layer] // 2
            local, everywhere = (
                [self.linear(states, f"{name}.attention.self.{each}{ending}") for each in ("query", "key", "value")]
                for ending in ("", "_global")
            )
            rows = []
            for place in range(len(ids)):
                near = {other for other in range(len(ids)) if abs(other - place) <= reach}
                keys = list(range(len(ids))) if place in marked else sorted(near | marked)
                query, key, value = everywhere if place in marked else local
                rows.append(self.attended(query[place], key[keys], value[keys]))
            joined = self.linear(numpy.array(rows), f"{name}.attention.output.dense")
            states = self.norm(states + joined, f"{name}.attention.output.LayerNorm")
            wide = self.linear(short.gelu(self.linear(states, f"{name}.intermediate.dense")), f"{name}.output.dense")
            states = self.norm(states + wide, f"{name}.output.LayerNorm")
        return states

    def pair(self, ids: list[int], before: int) -> float:
        return self.score(self.states(ids, set(range(before)))[0])


class Alibi(short.Restated):
    """No positions: a token counts less the farther it is; a gated layer behind."""

    def slope(self, head: int) -> float:
        power = 2 ** int(math.log2(self.heads))
        if head < power:
            return 2.0 ** (-8 * (head + 1) / power)
        return 2.0 ** (-8 * (2 * (head - power) + 1) / (2 * power))

    def states(self, ids: list[int], before: int) -> Any:
        read, part = self.tensors, "embeddings"
        types = [0] * before + [1] * (len(ids) - before)
        states = read[f"{part}.word_embeddings.weight"][ids] + read[f"{part}.token_type_embeddings.weight"][types]
        states = self.norm(states, f"{part}.LayerNorm")
        for layer in range(self.config["num_hidden_layers"]):
            name = f"encoder.layer.{layer}"
            if f"{name}.attention.self.Wqkv.weight" in read:
                query, key, value = numpy.split(self.linear(states, f"{name}.attention.self.Wqkv"), 3, axis=1)
            else:
                query, key, value = (
                    self.linear(states, f"{name}.attention.self.{each}") for each in ("query", "key", "value")
                )
            slopes, places = numpy.array([self.slope(head) for head in range(self.heads)]), numpy.arange(len(ids))
            rows = [
                self.attended(query[place], key, value, -numpy.outer(slopes, abs(places - place))) for place in places
            ]
            joined = self.linear(numpy.array(rows), f"{name}.attention.output.dense")
            states = self.norm(states + joined, f"{name}.attention.output.LayerNorm")
            both = self.linear(states, f"{name}.mlp.gated_layers")
            gate, wide = both[:, : both.shape[1] // 2], both[:, both.shape[1] // 2 :]
            states = self.norm(states + self.linear(short.gelu(gate) * wide, f"{name}.mlp.wo"), f"{name}.mlp.layernorm")
        return states

    def pair(self, ids: list[int], before: int) -> float:
        states = self.states(ids, before)
        return self.score(states.mean(0) if self.config.get("position_embedding_type") == "alibi" else states[0])


class Theirs:
    """BigBird and Llama as transformers' own classes run them on one text, the linear map by hand."""

    def __init__(self, folder: Path, kind: str) -> None:
        import transformers

        found = load_file(folder / "model.safetensors")
        self.weight, self.bias = found["cls.weight"][0], found["cls.bias"][0]
        self.sparse = kind == "bigbird"
        if self.sparse:
            model: Any = transformers.BigBirdModel.from_pretrained(str(folder), add_pooling_layer=False)
        else:
            model = transformers.LlamaModel.from_pretrained(str(folder))
        self.model = model.eval()
        self.blocks = 8 * (6 + 2 * 1)  # transformers' own limit of full attention is 7 blocks

    def pair(self, ids: list[int], before: int) -> float:
        width = max(-(-len(ids) // 8) * 8, self.blocks) if self.sparse else len(ids)
        given = {"input_ids": [*ids, *[0] * (width - len(ids))]}
        given["attention_mask"] = [1] * len(ids) + [0] * (width - len(ids))
        if self.sparse:
            given["token_type_ids"] = [0] * before + [1] * (len(ids) - before) + [0] * (width - len(ids))
        with torch.inference_mode():
            states = self.model(**{name: torch.tensor([each]) for name, each in given.items()}).last_hidden_state[0]
        vector = states[0] if self.sparse else states.mean(0)
        return float(vector.numpy() @ self.weight + self.bias)


def restated(folder: Path, kind: str) -> Any:
    """The restatement of a checkpoint."""
    if kind == "longformer":
        return Longformer(folder, "longformer.")
    return Alibi(folder, "bert.") if kind in ("jina", "mosaic") else Theirs(folder, kind)


def compare(assets: Path, index: Path, corpus: Corpus, kind: str, **params: Any) -> dict[str, Any]:
    """Largest difference between engine and restatement over all lengths of documents and queries."""
    made, pairs = restated(assets / kind, kind), Pairs(assets / kind)
    ready = engine(assets, kind, index, corpus, **params)
    longest = params.get("window", LONGEST)
    return short.compared(ready, corpus, (0, 10), lambda query, text: made.pair(*pairs(query, text, longest)))

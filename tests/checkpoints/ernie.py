"""A random ERNIE in Paddle's form, and its forward pass restated from that form."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy

HIDDEN, LAYERS, HEADS, POSITIONS = 32, 2, 2, 24
TOKENS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", *"今天气很好明雨吗", "ok"]
ROWS = len(TOKENS) + 3  # as published, more rows than tokens

# BERT's names, in the order of Paddle's, restated here.
PARTS = {
    "multi_head_att_query_fc": "attention.self.query",
    "multi_head_att_key_fc": "attention.self.key",
    "multi_head_att_value_fc": "attention.self.value",
    "multi_head_att_output_fc": "attention.output.dense",
    "ffn_fc_0": "intermediate.dense",
    "ffn_fc_1": "output.dense",
}
NORMS = {"post_att_layer_norm": "attention.output.LayerNorm", "post_ffn_layer_norm": "output.LayerNorm"}


def ernie(prefix: str, seed: int, head: str) -> dict[str, Any]:
    """Random variables of one encoder, as Paddle names and shapes them."""
    draw = numpy.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {
        f"{prefix}word_embedding": (ROWS, HIDDEN),
        f"{prefix}pos_embedding": (POSITIONS, HIDDEN),
        f"{prefix}sent_embedding": (2, HIDDEN),
    }
    norms = [f"{prefix}pre_encoder_layer_norm"]
    for layer in range(LAYERS):
        for part in PARTS:
            sizes = {"ffn_fc_0": (HIDDEN, 4 * HIDDEN), "ffn_fc_1": (4 * HIDDEN, HIDDEN)}.get(part, (HIDDEN, HIDDEN))
            shapes[f"{prefix}encoder_layer_{layer}_{part}.w_0"] = sizes
            shapes[f"{prefix}encoder_layer_{layer}_{part}.b_0"] = sizes[1:]
        norms += [f"{prefix}encoder_layer_{layer}_{norm}" for norm in NORMS]
    shapes |= {f"{norm}_{kind}": (HIDDEN,) for norm in norms for kind in ("scale", "bias")}
    if head == "classifier":
        shapes |= {"pooled_fc.w_0": (HIDDEN, HIDDEN), "pooled_fc.b_0": (HIDDEN,)}
        shapes |= {"_cls_out_w": (HIDDEN, 2), "_cls_out_b": (2,)}
    elif head == "linear":
        shapes |= {"qtp__cls_out_w": (HIDDEN, 1), "qtp__cls_out_b": (1,)}
    return {name: draw.normal(0, 0.3, shape).astype(numpy.float32) for name, shape in shapes.items()}


def put(folder: Path, state: dict[str, Any]) -> None:
    """Write variables one a file, as Paddle's save_params does."""
    folder.mkdir(parents=True)
    for name, array in state.items():
        shape = b"".join(b"\x10" + _varint(size) for size in array.shape)
        described = b"\x08\x05" + shape
        head = struct.pack("<IQIi", 0, 0, 0, len(described))
        (folder / name).write_bytes(head + described + array.tobytes())


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + _varint(value >> 7)


def write_source(folder: Path, state: dict[str, Any], changes: dict[str, Any] | None = None) -> tuple[Path, Path, Path]:
    """Write parameters, configuration and vocabulary, as an unpacked archive has them."""
    config = {
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "vocab_size": ROWS,
        "max_position_embeddings": POSITIONS,
        "type_vocab_size": 2,
        "hidden_act": "relu",
    }
    put(folder / "params", state)
    (folder / "ernie_config.json").write_text(json.dumps({**config, **(changes or {})}))
    lines = (f"{token}\t{number}\n" for number, token in enumerate(TOKENS))
    (folder / "vocab.txt").write_text("".join(lines))
    return folder / "params", folder / "ernie_config.json", folder / "vocab.txt"


def first_token(state: dict[str, Any], prefix: str, first: str, second: str = "") -> Any:
    """The last layer's first token of one or two texts of single-character tokens, in float64."""
    ids = [TOKENS.index(each) for each in ("[CLS]", *first, "[SEP]", *(second and (*second, "[SEP]")))]
    types = [0] * (len(first) + 2) + [1] * (len(ids) - len(first) - 2)

    def read(name: str) -> Any:
        return state[f"{prefix}{name}"].astype(numpy.float64)

    def norm(values: Any, name: str) -> Any:
        spread = numpy.sqrt(values.var(-1, keepdims=True) + 1e-5)
        return (values - values.mean(-1, keepdims=True)) / spread * read(f"{name}_scale") + read(f"{name}_bias")

    states = read("word_embedding")[ids] + read("pos_embedding")[: len(ids)] + read("sent_embedding")[types]
    states = norm(states, "pre_encoder_layer_norm")
    for layer in range(LAYERS):
        name = f"encoder_layer_{layer}"

        def linear(values: Any, part: str, name: str = name) -> Any:
            return values @ read(f"{name}_{part}.w_0") + read(f"{name}_{part}.b_0")

        query, key, value = (linear(states, f"multi_head_att_{part}_fc") for part in ("query", "key", "value"))
        size = HIDDEN // HEADS
        parts = []
        for start in range(0, HIDDEN, size):
            own = slice(start, start + size)
            weights = numpy.exp(query[:, own] @ key[:, own].T / numpy.sqrt(size))
            parts.append(weights / weights.sum(-1, keepdims=True) @ value[:, own])
        attended = linear(numpy.concatenate(parts, axis=1), "multi_head_att_output_fc")
        states = norm(states + attended, f"{name}_post_att_layer_norm")
        inner = numpy.maximum(linear(states, "ffn_fc_0"), 0)
        states = norm(states + linear(inner, "ffn_fc_1"), f"{name}_post_ffn_layer_norm")
    return states[0]

"""A plain BERT under mean or first-token pooling, read from its file and written as ONNX, without PyTorch.

Most encoders of passages are one.  What PyTorch would trace is written node by node, so an image needs no PyTorch
for them.  ``tests/images/test_encoder.py`` holds both against PyTorch.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy

from encoder.config import Config, read_config
from encoder.weights import check_strangers

HEADS = ("mean", "cls")

_OPSET, _IR_VERSION = 17, 8
_LOWEST = float(numpy.finfo(numpy.float32).min)


class Bert:
    """A checkpoint's tensors and what they make; the part of :class:`encoder.graph.Graph` that preparing needs."""

    side: str | None = None
    parts: tuple[str, ...] = ()

    def __init__(self, declared: Config, head: str, tensors: dict[str, Any]) -> None:
        self.declared, self._head, self._tensors = declared, head, tensors

    def parameters(self) -> list[Any]:
        """Return the tensors, float32 arrays."""
        return list(self._tensors.values())

    def write(self, path: Path) -> None:
        """Write the graph: token ids in, one float32 vector a text out; numbers of texts and tokens are open."""
        import onnx

        onnx.save(_Writer(self.declared.raw, self._head, self._tensors).model(), str(path))


def read(folder: Path, head: str, params: dict[str, Any]) -> Bert | None:
    """Return a checkpoint that is a plain BERT in float32, whole and finite; ``None`` for any other.

    PyTorch reads the others, or says what is wrong with them.
    """
    declared = read_config(folder)
    path = folder / "model.safetensors"
    if declared.model_type != "bert" or head not in HEADS or params.get("original_positions") or not path.is_file():
        return None
    raw, wanted = declared.raw, _shapes(declared.raw)
    plain = {"hidden_act": "gelu", "position_embedding_type": "absolute", "is_decoder": False}
    if wanted is None or any(raw.get(name, usual) != usual for name, usual in plain.items()):
        return None
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="np") as file:
            # A checkpoint that was trained with a head has its transformer below "bert.".
            stored = list(file.keys())
            names = {name.removeprefix("bert."): name for name in stored}
            if len(names) < len(stored) or not wanted.keys() <= names.keys():
                return None
            tensors = {name: file.get_tensor(names[name]) for name in wanted}
    except (SafetensorError, TypeError):  # cut short, or of numbers that numpy does not have
        return None
    if any(
        each.shape != wanted[name] or each.dtype != numpy.float32 or not numpy.isfinite(each).all()
        for name, each in tensors.items()
    ):
        return None
    check_strangers(folder, names.keys() - wanted.keys(), ())
    return Bert(declared, head, tensors)


def _shapes(raw: dict[str, Any]) -> dict[str, tuple[int, ...]] | None:
    """Return the shape of each tensor of the transformer; ``None`` where the configuration does not say it."""
    try:
        hidden, inner, layers = (int(raw[name]) for name in ("hidden_size", "intermediate_size", "num_hidden_layers"))
        tables = {
            "word": int(raw["vocab_size"]),
            "position": int(raw["max_position_embeddings"]),
            "token_type": int(raw["type_vocab_size"]),
        }
        if hidden % int(raw["num_attention_heads"]) or float(raw["layer_norm_eps"]) <= 0:
            return None
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None
    shapes: dict[str, tuple[int, ...]] = {
        f"embeddings.{name}_embeddings.weight": (rows, hidden) for name, rows in tables.items()
    }

    def add(name: str, *shape: int) -> None:
        shapes.update({f"{name}.weight": shape, f"{name}.bias": shape[:1]})

    add("embeddings.LayerNorm", hidden)
    for number in range(layers):
        layer = f"encoder.layer.{number}"
        for each in ("query", "key", "value"):
            add(f"{layer}.attention.self.{each}", hidden, hidden)
        add(f"{layer}.attention.output.dense", hidden, hidden)
        add(f"{layer}.attention.output.LayerNorm", hidden)
        add(f"{layer}.intermediate.dense", inner, hidden)
        add(f"{layer}.output.dense", hidden, inner)
        add(f"{layer}.output.LayerNorm", hidden)
    return shapes


class _Writer:
    """The nodes and weights of a graph, in the order in which they run.

    Devlin et al., *BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding*, NAACL 2019.
    """

    def __init__(self, raw: dict[str, Any], head: str, tensors: dict[str, Any]) -> None:
        from onnx import helper, numpy_helper

        self._raw, self._head, self._tensors = raw, head, tensors
        self._make, self._array = helper, numpy_helper.from_array
        self._nodes: list[Any] = []
        self._weights: dict[str, Any] = {}
        self._hidden, self._heads = int(raw["hidden_size"]), int(raw["num_attention_heads"])
        self._size = self._hidden // self._heads

    def model(self) -> Any:
        """Return the whole as ONNX."""
        states = self._embedded()
        mask = self._mask()
        for number in range(int(self._raw["num_hidden_layers"])):
            states = self._layer(f"encoder.layer.{number}", states, mask)
        self._pooled(states)
        make, tensor = self._make, self._make.make_tensor_value_info
        whole = numpy.dtype(numpy.int64)
        kind = make.np_dtype_to_tensor_dtype
        inputs = [
            tensor(name, kind(whole), ["texts", "tokens"]) for name in ("input_ids", "attention_mask", "token_type_ids")
        ]
        result = tensor("result", kind(numpy.dtype(numpy.float32)), ["texts", self._hidden])
        graph = make.make_graph(self._nodes, "bert", inputs, [result], list(self._weights.values()))
        opset = make.make_opsetid("", _OPSET)
        return make.make_model(graph, opset_imports=[opset], ir_version=_IR_VERSION, producer_name="harness")

    def _do(self, operator: str, *inputs: str, gives: str = "", **attributes: Any) -> str:
        """Add a node; return the name of its result."""
        name = gives or f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(self._make.make_node(operator, list(inputs), [name], name=name, **attributes))
        return name

    def _weight(self, name: str, values: Any) -> str:
        if name not in self._weights:
            self._weights[name] = self._array(values, name)
        return name

    def _given(self, name: str) -> str:
        return self._weight(name, self._tensors[name])

    def _number(self, value: float) -> str:
        return self._weight(f"float_{value!r}", numpy.array(value, dtype=numpy.float32))

    def _whole(self, *values: int) -> str:
        return self._weight("int_" + "_".join(map(str, values)), numpy.array(values, dtype=numpy.int64))

    def _linear(self, name: str, states: str) -> str:
        weight = self._weight(f"{name}.weight", self._tensors[f"{name}.weight"].T)
        return self._do("Add", self._given(f"{name}.bias"), self._do("MatMul", states, weight))

    def _normed(self, name: str, states: str) -> str:
        scale, shift = self._given(f"{name}.weight"), self._given(f"{name}.bias")
        epsilon = float(self._raw["layer_norm_eps"])
        return self._do("LayerNormalization", states, scale, shift, axis=-1, epsilon=epsilon)

    def _embedded(self) -> str:
        def table(name: str) -> str:
            return self._given(f"embeddings.{name}_embeddings.weight")

        words = self._do("Gather", table("word"), "input_ids")
        types = self._do("Gather", table("token_type"), "token_type_ids")
        tokens = self._do("Slice", self._do("Shape", "input_ids"), self._whole(1), self._whole(2))
        positions = self._do("Slice", table("position"), self._whole(0), tokens)
        return self._normed("embeddings.LayerNorm", self._do("Add", self._do("Add", words, types), positions))

    def _mask(self) -> str:
        """Return what is added to attention's logits: 0 for a token, the lowest number for padding."""
        kind = self._make.np_dtype_to_tensor_dtype(numpy.dtype(numpy.float32))
        wide = self._do("Unsqueeze", "attention_mask", self._whole(1, 2))
        hidden = self._do("Sub", self._number(1.0), self._do("Cast", wide, to=kind))
        return self._do("Mul", hidden, self._number(_LOWEST))

    def _layer(self, name: str, states: str, mask: str) -> str:
        parted = self._whole(0, 0, self._heads, self._size)

        def by_head(side: str, order: tuple[int, ...]) -> str:
            found = self._linear(f"{name}.attention.self.{side}", states)
            return self._do("Transpose", self._do("Reshape", found, parted), perm=order)

        query, value = by_head("query", (0, 2, 1, 3)), by_head("value", (0, 2, 1, 3))
        logits = self._do("MatMul", query, by_head("key", (0, 2, 3, 1)))
        scaled = self._do("Mul", logits, self._number(1 / math.sqrt(self._size)))
        shares = self._do("Softmax", self._do("Add", scaled, mask), axis=-1)
        mixed = self._do("Transpose", self._do("MatMul", shares, value), perm=(0, 2, 1, 3))
        # With 0 for the tokens, ONNX Runtime fuses the sum below in a way that is slower under int8.
        joined = self._do("Reshape", mixed, self._whole(0, -1, self._hidden))
        attended = self._do("Add", self._linear(f"{name}.attention.output.dense", joined), states)
        states = self._normed(f"{name}.attention.output.LayerNorm", attended)
        inner = self._gelu(self._linear(f"{name}.intermediate.dense", states))
        made = self._do("Add", self._linear(f"{name}.output.dense", inner), states)
        return self._normed(f"{name}.output.LayerNorm", made)

    def _gelu(self, states: str) -> str:
        raised = self._do(
            "Add", self._do("Erf", self._do("Div", states, self._number(math.sqrt(2)))), self._number(1.0)
        )
        return self._do("Mul", self._do("Mul", states, raised), self._number(0.5))

    def _pooled(self, states: str) -> str:
        if self._head == "cls":
            first = self._weight("first", numpy.array(0, dtype=numpy.int64))
            return self._do("Gather", states, first, gives="result", axis=1)
        kind = self._make.np_dtype_to_tensor_dtype(numpy.dtype(numpy.float32))
        mask = self._do("Cast", self._do("Unsqueeze", "attention_mask", self._whole(2)), to=kind)
        total = self._do("ReduceSum", self._do("Mul", states, mask), self._whole(1), keepdims=0)
        count = self._do("Clip", self._do("ReduceSum", mask, self._whole(1), keepdims=0), self._number(1e-9))
        return self._do("Div", total, count, gives="result")

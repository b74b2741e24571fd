"""RocketQA's dual and cross-encoders, from Paddle's own files to the format of the model hub.

Their parameters are a folder with one file a variable, or a ``.npz`` of the same names.  Neither is a pickle and Paddle
is not needed, so nothing of a foreign file is ever run.  Names and layouts are those of ``rocketqa/model/ernie.py``,
``dual_encoder_model.py`` and ``cross_encoder_model.py`` (PaddlePaddle/RocketQA):

| prefix of the names | encoder | head |
|---|---|---|
| ``query_`` and ``titlepara_`` | dual, one each for queries and passages | the first token |
| ``titlepara_`` alone | dual, one for both | the first token |
| none | cross-encoder | pooler, two logits: ``head = "classifier"`` |
| ``qtp_`` | cross-encoder of joint training | one logit over the first token: ``head = "linear"`` |
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy

from harness.errors import FileError

# Paddle's layer normalisation has this epsilon, and no configuration names it.
_EPSILON = 1e-5
_FLOAT32 = 5  # VarType.FP32
# Variables that training leaves beside the model: the optimiser's, and heads of pretraining.
_LEFT_OVER = re.compile(
    r".*_(moment[12]|beta[12]_pow_acc)_\d+|learning_rate_\d+|@.*@|mask_lm_.*|next_sent_fc.*|num_accumulated_steps.*"
)
_SUFFIXES = {"query_": "-query", "titlepara_": "-passage"}
_PREFIXES = ("query_", "titlepara_", "qtp_", "")

# One layer's variables: Paddle's name, BERT's name, shape in multiples of the hidden size as Paddle stores it.
_LAYER = (
    ("multi_head_att_query_fc.w_0", "attention.self.query.weight", (1, 1)),
    ("multi_head_att_query_fc.b_0", "attention.self.query.bias", (1,)),
    ("multi_head_att_key_fc.w_0", "attention.self.key.weight", (1, 1)),
    ("multi_head_att_key_fc.b_0", "attention.self.key.bias", (1,)),
    ("multi_head_att_value_fc.w_0", "attention.self.value.weight", (1, 1)),
    ("multi_head_att_value_fc.b_0", "attention.self.value.bias", (1,)),
    ("multi_head_att_output_fc.w_0", "attention.output.dense.weight", (1, 1)),
    ("multi_head_att_output_fc.b_0", "attention.output.dense.bias", (1,)),
    ("post_att_layer_norm_scale", "attention.output.LayerNorm.weight", (1,)),
    ("post_att_layer_norm_bias", "attention.output.LayerNorm.bias", (1,)),
    ("ffn_fc_0.w_0", "intermediate.dense.weight", (1, 4)),
    ("ffn_fc_0.b_0", "intermediate.dense.bias", (4,)),
    ("ffn_fc_1.w_0", "output.dense.weight", (4, 1)),
    ("ffn_fc_1.b_0", "output.dense.bias", (1,)),
    ("post_ffn_layer_norm_scale", "output.LayerNorm.weight", (1,)),
    ("post_ffn_layer_norm_bias", "output.LayerNorm.bias", (1,)),
)

State = Mapping[str, Any]


def convert(parameters: Path, config: Path, vocabulary: Path, out: Path, name: str) -> list[Path]:
    """Write each encoder of a RocketQA model as a checkpoint folder; returns the folders.

    Args:
        parameters: a folder of Paddle's variables, or a ``.npz`` file.
        config: ``ernie_config.json``.
        vocabulary: ``vocab.txt``, a token a line, with or without a tab and its number.
        out: the folder of models; the checkpoints are ``out/NAME``, or ``out/NAME-query`` and ``out/NAME-passage``.
        name: of the checkpoint.

    Raises:
        FileError: a file is missing or damaged, or a tensor is missing, has another shape, or belongs to no encoder.
    """
    state, ernie, tokens = read_state(parameters), _config(config), _tokens(vocabulary)
    if len(tokens) > ernie["vocab_size"]:
        raise FileError(f"{vocabulary}: {len(tokens)} tokens, the model has {ernie['vocab_size']}; take its own file")
    found = [prefix for prefix in _PREFIXES if f"{prefix}word_embedding" in state]
    if not found:
        wanted = ", ".join(f"{prefix}word_embedding" for prefix in _PREFIXES)
        raise FileError(f"{parameters}: no encoder: it has none of {wanted}")
    encoders: dict[str, State] = {}
    known: set[str] = set()
    for prefix in found:
        encoders[prefix], read = _encoder(state, prefix, ernie, parameters)
        known |= read
    strangers = [each for each in sorted(set(state) - known) if not _LEFT_OVER.fullmatch(each)]
    if strangers:
        raise FileError(f"{parameters}: {strangers[0]} belongs to no encoder of RocketQA; is this another model?")
    folders = []
    for prefix, tensors in encoders.items():
        folder = out / (name + (_SUFFIXES.get(prefix, "-cross") if len(encoders) > 1 else ""))
        _write(folder, tensors, ernie, tokens)
        folders.append(folder)
    return folders


def read_state(path: Path) -> dict[str, Any]:
    """Read a folder of Paddle's variables, or a ``.npz``, as float32 arrays by name.

    Raises:
        FileError: there is no such path, or a variable is damaged or of another type.
    """
    if path.is_dir():
        return {each.name: _variable(each) for each in sorted(path.iterdir()) if each.is_file()}
    try:
        with numpy.load(path, allow_pickle=False) as arrays:
            state = {each: arrays[each] for each in arrays.files}
    except (OSError, ValueError, TypeError, EOFError, AttributeError, BadZipFile) as error:
        raise FileError(f"{path}: neither a folder of Paddle's variables nor a .npz of arrays ({error})") from None
    for each, array in state.items():
        if array.dtype != numpy.float32 and not _LEFT_OVER.fullmatch(each):
            raise FileError(f"{path}: {each} is of type {array.dtype}, must be float32")
    return state


def _variable(path: Path) -> Any:
    """Read one variable as Paddle saves it: LoD, a protocol buffer with type and shape, then the values."""
    content = path.read_bytes()
    try:
        (levels,) = struct.unpack_from("<Q", content, 4)
        place = 12
        for _ in range(levels):
            place += 8 + int(struct.unpack_from("<Q", content, place)[0])
        version, length = struct.unpack_from("<Ii", content, place)
        start = place + 8 + length
        kind, shape = _described(content[place + 8 : start])
    except (struct.error, IndexError, ValueError):
        raise FileError(f"{path}: no variable of Paddle, or damaged; unpack the archive anew") from None
    if kind != _FLOAT32 and _LEFT_OVER.fullmatch(path.name):
        return numpy.zeros(0, dtype=numpy.float32)
    if version != 0 or kind != _FLOAT32:
        raise FileError(f"{path}: a variable of type {kind}, version {version}; must be float32 (5), version 0")
    if len(content) - start != 4 * math.prod(shape):
        raise FileError(
            f"{path}: {len(content) - start} bytes of values, its shape {shape} needs {4 * math.prod(shape)}"
        )
    return numpy.frombuffer(content, dtype="<f4", offset=start).reshape(shape)


def _described(message: bytes) -> tuple[int, tuple[int, ...]]:
    """Read a ``TensorDesc``: field 1 is the type, field 2 the shape, packed or not."""
    kind, shape, place = -1, [], 0
    while place < len(message):
        tag, place = _varint(message, place)
        value, place = _varint(message, place)
        if tag == 0x08:
            kind = value
        elif tag == 0x10:
            shape.append(value)
        elif tag == 0x12:
            end = place + value
            while place < end:
                value, place = _varint(message, place)
                shape.append(value)
        else:
            raise ValueError(f"tag {tag}")
    return kind, tuple(shape)


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        value, place, shift = value | (byte & 0x7F) << shift, place + 1, shift + 7
        if byte < 0x80:
            return value, place


def _encoder(state: State, prefix: str, ernie: dict[str, Any], source: Path) -> tuple[dict[str, Any], set[str]]:
    """Return an encoder's tensors by BERT's names, and the variables that they come from."""
    hidden, read = ernie["hidden_size"], set()

    def take(paddle: str, *shape: int) -> Any:
        if paddle not in state:
            raise FileError(f"{source}: {paddle} is missing; the parameters are not whole, or of another model")
        array = state[paddle]
        if array.shape != shape:
            raise FileError(f"{source}: {paddle} has the shape {array.shape}, ernie_config.json says {shape}")
        read.add(paddle)
        return array

    types = take(f"{prefix}sent_embedding", ernie["type_vocab_size"], hidden)
    if ernie["use_task_id"]:
        # Every token has task 0, so that its vector is a constant.
        types = types + take(f"{prefix}task_embedding", ernie["task_type_vocab_size"], hidden)[0]
    body = {
        "embeddings.word_embeddings.weight": take(f"{prefix}word_embedding", ernie["vocab_size"], hidden),
        "embeddings.position_embeddings.weight": take(
            f"{prefix}pos_embedding", ernie["max_position_embeddings"], hidden
        ),
        "embeddings.token_type_embeddings.weight": types,
        "embeddings.LayerNorm.weight": take(f"{prefix}pre_encoder_layer_norm_scale", hidden),
        "embeddings.LayerNorm.bias": take(f"{prefix}pre_encoder_layer_norm_bias", hidden),
    }
    for layer in range(ernie["num_hidden_layers"]):
        for paddle, bert, sizes in _LAYER:
            array = take(f"{prefix}encoder_layer_{layer}_{paddle}", *(size * hidden for size in sizes))
            # Paddle multiplies from the other side.
            body[f"encoder.layer.{layer}.{bert}"] = array.T if array.ndim == 2 else array
    if prefix in _SUFFIXES:
        return body, read
    tensors = {f"bert.{each}": array for each, array in body.items()}
    if prefix:
        tensors["cls.weight"] = take("qtp__cls_out_w", hidden, 1).T
        tensors["cls.bias"] = take("qtp__cls_out_b", 1)
        return tensors, read
    tensors["bert.pooler.dense.weight"] = take("pooled_fc.w_0", hidden, hidden).T
    tensors["bert.pooler.dense.bias"] = take("pooled_fc.b_0", hidden)
    # The task's name comes before; RocketQA's own is empty.
    weight = next((each for each in sorted(state) if each.endswith("_cls_out_w")), "_cls_out_w")
    tensors["classifier.weight"] = take(weight, hidden, 2).T
    tensors["classifier.bias"] = take(f"{weight[:-1]}b", 2)
    return tensors, read


def _config(path: Path) -> dict[str, Any]:
    """Read ``ernie_config.json``; what RocketQA's code has by default is added."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "max_position_embeddings")
        config: dict[str, Any] = {each: int(told[each]) for each in names}
        config["type_vocab_size"] = int(told.get("sent_type_vocab_size") or told["type_vocab_size"])
        config["hidden_act"] = str(told["hidden_act"])
        config["use_task_id"] = bool(told.get("use_task_id"))
        config["task_type_vocab_size"] = int(told.get("task_type_vocab_size") or 0)
    except KeyError as error:
        raise FileError(f"{path}: the key {error} is missing; name the ernie_config.json of these parameters") from None
    except (OSError, ValueError, TypeError) as error:
        raise FileError(f"{path}: cannot be read as ernie_config.json ({error})") from None
    return config


def _tokens(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: cannot be read as vocab.txt ({error})") from None
    tokens = []
    for number, line in enumerate(lines):
        token, _, row = line.partition("\t")
        if row.strip() not in ("", str(number)):
            raise FileError(f"{path}:{number + 1}: {token!r} has the number {row.strip()}, must be {number}")
        tokens.append(token)
    lacking = [each for each in ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]") if each not in tokens]
    if lacking:
        raise FileError(f"{path}: the token {lacking[0]} is missing; name the vocab.txt of these parameters")
    return tokens


def _write(folder: Path, tensors: State, ernie: dict[str, Any], tokens: list[str]) -> None:
    """Write weights, ``config.json`` and BERT's tokeniser, which splits Chinese into characters and lowers case."""
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", tensors)
    config = {
        **{each: value for each, value in ernie.items() if "task" not in each},
        "architectures": ["BertForSequenceClassification" if "classifier.weight" in tensors else "BertModel"],
        "intermediate_size": 4 * ernie["hidden_size"],
        "layer_norm_eps": _EPSILON,
        "model_type": "bert",
        "pad_token_id": tokens.index("[PAD]"),
    }
    special = {"cls": "[CLS]", "mask": "[MASK]", "pad": "[PAD]", "sep": "[SEP]", "unk": "[UNK]"}
    tokeniser = {
        **{f"{role}_token": token for role, token in special.items()},
        "do_lower_case": True,
        "tokenizer_class": "BertTokenizer",
    }
    for file, content in (("config.json", config), ("tokenizer_config.json", tokeniser)):
        (folder / file).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")


def write_safetensors(path: Path, tensors: State) -> None:
    """Write float32 arrays by name: a length, a header of JSON, then the values in its order."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, array in tensors.items():
        start, end = end, end + 4 * array.size
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [start, end]}
    described = json.dumps(header).encode("utf-8")
    described += b" " * (-len(described) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(described)) + described)
        for array in tensors.values():
            file.write(numpy.ascontiguousarray(array, dtype="<f4").tobytes())

"""Conversion of RocketQA's Paddle parameters: every tensor arrives, and a wrong set is refused by name."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from checkpoints import rocketqa
from harness.errors import FileError
from tests.checkpoints.ernie import HIDDEN, POSITIONS, TOKENS, ernie, write_source


def read_safetensors(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    values = content[8 + length :]
    found = {}
    for name, told in header.items():
        start, end = told["data_offsets"]
        found[name] = numpy.frombuffer(values[start:end], dtype="<f4").reshape(told["shape"])
    return found


Convert = Callable[..., list[Path]]


@pytest.fixture
def convert(tmp_path: Path) -> Convert:
    def run(state: dict[str, Any], changes: dict[str, Any] | None = None) -> list[Path]:
        shutil.rmtree(tmp_path / "params", ignore_errors=True)
        files = write_source(tmp_path, state, changes)
        return rocketqa.convert(*files, tmp_path / "models", "m")

    return run


@pytest.mark.parametrize(("prefix", "head"), [("", "classifier"), ("qtp_", "linear"), ("titlepara_", "")])
def test_every_value_arrives_from_either_kind_of_file(convert: Convert, tmp_path: Path, prefix: str, head: str) -> None:
    """Where each tensor belongs is tested by the scores, in tests/images/test_rocketqa.py."""
    state = ernie(prefix, 1, head)
    left = {"learning_rate_0": numpy.zeros(1, numpy.float32), "word_embedding_moment1_0": numpy.ones(3, numpy.float32)}
    (folder,) = convert({**state, **left})
    assert folder == tmp_path / "models" / "m"
    tensors = read_safetensors(folder / "model.safetensors")
    values = [numpy.sort(numpy.concatenate([*map(numpy.ravel, each.values())])) for each in (tensors, state)]
    assert len(tensors) == len(state) and numpy.array_equal(*values)
    config = json.loads((folder / "config.json").read_text())
    assert (config["model_type"], config["hidden_act"], config["layer_norm_eps"]) == ("bert", "relu", 1e-5)
    assert (folder / "vocab.txt").read_text().split() == TOKENS
    numpy.savez(tmp_path / "same.npz", **state)
    again = rocketqa.read_state(tmp_path / "same.npz")
    assert all(numpy.array_equal(again[name], array) for name, array in state.items()) and again.keys() == state.keys()


def test_two_encoders_become_two_checkpoints_and_a_task_is_a_constant(convert: Convert, tmp_path: Path) -> None:
    query, passage = ernie("query_", 1, ""), ernie("titlepara_", 2, "")
    query["query_task_embedding"] = numpy.full((3, HIDDEN), 0.5, numpy.float32)
    passage["titlepara_task_embedding"] = numpy.full((3, HIDDEN), -1, numpy.float32)
    folders = convert({**query, **passage}, {"use_task_id": True, "task_type_vocab_size": 3})
    assert folders == [tmp_path / "models" / "m-query", tmp_path / "models" / "m-passage"]
    types = [
        read_safetensors(each / "model.safetensors")["embeddings.token_type_embeddings.weight"] for each in folders
    ]
    assert numpy.array_equal(types[0], query["query_sent_embedding"] + numpy.float32(0.5))
    assert numpy.array_equal(types[1], passage["titlepara_sent_embedding"] - 1)


@pytest.mark.slow
def test_missing_wrong_and_strange_tensors_are_refused_by_name(convert: Convert, tmp_path: Path) -> None:
    state = ernie("", 1, "classifier")

    def refused(changed: dict[str, Any], **config: Any) -> str:
        with pytest.raises(FileError) as caught:
            convert(changed, config)
        return str(caught.value)

    for lost in state:
        if lost == "word_embedding":
            assert "no encoder" in refused({name: state[name] for name in state if name != lost})
        else:
            assert f"{lost} is missing" in refused({name: state[name] for name in state if name != lost})
    turned = {**state, "encoder_layer_1_ffn_fc_0.w_0": state["encoder_layer_1_ffn_fc_0.w_0"].T}
    assert "encoder_layer_1_ffn_fc_0.w_0 has the shape (128, 32)" in refused(turned)
    assert "extra_fc.w_0 belongs to no encoder" in refused({**state, "extra_fc.w_0": state["pooled_fc.w_0"]})
    # A layer that the configuration does not count is a stranger too.
    assert "encoder_layer_1_" in refused(state, num_hidden_layers=1)
    assert "pos_embedding has the shape" in refused(state, max_position_embeddings=POSITIONS + 1)
    assert "the model has 3" in refused(state, vocab_size=3)
    convert(state)
    path = tmp_path / "params" / "pooled_fc.b_0"
    for content, words in ((path.read_bytes()[:-4], "its shape (32,) needs 128"), (b"\x80\x04K\x01.", "no variable")):
        path.write_bytes(content)
        with pytest.raises(FileError, match=r"pooled_fc\.b_0") as caught:
            rocketqa.read_state(tmp_path / "params")
        assert words in str(caught.value)
    numpy.savez(tmp_path / "objects.npz", word_embedding=numpy.array([{}]))
    with pytest.raises(FileError, match=r"neither a folder of Paddle's variables nor a \.npz"):
        rocketqa.read_state(tmp_path / "objects.npz")

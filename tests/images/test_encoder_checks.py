"""Image builds report an invalid checkpoint in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.images.conftest import Probe
from tests.images.dense import put_small_checkpoints

pytestmark = pytest.mark.docker

# Spoils a good checkpoint in `folder`; `params` are those that fit the good one.
SPOILT = {
    "config.json says model_type 't5'": "edit('config.json', model_type='t5')",
    "there is no config.json": "(folder / 'config.json').unlink()",
    "config.json is no JSON": "(folder / 'config.json').write_text('{')",
    "no weights (model.safetensors or pytorch_model.bin)": "weights.unlink()",
    "model.safetensors is damaged or cut short": "weights.write_bytes(weights.read_bytes()[:-1000])",
    "model.safetensors is damaged": "weights.write_bytes(weights.read_bytes()[:5])",
    "pytorch_model.bin is damaged or cut short": "as_bin(); weights.write_bytes(weights.read_bytes()[:-1000])",
    "pytorch_model.bin holds more than tensors": "as_bin(); torch.save({'x': Code()}, weights)",
    "pytorch_model.bin holds something else": "as_bin(); torch.save([torch.ones(2)], weights)",
    "the weights lack 16 tensors of a bert": "drop('encoder.layer.1.')",
    "the weights lack": "edit('config.json', num_hidden_layers=3)",
    "has another shape than config.json says": "edit('config.json', intermediate_size=64)",
    "the weights hold linear.weight, which this head does not read": "add('linear.weight')",
    "'transformer.embeddings.word_embeddings.weight' holds NaN or infinity": "one_row(float('nan'))",
    "'transformer.embeddings.word_embeddings.weight' holds NaN": "one_row(float('-inf'))",
    "the tokeniser lacks the special tokens [CLS], [SEP]": "rename('[CLS]', '[SEP]')",
    "the tokeniser lacks the special tokens [PAD]": "rename('[PAD]')",
    "no tokeniser": "(folder / 'vocab.txt').unlink()",
    "they do not belong together": "(folder / 'vocab.txt').open('a').write('surplus\\n')",
    "query_tokens is 600; the transformer has 512 positions": "params['query_tokens'] = 600",
    "no backend 'onnx'": "params['backend'] = 'onnx'",
    "no head 'median'": "params['pooling'] = 'median'",
    "the weights lack embeddingHead.weight": "params['pooling'] = 'ance'",
    "two heads over one checkpoint, cls and mean": "params['query_head'] = 'mean'",
    "there is no such folder among the assets": "params['model'] = 'other'",
    "the parameters name no head": "del params['pooling']",
    "question: this is DPR's question encoder, named for document texts; swap them": "swap_dpr()",
}


# What the lines of SPOILT call, on the checkpoint in `folder`.
SPOILERS = """
import contextlib, io, os, shutil, torch
import small
from safetensors.torch import load_file, save_file
from encoder import prepare
small.make(Path("/index/good"), "bert", texts=["some words of a vocabulary"], safetensors=True)

class Code:
    def __reduce__(self):
        return os.system, ("echo this was run",)

def edit(name, **changes):
    told = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps({**told, **changes}))

def as_bin():
    global weights
    torch.save(load_file(weights), folder / "pytorch_model.bin")
    weights.unlink()
    weights = folder / "pytorch_model.bin"

def drop(prefix):
    save_file({name: tensor for name, tensor in load_file(weights).items() if not name.startswith(prefix)}, weights)

def add(name):
    save_file({**load_file(weights), name: torch.ones(3, 3)}, weights)

def one_row(value):
    tensors = load_file(weights)
    tensors["embeddings.word_embeddings.weight"][-1, 3] = value
    save_file(tensors, weights)

def rename(*tokens):
    vocabulary = folder / "vocab.txt"
    text = vocabulary.read_text()
    for token in tokens:
        text = text.replace(token, "[unused]" + token.strip("[]").lower())
    vocabulary.write_text(text)

def swap_dpr():
    for side in ("question", "context"):
        small.make(place / side, f"dpr-{side}", texts=["words"])
    del params["model"]
    params.update(document_model="question", query_model="context", pooling="dpr")

"""


def test_invalid_checkpoint_is_reported_in_one_line(probe: Probe, tmp_path: Path) -> None:
    put_small_checkpoints(tmp_path)
    cases = ",\n".join(f"({said!r}, {how!r})" for said, how in SPOILT.items())
    lines = f"""
{SPOILERS}for number, (said, how) in enumerate([(None, "pass"), {cases}]):
    place = Path("/index") / str(number)
    folder = place / "m"
    shutil.copytree("/index/good", folder)
    weights = folder / "model.safetensors"
    params = {{"model": "m", "pooling": "cls", "document_tokens": 64, "query_tokens": 32}}
    exec(how)
    told = place / "system.json"
    told.write_text(json.dumps({{"build_params": params, "search_params": {{}}}}))
    with contextlib.redirect_stderr(io.StringIO()) as stream:
        code = prepare.main([str(place), str(told)])
    say([said, code, stream.getvalue()])
"""
    good, *spoilt = probe("minilm-torch", lines)
    assert good == [None, 0, ""]
    assert len(spoilt) == len(SPOILT)
    for expected, code, said in spoilt:
        assert code == 1, expected
        assert expected in said
        assert said.count("\n") == 1 and len(said) < 500, "people read this line"

"""``python3 -m checkpoints.tiny_weights WANTED OUT``: checkpoints from a seed.  Runs inside an engine's image.

WANTED is JSON: ``wanted`` (folder, module, kind each) and ``texts``.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import torch

_SEED = 7
_HIDDEN = 128
# What a bag of words makes of each part of a transformer's layer, by the end of its tensors' names.
_NOTHING = ("query", "key", "q_lin", "k_lin", "intermediate.dense", "output.dense", "lin1", "lin2")
_AS_IT_IS = ("value", "v_lin", "attention.output.dense", "out_lin", "embeddingHead", "pooler.dense")
_NORMS = ("LayerNorm", "layer_norm", "norm")
# How much more a text counts than the single token that its vector is read from.
_TEXT_OVER_TOKEN = 8.0


def make(wanted: dict[str, str], texts: list[str], out: Path) -> None:
    """Write one checkpoint."""
    folder = out / wanted["folder"]
    words = sorted({word for text in texts for word in re.findall(r"[a-z]+", text.lower())})
    module, kind = wanted["module"], wanted["kind"]
    given: dict[str, Any] = {"texts": texts, "hidden": _HIDDEN}
    if module == "sparse":
        # What a T5 of random weights adds to a document is to mean nothing: it knows letters alone.
        given = {"words": () if kind == "doct5query" else words}
    elif module == "colbert":
        given = {"vocabulary": words, "hidden": _HIDDEN}
    elif module == "llm":
        given["match"] = True
    elif module != "dense":
        given |= {"heads": 1, "plant": True}
    maker = importlib.import_module(f"checkpoints.{module}")
    maker.make(folder, *([kind] if kind else []), seed=_SEED, **given)
    if module == "dense":
        match_words(folder / "pytorch_model.bin")
    elif module == "colbert":
        match_tokens(folder)


def match_words(path: Path) -> None:
    """Make every vector the mean of its text's word embeddings, whichever token it is read from.

    Attention looks at all tokens alike and passes them on as they are; what is between does nothing.
    """
    state = torch.load(path, weights_only=True)
    for name, tensor in state.items():
        tensor.data = _bag_of_words(name, tensor)
    torch.save(state, path)


def match_tokens(folder: Path) -> None:
    """Make every token's vector the vector of its own word, in any context (ColBERT).

    Masks, with which queries are filled up, and markers are nearest to tokens that every document has.
    """
    from safetensors.torch import load_file, save_file

    weights = folder / "model.safetensors"
    state = {
        name: tensor * 0 if name.endswith("value.weight") else tensor
        for name, tensor in ((name, _bag_of_words(name, each)) for name, each in load_file(weights).items())
    }
    tokens = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    embeddings = state["bert.embeddings.word_embeddings.weight"]
    for token, like in (("[MASK]", "[SEP]"), ("[unused0]", "[unused1]")):
        embeddings[tokens.index(token)] = embeddings[tokens.index(like)]
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, weights, metadata={"format": "pt"})


def _bag_of_words(name: str, tensor: torch.Tensor) -> torch.Tensor:
    module, _, kind = name.rpartition(".")
    if "position_ids" in name or name.endswith("word_embeddings.weight"):
        return tensor
    if module.endswith(("position_embeddings", "token_type_embeddings")):
        return torch.zeros_like(tensor)
    if module.endswith(_NORMS):
        return torch.ones_like(tensor) if kind == "weight" else torch.zeros_like(tensor)
    if module.endswith(_AS_IT_IS) and kind == "weight":
        return torch.eye(len(tensor)) * (_TEXT_OVER_TOKEN if module.endswith(("value", "v_lin")) else 1.0)
    if module.endswith((*_AS_IT_IS, *_NOTHING)):
        return torch.zeros_like(tensor)
    return tensor


def main(wanted: Path, out: Path) -> None:
    """See the module."""
    told: dict[str, Any] = json.loads(wanted.read_text(encoding="utf-8"))
    for each in told["wanted"]:
        make(each, told["texts"], out)
        print(json.dumps({"made": each["folder"]}), flush=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

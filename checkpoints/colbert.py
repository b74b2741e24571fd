"""A small ColBERT checkpoint in the published ones' format.

Files as of ``colbert-ir/colbertv2.0``: BertModel's weights under ``bert.`` and the projection ``linear.weight``, a
word-piece tokeniser with the markers ``[unused0]`` and ``[unused1]``, and ``artifact.metadata``.  Needs torch,
transformers, tokenizers and safetensors, as engine images have them: ``python3 -m checkpoints.colbert FOLDER [START]``.
"""

from __future__ import annotations

import json
import shutil
import string
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

DIMENSIONS = 128
_SPECIAL = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
# What the published metadata says of the model; the rest of it tells of the training.
_METADATA = {
    "query_token_id": "[unused0]",
    "doc_token_id": "[unused1]",
    "query_token": "[Q]",
    "doc_token": "[D]",
    "dim": DIMENSIONS,
    "doc_maxlen": 180,
    "mask_punctuation": True,
    "query_maxlen": 32,
    "attend_to_mask_tokens": False,
    "interaction": "colbert",
    "similarity": "cosine",
}


def make(
    folder: Path,
    *,
    vocabulary: Iterable[str] = (),
    layers: int = 2,
    hidden: int = 64,
    dimensions: int = DIMENSIONS,
    seed: int = 0,
    start: Path | None = None,
) -> None:
    """Write a checkpoint into ``folder``, which is made.

    Args:
        folder: where to.
        vocabulary: lower-case words that get a token each; all others are spelt in letters.
        layers: of the transformer.
        hidden: its size, a multiple of 32.
        dimensions: of a token vector.
        seed: of the random weights; equal seeds give equal files.
        start: a BertModel checkpoint (safetensors) with its tokeniser to begin from, whose words and sizes are taken
            instead; only the projection is random then, which keeps its neighbours roughly neighbours.
    """
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import BertConfig, BertModel

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    if start is None:
        tokens = _tokens(vocabulary)
        _write_tokenizer(folder, tokens)
        config = BertConfig(
            vocab_size=len(tokens),
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=hidden // 32,
            intermediate_size=4 * hidden,
        )
        weights = BertModel(config).state_dict()
    else:
        for name in _TOKENIZER_FILES:
            shutil.copy2(start / name, folder / name)
        config = BertConfig.from_pretrained(str(start))
        weights = load_file(start / "model.safetensors")
    projection = torch.randn(dimensions, config.hidden_size) / config.hidden_size**0.5
    named = {f"bert.{name}": value for name, value in weights.items() if not name.endswith("position_ids")}
    whole = {name: value.contiguous().float() for name, value in named.items()}
    save_file({**whole, "linear.weight": projection}, folder / "model.safetensors", metadata={"format": "pt"})
    described: dict[str, Any] = {**config.to_dict(), "architectures": ["HF_ColBERT"], "torch_dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(described, indent=2, sort_keys=True), encoding="utf-8")
    (folder / "artifact.metadata").write_text(json.dumps({**_METADATA, "dim": dimensions}, indent=4), encoding="utf-8")


def _tokens(vocabulary: Iterable[str]) -> list[str]:
    """Special tokens, markers, signs, letters (as begin and as rest of a word), then the words."""
    alphabet = string.ascii_lowercase + string.digits
    rest = [*string.punctuation, *alphabet, *(f"##{each}" for each in alphabet), *vocabulary]
    return list(dict.fromkeys(["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *rest]))


def _write_tokenizer(folder: Path, tokens: list[str]) -> None:
    """Write the four files of a published BERT tokeniser."""
    from tokenizers import BertWordPieceTokenizer

    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    fast = BertWordPieceTokenizer(str(folder / "vocab.txt"), lowercase=True)
    fast.save(str(folder / "tokenizer.json"))
    special = {f"{role}_token": token for role, token in _SPECIAL.items()}
    told = {**special, "do_lower_case": True, "model_max_length": 512, "tokenizer_class": "BertTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(told, indent=2), encoding="utf-8")
    (folder / "special_tokens_map.json").write_text(json.dumps(special, indent=2), encoding="utf-8")


if __name__ == "__main__":
    make(Path(sys.argv[1]), start=Path(sys.argv[2]) if len(sys.argv) > 2 else None)

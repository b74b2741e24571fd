"""The start of training: some layers of a pretrained BERT (all-MiniLM-L6-v2)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch


def tokenizer(folder: Path) -> Any:
    """Return the start's tokenizer, without padding and truncation."""
    from tokenizers import Tokenizer

    read = Tokenizer.from_file(str(folder / "tokenizer.json"))
    read.no_padding()
    read.no_truncation()
    return read


def bert(folder: Path, layers: tuple[int, ...]) -> Any:
    """Return a ``BertModel`` of the start's embeddings and of the given layers, in order."""
    from transformers import BertModel

    model = BertModel.from_pretrained(folder, local_files_only=True, add_pooling_layer=False)
    model.encoder.layer = torch.nn.ModuleList([model.encoder.layer[number] for number in layers])
    model.config.num_hidden_layers = len(layers)
    return model


def narrow(folder: Path, hidden: int, layers: int, heads: int) -> Any:
    """Return a ``BertModel`` of the start's embeddings in fewer dimensions, below untrained layers.

    The dimensions are the word embeddings' first principal components.
    """
    from transformers import BertConfig, BertModel

    embeddings = bert(folder, ()).embeddings
    words = embeddings.word_embeddings.weight.detach()
    _, _, directions = torch.linalg.svd(words - words.mean(0), full_matrices=False)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertModel(config, add_pooling_layer=False)
    with torch.no_grad():
        for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
            given = getattr(embeddings, name).weight
            moved = given - words.mean(0) if name == "word_embeddings" else given
            getattr(model.embeddings, name).weight.copy_(moved @ directions[:hidden].T)
    return model


def padded(texts: list[list[int]], before: list[int], after: list[int], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids between special tokens, and their mask: two tensors of shape (texts, longest)."""
    rows = [[*before, *text, *after] for text in texts]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return ids, mask


def smaller(tokenizer: Any, pieces: list[str]) -> Any:
    """Return the tokenizer with fewer word pieces; words without one are spelt with shorter ones."""
    told = json.loads(tokenizer.to_str())
    numbers = {piece: number for number, piece in enumerate(pieces)}
    told["model"]["vocab"] = numbers
    told["added_tokens"] = [
        {**token, "id": numbers[token["content"]]} for token in told["added_tokens"] if token["content"] in numbers
    ]
    for token, entry in told["post_processor"].get("special_tokens", {}).items():
        entry["ids"] = [numbers[token]]
    for end in ("sep", "cls"):
        if end in told["post_processor"]:
            token = told["post_processor"][end][0]
            told["post_processor"][end] = [token, numbers[token]]
    return type(tokenizer).from_str(json.dumps(told))


def keep_words(bert: Any, numbers: list[int]) -> None:
    """Drop all word embeddings but these, in this order."""
    words = bert.embeddings.word_embeddings.weight.detach()[numbers].clone()
    bert.embeddings.word_embeddings = torch.nn.Embedding.from_pretrained(words, freeze=False, padding_idx=0)
    bert.config.vocab_size = len(numbers)


def cpus() -> int:
    """Return the number of CPUs of this process."""
    return len(os.sched_getaffinity(0))

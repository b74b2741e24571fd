"""Small checkpoints of dense systems with random weights, in exactly the file format of the published ones.

Runs inside an image that has PyTorch and transformers.  The vectors mean nothing; that the right tensors, positions,
tokens and pooling are read can be seen on them all the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789!?.,;:'\"()[]{}-_/+*=%&#@$"

# What the published checkpoints are:
#   dpr-question, dpr-context  DPRQuestionEncoder and DPRContextEncoder: prefixed BERT without a pooler
#   ance                       RobertaModel under roberta., embeddingHead, norm, an unused classifier; byte pairs
#   repbert                    BertModel under bert., with a pooler; no file of a tokenizer but vocab.txt
#   bert                       BertModel without a prefix, with a pooler: cocondenser, cot-mae, rocketqa-v2 (converted)
#   bert-4k                    BertModel of 4,096 positions: e5-base-4k
#   bert-multilingual          BertModel without a prefix, with a pooler; SentencePiece: multilingual-e5-small
#   distilbert                 DistilBertModel without a prefix: sbert; distilbert is DistilBertForMaskedLM, prefixed
KINDS = ("dpr-question", "dpr-context", "ance", "repbert", "bert", "bert-4k", "bert-multilingual", "distilbert")
# Special tokens in the order of their ids, by class of tokeniser.
_SENTENCE_PIECES = {
    "XLMRobertaTokenizer": ("<s>", "<pad>", "</s>", "<unk>"),
    "DebertaV2Tokenizer": ("[PAD]", "[CLS]", "[SEP]", "[UNK]"),
    "BigBirdTokenizer": ("<pad>", "</s>", "<s>", "<unk>", "[CLS]", "[SEP]"),
}


def make(
    folder: Path,
    kind: str,
    *,
    texts: Sequence[str] = (),
    words: int = 2000,
    hidden: int = 32,
    layers: int = 2,
    heads: int = 2,
    positions: int = 512,
    projection: int = 0,
    seed: int = 7,
    safetensors: bool = False,
) -> None:
    """Write a checkpoint of ``kind`` (see ``KINDS``) into ``folder``.

    Args:
        texts: the vocabulary holds their words; all others are spelt.
        words: the most entries of the vocabulary, characters and special tokens included.
        hidden: size of the hidden states; four times it between the layers.
        positions: the most tokens that the model takes.
        projection: ``projection_dim`` of the DPR kinds; 0, as published, for none.
        seed: of the weights.
        safetensors: write ``model.safetensors``; else ``pytorch_model.bin``, as most of the published ones are.

    Raises:
        ValueError: there is no such kind.
    """
    import torch
    import transformers

    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}, must be one of {', '.join(KINDS)}")
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    positions = 4096 if kind == "bert-4k" else positions
    sizes: dict[str, Any] = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
        "initializer_range": 0.2,  # wider than for training: small differences shall show
    }
    if kind == "ance":
        vocabulary = byte_pairs(folder, texts, words, positions)
        config = transformers.RobertaConfig(
            vocab_size=vocabulary, max_position_embeddings=positions + 2, type_vocab_size=1, pad_token_id=1, **sizes
        )
        config.architectures = ["RobertaForSequenceClassification"]
        model = transformers.RobertaModel(config, add_pooling_layer=False)
        state = {f"roberta.{name}": tensor for name, tensor in model.state_dict().items()}
        state.update(_ance_head(hidden))
    else:
        if kind == "bert-multilingual":
            vocabulary = sentence_pieces(folder, "XLMRobertaTokenizer", texts, "<mask>")
        else:
            vocabulary = word_pieces(folder, kind, texts, words, positions)
        config, state = _bert_like(kind, {**sizes, "vocab_size": vocabulary}, positions, projection)
    wide_norms(state, seed)
    (folder / "config.json").write_text(config.to_json_string(), encoding="utf-8")
    write_weights(folder, state, safetensors=safetensors)


def write_weights(folder: Path, state: dict[str, Any], *, safetensors: bool) -> None:
    """Write tensors by name as ``model.safetensors`` or ``pytorch_model.bin``."""
    import torch

    state = {name: tensor.detach().contiguous().clone() for name, tensor in state.items()}
    if safetensors:
        from safetensors.torch import save_file

        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    else:
        torch.save(state, folder / "pytorch_model.bin")


def _bert_like(kind: str, sizes: dict[str, Any], positions: int, projection: int) -> tuple[Any, dict[str, Any]]:
    import transformers

    if kind == "distilbert":
        config = transformers.DistilBertConfig(
            vocab_size=sizes["vocab_size"],
            max_position_embeddings=positions,
            dim=sizes["hidden_size"],
            hidden_dim=sizes["intermediate_size"],
            n_layers=sizes["num_hidden_layers"],
            n_heads=sizes["num_attention_heads"],
            initializer_range=sizes["initializer_range"],
        )
        config.architectures = ["DistilBertModel"]
        return config, transformers.DistilBertModel(config).state_dict()
    if kind.startswith("dpr"):
        config = transformers.DPRConfig(max_position_embeddings=positions, projection_dim=projection, **sizes)
        name = "DPRQuestionEncoder" if kind == "dpr-question" else "DPRContextEncoder"
        config.architectures = [name]
        return config, getattr(transformers, name)(config).state_dict()
    config = transformers.BertConfig(max_position_embeddings=positions, **sizes)
    config.architectures = ["RepBERT" if kind == "repbert" else "BertModel"]
    state = transformers.BertModel(config).state_dict()
    return config, {f"bert.{name}": tensor for name, tensor in state.items()} if kind == "repbert" else state


def _ance_head(hidden: int) -> dict[str, Any]:
    """ANCE's own head, and the classifier that its training left in the file."""
    import torch

    linear, norm, left = torch.nn.Linear(hidden, hidden), torch.nn.LayerNorm(hidden), torch.nn.Linear(hidden, 2)
    parts = {"embeddingHead": linear, "norm": norm, "classifier.out_proj": left}
    return {f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()}


def wide_norms(state: dict[str, Any], seed: int) -> None:
    """Draw every scale and shift of the normalisations: at 1 and 0, a forgotten one would not show."""
    import torch

    draw = torch.Generator().manual_seed(seed)
    for name, tensor in state.items():
        if "norm" in name.lower():
            tensor.data = (1.0 if name.endswith("weight") else 0.0) + 0.3 * torch.randn(tensor.shape, generator=draw)


def word_pieces(folder: Path, kind: str, texts: Sequence[str], words: int, positions: int) -> int:
    """BERT's tokenizer in the files that the kind has; returns the size of the vocabulary."""
    from collections import Counter

    from tokenizers import BertWordPieceTokenizer, normalizers, pre_tokenizers

    # Whole words by their number, then characters: learning word pieces gives other ids each time.
    norm, split = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    counts = Counter(word for text in texts for word, _ in split.pre_tokenize_str(norm.normalize_str(text)))
    characters = sorted({*_CHARACTERS, *(character for word in counts for character in word)})
    pieces = [*SPECIAL, *characters, *(f"##{character}" for character in characters)]
    often = [word for word in sorted(counts, key=lambda word: (-counts[word], word)) if len(word) > 1]
    pieces += often[: max(0, words - len(pieces))]
    learned = BertWordPieceTokenizer(vocab={piece: number for number, piece in enumerate(pieces)}, lowercase=True)
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    if kind == "repbert":
        return len(pieces)
    name = "DistilBertTokenizer" if kind == "distilbert" else "BertTokenizer"
    short = {"do_lower_case": True}
    full = {**short, "tokenizer_class": name, "model_max_length": positions, **_special_tokens(SPECIAL)}
    _json(folder / "tokenizer_config.json", short if kind.startswith("dpr") else full)
    if not kind.startswith("dpr"):
        _json(folder / "special_tokens_map.json", _special_tokens(SPECIAL))
    if kind != "bert":
        learned.save(str(folder / "tokenizer.json"))
    return len(pieces)


def sentence_pieces(folder: Path, name: str, texts: Sequence[str], mask: str) -> int:
    """Write a SentencePiece tokeniser of whole words and letters; return the size of its vocabulary.

    Args:
        name: class of the tokeniser.
        mask: its last token.
    """
    import transformers

    known = sorted({word for text in texts for word in re.findall(r"\w{2,}", text)})
    letters = sorted({*_CHARACTERS, *"".join(texts)} - {" "})
    pieces = [*((piece, 0.0) for piece in _SENTENCE_PIECES[name]), ("\u2581", -9.0)]
    pieces += [*((f"\u2581{word}", -1.0) for word in known), *((letter, -10.0) for letter in letters), (mask, 0.0)]
    getattr(transformers, name)(vocab=pieces).save_pretrained(str(folder))
    return len(pieces)


def byte_pairs(folder: Path, texts: Sequence[str], words: int, positions: int) -> int:
    """RoBERTa's tokenizer as vocab.json and merges.txt; returns the size of the vocabulary."""
    from tokenizers import ByteLevelBPETokenizer

    special = ["<s>", "<pad>", "</s>", "<unk>"]
    learned = ByteLevelBPETokenizer()
    learned.train_from_iterator(
        [*texts, "a"], vocab_size=words, min_frequency=1, special_tokens=[*special, "<mask>"], show_progress=False
    )
    learned.save_model(str(folder))
    named = {
        **_special_tokens(("<pad>", "<unk>", "<s>", "</s>", "<mask>")),
        "bos_token": "<s>",
        "eos_token": "</s>",
    }
    _json(folder / "special_tokens_map.json", named)
    _json(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "RobertaTokenizer", "model_max_length": positions, **named},
    )
    return int(learned.get_vocab_size())


def _special_tokens(tokens: Sequence[str]) -> dict[str, str]:
    roles = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    return dict(zip(roles, tokens, strict=True))


def _json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")

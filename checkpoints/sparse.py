"""Small checkpoints of learned sparse systems, in exactly the format of the published ones.

Runs inside an image that has torch and transformers.  The weights are random, but laid so that a term's weight comes
mostly from its own occurrences: such a system ranks as a lexical one does, which is enough to see that it works.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_MARKS = "!?.,;:'\"()[]{}<>-_/\\+*=%&#@$^~`|"
_WORDS = (
    "the of a is this one about river glacier volcano desert forest harbour bridge castle market orchestra north old"
    " mountains ice move slowly down molten rock ash throw out coffee people drink talk houses water hot"
)
WORDS = tuple(_WORDS.split())
KINDS = ("splade", "splade-distilbert", "unicoil", "deepct", "doct5query")


def make(
    folder: Path,
    kind: str,
    *,
    words: Sequence[str] = WORDS,
    vocabulary: Sequence[str] | None = None,
    hidden: int = 32,
    layers: int = 2,
    positions: int = 512,
    seed: int = 7,
    safetensors: bool = False,
) -> None:
    """Write a checkpoint of ``kind`` (see ``KINDS``) into ``folder``.

    Args:
        words: whole words that the vocabulary holds in addition to letters (but a T5's); others are spelt.
        vocabulary: a whole vocabulary instead, special tokens included.
        positions: the most tokens that the model takes.
        safetensors: write ``model.safetensors``; else ``pytorch_model.bin``, as most of the published ones are.
    """
    import torch

    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}, must be one of {', '.join(KINDS)}")
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    if kind == "doct5query":
        config, state = _t5(folder, hidden, layers)
    else:
        pieces = list(vocabulary or _vocabulary(words))
        write_wordpieces(folder, pieces, positions, "DistilBertTokenizer" if "distil" in kind else "BertTokenizer")
        sizes = {"vocab_size": len(pieces), "max_position_embeddings": positions}
        maker = {"splade": _bert_mlm, "splade-distilbert": _distilbert_mlm, "unicoil": _unicoil, "deepct": _deepct}[
            kind
        ]
        config, state = maker(sizes, hidden, layers)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    state = {name: tensor.contiguous().clone() for name, tensor in state.items()}
    if safetensors:
        from safetensors.torch import save_file

        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "model.safetensors").chmod(0o644)  # it is made for its owner alone
    else:
        torch.save(state, folder / "pytorch_model.bin")


def write_wordpieces(folder: Path, pieces: list[str], positions: int, kind: str) -> None:
    """Write the tokenizer's files as BERT's checkpoints have them."""
    from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors
    from tokenizers.models import WordPiece

    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    roles = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    special = {role: token for role, token in zip(roles, SPECIAL, strict=True) if token in pieces}
    tokenizer = Tokenizer(WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens([token for token in SPECIAL if token in pieces])
    if "[CLS]" in pieces and "[SEP]" in pieces:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", pieces.index("[CLS]")), ("[SEP]", pieces.index("[SEP]"))],
        )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "special_tokens_map.json").write_text(json.dumps(special), encoding="utf-8")
    told = {**special, "do_lower_case": True, "model_max_length": positions, "tokenizer_class": kind}
    (folder / "tokenizer_config.json").write_text(json.dumps(told), encoding="utf-8")


def _vocabulary(words: Sequence[str]) -> list[str]:
    pieces = [*SPECIAL, *_LETTERS, *_MARKS, *(f"##{letter}" for letter in _LETTERS), *words]
    return list(dict.fromkeys(pieces))


def _bert_config(sizes: dict[str, int], hidden: int, layers: int, **more: Any) -> Any:
    from transformers import BertConfig

    return BertConfig(
        **sizes,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=2 * hidden,
        **more,
    )


def _declared(config: Any, architecture: str) -> dict[str, Any]:
    return {**json.loads(config.to_json_string()), "architectures": [architecture]}


def _bert_mlm(sizes: dict[str, int], hidden: int, layers: int) -> tuple[dict[str, Any], dict[str, Any]]:
    from transformers import BertForMaskedLM

    config = _bert_config(sizes, hidden, layers)
    model = BertForMaskedLM(config)
    head = model.cls.predictions
    _louder(model.bert.embeddings.word_embeddings, head.transform.dense, head.bias)
    return _declared(config, "BertForMaskedLM"), model.state_dict()


def _distilbert_mlm(sizes: dict[str, int], hidden: int, layers: int) -> tuple[dict[str, Any], dict[str, Any]]:
    from transformers import DistilBertConfig, DistilBertForMaskedLM

    config = DistilBertConfig(**sizes, dim=hidden, n_layers=layers, n_heads=2, hidden_dim=2 * hidden)
    model = DistilBertForMaskedLM(config)
    _louder(model.distilbert.embeddings.word_embeddings, model.vocab_transform, model.vocab_projector.bias)
    return _declared(config, "DistilBertForMaskedLM"), model.state_dict()


def _louder(embeddings: Any, transform: Any, bias: Any) -> None:
    """Terms that stand far apart, and a bias that silences all but those that occur: sparse, like a trained one."""
    import torch

    with torch.no_grad():
        embeddings.weight.normal_(0, 1)
        torch.nn.init.eye_(transform.weight)
        bias.fill_(-0.4 * embeddings.weight.shape[1])


def _unicoil(sizes: dict[str, int], hidden: int, layers: int) -> tuple[dict[str, Any], dict[str, Any]]:
    import torch
    from transformers import BertModel

    config = _bert_config(sizes, hidden, layers)
    # The published one's names; the linear layer's bias makes every term count for something.
    state = {f"coil_encoder.bert.{name}": tensor for name, tensor in BertModel(config).state_dict().items()}
    linear = torch.nn.Linear(hidden, 1)
    state["coil_encoder.tok_proj.weight"] = 0.1 * linear.weight.detach()
    state["coil_encoder.tok_proj.bias"] = torch.ones(1)
    return _declared(config, "UniCoilEncoder"), state


def _deepct(sizes: dict[str, int], hidden: int, layers: int) -> tuple[dict[str, Any], dict[str, Any]]:
    import torch
    from transformers import BertForTokenClassification

    config = _bert_config(sizes, hidden, layers, num_labels=1)
    model = BertForTokenClassification(config)
    with torch.no_grad():
        model.classifier.bias.fill_(0.2)
    return _declared(config, "BertForTokenClassification"), model.state_dict()


def _t5(folder: Path, hidden: int, layers: int) -> tuple[dict[str, Any], dict[str, Any]]:
    from tokenizers import Tokenizer, decoders, pre_tokenizers, processors
    from tokenizers.models import Unigram
    from transformers import T5Config, T5ForConditionalGeneration

    # No whole words: what it writes is noise, and noise that names a document's topic would move it.
    pieces = ["<pad>", "</s>", "<unk>", "\u2581", *_LETTERS, *_MARKS]
    pieces = list(dict.fromkeys(pieces))
    tokenizer = Tokenizer(Unigram([(piece, -1.0 - number / 100) for number, piece in enumerate(pieces)], unk_id=2))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    (folder / "special_tokens_map.json").write_text(json.dumps(special), encoding="utf-8")
    told = {**special, "extra_ids": 0, "tokenizer_class": "T5Tokenizer", "model_max_length": 512}
    (folder / "tokenizer_config.json").write_text(json.dumps(told), encoding="utf-8")
    config = T5Config(
        vocab_size=len(pieces),
        d_model=hidden,
        d_kv=hidden // 2,
        d_ff=2 * hidden,
        num_layers=layers,
        num_heads=2,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
    )
    return _declared(config, "T5ForConditionalGeneration"), T5ForConditionalGeneration(config).state_dict()


if __name__ == "__main__":
    import sys

    # sparse.py ASKED TARGET: ASKED is a JSON list of {"folder": ..., "kind": ..., and what make takes}
    for asked in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        make(Path(sys.argv[2]) / asked.pop("folder"), asked.pop("kind"), **asked)

"""Trained models as files: names of files, names of tensors and configuration as in the published checkpoints."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from checkpoints.training.colbert import DIMENSIONS, DOCUMENT_MARKER, QUERY_MARKER, Colbert
from checkpoints.training.cross_encoder import CrossEncoder
from checkpoints.training.splade import SPECIAL, Encoder

Tensors = dict[str, torch.Tensor]

# A layer's tensors: BERT's names, DistilBERT's.
_DISTILBERT = {
    "attention.self.query": "attention.q_lin",
    "attention.self.key": "attention.k_lin",
    "attention.self.value": "attention.v_lin",
    "attention.output.dense": "attention.out_lin",
    "attention.output.LayerNorm": "sa_layer_norm",
    "intermediate.dense": "ffn.lin1",
    "output.dense": "ffn.lin2",
    "output.LayerNorm": "output_layer_norm",
}


def write_dpr(folder: Path, side: str, bert: Any, origin: Path) -> None:
    """``facebook/dpr-{question,ctx}_encoder-multiset-base``; ``side`` is ``question`` or ``context``."""
    prefix = "question_encoder" if side == "question" else "ctx_encoder"
    weights = {f"{prefix}.bert_model.{name}": tensor for name, tensor in _plain(bert).items()}
    config = {**_config(bert), "projection_dim": 0, "model_type": "dpr"}
    config["architectures"] = ["DPRQuestionEncoder" if side == "question" else "DPRContextEncoder"]
    _write(folder, config, weights)
    for name in ("tokenizer.json", "vocab.txt"):
        shutil.copyfile(origin / name, folder / name)
    _json(folder / "tokenizer_config.json", {"do_lower_case": True})


def write_splade(folder: Path, encoder: Encoder, pieces: list[str], tokenizer: Any, *, distilled: bool) -> None:
    """``naver/efficient-splade-VI-BT-large-{query,doc}``: BertForMaskedLM, or DistilBertForMaskedLM (``distilled``)."""
    weights = _plain(encoder.bert)
    head = {
        f"{part}.{name}": tensor for part in ("transform", "norm") for name, tensor in _plain(encoder, part).items()
    }
    bias, words = encoder.bias.detach(), weights["embeddings.word_embeddings.weight"]
    if distilled:
        config, weights = _as_distilbert(encoder.bert.config, weights)
        config["architectures"] = ["DistilBertForMaskedLM"]
        weights = {f"distilbert.{name}": tensor for name, tensor in weights.items()}
        names = {"transform.": "vocab_transform.", "norm.": "vocab_layer_norm."}
        output = {"vocab_projector.weight": words, "vocab_projector.bias": bias}
    else:
        config = {**_config(encoder.bert), "architectures": ["BertForMaskedLM"]}
        weights = {f"bert.{name}": tensor for name, tensor in weights.items()}
        cls = "cls.predictions."
        names = {"transform.": f"{cls}transform.dense.", "norm.": f"{cls}transform.LayerNorm."}
        output = {f"{cls}decoder.weight": words, f"{cls}decoder.bias": bias, f"{cls}bias": bias}
    for name, tensor in head.items():
        part, _, kind = name.partition(".")
        output[f"{names[f'{part}.']}{kind}"] = tensor
    _write(folder, config, {**weights, **output})
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    _roles(folder, "DistilBertTokenizer" if distilled else "BertTokenizer")


def write_colbert(folder: Path, model: Colbert, origin: Path) -> None:
    """``colbert-ir/colbertv2.0``: BERT under ``bert.`` with an unused pooler, and ``linear.weight``."""
    from safetensors.torch import load_file, save_file

    pooler = {
        f"bert.{name}": tensor
        for name, tensor in load_file(origin / "model.safetensors").items()
        if name.startswith("pooler.")
    }
    bert = {f"bert.{name}": tensor for name, tensor in _plain(model.bert).items()}
    weights = {**bert, **pooler, "linear.weight": model.linear.weight.detach().clone()}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # it is made for its owner alone
    _json(folder / "config.json", {**_config(model.bert), "architectures": ["HF_ColBERT"]})
    for name in ("tokenizer.json", "vocab.txt"):
        shutil.copyfile(origin / name, folder / name)
    _roles(folder, "BertTokenizer")
    told = {
        "query_token_id": QUERY_MARKER,
        "doc_token_id": DOCUMENT_MARKER,
        "query_token": "[Q]",
        "doc_token": "[D]",
        "dim": DIMENSIONS,
        "query_maxlen": 32,
        "doc_maxlen": 180,
        "mask_punctuation": True,
        "attend_to_mask_tokens": False,
        "interaction": "colbert",
        "similarity": "cosine",
    }
    _json(folder / "artifact.metadata", told)


def write_cross_encoder(folder: Path, model: CrossEncoder, origin: Path) -> None:
    """``cross-encoder/ms-marco-MiniLM-L6-v2``: BertForSequenceClassification with one label.

    Its classifier reads the pooler, ``tanh(dense)``, which is linear near 0: the pooler is a small multiple of the
    first token's state, and the classifier takes it back.
    """
    small = 1e-2
    hidden = model.linear.in_features
    bert = {f"bert.{name}": tensor for name, tensor in _plain(model.bert).items()}
    pooler = {"bert.pooler.dense.weight": small * torch.eye(hidden), "bert.pooler.dense.bias": torch.zeros(hidden)}
    classifier = {f"classifier.{name}": tensor for name, tensor in _plain(model.linear).items()}
    classifier["classifier.weight"] = classifier["classifier.weight"] / small
    told = {
        "architectures": ["BertForSequenceClassification"],
        "id2label": {"0": "LABEL_0"},
        "label2id": {"LABEL_0": 0},
    }
    _write(folder, {**_config(model.bert), **told}, {**bert, **pooler, **classifier})
    for name in ("tokenizer.json", "vocab.txt"):
        shutil.copyfile(origin / name, folder / name)
    _roles(folder, "BertTokenizer")


def write_linear(folder: Path, model: CrossEncoder, head: Tensors, origin: Path) -> None:
    """BERT under ``bert.`` and the head's tensors, as the engine ``rerank`` reads weights of one's own."""
    bert = {f"bert.{name}": tensor for name, tensor in _plain(model.bert).items()}
    _write(folder, {**_config(model.bert), "architectures": ["BertModel"]}, {**bert, **head})
    shutil.copyfile(origin / "tokenizer.json", folder / "tokenizer.json")
    _roles(folder, "BertTokenizer")


def _plain(module: Any, part: str = "") -> Tensors:
    """Return a module's tensors by name, without shared memory."""
    chosen = getattr(module, part) if part else module
    kept = {name: tensor for name, tensor in chosen.state_dict().items() if not name.endswith("position_ids")}
    return {name: tensor.detach().contiguous().clone() for name, tensor in kept.items()}


def _config(bert: Any) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(bert.config.to_json_string(use_diff=False))
    # What the start's own file says of itself is not true of what is made of it.
    return {name: value for name, value in told.items() if name not in ("_name_or_path", "architectures")}


def _as_distilbert(config: Any, weights: Tensors) -> tuple[dict[str, Any], Tensors]:
    """Rename a transformer to DistilBERT's names; add the first token type to all positions, as it has none."""
    renamed: Tensors = {}
    for name, tensor in weights.items():
        if not name.startswith("encoder.layer."):
            renamed[name] = tensor
            continue
        number, _, rest = name.removeprefix("encoder.layer.").partition(".")
        module, _, kind = rest.rpartition(".")
        renamed[f"transformer.layer.{number}.{_DISTILBERT[module]}.{kind}"] = tensor
    first_type = renamed.pop("embeddings.token_type_embeddings.weight")[0]
    renamed["embeddings.position_embeddings.weight"] = renamed["embeddings.position_embeddings.weight"] + first_type
    told = {
        "model_type": "distilbert",
        "activation": config.hidden_act,
        "attention_dropout": config.attention_probs_dropout_prob,
        "dropout": config.hidden_dropout_prob,
        "dim": config.hidden_size,
        "hidden_dim": config.intermediate_size,
        "n_layers": config.num_hidden_layers,
        "n_heads": config.num_attention_heads,
        "max_position_embeddings": config.max_position_embeddings,
        "vocab_size": config.vocab_size,
        "pad_token_id": 0,
        "sinusoidal_pos_embds": False,
        "tie_weights_": True,
    }
    return told, renamed


def _roles(folder: Path, kind: str) -> None:
    """Return the two small files of a BERT tokenizer."""
    roles = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    _json(folder / "special_tokens_map.json", roles)
    told = {**roles, "do_lower_case": True, "model_max_length": 512, "tokenizer_class": kind}
    _json(folder / "tokenizer_config.json", told)


def _write(folder: Path, config: dict[str, Any], weights: Tensors) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({name: tensor.clone() for name, tensor in weights.items()}, folder / "pytorch_model.bin")
    _json(folder / "config.json", config)


def _json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")

"""Small checkpoints of rerankers with random weights, in exactly the file format of the published ones.

Runs inside an image that has PyTorch and transformers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from checkpoints import dense, planted

# What the published checkpoints are:
#   bert         BertForSequenceClassification with one label: ms-marco-MiniLM-*, ms-marco-TinyBERT-*
#   electra      ElectraForSequenceClassification: ms-marco-electra-base
#   xlm-roberta  XLMRobertaForSequenceClassification: bge-reranker-v2-m3
#   ettin        ModernBertModel without a head, and sentence-transformers' modules beside it: ettin-reranker-*
#   deberta      DebertaV2ForSequenceClassification of version 3; SentencePiece: mxbai-rerank-*-v1
#   deberta-linear  DebertaV2Model under deberta., with cls.weight and cls.bias
#   electra-linear  ElectraModel under electra., with cls.weight and cls.bias
#   linear       BertModel under bert., with cls.weight and cls.bias: FirstP to SumP as FlexNeuART names them
KINDS = ("bert", "electra", "xlm-roberta", "ettin", "linear", "deberta", "deberta-linear", "electra-linear")


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
    seed: int = 7,
    plant: bool = False,
) -> None:
    """Write a checkpoint of ``kind`` (see ``KINDS``) into ``folder``; the arguments mean what they mean in
    ``dense.make``.

    Args:
        plant: make scores count the words that query and text share; ``hidden`` is then 128, and ``heads`` 1.

    Raises:
        ValueError: there is no such kind.
    """
    import torch

    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}, must be one of {', '.join(KINDS)}")
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
        "initializer_range": 0.2,  # wider than for training: small differences shall show
        "num_labels": 1,
    }
    config, model = _model(folder, kind, texts, words, sizes, positions, plant)
    state = model.state_dict()
    if "classifier.bias" in state:  # starts at zero, where a forgotten one would not show
        state["classifier.bias"] = torch.randn(1)
    dense.wide_norms(state, seed)
    if kind == "ettin":
        _write_modules(folder, _modules(hidden))
    if plant:
        _plant(folder, kind, state)
    bare = {"linear": "BertModel", "deberta-linear": "DebertaV2Model", "electra-linear": "ElectraModel"}
    config.architectures = [bare.get(kind, type(model).__name__)]
    (folder / "config.json").write_text(config.to_json_string(), encoding="utf-8")
    dense.write_weights(folder, state, safetensors=True)


def _model(
    folder: Path, kind: str, texts: Sequence[str], words: int, sizes: dict[str, Any], positions: int, plant: bool
) -> tuple[Any, Any]:
    """Write a tokeniser; return the configuration of a random model over its words, and the model."""
    import transformers

    if kind.startswith("deberta"):
        config: Any = _deberta(folder, texts, sizes, positions)
        if kind == "deberta-linear":
            return config, _with_cls("deberta", transformers.DebertaV2Model(config))
        return config, transformers.DebertaV2ForSequenceClassification(config)
    if kind == "xlm-roberta":
        sizes["vocab_size"] = dense.byte_pairs(folder, texts, words, positions)
        config = transformers.XLMRobertaConfig(
            max_position_embeddings=positions + 2, type_vocab_size=1, pad_token_id=1, **sizes
        )
        return config, transformers.XLMRobertaForSequenceClassification(config)
    sizes["vocab_size"] = dense.word_pieces(folder, "ettin" if kind == "ettin" else "bert", texts, words, positions)
    if kind == "ettin":
        config = _modern_bert(sizes, positions, plant)
        return config, transformers.ModernBertModel(config)
    if kind.startswith("electra"):
        config = transformers.ElectraConfig(
            max_position_embeddings=positions, embedding_size=sizes["hidden_size"], **sizes
        )
        if kind == "electra-linear":
            return config, _with_cls("electra", transformers.ElectraModel(config))
        return config, transformers.ElectraForSequenceClassification(config)
    config = transformers.BertConfig(max_position_embeddings=positions, **sizes)
    if kind == "linear":
        return config, _with_cls("bert", transformers.BertModel(config, add_pooling_layer=False))
    return config, transformers.BertForSequenceClassification(config)


def _modern_bert(sizes: dict[str, Any], positions: int, plant: bool) -> Any:
    """Return the configuration of a ModernBERT over a tokeniser of BERT's word pieces."""
    import transformers

    special = {"pad_token_id": 0, "cls_token_id": 2, "bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3}
    # Windows of local attention that short texts outgrow; a planted model has none.
    attention = {"local_attention": 16, "global_attn_every_n_layers": 1 if plant else 2}
    return transformers.ModernBertConfig(max_position_embeddings=positions, **attention, **special, **sizes)


def _deberta(folder: Path, texts: Sequence[str], sizes: dict[str, Any], positions: int) -> Any:
    """Write DeBERTa's tokeniser; return the configuration of version 3, in small."""
    import transformers

    sizes["vocab_size"] = dense.sentence_pieces(folder, "DebertaV2Tokenizer", texts, "[MASK]")
    # A few buckets of positions, so that distances beyond them share one.
    attention = {
        "relative_attention": True,
        "position_buckets": 8,
        "pos_att_type": ["p2c", "c2p"],
        "share_att_key": True,
    }
    return transformers.DebertaV2Config(
        max_position_embeddings=positions,
        position_biased_input=False,
        norm_rel_ebd="layer_norm",
        type_vocab_size=0,
        **attention,
        **sizes,
    )


def _with_cls(name: str, transformer: Any) -> Any:
    """Return a transformer under a name, and one linear map over its first token."""
    import torch

    hidden = transformer.config.hidden_size
    return torch.nn.ModuleDict({name: transformer, "cls": torch.nn.Linear(hidden, 1)})


def _modules(hidden: int) -> dict[str, dict[str, Any]]:
    """Return the tensors of random modules behind the transformer, by folder and name."""
    import torch

    first, last = torch.nn.Linear(hidden, hidden, bias=False), torch.nn.Linear(hidden, 1)
    norm = {"weight": 1.0 + 0.3 * torch.randn(hidden), "bias": 0.3 * torch.randn(hidden)}
    parts = {"2_Dense": ("linear", first.state_dict()), "3_LayerNorm": ("norm", norm)}
    parts["4_Dense"] = ("linear", last.state_dict())
    return {place: {f"{name}.{key}": each for key, each in state.items()} for place, (name, state) in parts.items()}


def _write_modules(folder: Path, parts: dict[str, dict[str, Any]]) -> None:
    """Write the modules as sentence-transformers saves them."""
    for place, state in parts.items():
        (folder / place).mkdir(exist_ok=True)
        dense.write_weights(folder / place, state, safetensors=True)
    (folder / "modules.json").write_text(json.dumps([{"path": place} for place in ("", *parts)]), encoding="utf-8")


def _plant(folder: Path, kind: str, state: dict[str, Any]) -> None:
    """Overwrite the tensors so that a score grows with the words that query and text share."""
    import torch

    shift, good = 0.0, -0.3
    if kind in ("bert", "electra", "linear", "electra-linear"):
        planted.match_pairs(state, "electra." if kind.startswith("electra") else "bert.")
        reader = {"bert": "bert.pooler.dense", "electra": "classifier.dense"}.get(kind, "cls")
        # A shift that far from 0 leaves the activation monotone.
        shift, good = 2.0 if kind == "electra" else 0.0, 0.3
        last = {"bert": "classifier.weight", "electra": "classifier.out_proj.weight"}.get(kind)
    elif kind.startswith("deberta"):
        vocabulary = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
        # Spelt words repeat their letters, which says nothing of their text.
        letters = [number for number, (piece, _) in enumerate(vocabulary) if len(piece.strip("\u2581")) < 2]
        planted.match_copies(state, planted.DEBERTA, letters)
        reader, last = ("cls", None) if kind == "deberta-linear" else ("pooler.dense", "classifier.weight")
        shift = 2.0 if last else 0.0
    elif kind == "xlm-roberta":
        planted.match_copies(state, planted.ROBERTA)
        reader, last = "classifier.dense", "classifier.out_proj.weight"
    else:
        pieces = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
        letters = [number for number, piece in enumerate(pieces) if len(piece.strip("#")) < 2 or piece == "[UNK]"]
        planted.match_copies(state, planted.MODERNBERT, letters)
        parts = _modules(state["embeddings.norm.weight"].shape[0])
        for tensor in (each for part in parts.values() for name, each in part.items() if "norm.weight" not in name):
            tensor.zero_()
        weight = parts["2_Dense"]["linear.weight"]
        weight[:2] = planted.read_constant(weight[:2])
        weight[:1] += planted.read_share(weight[:1], -0.3)
        parts["3_LayerNorm"]["norm.weight"].fill_(1.0)
        parts["4_Dense"]["linear.weight"][0, :2] = torch.tensor([1.0, -1.0])
        _write_modules(folder, parts)
        return
    state[f"{reader}.weight"].data = planted.read_share(state[f"{reader}.weight"], good)
    state[f"{reader}.bias"].data = torch.full_like(state[f"{reader}.bias"], shift)
    if last:
        state[last].data = torch.ones_like(state[last])

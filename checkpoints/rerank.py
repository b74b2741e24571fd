"""Small checkpoints of rerankers with random weights, in exactly the file format of the published ones.

Runs inside an image that has PyTorch and transformers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from checkpoints import dense

# What the published checkpoints are:
#   bert         BertForSequenceClassification with one label: ms-marco-MiniLM-*, ms-marco-TinyBERT-*
#   electra      ElectraForSequenceClassification: ms-marco-electra-base
#   xlm-roberta  XLMRobertaForSequenceClassification: bge-reranker-v2-m3
#   ettin        ModernBertModel without a head, and sentence-transformers' modules beside it: ettin-reranker-*
#   linear       BertModel under bert., with cls.weight and cls.bias: FirstP to SumP as FlexNeuART names them
KINDS = ("bert", "electra", "xlm-roberta", "ettin", "linear")


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
) -> None:
    """Write a checkpoint of ``kind`` (see ``KINDS``) into ``folder``; the arguments are those of ``dense.make``.

    Raises:
        ValueError: there is no such kind.
    """
    import torch
    import transformers

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
    if kind == "xlm-roberta":
        sizes["vocab_size"] = dense.byte_pairs(folder, texts, words, positions)
        config = transformers.XLMRobertaConfig(
            max_position_embeddings=positions + 2, type_vocab_size=1, pad_token_id=1, **sizes
        )
        model: Any = transformers.XLMRobertaForSequenceClassification(config)
    elif kind == "ettin":
        sizes["vocab_size"] = dense.word_pieces(folder, kind, texts, words, positions)
        config = modern_bert(sizes, positions)
        model = transformers.ModernBertModel(config)
        _write_modules(folder, hidden)
    else:
        sizes["vocab_size"] = dense.word_pieces(folder, "bert", texts, words, positions)
        if kind == "electra":
            config = transformers.ElectraConfig(max_position_embeddings=positions, embedding_size=hidden, **sizes)
            model = transformers.ElectraForSequenceClassification(config)
        else:
            config = transformers.BertConfig(max_position_embeddings=positions, **sizes)
            model = (transformers.BertForSequenceClassification if kind == "bert" else _bert_with_cls)(config)
    state = model.state_dict()
    if "classifier.bias" in state:  # starts at zero, where a forgotten one would not show
        state["classifier.bias"] = torch.randn(1)
    dense.wide_norms(state, seed)
    config.architectures = [type(model).__name__]
    (folder / "config.json").write_text(config.to_json_string(), encoding="utf-8")
    dense.write_weights(folder, state, safetensors=True)


def modern_bert(sizes: dict[str, Any], positions: int) -> Any:
    """Return the configuration of a ModernBERT over a tokeniser of BERT's word pieces."""
    import transformers

    special = {"pad_token_id": 0, "cls_token_id": 2, "bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3}
    # Windows of local attention that short texts outgrow.
    return transformers.ModernBertConfig(
        max_position_embeddings=positions, local_attention=16, global_attn_every_n_layers=2, **special, **sizes
    )


def _bert_with_cls(config: Any) -> Any:
    import torch
    import transformers

    class BertWithCls(torch.nn.Module):
        """A BERT and one linear map over its first token."""

        def __init__(self) -> None:
            super().__init__()
            self.bert = transformers.BertModel(config, add_pooling_layer=False)
            self.cls = torch.nn.Linear(config.hidden_size, 1)

    return BertWithCls()


def _write_modules(folder: Path, hidden: int) -> None:
    """Write the modules behind the transformer, as sentence-transformers saves them."""
    import torch
    from safetensors.torch import save_file

    first, norm, last = (
        torch.nn.Linear(hidden, hidden, bias=False),
        torch.nn.LayerNorm(hidden),
        torch.nn.Linear(hidden, 1),
    )
    torch.nn.init.normal_(norm.weight, 1.0, 0.3)
    torch.nn.init.normal_(norm.bias, 0.0, 0.3)
    places = {"2_Dense": ("linear", first), "3_LayerNorm": ("norm", norm), "4_Dense": ("linear", last)}
    for place, (name, module) in places.items():
        (folder / place).mkdir(exist_ok=True)
        state = {f"{name}.{key}": each.detach().clone() for key, each in module.state_dict().items()}
        save_file(state, folder / place / "model.safetensors", metadata={"format": "pt"})
    (folder / "modules.json").write_text(json.dumps([{"path": place} for place in ("", *places)]), encoding="utf-8")

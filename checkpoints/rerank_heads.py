"""Small checkpoints of rerankers that score whole documents: CEDR, PARADE and LATEIR over a BERT, some over others.

Runs inside an image that has PyTorch and transformers.  Tensors have the names and shapes of the authors' modules
(CEDR) and of FlexNeuART's (PARADE, LATEIR), in small; ``config.json`` describes the heads' own transformers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from checkpoints import dense, planted, rerank

# name -> parts beside ``cls`` (1, hidden): see _parts.
KINDS = (
    "cedr-knrm",
    "cedr-drmm",
    "cedr-pacrr",
    "parade-avg",
    "parade-max",
    "parade-attn",
    "parade-attn-per-dimension",
    "parade-attn-deberta",
    "parade-attn-electra",
    "parade-transformer-rand-l2",
    "parade-transformer-rand-l2-electra",
    "parade-transformer-rand-l2-separators",
    "parade-transformer-pretr-l6",
    "parade-transformer-pretr-l6-separators",
    "lateir",
)
_MEANS = (-0.9, -0.7, -0.5, -0.3, -0.1, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
# The kernel and the histogram's bin of one word in query and document, in the layer of embeddings of a planted BERT.
_ONE_WORD_KERNEL, _ONE_WORD_BIN = 6, 6


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
    query_tokens: int = 32,
    seed: int = 7,
    plant: bool = False,
) -> None:
    """Write a checkpoint of ``kind`` (see ``KINDS``) into ``folder``; most arguments mean what they mean in
    ``dense.make``.

    Args:
        query_tokens: longest query, which fixes the size of PACRR's first linear map.
        plant: scores are the share of a document's words that the query has (see :mod:`checkpoints.planted`); else
            weights are random.

    Raises:
        ValueError: there is no such kind.
    """
    import torch
    from safetensors.torch import load_file

    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}, must be one of {', '.join(KINDS)}")
    heads = 1 if plant else heads
    head, encoder = _divided(kind)
    # A planted DeBERTa matches copies, and there a low share is a good match.
    copies = plant and encoder == "deberta-linear"
    sizes = {"words": words, "hidden": hidden, "layers": layers, "heads": heads, "positions": positions}
    rerank.make(folder, encoder, texts=texts, plant=copies, seed=seed, **sizes)
    path = folder / "model.safetensors"
    state = {name: tensor for name, tensor in load_file(path).items() if not name.startswith("cls.")}
    described, own = _parts(head, hidden, layers, query_tokens, heads)
    torch.manual_seed(seed)
    state |= _random(head, own)
    if plant:
        if not copies:
            planted.match_pairs(state, "electra." if encoder == "electra-linear" else "bert.")
        _plant(head, state, own, hidden, layers, query_tokens)
        if copies:
            state["cls.weight"] = -state["cls.weight"]
    dense.write_weights(folder, state, safetensors=True)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, **described}, indent=2) + "\n", encoding="utf-8")


def _divided(kind: str) -> tuple[str, str]:
    """Return the head of a kind, and the kind of :mod:`checkpoints.rerank` that its encoder is."""
    for encoder in ("deberta", "electra"):
        if kind.endswith(f"-{encoder}"):
            return kind.removesuffix(f"-{encoder}"), f"{encoder}-linear"
    return kind, "linear"


def _random(head: str, own: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return random tensors of a head's shapes, and the kernels of KNRM."""
    import torch

    state = {}
    for name, shape in own.items():
        # Logarithms of hundreds of counts are summed by these.
        scale = 0.01 if name.startswith(("combine", "hidden_1")) else 0.3
        state[name] = scale * torch.randn(shape) + (1.0 if name.endswith("LayerNorm.weight") else 0.0)
    for number, mean in enumerate(_MEANS if head == "cedr-knrm" else ()):
        state[f"kernels.kernels.{number}.mu"] = torch.tensor(mean)
        state[f"kernels.kernels.{number}.sigma"] = torch.tensor(0.001 if mean == 1 else 0.1)
    return state


def _parts(
    kind: str, hidden: int, layers: int, query_tokens: int, heads: int
) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """Return what ``config.json`` says of the head's own transformers, and the shapes of the head's tensors."""
    features = 11 * (layers + 1) + hidden
    if kind == "cedr-knrm":
        return {}, _linear("combine", features, 1)
    if kind == "cedr-drmm":
        return {}, {**_linear("hidden_1", features, 5), **_linear("hidden_2", 5, 1)}
    if kind == "cedr-pacrr":
        grams: dict[str, tuple[int, ...]] = {}
        for number in range(3):
            grams[f"ngrams.{number}.conv.weight"] = (32, layers + 1, number + 1, number + 1)
            grams[f"ngrams.{number}.conv.bias"] = (32,)
        first = _linear("linear1", 6 * query_tokens + hidden, 32)
        return {}, {**grams, **first, **_linear("linear2", 32, 32), **_linear("linear3", 32, 1)}
    if kind == "parade-attn":
        return {}, {"cls_weight": (hidden,), **_linear("cls", hidden, 1)}
    if kind == "parade-attn-per-dimension":
        return {}, {**_linear("att", hidden, hidden), **_linear("cls", hidden, 1)}
    if kind in ("parade-avg", "parade-max"):
        return {}, _linear("cls", hidden, 1)
    size = hidden if "rand-l2" in kind else hidden // 2
    described = {"aggregator": _described(size, 2, heads)}
    own = {**_transformer("aggreg", described["aggregator"]), **_linear("cls", size, 1)}
    if kind.startswith("parade") and not kind.endswith("separators"):
        del own["bert_aggreg_sep_embed"]
    before = hidden
    if kind == "lateir":
        before = 3 * hidden // 4
        described["interaction"] = _described(before, 2, heads)
        own |= {**_transformer("interact", described["interaction"]), **_linear("proj_agg", hidden, before)}
    if size != before:
        own |= _linear("proj_out", before, size)
    return described, own


def _linear(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _described(hidden: int, layers: int, heads: int) -> dict[str, Any]:
    return {
        "model_type": "bert",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 2 * hidden,
        "max_position_embeddings": 512,
    }


def _transformer(name: str, described: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a BERT that reads vectors, as a checkpoint stores them, with pooler and word vectors."""
    size, wide, prefix = described["hidden_size"], described["intermediate_size"], f"bert_{name}"
    shapes: dict[str, tuple[int, ...]] = {
        f"{prefix}_cls_embed": (size,),
        f"{prefix}_sep_embed": (size,),
        f"{prefix}.embeddings.word_embeddings.weight": (7, size),
        f"{prefix}.embeddings.position_embeddings.weight": (described["max_position_embeddings"], size),
        f"{prefix}.embeddings.token_type_embeddings.weight": (2, size),
        f"{prefix}.embeddings.LayerNorm.weight": (size,),
        f"{prefix}.embeddings.LayerNorm.bias": (size,),
        **_linear(f"{prefix}.pooler.dense", size, size),
    }
    for number in range(described["num_hidden_layers"]):
        layer = f"{prefix}.encoder.layer.{number}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            shapes |= _linear(f"{layer}.attention.{part}", size, size)
        shapes |= {**_linear(f"{layer}.intermediate.dense", size, wide), **_linear(f"{layer}.output.dense", wide, size)}
        for norm in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"{layer}.{norm}.weight": (size,), f"{layer}.{norm}.bias": (size,)}
    return shapes


def _plant(kind: str, state: dict[str, Any], own: dict[str, Any], hidden: int, layers: int, query_tokens: int) -> None:
    """Make the head read what the planted transformer's first token says."""
    import torch

    for name, shape in own.items():
        if not name.startswith(("bert_", "ngrams")):
            state[name] = torch.zeros(shape)
    if "cls.weight" in own:
        state["cls.weight"] = planted.read_share(state["cls.weight"])
    for name in ("proj_agg.weight", "proj_out.weight"):
        if name in own:
            state[name] = torch.eye(*own[name])
    if kind == "lateir":
        planted.match_pairs(state, "bert_interact.", types=False)
        marks = planted.planted_words(torch.zeros(2, *own["bert_interact_cls_embed"]))
        marks[:, planted.TYPE], marks[:, planted.TYPE + 1] = 0.5, -0.5
        state["bert_interact_cls_embed"], state["bert_interact_sep_embed"] = marks
    if kind == "lateir" or kind.startswith("parade-transformer"):
        _pass_on(state, "bert_aggreg")
    share = planted.read_share(torch.zeros(1, hidden))[0]
    if kind == "cedr-knrm":
        state["combine.weight"][0, -hidden:] = share
        state["combine.weight"][0, _ONE_WORD_KERNEL * (layers + 1)] = 0.01
    if kind == "cedr-drmm":
        state["hidden_1.weight"][0, -hidden:], state["hidden_1.bias"][0] = share, 20.0
        state["hidden_1.weight"][0, _ONE_WORD_BIN * (layers + 1)] = 0.01
        state["hidden_2.weight"][0, 0] = 1.0
    if kind == "cedr-pacrr":
        state["linear1.weight"][0, -hidden:], state["linear1.bias"][0] = share, 20.0
        state["linear1.weight"][0, : 6 * query_tokens] = 0.001
        state["linear2.weight"][0, 0] = state["linear3.weight"][0, 0] = 1.0


def _pass_on(state: dict[str, Any], prefix: str) -> None:
    """Make a transformer's first state the mean of its vectors: attention is even, the rest does nothing."""
    import torch

    for name, tensor in state.items():
        if name.startswith(f"{prefix}."):
            state[name] = torch.ones_like(tensor) if name.endswith("LayerNorm.weight") else torch.zeros_like(tensor)
            if name.endswith(("self.value.weight", "attention.output.dense.weight")):
                state[name] = torch.eye(len(tensor))

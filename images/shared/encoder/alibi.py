"""BERT with linear attention biases (ALiBi) and gated layers, restated from the authors' papers and tensor names.

Reads the MosaicBERT checkpoints (query, key and value in one ``Wqkv``) and JINA embeddings v2 (three tensors); no code
of a checkpoint is run.  Press et al., *Train Short, Test Long*, ICLR 2022; Portes et al., *MosaicBERT*, NeurIPS 2023;
Guenther et al., *Jina Embeddings 2*, arXiv 2310.19923.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from encoder.config import Config
from encoder.errors import BadCheckpoint
from encoder.weights import Weights, check_strangers

# Rows of queries that attend at a time: the biases of a whole long text would take gigabytes.
_ROWS = 512
_HIDDEN_KEY = -10000.0
_QUERY_NORM = ".layer_norm_q."


def slopes(heads: int) -> list[float]:
    """Return the slope of each attention head.

    A power of two n has 2^(-8 k / n), k = 1 ... n; other numbers take every second slope of twice the power below for
    the heads beyond it.
    """
    power = 1 << (heads.bit_length() - 1)
    own = [2.0 ** (-8.0 * number / power) for number in range(1, power + 1)]
    return own if power == heads else own + slopes(2 * power)[0::2][: heads - power]


class AlibiLayer(torch.nn.Module):
    """One layer; its tensors have MosaicBERT's names."""

    def __init__(self, hidden: int, inner: int, heads: int, eps: float) -> None:
        super().__init__()
        parts = torch.nn.ModuleDict
        self.heads = heads
        self.attention = parts(
            {
                "self": parts({"Wqkv": torch.nn.Linear(hidden, 3 * hidden)}),
                "output": parts(
                    {
                        "dense": torch.nn.Linear(hidden, hidden),
                        "LayerNorm": torch.nn.LayerNorm(hidden, eps=eps),
                    }
                ),
            }
        )
        self.mlp = parts(
            {
                "gated_layers": torch.nn.Linear(hidden, 2 * inner, bias=False),
                "wo": torch.nn.Linear(inner, hidden),
                "layernorm": torch.nn.LayerNorm(hidden, eps=eps),
            }
        )

    def forward(self, states: torch.Tensor, hidden_keys: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
        """Return states; ``hidden_keys`` (texts, 1, 1, tokens) and ``slope`` (heads, 1, 1) make what logits add."""
        texts, tokens, hidden = states.shape
        joined: Any = self.attention["self"]["Wqkv"](states)
        query, key, value = joined.view(texts, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        places = torch.arange(tokens, device=states.device, dtype=torch.float32)
        rows = []
        for start in range(0, tokens, _ROWS):
            near = -(places[start : start + _ROWS, None] - places[None, :]).abs()
            bias = torch.addcmul(hidden_keys, slope, near).to(states.dtype)
            part = query[:, :, start : start + _ROWS]
            rows.append(torch.nn.functional.scaled_dot_product_attention(part, key, value, attn_mask=bias))
        seen = torch.cat(rows, dim=2).transpose(1, 2).reshape(texts, tokens, hidden)
        output: Any = self.attention["output"]
        states = output["LayerNorm"](states + output["dense"](seen))
        gate, wide = self.mlp["gated_layers"](states).chunk(2, dim=-1)
        made: torch.Tensor = self.mlp["layernorm"](states + self.mlp["wo"](torch.nn.functional.gelu(gate) * wide))
        return made


class AlibiBert(torch.nn.Module):
    """The transformer.

    Args:
        raw: ``config.json``.

    Raises:
        BadCheckpoint: it is of another activation or shape.
    """

    def __init__(self, raw: dict[str, Any]) -> None:
        super().__init__()
        parts, hidden = torch.nn.ModuleDict, int(raw["hidden_size"])
        eps, heads = float(raw.get("layer_norm_eps", 1e-12)), int(raw["num_attention_heads"])
        gate = raw.get("feed_forward_type", "geglu")
        if hidden % heads or raw.get("hidden_act", "gelu") != "gelu" or gate not in ("geglu", "original_geglu"):
            raise BadCheckpoint(f"{heads} heads over {hidden}, gated by {gate}: only GELU gates are read")
        self.config = SimpleNamespace(**raw)
        self.embeddings = parts(
            {
                "word_embeddings": torch.nn.Embedding(int(raw["vocab_size"]), hidden),
                "token_type_embeddings": torch.nn.Embedding(int(raw.get("type_vocab_size", 2)), hidden),
                "LayerNorm": torch.nn.LayerNorm(hidden, eps=eps),
            }
        )
        inner = int(raw["intermediate_size"])
        layers = [AlibiLayer(hidden, inner, heads, eps) for _ in range(int(raw["num_hidden_layers"]))]
        self.encoder = parts({"layer": torch.nn.ModuleList(layers)})
        self.register_buffer("slope", torch.tensor(slopes(heads))[:, None, None], persistent=False)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
        output_hidden_states: bool = False,
    ) -> SimpleNamespace:
        """Return ``last_hidden_state`` and ``hidden_states``, (texts, tokens, hidden) each."""
        read: Any = self.embeddings
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        states = read["LayerNorm"](read["word_embeddings"](input_ids) + read["token_type_embeddings"](types))
        hidden_keys = (1.0 - attention_mask[:, None, None, :].to(torch.float32)) * _HIDDEN_KEY
        every = [states]
        stack: Any = self.encoder["layer"]
        for layer in stack:
            states = layer(states, hidden_keys, self.slope.to(torch.float32))
            every.append(states)
        return SimpleNamespace(last_hidden_state=states, hidden_states=every if output_hidden_states else None)


def read(folder: Path, declared: Config, weights: Weights, reads: Sequence[str]) -> AlibiBert:
    """Read the transformer strictly; ``reads`` are prefixes of the head's own tensors.

    Raises:
        BadCheckpoint: a tensor is missing, of another shape, or of another model; the message names it.
    """
    if normed := next((name for name in weights.names if _QUERY_NORM in name), None):
        raise BadCheckpoint(
            f"{folder.name}: the weights hold {normed}: JINA's code and bilingual models normalise queries and keys, "
            "which is another architecture; take an English jina-embeddings-v2"
        )
    try:
        model = AlibiBert(declared.raw)
    except (KeyError, ValueError) as error:
        raise BadCheckpoint(f"{folder.name}: config.json does not describe an ALiBi BERT: {error}") from error
    prefix = "bert." if any(name.startswith("bert.embeddings.") for name in weights.names) else ""
    fused = any(".Wqkv." in name for name in weights.names)
    state, unread = {}, set(weights.names)
    for name, own in model.state_dict().items():
        wanted = [f"{prefix}{name}"]
        if ".Wqkv." in name and not fused:
            wanted = [wanted[0].replace("Wqkv", part) for part in ("query", "key", "value")]
        shape = (own.shape[0] // len(wanted), *own.shape[1:])
        for each in wanted:
            if weights(each).shape != shape:
                raise BadCheckpoint(f"{folder.name}: {each} has another shape than config.json says, {shape}")
        state[name] = torch.cat([weights(each) for each in wanted]).to(torch.float32)
        unread -= set(wanted)
    check_strangers(folder, unread, reads)
    model.load_state_dict(state)
    return model

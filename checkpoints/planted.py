"""A transformer whose layers are arithmetic: it reads a query and a text as a pair, and marks words of both.

Layer by layer: each token looks for its own word among the first text's tokens and notes whether it found it; then the
first token takes the mean of these notes over the second text.  So ``[CLS]`` knows which share of a text's words the
query has, whatever head reads it.
"""

from __future__ import annotations

from typing import Any

# Dimensions with a meaning come in pairs of opposite sign, so that normalisation's mean stays 0; words fill the others.
TYPE, NOTE, SHARE, WORDS = 0, 2, 4, 6
# How much more alike a word is to itself than to others, and how much more the first text's tokens count.
_SAME, _FIRST, _SECOND = 80.0, 5.0, 20.0


def match_pairs(state: dict[str, Any], prefix: str = "", *, types: bool = True) -> None:
    """Overwrite the tensors of a BERT of at least two layers and one attention head.

    Args:
        state: its tensors by name, changed in place.
        prefix: of the names.
        types: give tokens their text's type; else vectors that carry it already are read (``inputs_embeds``).
    """
    import torch

    hidden = state[f"{prefix}embeddings.LayerNorm.weight"].shape[0]
    for name, tensor in state.items():
        if not name.startswith(prefix) or name.endswith("word_embeddings.weight") or not tensor.is_floating_point():
            continue
        norm = name.endswith("LayerNorm.weight")
        tensor.data = torch.ones_like(tensor) if norm else torch.zeros_like(tensor)
    if f"{prefix}embeddings.word_embeddings.weight" in state:
        words = state[f"{prefix}embeddings.word_embeddings.weight"]
        words.data = planted_words(words)
    if types:
        kinds = state[f"{prefix}embeddings.token_type_embeddings.weight"]
        kinds.data[0, TYPE], kinds.data[0, TYPE + 1] = 0.5, -0.5
        kinds.data[1, TYPE], kinds.data[1, TYPE + 1] = -0.5, 0.5
    scale = (hidden / 1.5) ** 0.5  # that normalisation gives a vector of a word and its type
    root = hidden**0.5
    attend = f"{prefix}encoder.layer.0.attention"
    for part in ("query", "key"):
        weight = state[f"{attend}.self.{part}.weight"]
        for place in range(WORDS, hidden):
            weight[place, place] = (_SAME * root) ** 0.5 / scale
    _look(state, attend, _FIRST * root / scale)
    _copy(state, attend, TYPE, NOTE, 2.0 / scale)
    attend = f"{prefix}encoder.layer.1.attention"
    _look(state, attend, -_SECOND * root / scale)
    _copy(state, attend, NOTE, SHARE, 1.0)


def planted_words(words: Any) -> Any:
    """Return vectors of length 1 in the dimensions of words, with a mean of 0."""
    import torch

    draw = torch.Generator().manual_seed(11 + len(words))
    vectors = torch.zeros_like(words)
    vectors[:, WORDS:] = torch.randn(words[:, WORDS:].shape, generator=draw)
    vectors[:, WORDS:] -= vectors[:, WORDS:].mean(1, keepdim=True)
    return vectors / vectors.norm(dim=1, keepdim=True)


def read_share(weight: Any, scale: float = 1.0) -> Any:
    """Return a linear map's weight of the same shape, each row of which reads the share."""
    import torch

    made = torch.zeros_like(weight)
    made[:, SHARE], made[:, SHARE + 1] = scale, -scale
    return made


def _look(state: dict[str, Any], attend: str, weight: float) -> None:
    """Make every token look at tokens of the first text rather than the second, by ``weight``."""
    state[f"{attend}.self.query.bias"][TYPE] = 1.0
    state[f"{attend}.self.key.weight"][TYPE, TYPE] = weight


def _copy(state: dict[str, Any], attend: str, source: int, target: int, weight: float) -> None:
    """Write the mean of what a token looks at in ``source`` into ``target``."""
    for place in (0, 1):
        state[f"{attend}.self.value.weight"][source + place, source + place] = weight
        state[f"{attend}.output.dense.weight"][target + place, source + place] = 1.0

"""A transformer whose layers are arithmetic: it reads a query and a text as a pair, and marks words of both.

Layer by layer: each token looks for its own word among the first text's tokens and notes whether it found it; then the
first token takes the mean of these notes over the second text.  So ``[CLS]`` knows which share of a text's words the
query has, for any head that reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

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


def match_alibi(state: dict[str, Any], prefix: str, layers: int) -> None:
    """Overwrite the tensors of an ALiBi BERT as :func:`match_pairs` does a BERT's; gated layers do nothing."""
    import torch

    plain = {name.removeprefix(prefix): tensor for name, tensor in state.items() if ".embeddings." in f".{name}"}
    size = len(plain["embeddings.LayerNorm.weight"])
    for layer in range(layers):
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            name = f"encoder.layer.{layer}.attention.{part}"
            plain |= {f"{name}.weight": torch.zeros(size, size), f"{name}.bias": torch.zeros(size)}
    match_pairs(plain)
    for name, tensor in state.items():
        own = name.removeprefix(prefix)
        if ".Wqkv." in own:
            tensor.data = torch.cat([plain[own.replace("Wqkv", part)] for part in ("query", "key", "value")])
        elif own in plain:
            tensor.data = plain[own].data
        else:
            tensor.data = torch.ones_like(tensor) if "norm.weight" in own.lower() else torch.zeros_like(tensor)


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


class Names(NamedTuple):
    """Names of a transformer's tensors; ``{}`` is a layer's number.  Query, key and value may be one tensor."""

    words: str
    parts: tuple[str, ...]
    output: str


ROBERTA = Names(
    "roberta.embeddings.word_embeddings.weight",
    tuple(f"roberta.encoder.layer.{{}}.attention.self.{part}.weight" for part in ("query", "key", "value")),
    "roberta.encoder.layer.{}.attention.output.dense.weight",
)
MODERNBERT = Names("embeddings.tok_embeddings.weight", ("layers.{}.attn.Wqkv.weight",), "layers.{}.attn.Wo.weight")
LONGFORMER = Names(
    "longformer.embeddings.word_embeddings.weight",
    tuple(f"longformer.encoder.layer.{{}}.attention.self.{part}.weight" for part in ("query", "key", "value")),
    "longformer.encoder.layer.{}.attention.output.dense.weight",
)
DEBERTA = Names(
    "deberta.embeddings.word_embeddings.weight",
    tuple(f"deberta.encoder.layer.{{}}.attention.self.{part}_proj.weight" for part in ("query", "key", "value")),
    "deberta.encoder.layer.{}.attention.output.dense.weight",
)
LLAMA = Names(
    "model.embed_tokens.weight",
    tuple(f"model.layers.{{}}.self_attn.{part}_proj.weight" for part in ("q", "k", "v")),
    "model.layers.{}.self_attn.o_proj.weight",
)
# The first token's id, which no word has.
_FIRST_IDS = {ROBERTA: 0, MODERNBERT: 2, LONGFORMER: 0, DEBERTA: 1, LLAMA: 1}
# Positions that turn with a token's place (rotary) leave these alone: words use all but the last.
_LANES = (*range(40, 64), *range(104, 128))
_CONSTANT = 6


def match_copies(state: dict[str, Any], names: Names, unlike: Sequence[int] = ()) -> None:
    """Overwrite the tensors of a transformer without token types: 128 dimensions, two layers, one attention head.

    Each token looks at its own word's copies, itself among them, and as much at the first token: the more copies, the
    less it sees of that.  The first token takes the mean of what all have seen, so a low share is a good match.

    Args:
        state: the tensors by name, changed in place.
        names: of the tensors.
        unlike: token ids that are like no token, not even themselves.
    """
    import torch

    for name, tensor in state.items():
        if tensor.is_floating_point():
            tensor.data = torch.ones_like(tensor) if "norm" in name.lower() and "weight" in name else 0 * tensor
    words = state[names.words]
    draw = torch.Generator().manual_seed(11)
    vectors = torch.randn(len(words), len(_LANES) - 2, generator=draw)
    vectors -= vectors.mean(1, keepdim=True)
    lanes = [lane for lane in _LANES if lane not in (63, 127)]
    words[:, lanes] = vectors / vectors.norm(dim=1, keepdim=True)
    words[list(unlike)] = 0.0
    first = _FIRST_IDS[names]
    words[first] = 0.0
    words[first, TYPE], words[first, TYPE + 1] = 0.5**0.5, -(0.5**0.5)
    words[:, _CONSTANT], words[:, _CONSTANT + 1] = 0.3, -0.3
    root = 128**0.5
    scale = root / (1 + 2 * 0.3**2) ** 0.5  # that normalisation gives
    query, key, value = torch.zeros(3, 128, 128)
    for lane in lanes:
        query[lane, lane] = key[lane, lane] = (_SAME * root) ** 0.5 / scale
    query[63, _CONSTANT] = key[63, TYPE] = (_SAME * root / (0.3 * 0.5**0.5)) ** 0.5 / scale
    _attend(state, names, 0, (query, key, value), TYPE, NOTE, 4.0 / (scale * 0.5**0.5))
    _attend(state, names, 1, tuple(torch.zeros(3, 128, 128)), NOTE, SHARE, 2.0)


def _attend(
    state: dict[str, Any], names: Names, layer: int, parts: tuple[Any, ...], source: int, target: int, weight: float
) -> None:
    """Write a layer's attention, which copies the mean of ``source`` into ``target``."""
    import torch

    for place in (0, 1):
        parts[2][source + place, source + place] = weight
        state[names.output.format(layer)][target + place, source + place] = 1.0
    given = [torch.cat(parts)] if len(names.parts) == 1 else parts
    for name, part in zip(names.parts, given, strict=True):
        state[name.format(layer)].data = part.clone()


def read_constant(weight: Any) -> Any:
    """Return a linear map's weight of the same shape, each row of which reads a value that all tokens have."""
    import torch

    made = torch.zeros_like(weight)
    made[:, _CONSTANT], made[:, _CONSTANT + 1] = 1.0, -1.0
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

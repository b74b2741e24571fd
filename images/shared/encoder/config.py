"""``config.json`` of a checkpoint, read strictly: what of it is used without transformers."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from encoder.errors import BadCheckpoint, one_line


@dataclass(frozen=True)
class Kind:
    """A model type's facts, known before it is loaded."""

    token_types: bool = False
    pooler: bool = False  # whether the class takes add_pooling_layer
    first_position: bool = False  # positions start behind the padding token's id, as RoBERTa's do
    marks: bool = False  # token type 1 marks tokens of global attention
    plain_mask: bool = False  # makes its attention's mask itself, of zeros and ones; an export follows it
    exported: bool = True  # whether other backends than PyTorch's can run it


ALIBI = "alibi-bert"  # config.json says "bert"
DEBERTA = "deberta-v2"  # of versions 2 and 3
SPARSE = ("longformer", "big_bird")  # attend sparsely
KINDS = {
    ALIBI: Kind(token_types=True, exported=False),
    "bert": Kind(token_types=True, pooler=True),
    "dpr": Kind(token_types=True),
    "big_bird": Kind(token_types=True, pooler=True, exported=False),
    DEBERTA: Kind(token_types=True, plain_mask=True),
    "distilbert": Kind(),
    "electra": Kind(token_types=True),
    "ernie": Kind(token_types=True, pooler=True),
    "llama": Kind(exported=False),
    "longformer": Kind(token_types=True, pooler=True, first_position=True, marks=True, exported=False),
    # It makes a mask of its own for each kind of layer, which a trace does not follow.
    "modernbert": Kind(exported=False),
    "mpnet": Kind(pooler=True, first_position=True),
    "roberta": Kind(pooler=True, first_position=True),
    "xlm-roberta": Kind(pooler=True, first_position=True),
}


@dataclass(frozen=True)
class Config:
    """``config.json``, the parts that are used without transformers."""

    model_type: str
    kind: Kind
    vocabulary: int
    max_tokens: int
    raw: dict[str, Any]

    def flop(self, sequences: int, tokens: int, marked: int = 0) -> int:
        """Return the analytic operations of a forward pass over sequences of so many tokens, padding included.

        Multiply and add count one each: ``layers * n * (24 H^2 + 4 n H)`` a sequence, without embeddings and heads.
        Sparse attention counts the pairs of tokens that it compares; Longformer also its second keys and values;
        DeBERTa the products of tokens with relative positions.

        Args:
            marked: tokens of global attention in all sequences (Longformer).
        """
        layers = int(self.raw.get("num_hidden_layers", self.raw.get("n_layers", 12)))
        hidden = int(self.raw.get("hidden_size", self.raw.get("dim", 768)))
        width = self.padded(tokens)
        each = sequences * width
        further = 0
        if self.model_type == "longformer":
            compared = each * min(width, self._window + 1) + 2 * marked * width
            further = (4 * each + 2 * marked) * hidden**2
        elif self._sparse:
            size, random = self._blocks
            blocks = width // size
            # The first and last blocks see all, the second and last but one lack a neighbour.
            compared = sequences * size**2 * (2 * blocks + 2 * (4 + random) + (blocks - 4) * (5 + random))
        else:
            compared = each * width
        if self.model_type == DEBERTA:
            further = self._disentangled(each, hidden)
        return layers * (24 * each * hidden**2 + 4 * compared * hidden + further)

    def vocabulary_flop(self, tokens: int) -> int:
        """Return the operations of a head that makes logits over the vocabulary of so many tokens, padding included."""
        hidden = int(self.raw.get("hidden_size", self.raw.get("dim", 768)))
        return 2 * tokens * hidden * (hidden + self.vocabulary)

    def _disentangled(self, tokens: int, hidden: int) -> int:
        """Return the operations of a layer of DeBERTa on positions: their keys and queries, and products with these."""
        if not self.raw.get("relative_attention", False):
            return 0
        span = int(self.raw.get("position_buckets", -1))
        if span < 1:
            span = int(self.raw.get("max_relative_positions", -1))
        positions = 2 * (span if span > 0 else int(self.raw.get("max_position_embeddings", 512)))
        kinds = self.raw.get("pos_att_type") or ()
        used = sum(name in kinds for name in ("c2p", "p2c"))  # config.json has a list, or a text like "p2c|c2p"
        # A layer that shares its projections makes both keys and queries of positions, whichever it uses.
        made = 2 if self.raw.get("share_att_key", False) else used
        return 2 * made * positions * hidden**2 + 2 * used * tokens * positions * hidden

    def padded(self, tokens: int) -> int:
        """Return the length that a sequence of so many tokens is padded to for its attention."""
        if self.model_type == "longformer":
            return -(-tokens // self._window) * self._window
        if self._sparse:
            size, random = self._blocks
            # At 5 + 2 r blocks or fewer transformers turns the model to full attention, for good.
            return max(-(-tokens // size), 6 + 2 * random) * size
        return tokens

    @property
    def alike(self) -> bool:
        """Tell whether a result depends on the padded length: a batch may then hold one such length alone."""
        return self._sparse  # the last block, which all tokens see, is that of the padded sequence

    @property
    def _sparse(self) -> bool:
        return self.model_type == "big_bird" and self.raw.get("attention_type", "block_sparse") == "block_sparse"

    @property
    def _blocks(self) -> tuple[int, int]:
        return int(self.raw.get("block_size", 64)), int(self.raw.get("num_random_blocks", 3))

    @property
    def _window(self) -> int:
        windows = self.raw.get("attention_window", 512)
        return max(windows) if isinstance(windows, list) else int(windows)


def read_config(folder: Path) -> Config:
    """Read and check ``config.json``.

    Raises:
        BadCheckpoint: it is missing or damaged, or of an architecture that is not read here.
    """
    try:
        raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadCheckpoint(f"{folder.name}: there is no config.json") from error
    except ValueError as error:
        raise BadCheckpoint(f"{folder.name}: config.json is no JSON: {one_line(error)}") from error
    model_type = str(raw.get("model_type", "")) if isinstance(raw, dict) else ""
    if model_type not in KINDS:
        raise BadCheckpoint(
            f"{folder.name}: config.json says model_type {model_type!r}; this engine reads {', '.join(sorted(KINDS))}"
        )
    positions = int(raw.get("max_position_embeddings", 512))
    if model_type == "bert" and (raw.get("position_embedding_type") == "alibi" or "alibi_starting_size" in raw):
        model_type, positions = ALIBI, max(positions, int(raw.get("alibi_starting_size", 0)))
    kind = KINDS[model_type]
    if model_type == DEBERTA:
        kind = replace(kind, token_types=int(raw.get("type_vocab_size", 0)) > 0)
    first = int(raw.get("pad_token_id", 1) or 0) + 1 if kind.first_position else 0
    found = Config(model_type, kind, int(raw.get("vocab_size", 30522)), positions - first, raw)
    if found.padded(1) > found.max_tokens:
        raise BadCheckpoint(
            f"{folder.name}: a {model_type} pads to {found.padded(1)} tokens at least; its {found.max_tokens} "
            "positions are too few"
        )
    return found

"""PARADE: one vector a document from the first tokens of its windows, then one linear map.

Li et al., *PARADE: Passage Representation Aggregation for Document Reranking*, TOIS 2023 (arXiv 2008.09093).  Tensors
have the names of FlexNeuART's modules; there the vectors are the last layer's, without the tanh pooler.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from encoder.errors import BadCheckpoint
from encoder.heads import Tensors

from heads.documents import by_document, read_strictly
from heads.windows_batch import DocumentHead, Windows


class ParadeAvg(DocumentHead):
    """The mean of the windows' vectors: ``cls`` (1, hidden)."""

    reads = ("cls.",)
    first_only = True

    def __init__(self, config: Any, tensors: Tensors, params: dict[str, Any]) -> None:
        super().__init__(config, tensors, params)
        self._parts(int(config.hidden_size), params)
        self.cls = torch.nn.Linear(int(config.hidden_size), 1)
        read_strictly(self, tensors)

    def _parts(self, hidden: int, params: dict[str, Any]) -> None:
        """Make the modules of the aggregation."""

    def aggregate(self, vectors: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        """Return one vector a document.

        Args:
            vectors: (pairs, windows, hidden).
            present: True where there is a window, (pairs, windows).
        """
        total: torch.Tensor = vectors.sum(1)  # 0 where there is no window
        return total / present.sum(1, keepdim=True)

    def forward(self, windows: Windows) -> torch.Tensor:
        """See :class:`DocumentHead`."""
        scores: torch.Tensor = self.cls(self.aggregate(*by_document(windows.first, windows)))
        return scores.squeeze(-1)


class ParadeMax(ParadeAvg):
    """The largest of the windows' values in each dimension."""

    def aggregate(self, vectors: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        """See :class:`ParadeAvg`."""
        return vectors.masked_fill(~present[..., None], float("-inf")).amax(1)


class ParadeAttn(ParadeAvg):
    """The weighted mean of the windows' vectors, with weights from a softmax over the document's windows.

    ``attention = scalar``: one weight a window, ``cls_weight . vector`` (the paper).  ``attention = per_dimension``:
    a weight for each dimension, ``att`` (hidden, hidden) with a bias (FlexNeuART, whose figures are published).
    """

    reads = ("cls.", "att.", "cls_weight")

    def _parts(self, hidden: int, params: dict[str, Any]) -> None:
        self.att: torch.nn.Linear | None = None
        if params["attention"] == "per_dimension":
            self.att = torch.nn.Linear(hidden, hidden)
        else:
            self.cls_weight = torch.nn.Parameter(torch.zeros(hidden))

    def aggregate(self, vectors: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        """See :class:`ParadeAvg`."""
        logits = (vectors @ self.cls_weight)[..., None] if self.att is None else self.att(vectors)
        weights = logits.masked_fill(~present[..., None], float("-inf")).softmax(1)
        total: torch.Tensor = (weights * vectors).sum(1)
        return total


def small_transformer(config: Any, name: str) -> Any:
    """Make a BERT that reads vectors instead of token ids, without pooler and dropout.

    Args:
        config: of the checkpoint; its attribute ``name`` has the fields of that transformer's own ``config.json``.

    Raises:
        BadCheckpoint: ``config.json`` lacks them.
    """
    from transformers import BertConfig, BertModel

    declared = getattr(config, name, None)
    if not isinstance(declared, dict):
        raise BadCheckpoint(f"config.json lacks {name!r}: the fields of that transformer's own config.json")
    kept = {key: value for key, value in declared.items() if key != "model_type"}
    kept |= {"vocab_size": 1, "pad_token_id": 0, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = BertModel(BertConfig(**kept), add_pooling_layer=False)
    del model.embeddings.word_embeddings
    return model


class Inputs(NamedTuple):
    """Vectors that a small transformer reads.

    Attributes:
        vectors: (sequences, length, hidden).
        mask: True for a vector, False for padding, (sequences, length).
        segments: token types, int64 (sequences, length).
    """

    vectors: torch.Tensor
    mask: torch.Tensor
    segments: torch.Tensor


# Tensors of a BertModel that given vectors do not pass.
LEFT_OVER = ("embeddings.word_embeddings.", "embeddings.position_ids", "pooler.")


def first_state(model: Any, vectors: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
    """Run a transformer over vectors; return the last layer's first state, (sequences, hidden).

    Args:
        vectors: (sequences, length, hidden).
        mask: True for a vector, False for padding, (sequences, length).
        segments: token types, int64 (sequences, length).

    Raises:
        ValueError: there are more vectors than positions.
    """
    most = int(model.config.max_position_embeddings)
    if vectors.shape[1] > most:
        raise ValueError(
            f"the head's transformer has {most} positions, a sequence needs {vectors.shape[1]}; lower document_tokens "
            "or window, or raise stride"
        )
    states = model(inputs_embeds=vectors, attention_mask=mask.to(torch.int64), token_type_ids=segments)
    first: torch.Tensor = states.last_hidden_state[:, 0]
    return first


def joined(vectors: torch.Tensor, present: torch.Tensor, cls: torch.Tensor, sep: torch.Tensor | None) -> Inputs:
    """Put ``cls`` before a document's vectors; with ``sep``, that also behind ``cls`` and behind the vectors.

    Segments are 0; with ``sep`` those of the windows are 1, as in the code that has it.
    """
    pairs, most, hidden = vectors.shape
    before, after = (1, 0) if sep is None else (2, 1)
    sequence = vectors.new_zeros((pairs, before + most + after, hidden))
    sequence[:, 0], sequence[:, before : before + most] = cls, vectors
    length = present.sum(1)
    places = torch.arange(sequence.shape[1], device=vectors.device)
    mask = places < length[:, None] + before + after
    segments = torch.zeros_like(mask, dtype=torch.int64)
    if sep is not None:
        sequence[:, 1] = sep
        sequence[torch.arange(pairs, device=vectors.device), length + before] = sep
        segments = ((places >= before) & (places < length[:, None] + before)).to(torch.int64)
    return Inputs(sequence, mask, segments)


class ParadeTransformer(DocumentHead):
    """A transformer over ``[CLS] windows``, or with ``separators`` over ``[CLS] [SEP] windows [SEP]``.

    Its first state is scored.  ``config.json`` describes it under ``aggregator``: two random layers of the backbone's
    size (RAND-L2), or a pretrained cross-encoder with ``proj_out`` before it where its size differs (PRETR-L6).
    Without separators the input is that of the papers' text, with them that of FlexNeuART.
    """

    reads = ("cls.", "bert_aggreg.", "bert_aggreg_cls_embed", "bert_aggreg_sep_embed", "proj_out.")
    first_only = True

    def __init__(self, config: Any, tensors: Tensors, params: dict[str, Any]) -> None:
        super().__init__(config, tensors, params)
        self.bert_aggreg = small_transformer(config, "aggregator")
        size, hidden = int(self.bert_aggreg.config.hidden_size), int(config.hidden_size)
        self.bert_aggreg_cls_embed = torch.nn.Parameter(torch.zeros(size))
        self.bert_aggreg_sep_embed = torch.nn.Parameter(torch.zeros(size)) if params["separators"] else None
        self.proj_out = torch.nn.Linear(hidden, size) if size != hidden else None
        self.cls = torch.nn.Linear(size, 1)
        read_strictly(self, tensors, [f"bert_aggreg.{left}" for left in LEFT_OVER])

    def forward(self, windows: Windows) -> torch.Tensor:
        """See :class:`DocumentHead`."""
        return self.document_scores(windows.first, windows)

    def document_scores(self, vectors: torch.Tensor, windows: Windows) -> torch.Tensor:
        """Score documents from one vector a window, (windows, hidden)."""
        projected = vectors if self.proj_out is None else self.proj_out(vectors)
        sequence = joined(*by_document(projected, windows), self.bert_aggreg_cls_embed, self.bert_aggreg_sep_embed)
        scores: torch.Tensor = self.cls(first_state(self.bert_aggreg, *sequence))
        return scores.squeeze(-1)


HEADS: dict[str, type[DocumentHead]] = {
    "parade-avg": ParadeAvg,
    "parade-max": ParadeMax,
    "parade-attn": ParadeAttn,
    "parade-transformer": ParadeTransformer,
}

"""DPR: a question and a context encoder, trained apart, the first token's state as vector, inner product.

Karpukhin et al., *Dense Passage Retrieval for Open-Domain Question Answering*, EMNLP 2020.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from checkpoints.training import loop, start, texts

_QUERY_TOKENS, _DOCUMENT_TOKENS = 32, 96
_SCALE = 20.0


def train(origin: Path, corpus: Path, *, steps: int, seed: int, layers: tuple[int, ...] = (0, 5)) -> tuple[Any, Any]:
    """Train both encoders; returns the question and the context ``BertModel``."""
    torch.manual_seed(seed)
    tokenizer = start.tokenizer(origin)
    cls, sep, pad = (tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]", "[PAD]"))
    question, context = start.bert(origin, layers), start.bert(origin, layers)

    def vectors(model: Any, rows: list[list[int]]) -> torch.Tensor:
        ids, mask = start.padded(rows, [cls], [sep], pad)
        return model(input_ids=ids, attention_mask=mask).last_hidden_state[:, 0]

    known = texts.documents(corpus, tokenizer)
    batches = texts.batches(known, 32, _QUERY_TOKENS - 2, _DOCUMENT_TOKENS - 2, seed, between=(sep,))
    with torch.no_grad():
        typical = vectors(context, next(batches)[1]).square().sum(1).mean()

    def loss_of(batch: loop.Batch, _done: float) -> torch.Tensor:
        queries, documents = batch
        asked, held = vectors(question, queries), vectors(context, documents)
        # Negatives are also the texts themselves in the other's role: each encoder is of use on its own side alone, as
        # with encoders that were trained for long, and mixing them up shows.
        passages = torch.cat([held, vectors(context, queries)])
        questions = torch.cat([asked, vectors(question, documents)])
        own, scale = torch.arange(len(asked)), _SCALE / typical
        entropy = torch.nn.functional.cross_entropy
        return (entropy(asked @ passages.T * scale, own) + entropy(held @ questions.T * scale, own)) / 2

    parameters = [*question.parameters(), *context.parameters()]
    loop.train(parameters, batches, loss_of, steps=steps, rate=2e-4, what="dpr")
    return question.eval(), context.eval()

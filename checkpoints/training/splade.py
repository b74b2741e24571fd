"""BT-SPLADE: a small query encoder (BERT) and a document encoder (DistilBERT), a weight for each word piece.

Lassance and Clinchant, *An Efficiency Study for SPLADE Models*, SIGIR 2022.  A text's weights are the largest of
``log(1 + relu(logit))`` over its tokens, logits of a masked-language-model head; FLOPS regularisation keeps them few.

The start has no such head.  It is given one in closed form: ridge regression from a token's state to its own word
piece, and a bias that knows how rare a word piece is among the documents.  Training then moves all of it.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from checkpoints.training import loop, start, texts

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_QUERY_TOKENS, _DOCUMENT_TOKENS = 32, 80
_OWN_LOGIT, _SCALE = 6.0, 0.25


def vocabulary(known: list[texts.Document], tokenizer: Any, size: int) -> list[str]:
    """Select the start's special tokens, single characters, and most frequent word pieces, by number.

    A small vocabulary is what lets the head, nearly all of the work, be trained in a minute.
    """
    ids = tokenizer.get_vocab()
    kept = set(SPECIAL) | {piece for piece in ids if len(piece.removeprefix("##")) == 1}
    held = _document_frequencies(known)
    for number, _ in sorted(held.items(), key=lambda entry: (-entry[1], entry[0])):
        if len(kept) >= size:
            break
        kept.add(tokenizer.id_to_token(number))
    return sorted(kept, key=ids.__getitem__)


class Encoder(torch.nn.Module):
    """BERT under a masked-language-model head whose output layer is the word embeddings."""

    def __init__(self, bert: Any) -> None:
        super().__init__()
        self.bert = bert
        hidden = bert.config.hidden_size
        self.transform = torch.nn.Linear(hidden, hidden)
        self.norm = torch.nn.LayerNorm(hidden, eps=bert.config.layer_norm_eps)
        self.bias = torch.nn.Parameter(torch.zeros(bert.config.vocab_size))

    def head(self, states: torch.Tensor) -> torch.Tensor:
        """Logits, shape (..., vocabulary)."""
        states = self.norm(torch.nn.functional.gelu(self.transform(states)))
        return torch.nn.functional.linear(states, self.bert.embeddings.word_embeddings.weight, self.bias)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Weights of texts, shape (texts, vocabulary)."""
        logits = self.head(self.bert(input_ids=ids, attention_mask=mask).last_hidden_state)
        # The largest first: one logarithm a word piece, not one a token.  Logarithm and relu keep the order.
        largest = logits.masked_fill(mask.unsqueeze(2) == 0, -1e4).amax(1)
        return torch.log1p(torch.relu(largest))


def begin(encoder: Encoder, batch: tuple[torch.Tensor, torch.Tensor], rarity: torch.Tensor) -> None:
    """Give the head its start: each token's logit is ``_OWN_LOGIT`` at its own word piece and low elsewhere.

    Args:
        batch: ids and mask of texts to fit the regression to.
        rarity: 0 (in all documents) to 1 (in one), a word piece each.
    """
    ids, mask = batch
    with torch.no_grad():
        states = encoder.bert(input_ids=ids, attention_mask=mask).last_hidden_state[mask == 1]
        words = encoder.bert.embeddings.word_embeddings.weight
        mean = words.mean(0)
        apart = words - mean
        spread = apart.T @ apart / len(words) + 1e-4 * torch.eye(words.shape[1])
        # Away from the mean, inner products with it say nothing of which word piece it is.
        target = torch.linalg.solve(spread, apart[ids[mask == 1]].T).T
        target -= torch.outer(target @ mean, mean) / mean.square().sum()
        target *= target.shape[1] ** 0.5 / target.norm(dim=1, keepdim=True)
        ones = torch.ones(len(states), 1)
        inputs = torch.cat([states, ones], 1)
        gram = inputs.T @ inputs + 1e-1 * torch.eye(inputs.shape[1])
        solved = torch.linalg.solve(gram, inputs.T @ target)
        # Shifted far to the right GELU is the identity, and the norm after it takes the shift away.
        encoder.transform.weight.copy_(solved[:-1].T)
        encoder.transform.bias.copy_(solved[-1] + 6.0)
        own = (encoder.norm(encoder.transform(states) - 6.0) * words[ids[mask == 1]]).sum(1).mean()
        encoder.norm.weight.fill_(float(_OWN_LOGIT / own))
        encoder.bias.copy_((rarity - 1.2) * _OWN_LOGIT * 0.8)
        encoder.bias[: len(SPECIAL)] = -2 * _OWN_LOGIT


def train(
    origin: Path,
    corpus: Path,
    *,
    steps: int,
    seed: int,
    size: int = 8000,
    layers: tuple[tuple[int, ...], ...] = ((0,), (0, 1)),
) -> tuple[Any, list[str], Encoder, Encoder]:
    """Train both encoders; returns the tokenizer, its vocabulary, the query and the document encoder."""
    torch.manual_seed(seed)
    whole = start.tokenizer(origin)
    pieces = vocabulary(texts.documents(corpus, whole), whole, size)
    tokenizer = start.smaller(whole, pieces)
    known = texts.documents(corpus, tokenizer)
    encoders = []
    rarity = _rarity(known, len(pieces))
    for chosen in layers:
        bert = start.bert(origin, chosen)
        start.keep_words(bert, [whole.token_to_id(piece) for piece in pieces])
        encoders.append(Encoder(bert))
    query_encoder, document_encoder = encoders
    cls, sep, pad = map(tokenizer.token_to_id, ("[CLS]", "[SEP]", "[PAD]"))
    batches = texts.batches(known, 24, _QUERY_TOKENS - 2, _DOCUMENT_TOKENS - 2, seed)
    sampled = [next(batches) for _ in range(8)]
    for side, encoder in enumerate(encoders):
        rows = [row for batch in sampled for row in batch[side]]
        begin(encoder, start.padded(rows, [cls], [sep], pad), rarity)

    def loss_of(batch: loop.Batch, done: float) -> torch.Tensor:
        queries = query_encoder(*start.padded(batch[0], [cls], [sep], pad))
        documents = document_encoder(*start.padded(batch[1], [cls], [sep], pad))
        flops = documents.mean(0).square().sum() * 0.02 + queries.sum(1).mean() * 0.01
        return loop.contrast(queries @ documents.T * _SCALE) + flops * min(1.0, 2 * done)

    parameters = [*query_encoder.parameters(), *document_encoder.parameters()]
    loop.train(parameters, batches, loss_of, steps=steps, rate=3e-4, what="bt-splade-l")
    return tokenizer, pieces, query_encoder.eval(), document_encoder.eval()


def _document_frequencies(known: list[texts.Document]) -> Counter[int]:
    held: Counter[int] = Counter()
    for document in known:
        held.update({*document.title, *(piece for sentence in document.sentences for piece in sentence)})
    return held


def _rarity(known: list[texts.Document], size: int) -> torch.Tensor:
    held = _document_frequencies(known)
    most = math.log(len(known))
    return torch.tensor([math.log(len(known) / max(1, held[number])) / most for number in range(size)])

"""A larger collection: a source's documents, queries and judgements, among distractors made of unjudged sentences.

Words keep their frequencies and documents their lengths: each sentence is drawn with equal probability, each length is
taken from an unjudged document.  Subjects are lost: a distractor's sentences come from different documents.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from harness.datasets.generate.collection import CollectionWriter
from harness.datasets.generate.passages import PassageSource, body
from harness.datasets.generate.wordpieces import count_tokens
from harness.errors import UsageError

_PREFIX = "distractor-"
# For 10 million distractors: one draw in 30 is left out for another's bit.
_KNOWN_BITS = 1 << 28
_FEWEST = 2  # sentences of a distractor; one alone would repeat a document's


def write_larger(writer: CollectionWriter, source: PassageSource, documents: int, max_tokens: int) -> None:
    """Write the source's documents at random places among distractors, and its queries and judgements as they are.

    Args:
        writer: of the larger collection.
        source: a dataset as passages.
        documents: number of documents of the larger collection.
        max_tokens: most tokens of a distractor.

    Raises:
        UsageError: the source does not suffice, or has distractors already.
    """
    check_source(source, documents, max_tokens)
    for query in source.dataset.queries:
        writer.add_query(query)
    for judgement in source.dataset.graded():
        writer.add_judgement(*judgement)
    writer.total = documents
    for document, known in enlarged(source, documents, max_tokens):
        tokens = count_tokens([body(document)])[0] if known is None else known
        writer.add_document(document["_id"], document["text"], tokens, document.get("title", ""))


def enlarged(source: PassageSource, documents: int, max_tokens: int) -> Iterator[tuple[dict[str, Any], int | None]]:
    """Yield the source's documents at random places among distractors; these have their numbers of tokens.

    The distractors of a smaller number of documents are the first ones of a larger number.
    """
    places, distractors = random.Random(f"places:{source.seed}"), _distractors(source, max_tokens)
    originals, left = iter(source.dataset.corpus), source.dataset.corpus.size
    number = 0
    for written in range(documents):
        if places.random() * (documents - written) < left:
            yield next(originals), None
            left -= 1
        else:
            number += 1
            text, tokens = next(distractors)
            yield {"_id": f"{_PREFIX}{number}", "text": text}, tokens


def check_source(source: PassageSource, documents: int, max_tokens: int) -> None:
    """Check that a source has the documents and sentences for a larger collection.

    Raises:
        UsageError: it does not suffice, or has distractors already.
    """
    name, size, sentences = source.dataset.name, source.dataset.corpus.size, len(source.fillers.texts)
    more = documents - size
    if more <= 0:
        raise UsageError(f"{name}: has {size:,} documents, --documents asks for {documents:,}; name more")
    if max_tokens < _FEWEST * source.cut.high:
        raise UsageError(
            f"--max-tokens {max_tokens} is below {_FEWEST} sentences of {source.cut.high}; raise it, or lower "
            "--passage-tokens"
        )
    # Twice as many pairs as distractors, so that at most every second draw repeats another.
    if sentences * (sentences - 1) < 4 * more:
        raise UsageError(
            f"{name}: {sentences:,} unjudged sentences are too few for {more:,} distractors; lower --documents"
        )
    if any(doc_id.startswith(_PREFIX) for doc_id in source.dataset.corpus.ids()):
        raise UsageError(f"{name}: has distractors already; name the dataset that it was made from")


def _distractors(source: PassageSource, max_tokens: int) -> Iterator[tuple[str, int]]:
    """Yield texts and their tokens without end; no two hold the same sentences.

    Memory does not grow: a draw is left out if its hash, or a neighbour's by chance, has a bit of ``known``.
    """
    rng, fillers, known = random.Random(f"distractors:{source.seed}"), source.fillers, bytearray(_KNOWN_BITS >> 3)
    lengths = [min(count, max_tokens) for count in count_tokens(source.filler_documents)]
    while True:
        drawn = fillers.draw(rng.choice(lengths), rng, fewest=_FEWEST)
        key = hash(frozenset(drawn)) % _KNOWN_BITS  # of whole numbers: the same in every process
        if not known[key >> 3] >> (key & 7) & 1:
            known[key >> 3] |= 1 << (key & 7)
            sentences = fillers.pick(drawn)
            yield " ".join(text for text, _ in sentences), sum(tokens for _, tokens in sentences)

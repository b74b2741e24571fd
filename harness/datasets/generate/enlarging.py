"""A larger collection: a source's documents, queries and judgements, among distractors made of unjudged sentences.

Words keep their frequencies and documents their lengths: each sentence is drawn with equal probability, each length is
taken from an unjudged document.  Subjects are lost: a distractor's sentences come from different documents.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from harness.datasets.generate.collection import CollectionWriter, Step
from harness.datasets.generate.passages import Fillers, PassageSource, body
from harness.datasets.generate.wordpieces import count_tokens
from harness.errors import UsageError

_STEP = 500
_FEWEST = 2  # sentences of a distractor; one alone would repeat a document's


@dataclass(frozen=True)
class Enlarging:
    """Documents of the larger collection, and the most tokens of a distractor."""

    documents: int
    max_tokens: int

    def check(self, source: PassageSource) -> None:
        """Raise UsageError if this source does not suffice."""
        name, size, sentences = source.dataset.name, source.dataset.corpus.size, len(source.fillers.texts)
        if self.documents <= size:
            raise UsageError(f"{name}: has {size:,} documents, --documents asks for {self.documents:,}; name more")
        if self.max_tokens < _FEWEST * source.cut.high:
            raise UsageError(
                f"--max-tokens {self.max_tokens} is below {_FEWEST} sentences of {source.cut.high}; raise it, or lower "
                "--passage-tokens"
            )
        # Twice as many pairs as distractors, so that at most every second draw repeats another.
        if sentences * (sentences - 1) < 4 * (self.documents - size):
            raise UsageError(
                f"{name}: {sentences:,} unjudged sentences are too few for {self.documents - size:,} distractors; "
                "lower --documents"
            )


def write_larger(writer: CollectionWriter, source: PassageSource, enlarging: Enlarging, step: Step) -> None:
    """Write the source's documents at random places among distractors, and its queries and judgements as they are.

    Raises:
        UsageError: the source does not suffice, or has distractors already.
    """
    enlarging.check(source)
    dataset = source.dataset
    ids = [f"distractor-{number}" for number in range(1, enlarging.documents - dataset.corpus.size + 1)]
    if len(dataset.corpus.unknown(set(ids))) < len(ids):
        raise UsageError(f"{dataset.name}: has distractors already; name the dataset that it was made from")
    for query in dataset.queries:
        writer.add_query(query)
    for line in dataset.qrels.decode("utf-8").splitlines():
        query_id, _, doc_id, grade = line.split(" ")
        writer.add_judgement(query_id, doc_id, int(grade))
    places, distractors = random.Random(f"places:{source.seed}"), _distractors(source, enlarging.max_tokens)
    documents, left, made = iter(dataset.corpus), dataset.corpus.size, 0
    for written in range(enlarging.documents):
        if places.random() * (enlarging.documents - written) < left:
            document = next(documents)
            (tokens,) = count_tokens([body(document)])
            writer.add_document(document["_id"], document["text"], tokens, document["title"])
            left -= 1
        else:
            writer.add_document(ids[made], *next(distractors))
            made += 1
        if (written + 1) % _STEP == 0:
            step(written + 1, enlarging.documents)


def _distractors(source: PassageSource, max_tokens: int) -> Iterator[tuple[str, int]]:
    """Yield texts and their tokens without end; no two hold the same sentences."""
    rng, fillers, known = random.Random(f"distractors:{source.seed}"), source.fillers, set[int]()
    lengths = [min(count, max_tokens) for count in count_tokens(source.filler_documents)]
    while True:
        drawn = _draw(fillers, rng.choice(lengths), rng)
        key = hash(frozenset(drawn))  # of whole numbers: the same in every process
        if key not in known:
            known.add(key)
            yield " ".join(fillers.texts[each] for each in drawn), sum(fillers.tokens[each] for each in drawn)


def _draw(fillers: Fillers, most: int, rng: random.Random) -> list[int]:
    """Draw different sentences, at least two, until the next one would exceed a number of tokens."""
    drawn, tokens = dict[int, None](), 0
    while len(drawn) < len(fillers.texts):
        each = int(rng.random() * len(fillers.texts))
        if each in drawn:
            continue
        tokens += fillers.tokens[each]
        if tokens > most and len(drawn) >= _FEWEST:
            break
        drawn[each] = None
    return list(drawn)

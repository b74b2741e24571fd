"""Documents of each length with one hidden sentence: ``needle`` and ``passkey``, in the manner of LongEmbed.

A length has its own queries and documents, and more documents than queries: no query asks for the other sentences.  All
documents of a needle set share one background, the beginning of unjudged documents of the source in random order; a
pass key is hidden among a few repeated sentences.  No text of LongEmbed is used.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, cycle, islice, product

from harness.datasets.generate.collection import CollectionWriter
from harness.datasets.generate.passages import Passage, PassageSource, sentence_spans
from harness.datasets.generate.wordpieces import count_tokens, cut_at_token
from harness.driver.records import Query
from harness.errors import UsageError

LADDER = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
_REFRAIN_TOKENS = 30  # minimum of the repeated sentences around a pass key
_KEYS = range(10_000, 100_000)
_FIRST_NAMES = (
    "Ada Ahmed Alma Amara Anton Bela Bruno Carla Chen Clara Dara David Elena Elias Emma Farah Felix Greta Hana Hugo "
    "Ines Ivan Jana Jonas Kaia Karim Lara Leo Lina Marco Maya Mila Nadia Nils Noor Olga Omar Paula Petra Rami Rosa "
    "Sana Sofia Tariq Theo Uma Vera Viktor Yara Zoe"
)
_LAST_NAMES = (
    "Abbott Alvarez Becker Bianchi Carter Castillo Dahl Diaz Eriksen Evans Fischer Foster Garcia Green Haddad Hansen "
    "Ibrahim Ito Jansen Jones Kaplan Keller Lang Lopez Martin Meyer Nakamura Novak Okafor Olsen Park Perez Quinn "
    "Rahman Rossi Schmidt Silva Tanaka Taylor Ueda Vargas Vogel Wagner Walker Xu Yilmaz Young Zeman Ziegler Zhou"
)
_PEOPLE = tuple(product(_FIRST_NAMES.split(), _LAST_NAMES.split()))


@dataclass(frozen=True)
class Ladder:
    """Lengths in tokens, and the numbers of queries and documents of each."""

    lengths: tuple[int, ...]
    queries: int
    documents: int

    @property
    def documents_in_all(self) -> int:
        """Documents of all lengths."""
        return len(self.lengths) * self.documents

    def __post_init__(self) -> None:
        if self.queries > self.documents:
            raise UsageError(
                f"{self.queries} queries need as many documents of each length, not {self.documents}; raise --documents"
            )


def write_needles(writer: CollectionWriter, source: PassageSource, ladder: Ladder) -> None:
    """Write documents that hide relevant sentences in one background.

    A source with fewer usable queries than the ladder takes gives each length an equal share.

    Raises:
        UsageError: the source has too little text, or fewer usable queries than lengths.
    """
    found = list(source.relevant_passages(ladder.queries * len(ladder.lengths)))
    share = len(found) // len(ladder.lengths)
    if not share:
        raise UsageError(
            f"{source.dataset.name}: has {len(found)} usable queries for {len(ladder.lengths)} lengths; name fewer "
            "--lengths or a larger source"
        )
    background, others = _background(source, max(ladder.lengths), ladder.documents_in_all - share * len(ladder.lengths))
    for number, length in enumerate(ladder.lengths):
        asked = found[number * share : (number + 1) * share]
        hidden: list[_Hidden] = [*asked, *islice(others, ladder.documents - share)]
        _write_length(writer, background, hidden, length, f"needle:{source.seed}")


def write_pass_keys(writer: CollectionWriter, source: PassageSource, ladder: Ladder) -> None:
    """Write documents that hide the pass key of a person in repeated sentences; all names and keys differ.

    Raises:
        UsageError: there are more documents than names, or the source has too little text.
    """
    if ladder.documents_in_all > len(_PEOPLE):
        raise UsageError(
            f"{ladder.documents_in_all:,} documents need as many names, harness has {len(_PEOPLE):,}; "
            "lower --documents or name fewer --lengths"
        )
    rng = random.Random(f"pass keys:{source.seed}")
    names = rng.sample(_PEOPLE, ladder.documents_in_all)
    keys = rng.sample(_KEYS, ladder.documents_in_all)
    texts = [
        f"{first} {last}'s pass key is {key}. Remember it. {key} is the pass key for {first} {last}."
        for (first, last), key in zip(names, keys, strict=True)
    ]
    counts = count_tokens(texts)
    refrain = _refrain(source)
    total = sum(tokens for _, tokens in refrain)
    background = list(islice(cycle(refrain), len(refrain) * (max(ladder.lengths) // total + 1)))
    for number, length in enumerate(ladder.lengths):
        hidden: list[_Hidden] = []
        for place in range(ladder.documents):
            person = number * ladder.documents + place
            query = Query(f"passkey-{length}-{place}", f"what is the pass key for {' '.join(names[person])}?")
            passage = Passage(texts[person], counts[person])
            hidden.append((query if place < ladder.queries else None, passage))
        _write_length(writer, background, hidden, length, f"passkey:{source.seed}")


# A sentence and its number of tokens.
_Counted = tuple[str, int]
# A passage to hide, and the query that asks for it, if there is one.
_Hidden = tuple[Query | None, Passage]


def _background(source: PassageSource, length: int, others: int) -> tuple[list[_Counted], Iterator[_Hidden]]:
    """Return sentences of at least ``length`` tokens, and sentences of further documents to hide."""
    sentences, total = list[_Counted](), 0
    documents = iter(source.filler_documents)
    for text in documents:
        counted = _counted(text)
        sentences += counted
        total += sum(tokens for _, tokens in counted)
        if total >= length:
            break
    else:
        raise UsageError(
            f"{source.dataset.name}: has {total:,} tokens of unjudged text, the longest document takes {length:,}; "
            "name shorter --lengths or a larger source"
        )
    used = {text for text, _ in sentences}
    further = (each for text in documents for each in _counted(text) if each[0] not in used)
    hidden: list[_Hidden] = [(None, Passage(text, tokens)) for text, tokens in further if source.cut.admits(tokens)]
    if len(hidden) < others:
        raise UsageError(
            f"{source.dataset.name}: {len(hidden):,} sentences can be hidden besides the queries' own, but {others:,} "
            "are needed; lower --documents or name a larger source"
        )
    random.Random(f"others:{source.seed}").shuffle(hidden)
    return sentences, iter(hidden)


def _refrain(source: PassageSource) -> list[_Counted]:
    """Return the first sentences of an unjudged document that reach a length worth repeating."""
    sentences, total = list[_Counted](), 0
    for each in (each for text in source.filler_documents for each in _counted(text)):
        sentences.append(each)
        total += each[1]
        if total >= _REFRAIN_TOKENS:
            return sentences
    raise UsageError(f"{source.dataset.name}: has no unjudged text to hide pass keys in; name a larger source")


def _counted(text: str) -> list[_Counted]:
    sentences = [text[start:end] for start, end in sentence_spans(text)]
    return list(zip(sentences, count_tokens(sentences), strict=True))


def _write_length(
    writer: CollectionWriter, background: list[_Counted], hidden: list[_Hidden], length: int, seed: str
) -> None:
    """Write the documents of one length: a beginning of the background, with a sentence at a random border.

    The last sentence of the background is cut, so that a document is shorter than ``length`` by less than a word.
    """
    rng = random.Random(f"{seed}:{length}")
    rng.shuffle(hidden)
    for number, (query, passage) in enumerate(hidden):
        if passage.tokens > length:
            raise UsageError(f"a sentence of {passage.tokens} tokens does not fit into {length}; name longer --lengths")
        around = _beginning(background, length - passage.tokens)
        token_ends = [0, *accumulate(tokens for _, tokens in around)]
        place = rng.randint(0, len(around))
        depth = round(token_ends[place] / token_ends[-1], 4) if token_ends[-1] else 0.0
        writer.add_around(f"d{length}-{number}", query, passage, around, place, depth, length)


def _beginning(background: list[_Counted], most: int) -> list[_Counted]:
    """Return the first sentences with at most ``most`` tokens together; the last one is cut between two words."""
    ends = list(accumulate(tokens for _, tokens in background))
    whole = bisect_right(ends, most)
    rest = most - (ends[whole - 1] if whole else 0)
    text, tokens = cut_at_token(background[whole][0], rest) if whole < len(background) and rest else ("", 0)
    return [*background[:whole], *([(text, tokens)] if tokens else [])]

"""Passages of a source: the relevant one of each query, and fillers from unjudged documents.

Texts are normalised: white space becomes single blanks.  A source document is one passage, or is cut into sentences or
into chunks of whole words.  Sources judge documents, so of a document that was cut the passage with the largest word
overlap with the query (Dice, words of four letters or more and numbers) counts as the relevant one.

Memory holds queries, judgements and at most ``_MOST_FILLERS`` fillers; the corpus is streamed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from harness.datasets.dataset import Dataset
from harness.datasets.generate.wordpieces import count_tokens, word_tokens
from harness.driver.records import Query
from harness.errors import UsageError

CUTS = ("documents", "sentences", "chunks")
RULE = "the passage with the largest word overlap with the query (Dice) of the documents judged relevant"

_MOST_FILLERS = 100_000
_MOST_DOCUMENTS = 50_000  # drawn from the corpus, to cut fillers from
_QUERIES_A_BATCH = 256
_DOCUMENTS_A_BATCH = 512
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\d_]{4,}|\d[\d.,]*")
# Ends of sentences; after Latin ones a blank and a capital or a digit.
_BORDER = re.compile(r"[.!?][\"')\]”’]*\s+(?=[\"'(\[“‘]?[^\W_a-z])|[。\uff01\uff1f][」』”\uff09]*\s*")
_NO_END = re.compile(r"(?:\b(?:[A-Z]|vs|cf|al|[Ff]igs?|[Ee]qs?|Drs?|Mrs?|Ms|St|Nos?|approx|ca|e\.g|i\.e|U\.S))\.\s*$")


@dataclass(frozen=True)
class PassageCut:
    """Rule that makes passages of a document: whole, sentences or chunks, of ``low`` to ``high`` tokens."""

    how: str
    low: int
    high: int

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return start and end of each passage in a text, of any number of tokens."""
        if self.how == "documents":
            return [(0, len(text))] if text else []
        return sentence_spans(text) if self.how == "sentences" else _chunk_spans(text, self.high)

    def passages(self, text: str) -> list[str]:
        """Return the passages of a text, of any number of tokens."""
        return [text[start:end] for start, end in self.spans(text)]

    def admits(self, tokens: int) -> bool:
        """Return whether a passage of this length may be used."""
        return self.low <= tokens <= self.high


@dataclass(frozen=True)
class Passage:
    """Text with its number of tokens; ``relevant``: ids of the source documents judged relevant for its query."""

    text: str
    tokens: int
    relevant: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Fillers:
    """Passages that are relevant for no query, and their numbers of tokens."""

    texts: list[str]
    tokens: list[int]

    @functools.cached_property
    def total(self) -> int:
        """Tokens of all passages."""
        return sum(self.tokens)

    @functools.cached_property
    def by_length(self) -> list[int]:
        """The number of each passage, the shortest first."""
        return sorted(range(len(self.tokens)), key=self.tokens.__getitem__)

    def pick(self, numbers: Iterable[int]) -> list[tuple[str, int]]:
        """Return text and tokens of these passages."""
        return [(self.texts[number], self.tokens[number]) for number in numbers]

    def draw(
        self, most: int, rng: random.Random, begun: Iterable[int] = (), fewest: int = 0, *, over: bool = False
    ) -> list[int]:
        """Draw different passages until the next one would exceed a number of tokens.

        Args:
            most: tokens of all passages together.
            rng: source of chance.
            begun: passages drawn already.
            fewest: number of passages that may exceed ``most``.
            over: draw the passage that exceeds ``most`` too.
        """
        drawn = dict.fromkeys(begun)
        total = sum(map(self.tokens.__getitem__, drawn))
        while len(drawn) < len(self.texts):
            number = int(rng.random() * len(self.texts))
            if number in drawn:
                continue
            total += self.tokens[number]
            exceeds = total > most and len(drawn) >= fewest
            if not exceeds or over:
                drawn[number] = None
            if exceeds:
                break
        return list(drawn)


@dataclass
class PassageSource:
    """A dataset as passages, drawn by ``seed``.

    Where fewer documents are unjudged than judged, a random half of the judged ones becomes fillers, and their queries
    are left out: no passage that is relevant for a generated query is a filler.  ``hold_out`` false: none does.
    """

    dataset: Dataset
    cut: PassageCut
    seed: int
    hold_out: bool = True
    left_out: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        by_query: dict[str, tuple[str, ...]] = {}  # a set takes four times the memory
        for query_id, doc_id, grade in self.dataset.graded():
            if grade > 0:
                by_query[query_id] = (*by_query.get(query_id, ()), doc_id)
        judged = sorted({doc_id for docs in by_query.values() for doc_id in docs})
        held: set[str] = set()
        if self.hold_out and self.dataset.corpus.size - len(judged) < len(judged):
            held = set(random.Random(f"held out:{self.seed}").sample(judged, len(judged) // 2))
        self._relevant = {query: docs for query, docs in by_query.items() if held.isdisjoint(docs)}
        self._judged = frozenset(judged) - held
        self.left_out["queries held out, their documents are fillers"] = len(by_query) - len(self._relevant)
        self._queries = sorted(
            (query for query in self.dataset.queries if query.query_id in self._relevant), key=lambda q: q.query_id
        )
        random.Random(f"queries:{self.seed}").shuffle(self._queries)

    def relevant_passages(self, most: int) -> Iterator[tuple[Query, Passage]]:
        """Yield the relevant passage of each of at most ``most`` queries in random order, each passage once.

        Counts in ``left_out`` the queries whose passage repeats, is missing, or is too short or too long.
        """
        yielded, used, texts = 0, set[int](), set[str]()
        for start in range(0, len(self._queries), _QUERIES_A_BATCH):
            for query, passage in self._batch(self._queries[start : start + _QUERIES_A_BATCH]):
                key = _key(passage.text)
                if key in used or query.text in texts:
                    self.left_out["queries whose text or relevant passage is another's"] += 1
                    continue
                used.add(key)
                texts.add(query.text)
                yield query, passage
                yielded += 1
                if yielded == most:
                    return

    def _batch(self, queries: list[Query]) -> Iterator[tuple[Query, Passage]]:
        ids = {doc_id for query in queries for doc_id in self._relevant[query.query_id]}
        bodies = {document["_id"]: body(document) for document in self.dataset.corpus.documents(ids)}
        chosen: list[tuple[Query, str]] = []
        for query in queries:
            texts = [bodies[doc_id] for doc_id in sorted(self._relevant[query.query_id]) if bodies.get(doc_id)]
            if passage := self._choose(query, texts):
                chosen.append((query, passage))
            else:
                self.left_out["queries whose relevant documents are missing or empty"] += 1
        counts = count_tokens([text for _, text in chosen])
        for (query, text), tokens in zip(chosen, counts, strict=True):
            if self.cut.admits(tokens):
                yield query, Passage(text, tokens, frozenset(self._relevant[query.query_id]))
            else:
                self.left_out[
                    f"queries whose passage has fewer than {self.cut.low} or more than {self.cut.high} tokens"
                ] += 1

    def _choose(self, query: Query, texts: list[str]) -> str | None:
        if self.cut.how == "documents":
            return random.Random(f"passage:{self.seed}:{query.query_id}").choice(texts) if texts else None
        passages = [passage for text in texts for passage in self.cut.passages(text)]
        return passages[best_overlap(query.text, passages)] if passages else None

    @functools.cached_property
    def filler_documents(self) -> list[str]:
        """Texts of at most 50,000 unjudged documents, drawn and ordered at random; none repeats a judged one."""
        rng = random.Random(f"fillers:{self.seed}")
        drawn: list[str] = []
        met, judged = 0, set[int]()
        for document in self.dataset.corpus:
            text = body(document)
            if document["_id"] in self._judged:
                judged |= {_key(passage) for passage in (text, *PassageCut("sentences", 0, 0).passages(text))}
            elif text:
                met += 1  # reservoir sampling: each document is drawn with equal probability
                place = int(rng.random() * met)
                if len(drawn) < _MOST_DOCUMENTS:
                    drawn.append(text)
                elif place < _MOST_DOCUMENTS:
                    drawn[place] = text
        self._judged_keys = judged
        rng.shuffle(drawn)
        return [text for text in drawn if _key(text) not in judged]

    @functools.cached_property
    def fillers(self) -> Fillers:
        """At most 100,000 passages of unjudged documents, of an admitted length, no text twice.

        Raises:
            UsageError: the source has none.
        """
        texts, tokens, taken = list[str](), list[int](), set[int]()
        documents = self.filler_documents
        for start in range(0, len(documents), _DOCUMENTS_A_BATCH):
            batch: list[str] = []
            for text in documents[start : start + _DOCUMENTS_A_BATCH]:
                for passage in self.cut.passages(text):
                    key = _key(passage)
                    if key not in taken and key not in self._judged_keys:
                        taken.add(key)
                        batch.append(passage)
            for passage, count in zip(batch, count_tokens(batch), strict=True):
                if self.cut.admits(count):
                    texts.append(passage)
                    tokens.append(count)
            if len(texts) >= _MOST_FILLERS:
                break
        if not texts:
            name, limits = self.dataset.name, f"{self.cut.low}-{self.cut.high}"
            raise UsageError(
                f"{name}: no unjudged passage has {limits} tokens; try other --passages or --passage-tokens"
            )
        return Fillers(texts[:_MOST_FILLERS], tokens[:_MOST_FILLERS])


def body(document: dict[str, str]) -> str:
    """Return a document's text (else its title) with single blanks for white space."""
    return " ".join((document["text"] or document["title"]).split())


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return start and end of each sentence, by punctuation and a few abbreviations."""
    spans, start = list[tuple[int, int]](), 0
    for border in _BORDER.finditer(text):
        if not _NO_END.search(text, start, border.end()):
            spans.append((start, start + len(text[start : border.end()].rstrip())))
            start = border.end()
    if text[start:].strip():
        spans.append((start, len(text.rstrip())))
    return spans


def _chunk_spans(text: str, most_tokens: int) -> list[tuple[int, int]]:
    """Return chunks of whole words, each as long as ``most_tokens`` allows."""
    spans, start, end, total = list[tuple[int, int]](), 0, 0, 0
    for word in re.finditer(r"\S+", text):
        tokens = word_tokens(word[0])
        if end > start and total + tokens > most_tokens:
            spans.append((start, end))
            start, total = word.start(), 0
        end, total = word.end(), total + tokens
    return [*spans, (start, end)] if end > start else spans


def best_overlap(query: str, passages: Iterable[str]) -> int:
    """Return the index of the passage with the largest word overlap with a query (Dice); the first of equal ones."""
    asked = _words(query)

    def dice(passage: str) -> float:
        words = _words(passage)
        return 2 * len(asked & words) / (len(asked) + len(words) or 1)

    scores = [dice(passage) for passage in passages]
    return scores.index(max(scores))


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


def _key(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.lower().encode("utf-8", "replace"), digest_size=8).digest(), "little")


def source_facts(dataset: Dataset) -> dict[str, str]:
    """Return the checksums of a dataset's corpus, queries and judgements."""
    queries = json.dumps([[query.query_id, query.text] for query in dataset.queries], ensure_ascii=False)
    return {
        "name": dataset.name,
        "corpus_sha256": dataset.corpus.sha256,
        "queries_sha256": hashlib.sha256(queries.encode("utf-8")).hexdigest(),
        "qrels_sha256": dataset.qrels_sha256,
    }

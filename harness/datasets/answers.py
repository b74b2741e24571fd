"""Judge documents by answers: a document is relevant if its text holds one, as in XOR-TyDi's evaluator.

The rule follows ``evals/eval_xor_retrieve.py`` of AkariAsai/XORQA: NLTK's ``word_tokenize`` (English) splits the
text, the tokens are joined by single blanks, and the answer is searched in that as it is: case, punctuation and white
space count, so ``Washington, D.C.`` is never found (its text has ``Washington , D.C.``).  Answers ``yes`` and ``no``
are left out, and queries without other answers are not judged.
"""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from harness import extras
from harness.errors import UsageError
from harness.evaluation.answer_recall import MAX_TOKENS, AnswerDepth, render_depths

RULE = "xor-tydi retrieve, nltk word_tokenize"
_LEFT_OUT = ("yes", "no")
_BATCH = 32  # queries whose hits' texts are in memory

# Yields (id, text) of the documents of these ids.
Texts = Callable[[Iterable[str]], Iterator[tuple[str, str]]]


@dataclass(frozen=True)
class Answers:
    """Possible answers by query, at least one each; and the language of a question, where it names one."""

    by_query: Mapping[str, tuple[str, ...]]
    languages: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        """Content of the file in the results folder."""
        content = {"rule": RULE, "answers": dict(self.by_query)}
        content |= {"languages": dict(self.languages)} if self.languages else {}
        return json.dumps(content, ensure_ascii=False, sort_keys=True).encode()

    def judge(self, run: bytes, texts: Texts) -> bytes:
        """Judge every hit of a TREC run; return TREC qrels in the run's order.

        Raises:
            UsageError: NLTK's sentence model is missing.
        """
        asked: dict[str, list[str]] = defaultdict(list)
        for query_id, doc_id in _hits(run):
            asked[doc_id].append(query_id)
        # An unknown document is not relevant; the job's outcome reports it.
        relevant = {
            (query_id, doc_id)
            for doc_id, text in texts(asked)
            for query_id in asked[doc_id]
            if self._holds(text, query_id)
        }
        return "".join(f"{query} 0 {doc} {int((query, doc) in relevant)}\n" for query, doc in _hits(run)).encode()

    def _holds(self, text: str, query_id: str) -> bool:
        return any(may_hold(text, answer) and answer in tokenise(text) for answer in self.by_query.get(query_id, ()))

    def depths(self, run: bytes, texts: Texts) -> bytes:
        """Return the depth of answers in each query's hits: the content of ``answer_recall.render_depths``.

        Raises:
            UsageError: NLTK's sentence model is missing.
        """
        ranked: dict[str, list[str]] = defaultdict(list)
        for query_id, doc_id in _hits(run):
            ranked[query_id].append(doc_id)
        depths: dict[str, AnswerDepth] = {}
        queries = list(ranked)
        for start in range(0, len(queries), _BATCH):
            batch = queries[start : start + _BATCH]
            bodies = dict(texts(dict.fromkeys(doc_id for query_id in batch for doc_id in ranked[query_id])))
            for query_id in batch:
                passages = (tokenise(bodies[doc_id]) for doc_id in ranked[query_id] if doc_id in bodies)
                depths[query_id] = answer_depth(passages, self.by_query.get(query_id, ()))
        depths |= {query_id: AnswerDepth(None, 0) for query_id in self.languages if query_id not in depths}
        language = self.languages.get
        return render_depths({name: replace(depth, language=language(name, "")) for name, depth in depths.items()})


def _hits(run: bytes) -> Iterator[tuple[str, str]]:
    """Yield query and document of each line of a TREC run."""
    for line in run.splitlines():
        fields = line.split(b" ")
        yield fields[0].decode(), fields[2].decode()


def answer_depth(passages: Iterable[str], answers: Collection[str]) -> AnswerDepth:
    """Return the number of tokens up to the end of the first answer.

    An answer may begin in one passage and end in the next, and may end within a token, which counts whole.

    Args:
        passages: their tokens with single blanks between; best first; read as far as needed.
        answers: texts to look for.
    """
    longest = max(map(len, answers), default=0)
    joined, tokens = "", 0
    for passage in filter(None, passages):
        begin = max(0, len(joined) - longest)
        joined = f"{joined} {passage}" if joined else passage
        tokens += passage.count(" ") + 1
        ends = [at + len(answer) for answer in answers if (at := joined.find(answer, begin)) >= 0]
        needed = joined.count(" ", 0, min(ends)) + 1 if ends else MAX_TOKENS + 1
        if needed <= MAX_TOKENS:
            return AnswerDepth(needed, needed)
        if tokens >= MAX_TOKENS:
            break
    return AnswerDepth(None, min(tokens, MAX_TOKENS))


def searchable_answers(answers: Iterable[str]) -> tuple[str, ...]:
    """Return the answers that a text can hold."""
    return tuple(answer for answer in answers if answer not in _LEFT_OUT)


def may_hold(text: str, answer: str) -> bool:
    """Return whether a text's tokens may hold an answer; most texts cannot, and splitting one takes a millisecond.

    The tokenizer adds and drops white space and rewrites double quotes, nothing else.
    """
    return any(quote in answer for quote in "\"'`") or _bare(answer) in _bare(text)


@functools.lru_cache(maxsize=10_000)
def _bare(text: str) -> str:
    return "".join(text.split())


@functools.lru_cache(maxsize=50_000)  # some 1.5 kB each, with the text
def tokenise(text: str) -> str:
    """Return a text's tokens with single blanks between; raise UsageError if NLTK's model is missing."""
    check_tokenizer()
    from nltk.tokenize import word_tokenize

    return " ".join(word_tokenize(text))


@functools.cache
def check_tokenizer() -> None:
    """Raise UsageError if NLTK or its sentence model is missing: fail before anything expensive."""
    extras.require("nltk")
    from nltk.tokenize import word_tokenize

    try:
        word_tokenize("A sentence. Another.")
    except LookupError as error:
        command = "python -m nltk.downloader punkt_tab"
        raise UsageError(f"NLTK's sentence model is missing; run `{command}`, or set NLTK_DATA") from error

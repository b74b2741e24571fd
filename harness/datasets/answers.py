"""Relevance by answers: a document is relevant when its text holds one, as XOR-TyDi's evaluator looks for it.

The rule is that of ``evals/eval_xor_retrieve.py`` of AkariAsai/XORQA: the text is cut into tokens by NLTK's
``word_tokenize`` (English), the tokens are joined by single blanks, and an answer is looked for in that as it stands:
case, punctuation and white space count, so ``Washington, D.C.`` is never found (its text has ``Washington , D.C.``).
Answers ``yes`` and ``no`` are left out, and queries that have no others are not judged.
"""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from harness.errors import UsageError
from harness.evaluation import answer_recall
from harness.evaluation.answer_recall import MAX_TOKENS, AnswerDepth

RULE = "xor-tydi retrieve, nltk word_tokenize"
_LEFT_OUT = ("yes", "no")
_MOST_KNOWN = 1_000_000  # pairs, some 200 bytes each
_MOST_CUT = 100_000  # texts, most of some 700 bytes
_AT_ONCE = 32  # queries whose hits' texts are held

# (id, text) of the documents of those ids.
Texts = Callable[[Iterable[str]], Iterator[tuple[str, str]]]


@dataclass(frozen=True)
class Answers:
    """Query id -> what its answers may be, at least one each; and its language, where the question names it."""

    by_query: Mapping[str, tuple[str, ...]]
    languages: Mapping[str, str] = field(default_factory=dict)
    # What was found so far: systems retrieve the same documents again and again.
    _known: dict[tuple[str, str], bool] = field(default_factory=dict, compare=False, repr=False)
    # Document id -> its text in tokens.
    _cut: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def content(self) -> bytes:
        """All of it in one form, as it is kept beside results."""
        content = {"rule": RULE, "answers": dict(self.by_query)}
        content |= {"languages": dict(self.languages)} if self.languages else {}
        return json.dumps(content, ensure_ascii=False, sort_keys=True).encode()

    def judge(self, run: bytes, texts: Texts) -> bytes:
        """Judge every hit of a TREC run: the text of a TREC qrels file, in the run's order.

        Raises:
            UsageError: NLTK's sentence model is not there.
        """
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        hits = [line.split(b" ") for line in run.splitlines()]
        pairs = [(fields[0].decode(), fields[2].decode()) for fields in hits]
        asked: dict[str, list[str]] = defaultdict(list)
        for query_id, doc_id in pairs:
            if (query_id, doc_id) not in self._known:
                asked[doc_id].append(query_id)
        for doc_id, text in texts(asked):
            bare, tokens = _bare(text), None
            for query_id in asked[doc_id]:
                possible = [answer for answer in self.by_query.get(query_id, ()) if may_hold(bare, answer)]
                if possible and tokens is None:
                    tokens = self._tokenised(doc_id, text)
                self._known[query_id, doc_id] = any(answer in (tokens or "") for answer in possible)
        # An image may name documents that there are not; that is for its outcome to say.
        lines = [
            f"{query_id} 0 {doc_id} {int(self._known.get((query_id, doc_id), False))}\n" for query_id, doc_id in pairs
        ]
        return "".join(lines).encode()

    def depths(self, run: bytes, texts: Texts) -> bytes:
        """Return the depth of answers in each query's hits: the content of ``answer_recall.render_depths``.

        Raises:
            UsageError: NLTK's sentence model is not there.
        """
        ranked: dict[str, list[str]] = defaultdict(list)
        for line in run.splitlines():
            fields = line.split(b" ")
            ranked[fields[0].decode()].append(fields[2].decode())
        found: dict[str, AnswerDepth] = {}
        queries = list(ranked)
        for start in range(0, len(queries), _AT_ONCE):
            part = queries[start : start + _AT_ONCE]
            bodies = dict(texts(dict.fromkeys(doc_id for query_id in part for doc_id in ranked[query_id])))
            for query_id in part:
                passages = (self._tokenised(doc_id, bodies[doc_id]) for doc_id in ranked[query_id] if doc_id in bodies)
                found[query_id] = depth(passages, self.by_query.get(query_id, ()))
        nothing = {query_id: AnswerDepth(None, 0) for query_id in self.languages if query_id not in found}
        named = {
            query_id: replace(each, language=self.languages.get(query_id, ""))
            for query_id, each in (found | nothing).items()
        }
        return answer_recall.render_depths(named)

    def _tokenised(self, doc_id: str, text: str) -> str:
        if len(self._cut) > _MOST_CUT:
            self._cut.clear()
        if doc_id not in self._cut:
            self._cut[doc_id] = tokenised(text)
        return self._cut[doc_id]


def depth(passages: Iterable[str], spans: Collection[str]) -> AnswerDepth:
    """How many tokens it takes until one of the answers stands in them.

    An answer may begin in one passage and end in the next, and may end within a token, which counts whole.

    Args:
        passages: their tokens with single blanks between; best first; taken as far as they are needed.
        spans: the answers.
    """
    longest = max(map(len, spans), default=0)
    seen, tokens = "", 0
    for passage in filter(None, passages):
        begin = max(0, len(seen) - longest)
        seen = f"{seen} {passage}" if seen else passage
        tokens += passage.count(" ") + 1
        ends = [at + len(span) for span in spans if (at := seen.find(span, begin)) >= 0]
        needed = seen.count(" ", 0, min(ends)) + 1 if ends else MAX_TOKENS + 1
        if needed <= MAX_TOKENS:
            return AnswerDepth(needed, needed)
        if tokens >= MAX_TOKENS:
            break
    return AnswerDepth(None, min(tokens, MAX_TOKENS))


def spans(answers: Iterable[str]) -> tuple[str, ...]:
    """Those answers that a text can hold."""
    return tuple(answer for answer in answers if answer not in _LEFT_OUT)


def may_hold(bare: str, answer: str) -> bool:
    """Whether a text's tokens may hold an answer; most texts cannot, and cutting one into tokens takes a millisecond.

    The tokenizer adds and drops white space and writes double quotes in another way, nothing else.

    Args:
        bare: the text without white space.
    """
    return any(quote in answer for quote in "\"'`") or _bare(answer) in bare


def _bare(text: str) -> str:
    return "".join(text.split())


def tokenised(text: str) -> str:
    """A text as the evaluator looks at it.

    Raises:
        UsageError: NLTK's sentence model is not there.
    """
    need_tokenizer()
    from nltk.tokenize import word_tokenize

    return " ".join(word_tokenize(text))


@functools.cache
def need_tokenizer() -> None:
    """Refuse to go on without what the rule needs, before anything costs time.

    Raises:
        UsageError: NLTK's sentence model is not there.
    """
    from nltk.tokenize import word_tokenize

    try:
        word_tokenize("A sentence. Another.")
    except LookupError as error:
        raise UsageError(
            "answers are looked for as XOR-TyDi's evaluator does, which needs NLTK's sentence model: run"
            " `python -m nltk.downloader punkt_tab`, or set NLTK_DATA to a folder that holds tokenizers/punkt_tab"
        ) from error

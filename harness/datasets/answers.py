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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from harness.errors import UsageError

RULE = "xor-tydi retrieve, nltk word_tokenize"
_LEFT_OUT = ("yes", "no")
_MOST_KNOWN = 1_000_000  # pairs, some 200 bytes each

# (id, text) of the documents of those ids.
Texts = Callable[[Iterable[str]], Iterator[tuple[str, str]]]


@dataclass(frozen=True)
class Answers:
    """Query id -> what its answers may be; at least one each."""

    by_query: Mapping[str, tuple[str, ...]]
    # What was found so far: systems retrieve the same documents again and again.
    _known: dict[tuple[str, str], bool] = field(default_factory=dict, compare=False, repr=False)

    @property
    def content(self) -> bytes:
        """All of it in one form, as it is kept beside results."""
        return json.dumps({"rule": RULE, "answers": dict(self.by_query)}, ensure_ascii=False, sort_keys=True).encode()

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
                    tokens = tokenised(text)
                self._known[query_id, doc_id] = any(answer in (tokens or "") for answer in possible)
        # An image may name documents that there are not; that is for its outcome to say.
        lines = [
            f"{query_id} 0 {doc_id} {int(self._known.get((query_id, doc_id), False))}\n" for query_id, doc_id in pairs
        ]
        return "".join(lines).encode()


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

"""The texts that an LLM is given: RankGPT's conversation, the prompts of query likelihood and of a judgement."""

from __future__ import annotations

import re
from collections.abc import Sequence

# A turn of a conversation: role and content, as chat models and their servers take them.
Message = dict[str, str]

_SYSTEM = "You are RankGPT, an intelligent assistant that can rank passages based on their relevancy to the query."
_IDENTIFIER = re.compile(r"\[([0-9]+)\]")


def document_text(title: str, text: str) -> str:
    """Join a document's title and text as the index stores them."""
    return f"{title} {text}" if title else text


def cut(text: str, words: int | None) -> str:
    """Return the first ``words`` words of a text, joined by blanks; the whole text unchanged for None."""
    # One more part than asked for is the rest, which stays uncut.
    return text if words is None else " ".join(text.split(maxsplit=words)[:words])


def ranking(query: str, passages: Sequence[str]) -> list[Message]:
    """Return RankGPT's conversation, which asks for a permutation such as ``[2] > [1]``.

    A number in brackets within a passage gets parentheses, so that it is no identifier (as in ``rank_llm``).
    Source: Sun et al. 2023, arXiv 2304.09542.
    """
    count = len(passages)
    messages = [
        _turn("system", _SYSTEM),
        _turn(
            "user",
            f"I will provide you with {count} passages, each indicated by number identifier []. \n"
            f"Rank the passages based on their relevance to query: {query}.",
        ),
        _turn("assistant", "Okay, please provide the passages."),
    ]
    for number, passage in enumerate(passages, 1):
        plain = _IDENTIFIER.sub(r"(\1)", passage)
        messages.append(_turn("user", f"[{number}] {plain}"))
        messages.append(_turn("assistant", f"Received passage [{number}]."))
    messages.append(
        _turn(
            "user",
            f"Search Query: {query}. \nRank the {count} passages above based on their relevance to the search query. "
            "The passages should be listed in descending order using identifiers. The most relevant passages should be "
            "listed first. The output format should be [] > [], e.g., [1] > [2]. Only response the ranking results, do "
            "not say any word or explain.",
        )
    )
    return messages


def before_query(passage: str) -> str:
    """Return the prompt of query likelihood up to the query, whose tokens are then scored.

    Source: Sachan et al. 2022 (UPR), arXiv 2204.07496, for a decoder.
    """
    return f"Passage: {passage}\nPlease write a question based on this passage.\nQuestion: "


def judgement(query: str, passage: str) -> list[Message]:
    """Return the conversation that asks whether a passage is relevant; the answer is 1 or 0.

    Source: mxbai-rerank v2 (github.com/mixedbread-ai/mxbai-rerank), whose models were trained with it.
    """
    return [
        _turn(
            "user",
            f"query: {query}\ndocument: {passage}\n"
            "You are a search relevance expert who evaluates how well documents match search queries. For each "
            "query-document pair, carefully analyze the semantic relationship between them, then provide your binary "
            "relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:",
        )
    ]


def _turn(role: str, content: str) -> Message:
    return {"role": role, "content": content}

"""RankGPT: an LLM orders windows of passages, from the back of the ranking to its front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from llm import parse, prompts, windows
from llm.transport import Completion, Transport


@dataclass
class ListwiseRanking:
    """The order that the LLM gave, as numbers of the passages, and each of its answers."""

    order: list[int]
    completions: list[Completion] = field(default_factory=list)

    def scores(self) -> list[float]:
        """Return the negative rank of each passage, in the order in which they were given."""
        found = [0.0] * len(self.order)
        for rank, number in enumerate(self.order, 1):
            found[number] = float(-rank)
        return found


def rank(
    transport: Transport, query: str, texts: Sequence[str], *, window: int, step: int, passage_words: int | None
) -> ListwiseRanking:
    """Order texts by the LLM's answers, one call a window.

    Args:
        texts: the whole texts, best first.
        window: passages of a call.
        step: passages by which the next window lies further to the front.
        passage_words: words of a text that the LLM sees; None for the whole text.
    """
    passages = [prompts.cut(text, passage_words) for text in texts]
    ranked = ListwiseRanking(list(range(len(passages))))
    for start, end in windows.spans(len(passages), window, step):
        shown = ranked.order[start:end]
        completion = transport(prompts.ranking(query, [passages[number] for number in shown]))
        ranked.completions.append(completion)
        ranked.order[start:end] = [shown[number] for number in parse.permutation(completion.text, len(shown))]
    return ranked

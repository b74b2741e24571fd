"""The windows of a listwise reranker, from the back of the ranking to its front."""

from __future__ import annotations


def spans(documents: int, window: int, step: int) -> list[tuple[int, int]]:
    """Return the windows of a ranking as (start, end), in the order in which they are asked.

    The last window always begins at the first document, as in ``rank_llm``.  RankGPT's own loop leaves out the head of
    the ranking where ``documents - window`` is no multiple of ``step``; ``rank_llm`` 0.25.7 makes no call where there
    are exactly ``window - step`` documents.

    Args:
        documents: length of the ranking.
        window: documents of a prompt, at most.
        step: documents by which the next window lies further to the front; at most ``window``.
    """
    found: list[tuple[int, int]] = []
    end = documents
    while end > 0:
        start = max(end - window, 0)
        found.append((start, end))
        if start == 0:
            break
        end -= step
    return found

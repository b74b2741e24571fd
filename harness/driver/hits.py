"""Is an answer one that can be judged?  Looked at after the clock has stopped."""

from __future__ import annotations

import math
from typing import cast

from harness.records import Hit

MAX_ID_CHARS = 256


class BadAnswer(Exception):
    """An answer that breaks the contract; the text says how."""


def check(answer: object, k: int, fewest: int) -> list[tuple[str, float]]:
    """Return the hits as (id, score) pairs, or say what is wrong with them.

    Args:
        answer: what ``Adapter.search`` returned.
        k: most hits allowed.
        fewest: fewest hits allowed.

    Raises:
        BadAnswer: no list of hits, too many or too few, an id that is no plain string or comes twice, a
            score that is no finite number, or scores that rise down the ranking.
    """
    # A lazy sequence could do its work here, where no clock runs.
    if type(answer) not in (list, tuple):
        raise BadAnswer(f"search returned {type(answer).__name__}, not a list or tuple of hits")
    answer = cast(list[object], answer)
    if len(answer) > k:
        raise BadAnswer(f"{len(answer)} hits, asked for {k}")
    if len(answer) < fewest:
        raise BadAnswer(f"{len(answer)} hits, expected {fewest}")
    pairs = [_pair(rank, hit) for rank, hit in enumerate(answer, 1)]
    seen: set[str] = set()
    for rank, (doc_id, score) in enumerate(pairs, 1):
        if doc_id in seen:
            raise BadAnswer(f"rank {rank}: document {doc_id!r} comes twice")
        seen.add(doc_id)
        # trec_eval orders by score, so a rising score would be judged as another ranking than this one.
        if rank > 1 and score > pairs[rank - 2][1]:
            raise BadAnswer(f"rank {rank}: score {score} is above the one before, {pairs[rank - 2][1]}")
    return pairs


def _pair(rank: int, hit: object) -> tuple[str, float]:
    if not isinstance(hit, Hit):
        raise BadAnswer(f"rank {rank}: {type(hit).__name__}, not a Hit")
    if not isinstance(hit.doc_id, str):
        raise BadAnswer(f"rank {rank}: the document id is {type(hit.doc_id).__name__}, not str")
    if not 0 < len(hit.doc_id) <= MAX_ID_CHARS:
        raise BadAnswer(
            f"rank {rank}: the document id has {len(hit.doc_id)} characters, allowed are 1 to {MAX_ID_CHARS}"
        )
    if not hit.doc_id.isprintable() or " " in hit.doc_id:
        raise BadAnswer(f"rank {rank}: the document id {hit.doc_id!r} has blanks or control characters")
    # Plain numbers alone: turning a device's or a lazy one into a number could be work as well.
    if type(hit.score) not in (int, float):
        raise BadAnswer(f"rank {rank}: the score is {type(hit.score).__name__}, not a plain float")
    try:
        score = float(hit.score)
    except OverflowError:
        raise BadAnswer(f"rank {rank}: the score is too large") from None
    if not math.isfinite(score):
        raise BadAnswer(f"rank {rank}: the score is {score}")
    return hit.doc_id, score

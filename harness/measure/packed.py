"""Ranked lists between two Python processes: the ids as JSON, the scores as the base64 of what memory holds.

Writing a score as decimals and reading it again takes some 2 microseconds: a thousand hits of each of two systems would
cost a query milliseconds that no deployed system spends.
"""

from __future__ import annotations

import binascii
import math
import operator
from array import array
from collections.abc import Sequence
from typing import Any

from harness.measure.answers import BadAnswer, check
from harness.records import Hit

# Ids and scores, best first.
Ranking = tuple[list[str], list[float]]


def pack(hits: Sequence[Hit], k: int) -> dict[str, Any]:
    """Hits as a reply holds them.

    Raises:
        BadAnswer: they are none that the driver would take; says why, as it would.
    """
    try:
        ids, scores = [hit.doc_id for hit in hits], [hit.score for hit in hits]
        # A quick look, under the clock; what it finds odd is looked at again for the reason.
        fine = (
            type(hits) in (list, tuple)
            and len(ids) <= k
            and {*map(type, ids)} <= {str}
            and {*map(type, scores)} <= {float, int}
            and len({*ids}) == len(ids)
            and all(map(math.isfinite, scores))
            and all(map(operator.ge, scores, scores[1:]))
        )
    except (AttributeError, TypeError, OverflowError):
        ids, scores, fine = [], [], False
    if not fine:
        check(hits, k, 0)
    return {"ids": ids, "scores": binascii.b2a_base64(array("d", scores), newline=False).decode("ascii")}


def unpack(reply: dict[str, Any]) -> Ranking:
    """What :func:`pack` made.

    Raises:
        BadAnswer: it is nothing of that kind.
    """
    ids, scores = reply.get("ids"), array("d")
    try:
        scores.frombytes(binascii.a2b_base64(reply["scores"], strict_mode=True))
    except (KeyError, TypeError, ValueError):
        raise BadAnswer("the engine's reply has no packed scores") from None
    if type(ids) is not list or len(ids) != len(scores):
        raise BadAnswer(f"the engine's reply has {len(scores)} scores and not as many ids")
    return ids, scores.tolist()

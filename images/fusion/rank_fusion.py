"""Two ranked lists into one: pure functions over ids and scores, best first."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from harness.driver.component import Ranking
from harness.driver.records import Hit, Scalar

Fuse = Callable[[Sequence[Ranking]], dict[str, float]]

# The parameters of each method, and what they are where the system's TOML does not say.
METHODS: dict[str, dict[str, Scalar]] = {
    "rrf": {"rrf_k": 60},
    "weighted": {"normalise": "min-max", "first_weight": 0.5, "second_weight": 0.5},
}
NORMALISATIONS = ("min-max", "z", "none")


def fuse(params: Mapping[str, Scalar]) -> Fuse:
    """Return the function that scores every document of two lists.

    Args:
        params: ``method``, and the parameters of that method (see ``METHODS``).

    Raises:
        ValueError: an unknown method, a parameter that it does not have, or a value that it cannot use.
    """
    method = params.get("method")
    if method not in METHODS:
        raise ValueError(f"method is {method!r}, must be one of {', '.join(METHODS)}")
    own = {name: value for name, value in params.items() if name != "method"}
    surplus = sorted(own.keys() - METHODS[str(method)].keys())
    if surplus:
        raise ValueError(f"{surplus[0]!r} is no parameter of {method!r}, which has {', '.join(METHODS[str(method)])}")
    values = {**METHODS[str(method)], **own}
    if method == "rrf":
        k = _number("rrf_k", values["rrf_k"])
        if k < 0:
            raise ValueError(f"rrf_k is {k:g}, must not be negative")
        return lambda lists: reciprocal_rank(lists, k)
    normalise = values["normalise"]
    if normalise not in NORMALISATIONS:
        raise ValueError(f"normalise is {normalise!r}, must be one of {', '.join(NORMALISATIONS)}")
    weights = [_number(name, values[name]) for name in ("first_weight", "second_weight")]
    if min(weights) < 0 or not any(weights):
        raise ValueError(f"the weights are {weights[0]:g} and {weights[1]:g}, must not be negative, nor both 0")
    return lambda lists: weighted_sum(lists, weights, str(normalise))


def reciprocal_rank(lists: Sequence[Ranking], k: float) -> dict[str, float]:
    """Sum 1 / (k + rank) over the lists that have the document; rank counts from 1.

    Cormack, Clarke and Buettcher, Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods,
    SIGIR 2009 (k = 60).
    """
    scores: dict[str, float] = {}
    for ids, _ in lists:
        for rank, doc_id in enumerate(ids, 1):
            scores[doc_id] = scores.get(doc_id, 0.0) + 1 / (k + rank)
    return scores


def weighted_sum(lists: Sequence[Ranking], weights: Sequence[float], normalise: str) -> dict[str, float]:
    """Sum each list's weighted normalised scores; a list that lacks a document gives its lowest score.

    An empty list adds nothing to any document, and so does one whose scores are all equal where they are normalised.
    """
    scores = dict.fromkeys((doc_id for ids, _ in lists for doc_id in ids), 0.0)
    for (ids, theirs), weight in zip(lists, weights, strict=True):
        if not ids:
            continue
        known, lowest = dict(zip(ids, theirs, strict=True)), theirs[-1]
        shift, scale = _scaling(theirs, normalise)
        for doc_id in scores:
            scores[doc_id] += weight * ((known.get(doc_id, lowest) - shift) / scale)
    return scores


def ranked(scores: Mapping[str, float], k: int) -> list[Hit]:
    """Return the ``k`` best hits, equal scores in the order of their ids, independent of the lists' order."""
    # Plain numbers sort much faster than pairs do: only what can be among the best is sorted as pairs.
    least = sorted(scores.values(), reverse=True)[:k][-1:]
    best = [(-score, doc_id) for doc_id, score in scores.items() if score >= least[0]] if least else []
    return [Hit(doc_id, -score) for score, doc_id in sorted(best)[:k]]


def _scaling(scores: Sequence[float], normalise: str) -> tuple[float, float]:
    """Return the offset and the divisor that normalise a list's scores."""
    if normalise == "none":
        return 0.0, 1.0
    if normalise == "min-max":
        shift, scale = min(scores), max(scores) - min(scores)
    else:
        shift = math.fsum(scores) / len(scores)
        scale = math.sqrt(math.fsum((score - shift) ** 2 for score in scores) / len(scores))
    # The mean of equal scores may miss them by a rounding error, and that error is no spread.
    equal = min(scores) == max(scores) or not scale
    return (scores[0], math.inf) if equal else (shift, scale)


def _number(name: str, value: Scalar) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}, must be a number")
    return float(value)

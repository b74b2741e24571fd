"""The parameters of a reranker: their defaults, and what they must be."""

from __future__ import annotations

from typing import Any, NamedTuple

import heads
from windows import SPLITS

from harness.driver.records import Scalar

# Those without a default must be given; 0 stands for the aggregation's own window and stride, and for the device's
# BATCH_TOKENS.
BUILD: dict[str, Scalar | None] = {
    "model": None,
    "document_tokens": None,
    "title": "join",
    "title_separator": " ",
}
SEARCH: dict[str, Scalar | None] = {
    "head": "classifier",
    "aggregation": "first",
    "query_tokens": 32,
    "split": "",
    "window": 0,
    "stride": 0,
    "pad_windows": "real",
    "attention": "scalar",
    "separators": False,
    "interaction_padding": "masked",
    "batch_tokens": 0,
    "backend": "torch",
}
# Small micro-batches pad less: at depth 20 over SciFact 9 % with 2,048 tokens, 34 % with 8,192.  GPUs want large ones.
BATCH_TOKENS = {"cpu": 2048, "cuda": 8192}
# Parameters that the index depends on, beside the tokeniser.
SHAPING = ("document_tokens", "title", "title_separator")

_ONE_OF = {
    "title": ("join", "drop"),
    "pad_windows": ("real", "s3"),
    "attention": ("scalar", "per_dimension"),
    "separators": (False, True),
    "interaction_padding": ("masked", "s3"),
    "split": ("", *SPLITS),
}
_AT_LEAST = {"document_tokens": 1, "query_tokens": 1, "window": 0, "stride": 0, "batch_tokens": 0}


class Rule(NamedTuple):
    """The rule that cuts documents: a name of ``windows.SPLITS``, and tokens of a window and between two starts."""

    split: str
    window: int
    stride: int


# Aggregations of the scores that a head gives each window; the others are heads over whole documents.
# "long" reads the whole document in one window, or its first ``window`` tokens: one index serves every length.
WINDOW_SCORES = {
    "first": Rule("first", 0, 0),
    "long": Rule("first", 0, 0),
    "avg": Rule("disjoint", 477, 477),
    "max": Rule("sliding", 150, 100),
    "sum": Rule("sliding", 150, 100),
}


def complete(given: dict[str, Any]) -> dict[str, Any]:
    """Add the defaults to the given parameters, and the aggregation's own rule where they name none.

    Raises:
        ValueError: one is unknown, missing or wrong, or a document's tokens would fall between two windows.
    """
    known = {**BUILD, **SEARCH}
    for name in given:
        if name not in known:
            raise ValueError(f"unknown parameter {name!r}; this engine reads {', '.join(sorted(known))}")
    params: dict[str, Any] = {**{name: value for name, value in known.items() if value is not None}, **given}
    for name in ("model", "document_tokens"):
        if name not in params:
            raise ValueError(f"the parameter {name} is missing; add it to build_params")
    for name, choices in _ONE_OF.items():
        if params[name] not in choices:
            raise ValueError(f"{name} is {params[name]!r}, must be one of {', '.join(filter(None, map(str, choices)))}")
    for name, least in _AT_LEAST.items():
        if isinstance(params[name], bool) or not isinstance(params[name], int) or params[name] < least:
            raise ValueError(f"{name} is {params[name]!r}, must be a whole number, at least {least}")
    if params["aggregation"] not in WINDOW_SCORES and params["aggregation"] not in heads.MODULES:
        names = ", ".join(sorted({*WINDOW_SCORES, *heads.MODULES}))
        raise ValueError(f"aggregation is {params['aggregation']!r}, must be one of {names}")
    own = _own_rule(params["aggregation"])
    params["split"] = params["split"] or own.split
    params["window"] = params["window"] or own.window or params["document_tokens"]
    params["stride"] = params["stride"] or own.stride or params["window"]
    if params["split"] == "sliding" and params["stride"] > params["window"]:
        raise ValueError(
            f"stride is {params['stride']}, more than the window of {params['window']}: tokens between are unread"
        )
    return params


def rule(params: dict[str, Any]) -> Rule:
    """Return the rule that cuts documents, from complete parameters."""
    return Rule(params["split"], params["window"], params["stride"])


def _own_rule(name: str) -> Rule:
    """Return the rule that an aggregation has of its own; 0 for a window as long as a document may be."""
    if name in WINDOW_SCORES:
        return WINDOW_SCORES[name]
    head = heads.find(name)
    return Rule(head.split, head.window, head.stride)

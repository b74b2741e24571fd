"""The parameters of an LLM reranker: their defaults, and what they must be."""

from __future__ import annotations

from typing import Any

from harness.driver.records import Scalar

# Those without a default must be given.
DEFAULTS: dict[str, Scalar | None] = {
    "method": None,  # rankgpt, query_likelihood, judgement
    "model": None,  # folder of the weights; for a recording, the name that the provider gives the model
    "transport": "local",  # local, replay
    "recording": "",  # folder of answers.jsonl, of replay
    "passage_words": 300,  # words of a document that the LLM reads; "none" for all of them
    "window": 20,  # passages of a call, of rankgpt
    "step": 10,
    "max_new_tokens": 120,  # of an answer, of rankgpt: 20 identifiers are about 100
    "batch_tokens": 1024,  # tokens of a forward pass, padding included; not of rankgpt
    "dtype": "float32",  # of arithmetic: float32, or bfloat16, whose likelihoods of SmolLM2 are off by up to .06
    "token_prices": "",  # model of a token price list, which reports read
}
NO_CUT = "none"

_ONE_OF = {
    "method": ("rankgpt", "query_likelihood", "judgement"),
    "transport": ("local", "replay"),
    "dtype": ("float32", "bfloat16"),
}
_POSITIVE = ("window", "step", "max_new_tokens", "batch_tokens")


def complete(params: dict[str, Scalar]) -> dict[str, Any]:
    """Return all parameters, those that are not given by their defaults.

    Raises:
        ValueError: one is unknown, missing or wrong.
    """
    if unknown := sorted(params.keys() - DEFAULTS.keys()):
        raise ValueError(f"unknown parameter {unknown[0]!r}; there are {', '.join(sorted(DEFAULTS))}")
    made: dict[str, Any] = {**DEFAULTS, **params}
    if missing := sorted(name for name, value in made.items() if value is None):
        raise ValueError(f"the parameter {missing[0]!r} is missing; add it to build_params or search_params")
    for name, allowed in _ONE_OF.items():
        if made[name] not in allowed:
            raise ValueError(f"{name} is {made[name]!r}, must be one of {', '.join(allowed)}")
    for name in _POSITIVE:
        if type(made[name]) is not int or made[name] < 1:
            raise ValueError(f"{name} is {made[name]!r}, must be a whole number from 1")
    words = made["passage_words"]
    if words != NO_CUT and (type(words) is not int or words < 1):
        raise ValueError(f'passage_words is {words!r}, must be a whole number from 1, or "{NO_CUT}"')
    if made["step"] > made["window"]:
        raise ValueError(f"step is {made['step']}, above window, {made['window']}: documents between would be left out")
    if made["transport"] == "replay" and made["method"] != "rankgpt":
        raise ValueError("transport replay needs method rankgpt: chat APIs give no likelihoods")
    if (made["transport"] == "replay") is not bool(made["recording"]):
        raise ValueError(
            f"transport {made['transport']}, recording {made['recording']!r}: replay alone has a recording"
        )
    return made


def passage_words(params: dict[str, Any]) -> int | None:
    """Return the words of a document that the LLM reads, or None for all."""
    return None if params["passage_words"] == NO_CUT else int(params["passage_words"])

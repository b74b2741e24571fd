"""Where an LLM's answers come from: a recording of an API model here, a model in :mod:`llm.local`.

A recording is a file of JSON lines, one for each request: ``request_sha256``, ``answer``, ``prompt_tokens``,
``completion_tokens``, ``seconds``.  ``llm.record`` writes it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from llm.prompts import Message

RECORDING = "answers.jsonl"
# Numbers of an entry, and their types.
_NUMBERS = {"prompt_tokens": (int,), "completion_tokens": (int,), "seconds": (int, float)}


@dataclass(frozen=True)
class Completion:
    """An answer of an LLM, and its work.

    Args:
        text: the text after the prompt.
        prompt_tokens: tokens of the whole prompt, the chat template's included.
        completion_tokens: tokens that the model wrote, the one that ends the answer included.
        tokenise_s: seconds that went into tokens and text, of those of the call.
        provider_s: seconds that the provider took when the answer was recorded; 0 for a model that ran now.
        flop: analytic, 0 where the model's size is not known.
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    tokenise_s: float = 0.0
    provider_s: float = 0.0
    flop: int = 0


class Transport(Protocol):
    """Answers a conversation."""

    def __call__(self, messages: Sequence[Message]) -> Completion:
        """Return the answer to a conversation."""


def request(model: str, messages: Sequence[Message], max_new_tokens: int) -> dict[str, Any]:
    """Return the body of a request to a chat API; the same query and passages always give the same body."""
    return {"model": model, "messages": list(messages), "temperature": 0, "max_tokens": max_new_tokens}


def request_sha256(body: dict[str, Any]) -> str:
    """Hash a request's body as JSON with sorted keys and no blanks."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


class Replay:
    """Answers from a recording; a request that was not recorded is refused.

    Args:
        path: the recording.
        model: the name that the model had in the recorded requests.
        max_new_tokens: the limit that these requests had.

    Raises:
        ValueError: the recording is missing, or a line of it is malformed.
    """

    def __init__(self, path: Path, model: str, max_new_tokens: int) -> None:
        self._answers = read_recording(path)
        self._model = model
        self._max_new_tokens = max_new_tokens

    def __call__(self, messages: Sequence[Message]) -> Completion:
        """Return the recorded answer.

        Raises:
            ValueError: there is none.
        """
        body = request(self._model, messages, self._max_new_tokens)
        sha256 = request_sha256(body)
        if sha256 not in self._answers:
            raise ValueError(
                f"no recorded answer of {self._model} to request {sha256[:12]} "
                f"({messages[-1]['content'].splitlines()[0][:80]!r}); "
                "record this query with the same first stage, depth, window and passage_words"
            )
        return self._answers[sha256]


def read_recording(path: Path) -> dict[str, Completion]:
    """Read a recording: the answers by the sha256 of their requests.

    Raises:
        ValueError: it is missing, or a line of it is malformed.
    """
    found: dict[str, Completion] = {}
    try:
        # Only line feeds end a line: an answer may hold other line separators.
        lines = path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name}: the recording cannot be read ({error})") from error
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            numbers = {name: entry[name] for name in _NUMBERS}
            fine = all(type(numbers[name]) in kinds and numbers[name] >= 0 for name, kinds in _NUMBERS.items())
            sha256, text = entry["request_sha256"], entry["answer"]
        except (ValueError, TypeError, KeyError):
            fine = False
        if not fine or not isinstance(sha256, str) or not isinstance(text, str):
            needed = ", ".join(("request_sha256", "answer", *_NUMBERS))
            raise ValueError(f"{path.name}, line {number}: not a recorded answer; it needs {needed}")
        found[sha256] = Completion(
            text, numbers["prompt_tokens"], numbers["completion_tokens"], provider_s=float(numbers["seconds"])
        )
    return found

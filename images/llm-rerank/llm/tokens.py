"""Text to token ids of a local model: chat prompts, prompts with a query at the end, single tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llm.prompts import Message


@dataclass(frozen=True)
class ScoredPrompt:
    """A prompt's token ids, and the place of the first token that is scored."""

    ids: list[int]
    query_start: int


class ChatTokens:
    """The tokeniser of a prepared checkpoint.

    Raises:
        ValueError: it cannot be read, or has no fast form.
    """

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise ValueError(f"{folder.name}: the tokeniser cannot be read: {error}") from error
        if not self._tokenizer.is_fast:
            raise ValueError(f"{folder.name}: the tokeniser gives no offsets; bring one with a tokenizer.json")
        self._name = folder.name

    def chat(self, messages: Sequence[Message]) -> list[int]:
        """Return the token ids of a conversation, up to the place where the answer begins.

        Raises:
            ValueError: the checkpoint has no chat template, or its template refuses the conversation.
        """
        if not self._tokenizer.chat_template:
            raise ValueError(f"{self._name}: no chat template, so it takes no conversation; use query_likelihood")
        try:
            text = self._tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False)
        except Exception as error:  # a template is a program of the checkpoint's, and may raise anything
            raise ValueError(f"{self._name}: the chat template refuses the conversation: {error}") from error
        # A template writes its own special tokens.
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def prompts(self, before: Sequence[str], query: str) -> list[ScoredPrompt]:
        """Return each text followed by the query, tokenised as one text.

        The scored tokens are those with a character of the query, blank or not, in them.
        """
        if not before:
            return []
        encoded = self._tokenizer([text + query for text in before], return_offsets_mapping=True)
        found = []
        for text, ids, offsets in zip(before, encoded["input_ids"], encoded["offset_mapping"], strict=True):
            inside = (place for place, (start, end) in enumerate(offsets) if end > len(text) and end > start)
            found.append(ScoredPrompt(list(ids), next(inside, len(ids))))
        return found

    def token(self, text: str) -> int:
        """Return the one token that a text is.

        Raises:
            ValueError: it is several, or none.
        """
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) != 1:
            raise ValueError(f"{self._name}: {text!r} is {len(ids)} tokens, must be one; use query_likelihood")
        return int(ids[0])

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of an answer's tokens, special ones left out."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

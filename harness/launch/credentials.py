"""Credentials of a service that runs already: from the environment to its client, and nowhere else.

A client prints and returns what it likes, so their values are replaced by ``***`` in all that it left, before anything
is read or stored.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

from harness.errors import UsageError
from harness.untrusted import open_regular

USER, PASSWORD, TOKEN = "HARNESS_SERVICE_USER", "HARNESS_SERVICE_PASSWORD", "HARNESS_SERVICE_TOKEN"
VARIABLES = (USER, PASSWORD, TOKEN)
HIDDEN = "***"
# A shorter value is part of too many words to be hidden; a longer one is hidden from this many characters on, because
# messages are cut.
_LEAST, _HEAD = 4, 6


@dataclass(frozen=True)
class Credentials:
    """Values of the variables that are set, by name."""

    values: Mapping[str, str]

    def __repr__(self) -> str:
        """Return the names alone."""
        return f"Credentials({', '.join(self.values)})"

    @classmethod
    def of_environment(cls, environ: Mapping[str, str] | None = None) -> Credentials:
        """Read the variables.

        Raises:
            UsageError: a value is too short to be hidden.
        """
        environ = os.environ if environ is None else environ
        values = {name: environ[name] for name in VARIABLES if environ.get(name)}
        for name in (PASSWORD, TOKEN):
            if 0 < len(value := values.get(name, "")) < _LEAST:
                raise UsageError(
                    f"{name} has {len(value)} characters, and harness hides no value of less than {_LEAST} in logs;"
                    " give the service a longer one"
                )
        return cls(values)

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the variables that are set."""
        return tuple(self.values)

    def held_by(self, text: str) -> str | None:
        """Return the variable whose value a text holds, if one does."""
        found = (name for name, value in self.values.items() if name != USER and value in text)
        return next(found, None)

    def hide(self, text: str) -> str:
        """Replace every value in a text, however it is written there, and its beginning where the text was cut."""
        by_head: dict[str, list[str]] = {}
        for form in self._forms():
            by_head.setdefault(form[:_HEAD], []).append(form)
        for head, forms in by_head.items():
            text = _hidden(text, head, forms)
        if user := self.values.get(USER):
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(user)}(?![A-Za-z0-9])", lambda _: HIDDEN, text)
        return text

    def hide_bytes(self, text: bytes) -> bytes:
        """Replace every value in bytes; others stay as they are."""
        if not self.values:
            return text
        return self.hide(text.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def hide_files(self, folder: Path) -> None:
        """Replace every value in the files that a client left in its folder; lines of JSON stay lines of JSON."""
        for path in sorted(folder.iterdir()) if self.values else ():
            self._hide_file(path)

    def _hide_file(self, path: Path) -> None:
        partial = path.with_name(f"{path.name}.hidden")
        try:
            with open_regular(path) as lines:
                if all(self.hide_bytes(line) == line for line in lines):
                    return
                lines.seek(0)
                with partial.open("wb") as hidden:
                    hidden.writelines(map(self._hide_line, lines))
        except OSError:  # a folder, or a link: nothing reads it
            return
        partial.replace(path)

    def _hide_line(self, line: bytes) -> bytes:
        """Hide values in the texts of a line of JSON, else in all of it."""
        if self.hide_bytes(line) == line:
            return line
        try:
            return json.dumps(self._hide_in(json.loads(line)), ensure_ascii=False).encode("utf-8") + b"\n"
        except (ValueError, RecursionError):
            return self.hide_bytes(line)

    def _hide_in(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, list):
            return [self._hide_in(each) for each in value]
        if isinstance(value, dict):
            return {self.hide(key): self._hide_in(each) for key, each in value.items()}
        return value

    def _forms(self) -> Iterator[str]:
        """Yield the values as texts, JSON, addresses and headers write them."""
        user, password = self.values.get(USER, ""), self.values.get(PASSWORD, "")
        if user and password:
            yield _base64(f"{user}:{password}")
        for value in (password, self.values.get(TOKEN, "")):
            if value:
                forms = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}
                forms |= {quote(value, safe=""), quote(value), quote_plus(value), _base64(value)}
                yield from forms


def _hidden(text: str, head: str, forms: Sequence[str]) -> str:
    """Replace, in a text, every form of this head, as far as it goes on there."""
    parts, place = [], 0
    while (found := text.find(head, place)) >= 0:
        parts += [text[place:found], HIDDEN]
        place = found + max(_alike(text, found, form) for form in forms)
    return "".join((*parts, text[place:]))


def _alike(text: str, place: int, form: str) -> int:
    """Return how many characters of a form a text has at a place."""
    differ = (at for at, char in enumerate(form) if text[place + at : place + at + 1] != char)
    return next(differ, len(form))


def _base64(text: str) -> str:
    return base64.b64encode(text.encode("utf-8")).decode("ascii")

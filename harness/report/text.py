"""Making a stranger's text safe to show."""

from __future__ import annotations

LONGEST = 500


def one_line(text: str) -> str:
    """As :func:`printable`, and at most ``LONGEST`` characters; the rest is in the JSON report."""
    text = printable(text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def printable(text: str) -> str:
    """One line of printable characters.

    White space runs become one space; control, bidirectional and other invisible characters are written
    as escapes, so that no text can move a cursor or reorder what is around it.
    """
    text = " ".join(text.split())
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )

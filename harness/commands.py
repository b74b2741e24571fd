"""Commands that harness prints for people to paste into a shell.

Names come from strangers: none of their characters may end the quoting, move a cursor or become an option.  All that is
special to a shell, a terminal, Markdown or HTML is written as the escape of its bytes, so that every format shows a
command unchanged, and nothing in it is active even where a program replaces the quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from harness.untrusted import MAX_TEXT, ForeignText, Text, escaped, one_line

_PLAIN = r"A-Za-z0-9_./:=@%+,\-"
# In addition, a pair of quotes may hold single blanks, the characters of globs, and letters that are not ASCII.
_BARE = re.compile(f"[{_PLAIN}]+")
_QUOTED = re.compile(rf"(?:[\w{_PLAIN}*?\[\]]+ )*[\w{_PLAIN}*?\[\]]+")
_KEPT = re.compile(rf"[\w{_PLAIN}]")
_WORD = rf"(?:[{_PLAIN}]|'[\w{_PLAIN}*?\[\] ]*'|\$'(?:[\w{_PLAIN}]|\\x[0-9a-f]{{2}})*')+"
# A command in a sentence.  All that matches runs harness alone, whoever wrote it.
SPAN = re.compile(rf"`harness(?: {_WORD})+`")
# In addition, commands at the start of a text, after a colon and after a gap.
_WHOLE = re.compile(rf"{SPAN.pattern}|(?:^|(?<=: )|(?<=  ))harness(?: {_WORD})+")
# Characters of a text that may hold commands.
_MOST = 1 << 15


def command(verb: str, *arguments: object, **options: object) -> str:
    """Return a command of harness as a line for a shell.

    Args:
        verb: the command and its subcommand: ``run``, ``ec2 up``.
        arguments: positional arguments.
        options: by their names, ``retry_noisy=3`` for ``--retry-noisy 3``; ``True``: a flag; ``None`` or ``False``:
            left out.
    """
    words = [_word(argument) for argument in arguments]
    given = [option(name, value) for name, value in options.items() if value is not None and value is not False]
    behind = ["--", *words] if any(_text(argument).startswith("-") for argument in arguments) else []
    return " ".join(("harness", verb, *([] if behind else words), *given, *behind))


def quoted(verb: str, *arguments: object, **options: object) -> str:
    """Return a command of harness for a sentence: between backquotes, which Markdown shows as code."""
    return f"`{command(verb, *arguments, **options)}`"


def option(name: str, value: object = True) -> str:
    """Return an option of a command and its value; a value that begins with ``-`` stays a value."""
    flag = f"--{name.replace('_', '-')}"
    if value is True:
        return flag
    return f"{flag}{'=' if _text(value).startswith('-') else ' '}{_word(value)}"


def words(*arguments: object) -> str:
    """Return words for a shell: a part of another program's command."""
    return " ".join(map(_word, arguments))


def parts(text: Text) -> list[tuple[str, bool]]:
    """Divide a text, on one line, into commands (``True``) and the rest, cut after ``MAX_TEXT`` characters.

    A command is whole, or it is left out with all that follows.
    """
    line, place, left = one_line(text, _MOST), 0, MAX_TEXT
    found: list[tuple[str, bool]] = []
    for match in (*SPAN.finditer(line), None):
        rest = line[place : match.start() if match else len(line)]
        if len(rest) > left:
            return [*found, (f"{rest[: left - 1]}…", False)]
        found.append((rest, False))
        if match:
            found.append((match[0], True))
            place, left = match.end(), left - len(rest)
    return found


def words_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield each word with the blanks behind it, and its place in the text; a command is one word."""
    whole = _WHOLE.sub(lambda match: "x" * len(match[0]), text)
    for match in re.finditer(r"\s*\S+\s*", whole):
        yield match.start(), text[match.start() : match.end()]


def literal(name: str) -> str:
    """Return the glob that matches this name alone, and that no list of globs divides."""
    return re.sub(r"[*?\[,\s]", r"[\g<0>]", name).replace("\0", "?")


def _text(value: object) -> str:
    return value.raw if isinstance(value, ForeignText) else str(value)


def _word(value: object) -> str:
    """Quote a word; a zero byte, which no argument can hold, becomes U+FFFD."""
    text = _text(value).replace("\0", "\ufffd")
    shown = escaped(text) == text
    if shown and _BARE.fullmatch(text):
        return text
    if not text or (shown and _QUOTED.fullmatch(text)):
        return f"'{text}'"
    return f"$'{''.join(map(_escape, text))}'"


def _escape(character: str) -> str:
    if _KEPT.fullmatch(character) and escaped(character) == character:
        return character
    # A path may hold bytes that are not UTF-8.
    encoded = character.encode("utf-8", "surrogateescape" if "\udc80" <= character <= "\udcff" else "replace")
    return "".join(f"\\x{byte:02x}" for byte in encoded)

r"""A stranger's text as inert LaTeX: ASCII alone, of commands that the kernel of LaTeX has in every font encoding.

What pdflatex's own fonts have no glyph for is named by its code point, ``[U+4E2D]``: readable, and the same with every
engine.  Long words may be broken, so that no name makes a table wider than a page.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata

from harness.report.text import LONGEST, one_line

# Characters that mean something to TeX, or that its fonts turn into others (``<`` into a question mark).
_SPECIAL = {
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{\char34}",
    "`": r"\textasciigrave{}",
    # At the start of a row they would be taken for an argument of the row before.
    "[": "{[}",
    "*": "{*}",
}
# Two of them in a row become another character.
_JOINED = ("-", ",", "'")
# Mathematics where the symbol fonts of text may be bitmaps.
_GLYPHS = {
    "—": r"\textemdash{}",
    "–": r"\textendash{}",
    "−": r"\ensuremath{-}",
    "…": r"\textellipsis{}",
    "†": r"\ensuremath{\dagger}",
    "‡": r"\ensuremath{\ddagger}",
    "•": r"\ensuremath{\bullet}",
    "·": r"\ensuremath{\cdot}",
    "‘": r"\textquoteleft{}",
    "’": r"\textquoteright{}",
    "“": r"\textquotedblleft{}",
    "”": r"\textquotedblright{}",
    "§": r"\S{}",
    "¶": r"\P{}",
    "©": r"\textcopyright{}",
    "®": r"\textregistered{}",
    "™": r"\texttrademark{}",
    "£": r"\pounds{}",
    "¡": r"\textexclamdown{}",
    "¿": r"\textquestiondown{}",
    "ß": r"\ss{}",
    "æ": r"\ae{}",
    "Æ": r"\AE{}",
    "œ": r"\oe{}",
    "Œ": r"\OE{}",
    "ø": r"\o{}",
    "Ø": r"\O{}",
    "ł": r"\l{}",
    "Ł": r"\L{}",
    "ı": r"\i{}",
    "µ": r"\ensuremath{\mu}",
    "°": r"\ensuremath{^\circ}",
    "²": r"\ensuremath{^2}",
    "³": r"\ensuremath{^3}",
    "±": r"\ensuremath{\pm}",
    "×": r"\ensuremath{\times}",
    "÷": r"\ensuremath{\div}",
    "≤": r"\ensuremath{\leq}",
    "≥": r"\ensuremath{\geq}",
    "≠": r"\ensuremath{\neq}",
    "≈": r"\ensuremath{\approx}",
    "∞": r"\ensuremath{\infty}",
    "←": r"\ensuremath{\leftarrow}",
    "→": r"\ensuremath{\rightarrow}",
    "↑": r"\ensuremath{\uparrow}",
    "↓": r"\ensuremath{\downarrow}",
}
_ACCENTS = {
    "\u0300": "`",
    "\u0301": "'",
    "\u0302": "^",
    "\u0303": "~",
    "\u0304": "=",
    "\u0306": "u",
    "\u0307": ".",
    "\u0308": '"',
    "\u030a": "r",
    "\u030b": "H",
    "\u030c": "v",
    "\u0327": "c",
}
_GREEK = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu"),
    *("xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega"),
)
_BREAK = r"\allowbreak{}"
# A longer word may be broken: behind punctuation once it has so many characters, and anywhere once it has so many.
_LONG, _SOON, _AT_LAST = 24, 8, 16


@functools.lru_cache(maxsize=1 << 14)
def escape(text: str) -> str:
    """A stranger's text on one line, to stand in a paragraph, a cell or a caption.

    What prints more than ``LONGEST`` characters is cut: TeX cannot measure a caption that is a few metres long.
    """
    text = unicodedata.normalize("NFC", one_line(text))
    printed = itertools.accumulate(length(glyph(character)) for character in text)
    kept = sum(end < LONGEST for end in printed)
    return " ".join(_word(word) for word in (text if kept >= len(text) - 1 else f"{text[:kept]}…").split(" "))


def _word(word: str) -> str:
    found = []
    run, before, long = 0, "", sum(len(glyph(character)) for character in word) > _LONG
    for number, character in enumerate(word, start=1):
        written = _SPECIAL.get(character) or glyph(character)
        if character in _JOINED and character == before:
            written = f"{{}}{written}"
        found.append(written)
        run += 1
        punctuation = character.isascii() and not character.isalnum()
        # A code point is as long as a word.
        if long and number < len(word) and (run >= (_SOON if punctuation else _AT_LAST) or "U+" in written):
            found.append(_BREAK)
            run = 0
        before = character
    return "".join(found)


def finished(text: str) -> str:
    """Text that is LaTeX already but for characters beyond ASCII: our own dashes and marks."""
    return text if text.isascii() else "".join(map(glyph, text))


@functools.lru_cache(maxsize=1 << 12)
def glyph(character: str) -> str:
    """One character without meaning to TeX, in ASCII."""
    if character.isascii():
        return character
    if character in _GLYPHS:
        return _GLYPHS[character]
    parts = unicodedata.normalize("NFD", character)
    if len(parts) == 2 and parts[1] in _ACCENTS and parts[0].isascii() and parts[0].isalpha():
        return f"\\{_ACCENTS[parts[1]]}{{{parts[0]}}}"
    return _greek(character) or f"{{[}}U+{ord(character):04X}]"


def _greek(character: str) -> str | None:
    """Small Greek letters, which TeX has as mathematics under their names."""
    name = unicodedata.name(character, "").removeprefix("GREEK SMALL LETTER ").replace("LAMDA", "LAMBDA").lower()
    return f"\\ensuremath{{\\{name}}}" if name in _GREEK else None


def length(text: str) -> int:
    """About how many characters a finished text prints."""
    text = text.replace(_BREAK, "").replace(r"\ensuremath", "")
    text = re.sub(r"\\(char34|[A-Za-z]+|.)", "x", text)
    return len(re.sub(r"[{}]", "", text))

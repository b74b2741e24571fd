"""Licence and attribution of a dataset, as the README.md in its folder states them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from harness.untrusted import ForeignText, reading

# A README is shorter; more is not looked at.
_MOST_BYTES = 1 << 20
# The bold subject at the start of a paragraph: "**Licence.** CC BY 4.0", "**Attribution.** ...".
_SUBJECT = r"^\*\*{}[.:]?\*\*[.:]?"
_LICENCE = re.compile(_SUBJECT.format("Licen[cs]es?"), re.M | re.I)
_ATTRIBUTION = re.compile(_SUBJECT.format("Attribution"), re.M | re.I)
_BLANK_LINE = re.compile(r"\n\s*\n")


@dataclass(frozen=True)
class Licence:
    """Licence of a dataset's texts (``None``: its folder names none), and whom to name."""

    text: ForeignText | None
    attribution: ForeignText | None = None


MS_MARCO = Licence(
    ForeignText(
        "MS MARCO's terms: for non-commercial research only, without extending any licence. Do not pass the copy on."
    ),
    ForeignText(
        "Payal Bajaj et al.: *MS MARCO: A Human Generated MAchine Reading COmprehension Dataset*, 2016"
        " (arXiv 1611.09268)."
    ),
)

XOR_TYDI = Licence(
    ForeignText("CC BY-SA 4.0"),
    ForeignText("Akari Asai et al.: *XOR QA: Cross-lingual Open-Retrieval Question Answering*, NAACL 2021."),
)


def read_licence(folder: Path) -> Licence | None:
    """Return the licence and attribution in a folder's README.md; ``None``: it names no licence.

    Raises:
        FileError: the file cannot be read.
    """
    path = folder / "README.md"
    if not path.is_file():
        return None
    with reading(path, "restore it"), path.open("rb") as file:
        text = file.read(_MOST_BYTES).decode("utf-8-sig", "replace").replace("\r\n", "\n")
    licence = _paragraph(_LICENCE, text)
    return Licence(licence, _paragraph(_ATTRIBUTION, text)) if licence else None


def _paragraph(subject: re.Pattern[str], text: str) -> ForeignText | None:
    """Return the paragraph after a bold subject, if there is one."""
    found = subject.search(text)
    if found is None:
        return None
    # Searched step by step: one pattern for all of it takes hours for a megabyte of blanks.
    words = _BLANK_LINE.split(text[found.end() :].lstrip(), maxsplit=1)[0].split()
    return ForeignText(" ".join(words)) if words else None

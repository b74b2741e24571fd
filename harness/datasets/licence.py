"""Licence and attribution of a dataset, as the README.md in its folder states them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from harness.untrusted import ForeignText, reading

# A README is shorter; more is not looked at.
_MOST_BYTES = 1 << 20
# A paragraph that begins with its subject in bold: "**Licence.** CC BY 4.0", "**Attribution.** ...".
_PARAGRAPH = r"^\*\*{}[.:]?\*\*[.:]?\s*(.+?)\s*(?:\n\s*\n|\Z)"
_LICENCE = re.compile(_PARAGRAPH.format("Licen[cs]es?"), re.M | re.S | re.I)
_ATTRIBUTION = re.compile(_PARAGRAPH.format("Attribution"), re.M | re.S | re.I)


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


def read_licence(folder: Path) -> Licence | None:
    """Return the licence and attribution in a folder's README.md; ``None``: it names no licence.

    Raises:
        FileError: the file cannot be read.
    """
    path = folder / "README.md"
    if not path.is_file():
        return None
    with reading(path, "restore it"), path.open("rb") as file:
        text = file.read(_MOST_BYTES).decode("utf-8", "replace").replace("\r\n", "\n")
    found, named = _LICENCE.search(text), _ATTRIBUTION.search(text)
    return Licence(_paragraph(found), _paragraph(named) if named else None) if found else None


def _paragraph(match: re.Match[str]) -> ForeignText:
    return ForeignText(" ".join(match[1].split()))

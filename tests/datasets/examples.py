"""The examples of docs/guides/datasets.md as folders, so that the tests read the page's files."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "datasets.md"
_FILE = re.compile(r"^`([^`]+)`:\n\n```\w*\n(.*?)^```$", re.M | re.S)


def sections() -> dict[str, str]:
    """The page's sections by their headings."""
    parts = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.M)[1:]
    return {part.splitlines()[0]: part for part in parts}


def write(heading: str, folder: Path) -> Path:
    """Write the files of a section."""
    found = _FILE.findall(sections()[heading])
    assert found, heading
    for name, content in found:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return folder

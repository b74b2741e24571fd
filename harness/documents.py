"""Pages of the documentation that messages name: in a clone, and as they ship in a wheel."""

from __future__ import annotations

from harness.config import data_root


def page(name: str) -> str:
    """Return where to read a page such as ``docs/guides/platforms.md``: its name in a clone, else the file's path."""
    root = data_root()
    return str(root / name) if root.name == "shipped" else name

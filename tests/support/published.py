"""The shipped tables of Santhanam et al. 2023, and copies of their folder that a test may alter."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

from harness.analysis import published
from harness.analysis.published import Published

SHIPPED = Path(__file__).resolve().parents[2] / "results" / "published" / "santhanam2023"


@functools.cache
def shipped() -> Published:
    """Read the shipped tables once."""
    return published.read(SHIPPED)


def copy(folder: Path) -> Path:
    """Copy the data files, without the study."""
    return Path(shutil.copytree(SHIPPED, folder / "paper", ignore=shutil.ignore_patterns("study")))


def alter(folder: Path, name: str, old: str, new: str) -> Published:
    """Replace a text that one file holds once, and read the tables."""
    text = (folder / name).read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {name}"
    (folder / name).write_text(text.replace(old, new), encoding="utf-8")
    return published.read(folder)

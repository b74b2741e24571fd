"""Finished pieces of a build, from which a later attempt resumes."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Writes a second form of a chunk's vectors (number of the chunk, vectors, how many each passage has).
Beside = Callable[[int, Any, list[int]], None]


class BuildState:
    """The finished pieces of a build, one file each, renamed into place when whole.

    Args:
        folder: created if missing, emptied if its pieces depend on other facts.
        built_with: all facts that the pieces depend on.
    """

    def __init__(self, folder: Path, built_with: dict[str, Any]) -> None:
        self.folder = folder
        self.resumed_s = 0.0
        note = folder / "built-with.json"
        facts = json.dumps(built_with, sort_keys=True)
        if folder.is_dir() and (not note.is_file() or note.read_text(encoding="utf-8") != facts):
            shutil.rmtree(folder)
        folder.mkdir(exist_ok=True)
        note.write_text(facts, encoding="utf-8")

    def piece(self, name: str, make: Callable[[], Any]) -> Any:
        """Return a piece (tensors, numbers, text, lists and dicts of them): stored before, or made now by ``make``.

        The seconds that an earlier attempt spent on it are added to ``resumed_s``.
        """
        import torch

        path = self.folder / f"{name}.piece"
        if path.is_file():
            # Mapped: only the used part of a large piece is read.
            piece = torch.load(path, mmap=True, weights_only=True)
            self.resumed_s += piece["took_s"]
            return piece["value"]
        start = time.perf_counter()
        value = make()
        partial = path.with_suffix(".partial")
        torch.save({"value": value, "took_s": time.perf_counter() - start}, partial)
        partial.replace(path)
        return value

    def load(self, name: str) -> Any:
        """Load a piece that this attempt made or resumed already."""
        import torch

        return torch.load(self.folder / f"{name}.piece", mmap=True, weights_only=True)["value"]

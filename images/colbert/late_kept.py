"""What a build has finished so far, so that an attempt that follows goes on from there."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Kept:
    """Pieces of a build in a folder; each is written beside its place and renamed into it when it is whole.

    Args:
        folder: made when missing; emptied when it holds pieces of something else.
        made_with: all that the pieces depend on.
    """

    def __init__(self, folder: Path, made_with: dict[str, Any]) -> None:
        self.folder = folder
        self.resumed_s = 0.0
        note = folder / "made-with.json"
        wanted = json.dumps(made_with, sort_keys=True)
        if folder.is_dir() and (not note.is_file() or note.read_text(encoding="utf-8") != wanted):
            shutil.rmtree(folder)
        folder.mkdir(exist_ok=True)
        note.write_text(wanted, encoding="utf-8")

    def piece(self, name: str, make: Callable[[], Any]) -> Any:
        """What ``make`` returns (tensors, numbers, text, lists and dicts of them): kept from before, or made now.

        The seconds that an earlier attempt spent on it are added to ``resumed_s``.
        """
        import torch

        path = self.folder / f"{name}.piece"
        if path.is_file():
            # Mapped: of a large piece only what is used is read.
            kept = torch.load(path, mmap=True, weights_only=True)
            self.resumed_s += kept["took_s"]
            return kept["value"]
        start = time.perf_counter()
        value = make()
        beside = path.with_suffix(".partial")
        torch.save({"value": value, "took_s": time.perf_counter() - start}, beside)
        beside.replace(path)
        return value

    def again(self, name: str) -> Any:
        """A piece that this attempt made or took over already."""
        import torch

        return torch.load(self.folder / f"{name}.piece", mmap=True, weights_only=True)["value"]

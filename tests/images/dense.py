"""Inputs of the dense engines' tests."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


class _SciFact:
    """The shipped collection's first documents and queries."""

    folder = _ROOT / "datasets" / "scifact"

    def documents(self, count: int) -> list[dict[str, str]]:
        with gzip.open(self.folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line, _ in zip(lines, range(count), strict=False)]

    def texts(self, documents: int, queries: int) -> tuple[list[str], list[str]]:
        """Titles and texts joined by a blank; queries."""
        lines = (self.folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()[:queries]
        joined = [f"{each['title']} {each['text']}" for each in self.documents(documents)]
        return joined, [json.loads(line)["text"] for line in lines]


SCIFACT = _SciFact()


def put_small_checkpoints(tmp_path: Path) -> None:
    """Make ``import small`` give the maker of small checkpoints to a probe's lines."""
    job = tmp_path / "job"
    job.mkdir(exist_ok=True)
    shutil.copy(_ROOT / "checkpoints" / "dense.py", job / "small.py")

"""The system that does nothing: each query gets the first documents of the corpus, made ready beforehand."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.driver.adapter import Adapter, Corpus
from harness.driver.records import Hit

# More than anyone asks for at once; a suite's k is at most this.
_MOST = 10_000


class Null(Adapter):
    """No parameters."""

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Keep the first ids."""
        ids = [document.doc_id for document in itertools.islice(corpus, _MOST)]
        (index_dir / "ids.json").write_text(json.dumps(ids), encoding="utf-8")
        progress(len(corpus))

    def load(self, index_dir: Path) -> None:
        """Make the answer."""
        ids = json.loads((index_dir / "ids.json").read_text(encoding="utf-8"))
        self._hits = [Hit(doc_id, float(-rank)) for rank, doc_id in enumerate(ids)]
        self._answer: list[Hit] = []

    def search(self, query: str, k: int) -> Sequence[Hit]:  # noqa: ARG002
        """Return the same answer each time."""
        if len(self._answer) != min(k, len(self._hits)):
            self._answer = self._hits[:k]
        return self._answer

    def threads(self) -> dict[str, int]:
        """This one."""
        return {"python": 1}

    def libraries(self) -> dict[str, str]:
        """Python is all there is."""
        return {"python": sys.version.split()[0]}


ENGINE = Null

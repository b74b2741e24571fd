"""A small engine to join: it counts shared words or letter trigrams."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.driver.adapter import Adapter, Corpus
from harness.driver.records import Hit


class Toy(Adapter):
    """Parameters: ``shared``; ``misdeed`` and ``at``, the search at which it happens, or ``-1`` for the build.

    With ``matches``, documents that share nothing with the query are not found.
    """

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Keep the texts; say on standard output that it does."""
        print("the toy builds", flush=True)
        if list(index_dir.iterdir()):
            raise RuntimeError("the folder is not empty")
        (index_dir / "half").touch()
        self._misbehave(-1)
        texts = {document.doc_id: f"{document.title} {document.text}".lower() for document in corpus}
        progress(len(texts))
        (index_dir / "half").unlink()
        (index_dir / "texts.json").write_text(json.dumps(texts), encoding="utf-8")

    def load(self, index_dir: Path) -> None:
        """Read the texts."""
        texts = json.loads((index_dir / "texts.json").read_text(encoding="utf-8"))
        self._parts = {doc_id: self._cut(text) for doc_id, text in texts.items()}
        self._searches = self._scored = 0

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Count shared words or trigrams."""
        print("the toy searches", flush=True)
        start = time.perf_counter()
        number, self._searches = self._searches, self._searches + 1
        wanted = self._cut(query.lower())
        found = sorted((-len(wanted & parts) / len(parts), doc_id) for doc_id, parts in self._parts.items())[:k]
        if self.params.get("matches"):
            found = [(score, doc_id) for score, doc_id in found if score]
        self._took_s = time.perf_counter() - start
        return self._misbehave(number) or [Hit(doc_id, -score) for score, doc_id in found]

    def score(self, query: str, doc_ids: Sequence[str]) -> Sequence[float]:
        """Count them in given documents; ``misdeed`` may spoil the scores."""
        start, wanted = time.perf_counter(), self._cut(query.lower())
        scores = [len(wanted & self._parts[doc_id]) / len(self._parts[doc_id]) for doc_id in doc_ids]
        self._scored = len(doc_ids)
        self._took_s = time.perf_counter() - start
        if self.params.get("misdeed") == "nan":
            scores[-1] = float("nan")
        return scores

    def counts(self) -> dict[str, int]:
        """Count the documents scored for a query."""
        return {"pairs": self._scored} if self._scored else {}

    def stages_s(self) -> dict[str, float]:
        """All of the search or the scoring."""
        return {"score" if self._scored else "retrieve": self._took_s}

    def threads(self) -> dict[str, int]:
        """Report one thread unless the parameters claim more."""
        return {"python": int(self.params.get("threads", 1))}

    def libraries(self) -> dict[str, str]:
        """Return Python's version and the thread setting of the environment."""
        return {"python": sys.version.split()[0], "omp": os.environ["OMP_NUM_THREADS"]}

    def _cut(self, text: str) -> set[str]:
        return set(text.split()) if self.params["shared"] == "words" else {text[n : n + 3] for n in range(len(text))}

    def _misbehave(self, number: int) -> list[Hit]:
        if "misdeed" not in self.params or number != self.params.get("at", 3):
            return []
        match self.params["misdeed"]:
            case "raise":
                raise ValueError("planted\nin two lines")
            case "hang":
                time.sleep(3600)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "heap":
                raise MemoryError("planted")
            case "oom":
                os.urandom(1 << 20) * 4096
            case "twice":
                return [Hit("d1", 1.0), Hit("d1", 1.0)]
        return []


ENGINE = Toy

"""Run inside the ColBERT engine's image: queries through the adapter and through ``colbert.Searcher``, in turns.

``python3 -m benchmarks.colbert_inside START DOCUMENTS QUERIES`` (an encoder to start from, two files of JSON lines)
prints one JSON object: seconds of each query by size and way.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import adapter

from checkpoints import colbert as maker
from harness.driver.adapter import Corpus
from harness.driver.records import Envelope

BUILD: dict[str, Any] = {
    "method": "plaid",
    "checkpoint": "small",
    "document_tokens": 300,
    "nbits": 2,
    "kmeans_niters": 4,
    "batch_size": 16,
    "chunk_documents": 1000,
    "query_tokens": 32,
}
SIZES: dict[str, dict[str, Any]] = {
    "S": {"k": 10, "ncells": 1, "centroid_score_threshold": 0.5, "ndocs": 256},
    "M": {"k": 100, "ncells": 2, "centroid_score_threshold": 0.45, "ndocs": 1024},
    "L": {"k": 1000, "ncells": 4, "centroid_score_threshold": 0.4, "ndocs": 4096},
}


def main(start: str, documents: str, queries: str) -> None:
    """Build once, then search with all three sizes both ways."""
    with tempfile.TemporaryDirectory() as place:
        models, index = Path(place) / "models", Path(place) / "index"
        maker.make(models / "small", start=Path(start))
        index.mkdir()
        corpus = Corpus(Path(documents), len(Path(documents).read_bytes().splitlines()))
        envelope = Envelope("benchmark", 1, 4 << 30)
        adapter.ENGINE({**BUILD, **SIZES["S"]}, envelope, models).build(corpus, index, lambda _: None)
        texts = [json.loads(line)["text"] for line in Path(queries).read_text(encoding="utf-8").splitlines()]
        measured = {size: _in_turns(models, index, envelope, texts, settings) for size, settings in SIZES.items()}
    print("measured", json.dumps(measured))


def _in_turns(
    models: Path, index: Path, envelope: Envelope, texts: list[str], settings: dict[str, Any]
) -> dict[str, Any]:
    ours = adapter.ENGINE({**BUILD, **settings}, envelope, models)
    ours.load(index)
    plain = _searcher(models, index, len(ours._ids))
    plain.configure(**{name: value for name, value in settings.items() if name != "k"})
    k = settings["k"]
    ways = {"harness": lambda text: ours.search(text, k), "plain": lambda text: plain.search(text, k=k)}
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for text in texts[:10]:
        for search in ways.values():
            search(text)
    differ = 0.0
    for number, text in enumerate(texts):
        answers = {}
        # Each goes first every other time: the second finds warm caches.
        for way in sorted(ways, reverse=number % 2 == 1):
            before = time.perf_counter()
            answers[way] = ways[way](text)
            taken[way].append(time.perf_counter() - before)
        numbers, _, scores = answers["plain"]
        if [hit.doc_id for hit in answers["harness"]] != [ours._ids[each] for each in numbers]:
            raise SystemExit(f"another ranking for {text!r}")
        differ = max([differ, *(abs(hit.score - score) for hit, score in zip(answers["harness"], scores, strict=True))])
    ours.close()
    return {**taken, "largest score difference": differ}


def _searcher(models: Path, index: Path, documents: int) -> Any:
    """Return the engine's own searcher, made as in its README."""
    from colbert import Searcher
    from colbert.data import Collection
    from colbert.infra import ColBERTConfig

    return Searcher(
        index=str(index / "plaid"),
        checkpoint=str(models / "small"),
        collection=Collection(data=range(documents)),
        config=ColBERTConfig(root="/tmp"),  # noqa: S108 # the container's own
        verbose=0,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

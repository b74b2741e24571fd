"""Two rerankers for the suite ``debias``: one small model trained on original and on shuffled documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import docker

from checkpoints import long_documents, small, stand_in
from checkpoints.small import Heard, Kind

_NOTE = (
    "two layers of 128 dimensions over all-MiniLM-L6-v2's embeddings, made to match words and trained for a minute on"
    " {} documents of SciFact's sentences"
)
# The folder of the weights has the kind's name.
KINDS = tuple(
    Kind(f"longp-{copy}", (f"candidates-longp-{copy}",), {"model": (f"longp-{copy}",)}, _NOTE.format(copy), steps=75)
    for copy in ("original", "shuffled")
)


def make(client: docker.DockerClient, out: Path, dataset: Path, *, cache: Path, heard: Heard) -> list[Path]:
    """Train what is missing; return the files of the systems that rerank the dataset's candidates.

    Args:
        out: ``out/models`` is for ``--models``, ``out/images`` for ``HARNESS_IMAGES``.
        dataset: a folder that ``harness generate placed`` wrote, with candidates.  Its shuffled copies have the same
            queries and the same ids of documents, so its candidates are theirs.
    """
    models, images, corpus = out / "models", out / "images", out / "training.jsonl.gz"
    out.mkdir(parents=True, exist_ok=True)
    long_documents.write_unjudged(cache, corpus)
    small.train_missing(client, models, KINDS, cache=cache, heard=heard, corpus=corpus)
    for kind in KINDS:
        stand_in.write_system(images / "rerank" / "systems" / f"{kind.name}-small.toml", _system(kind, models))
    long_documents.write_first_stage(dataset, models / long_documents.FIRST_STAGE, images)
    return [long_documents.write_two_stages(kind.name, images) for kind in KINDS]


def _system(kind: Kind, models: Path) -> dict[str, Any]:
    assets = {"folder": kind.name, "licence": "NOASSERTION", "sha256": stand_in.checksums(models / kind.name)}
    return {
        "description": f"LongP (one window) trained on {kind.name.removeprefix('longp-')} documents",
        "stand_in": kind.note,
        "build_params": {"model": kind.name, "document_tokens": long_documents.LONGEST},
        "search_params": {
            "aggregation": "long",
            "head": "linear",
            "backend": "onnxruntime",
            "query_tokens": long_documents.QUERY_TOKENS,
            "window": long_documents.LONGEST,
        },
        "assets": [assets],
    }

"""Rerankers of long documents for the suite ``long-documents``: stand-ins in a sixth of the published geometry.

FirstP reads 77 tokens of at most 231, PARADE 19 windows, MaxP 14: the ratios of their work are the published ones.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker

from checkpoints import small, stand_in
from checkpoints.small import Heard, Kind
from harness import datasets, filesystem
from harness.config import data_root
from harness.datasets.generate.kinds import CANDIDATES
from harness.launch.images import catalog

QUERY_TOKENS, _FIRST, LONGEST = 8, 77, 231
_NOTE = (
    "two layers of 128 dimensions over all-MiniLM-L6-v2's embeddings, made to match words and trained for two minutes"
    " on short texts of SciFact"
)
WINDOWS = Kind(
    "windows",
    ("firstp", "avgp", "maxp", "parade-attn", "parade-max"),
    {"window": ("firstp", "avgp", "maxp"), "parade-attn": ("parade-attn",), "parade-max": ("parade-max",)},
    _NOTE,
    steps=400,
)
# name -> the published system, and its parameters in this geometry.
RERANKERS: dict[str, tuple[str, dict[str, Any]]] = {
    "firstp": ("firstp", {"document_tokens": _FIRST}),
    "avgp": ("avgp", {"window": _FIRST}),
    "maxp": ("maxp", {"window": 24, "stride": 16}),
    "parade-attn": ("parade-attn", {"window": 24, "stride": 12}),
    "parade-max": ("parade-max", {"window": 24, "stride": 12}),
    "longp": ("firstp", {"aggregation": "long"}),
}
FIRST_STAGE = "candidates"
# Of each reranker, the system that the suite measures.
NAMES = {name: f"{FIRST_STAGE}-{name}" for name in RERANKERS}


def make(
    client: docker.DockerClient, out: Path, dataset: Path, *, cache: Path, heard: Heard, steps: int | None = None
) -> list[Path]:
    """Train what is missing; return the files of the systems that rerank the dataset's candidates.

    Args:
        out: ``out/models`` is for ``--models``, ``out/images/DATASET`` for ``HARNESS_IMAGES``.
        dataset: a folder that ``harness generate`` wrote, with candidates.
    """
    models, images = out / "models", out / "images" / dataset.name
    corpus = out / "training.jsonl.gz"
    out.mkdir(parents=True, exist_ok=True)
    write_unjudged(cache, corpus)
    small.train_missing(client, models, [WINDOWS], cache=cache, heard=heard, steps=steps, corpus=corpus)
    known = catalog.systems(catalog.images_dir())
    written = []
    for name, (published, params) in RERANKERS.items():
        made = {"query_tokens": QUERY_TOKENS, "document_tokens": LONGEST, "backend": "onnxruntime", **params}
        file = known[published].file
        written.append(stand_in.write(file, f"{name}-small", models=models, images=images, note=_NOTE, params=made))
    write_first_stage(dataset, models / f"{FIRST_STAGE}-{dataset.name}", images)
    return written + [write_two_stages(name, images) for name in RERANKERS]


def write_unjudged(cache: Path, target: Path) -> None:
    """Write the documents of SciFact that no query judges: none holds a passage that is relevant in a test."""
    scifact = datasets.load(datasets.find("scifact", data_root()), cache)
    judged = {line.split()[2] for line in scifact.qrels.decode("utf-8").splitlines()}
    with (
        filesystem.atomic_write(target) as partial,
        partial.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
    ):
        packed.writelines(_lines(scifact.corpus, judged))


def _lines(corpus: Any, without: set[str]) -> Iterator[bytes]:
    for document in corpus:
        if document["_id"] not in without:
            yield json.dumps(document).encode() + b"\n"


def write_first_stage(dataset: Path, folder: Path, images: Path) -> None:
    """Copy a dataset's candidates and queries into ``folder``, and write the system that returns them."""
    filesystem.remove_tree(folder)
    folder.mkdir(parents=True)
    shutil.copyfile(dataset / CANDIDATES, folder / "run.trec")
    shutil.copyfile(dataset / "queries.jsonl", folder / "queries.jsonl")
    asset = {"folder": folder.name, "licence": "NOASSERTION", "sha256": stand_in.checksums(folder)}
    stand_in.write_system(
        images / "fixed-run" / "systems" / f"{FIRST_STAGE}.toml",
        {
            "description": f"the candidates of {dataset.name}, in random order",
            "fewer_hits_ok": True,
            "build_params": {"run": folder.name},
            "assets": [asset],
        },
    )


def write_two_stages(name: str, images: Path) -> Path:
    """Write the system that reranks the candidates with ``NAME-small``; return its file."""
    told = {
        "description": f"the candidates in random order, then {name}",
        "components": [FIRST_STAGE, f"{name}-small"],
        "search_params": {"depth": 50},
    }
    return stand_in.write_system(images / "two-stage" / "systems" / f"{FIRST_STAGE}-{name}.toml", told)

"""Inputs of the ColBERT engine's tests: small checkpoints, collections, a plain script."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker

from tests.images.inside import Warmth
from tests.support.container_output import output_of

ROOT = Path(__file__).resolve().parents[2]

BOTH = {"checkpoint": "tiny", "document_tokens": 300, "batch_size": 16, "chunk_documents": 200, "query_tokens": 32}
PLAID = {
    **BOTH,
    "method": "plaid",
    "nbits": 2,
    "kmeans_niters": 4,
    "k": 10,
    "ncells": 1,
    "centroid_score_threshold": 0.5,
    "ndocs": 256,
}
UNCOMPRESSED = {**BOTH, "method": "uncompressed", "candidates": "faiss", "nprobe": 32, "faiss_depth": 1024}
DESSERT = {**BOTH, "method": "dessert", "kmeans_niters": 4, "tables": 64, "bits": 7, "ncells": 4, "scored": 1024}
MUVERA = {
    **BOTH,
    "method": "muvera",
    "nbits": 2,
    "kmeans_niters": 4,
    "repetitions": 20,
    "planes": 4,
    "inner": 8,
    "final": 0,
    "fde_index": "flat",
    "hnsw_m": 32,
    "hnsw_ef_search": 128,
    "candidates": 100,
}
# What the paper searches with, to depths of 10, 100 and 1,000.
SIZES = {
    "s": {"k": 10, "ncells": 1, "centroid_score_threshold": 0.5, "ndocs": 256},
    "m": {"k": 100, "ncells": 2, "centroid_score_threshold": 0.45, "ndocs": 1024},
    "l": {"k": 1000, "ncells": 4, "centroid_score_threshold": 0.4, "ndocs": 4096},
}

METHODS = ("plaid", "uncompressed", "dessert", "muvera")
# Each method, and what makes it search the whole of a small index.
WHOLE = [
    ("plaid", SIZES["l"]),
    ("uncompressed", {"candidates": "all"}),
    ("dessert", {}),
    ("muvera", {"candidates": 1000}),
]

WORDS = re.findall(
    r"\w+",
    "ice water glacier river mountain lava ash crater coffee cup house people talk drink bridge castle market "
    "forest desert harbour ship train engine music violin orchestra doctor cell protein gene vaccine virus",
)

# Makes adapters over /models, or over other folders of checkpoints.
PRELUDE = """
import json, os, shutil, subprocess, sys, time
from pathlib import Path
sys.path.insert(0, "/src")
import adapter
from harness.driver.adapter import Corpus
from harness.driver.records import Envelope
given = json.loads(Path("/job/given.json").read_text())
PLAID, UNCOMPRESSED, SIZES = (given[name] for name in ("plaid", "uncompressed", "sizes"))
DESSERT, MUVERA = given["dessert"], given["muvera"]
def engine(params, models="/models", gpus=0):
    return adapter.ENGINE(params, Envelope("test", 1, 1 << 30, gpus=gpus), Path(models))
def corpus(documents, name="corpus"):
    path = Path(f"/index/{name}.jsonl")
    path.write_text("".join(json.dumps(each) + "\\n" for each in documents), encoding="utf-8")
    return Corpus(path, len(documents))
def folder(name):
    path = Path("/index") / name
    path.mkdir()
    return path
def built(params, documents, name="made", models="/models"):
    made = folder(name)
    engine(params, models).build(corpus(documents, name), made, lambda _: None)
    return made
def loaded(params, made, models="/models"):
    ready = engine(params, models)
    ready.load(made)
    return ready
def hits(found):
    return [[hit.doc_id, hit.score] for hit in found]
say = lambda value: print("said", json.dumps(value), flush=True)
def refused(call, *arguments):
    try:
        call(*arguments)
    except (ValueError, RuntimeError) as error:
        say(str(error))
    else:
        say(None)
"""

MAKE_MODELS = """
import sys
from pathlib import Path
sys.path.insert(0, "/src")
from checkpoints import colbert
for name, seed in (("tiny", 1), ("other", 2)):
    colbert.make(Path("/models") / name, vocabulary=sys.argv[1].split(), seed=seed)
colbert.make(Path("/models/trained"), start=Path("/start"))
"""


def documents(count: int, seed: int = 0) -> list[dict[str, str]]:
    """Documents of random words, some with a title."""
    drawn = random.Random(seed)
    return [
        {
            "_id": f"d {number}",
            "title": drawn.choice(["", *WORDS]),
            "text": " ".join(drawn.choices(WORDS, k=drawn.randint(3, 40))),
        }
        for number in range(count)
    ]


def queries(count: int, seed: int = 1) -> list[str]:
    """Queries of a few of the same words."""
    drawn = random.Random(seed)
    return [" ".join(drawn.choices(WORDS, k=drawn.randint(1, 6))) for _ in range(count)]


@dataclass
class Inside:
    """Runs lines of Python in the engine's image under a job's limits; returns what they ``say``."""

    warmth: Warmth
    image: str
    imports: str
    models: Path
    job: Path

    def __call__(self, lines: str, **given: Any) -> list[Any]:
        self.job.mkdir(exist_ok=True)
        told = {
            "plaid": PLAID,
            "uncompressed": UNCOMPRESSED,
            "dessert": DESSERT,
            "muvera": MUVERA,
            "sizes": SIZES,
            **given,
        }
        (self.job / "given.json").write_text(json.dumps(told), encoding="utf-8")
        (self.job / "probe.py").write_text(PRELUDE + lines, encoding="utf-8")
        reads = {"/models": self.models, "/src/checkpoints": ROOT / "checkpoints"}
        return self.warmth.of(self.image, self.imports, reads).ask(self.job)


def make_models(client: docker.DockerClient, image: str, folder: Path, start: Path) -> Path:
    """Small checkpoints: two random ones, and one that starts from a real encoder; made with the image's libraries."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    output_of(
        client,
        image,
        ["-c", MAKE_MODELS, " ".join(WORDS)],
        entrypoint=["python3"],
        network_mode="none",
        environment={"PYTHONDONTWRITEBYTECODE": "1"},
        volumes={
            str(folder): {"bind": "/models", "mode": "rw"},
            str(start): {"bind": "/start", "mode": "ro"},
            str(ROOT / "checkpoints"): {"bind": "/src/checkpoints", "mode": "ro"},
        },
    )
    return folder

"""Stand-ins of published checkpoints: trained for about a minute each on SciFact's documents."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker

from checkpoints import container, stand_in
from harness import filesystem
from harness.config import data_root
from harness.driver.records import digest
from harness.launch.images import assets, builder, catalog
from harness.launch.images.systems import System

log = logging.getLogger("harness.checkpoints")

_START = "minilm"
_MEMORY_BYTES = 6 << 30
# A minute on two CPUs.
STEPS = 40
# Any engine does that has torch and transformers.
_TRAINED_IN = "dense"


@dataclass(frozen=True)
class Kind:
    """One training, and the systems that its checkpoints stand in for.

    Attributes:
        joined: systems that join one of them with others, which stand in too.
        folders: what the training writes, and the folders of assets that it goes to.
        params: parameters that are not the published systems', where they have them; the note says so.
        steps: of the training.
    """

    name: str
    systems: tuple[str, ...]
    folders: dict[str, tuple[str, ...]]
    note: str
    params: dict[str, Any] = field(default_factory=dict)
    joined: tuple[str, ...] = ()
    steps: int = STEPS


# The published systems read 256 and 300 tokens of a document: their indexes alone would take two CPUs half of the time
# that the whole suite may take.
KINDS = (
    Kind(
        "dpr",
        ("dpr",),
        {"query": ("dpr-question",), "document": ("dpr-context",)},
        "two layers of all-MiniLM-L6-v2 on each side, trained for a minute on SciFact's documents",
    ),
    Kind(
        "splade",
        ("bt-splade-l",),
        {"query": ("bt-splade-l-query",), "document": ("bt-splade-l-document",)},
        "one layer of all-MiniLM-L6-v2 for queries and two for documents, 8,000 word pieces, trained for a minute on"
        " SciFact's documents; documents are cut at 128 tokens",
        {"document_tokens": 128},
    ),
    Kind(
        "colbert",
        ("colbertv2-s", "colbertv2-m", "colbertv2-l", "colbertv2-exact", "dessert", "muvera"),
        {"model": ("colbertv2.0",)},
        "two layers of all-MiniLM-L6-v2, trained for a minute on SciFact's documents; documents are cut at 96 tokens"
        " (as in the training), centroids found in 2 rounds",
        {"document_tokens": 96, "kmeans_niters": 2},
    ),
    Kind(
        "cross-encoder",
        ("ms-marco-minilm-l6",),
        {"model": ("ms-marco-minilm-l6",)},
        "two layers of all-MiniLM-L6-v2, made to match words and trained for two minutes on SciFact's documents;"
        " documents are cut at 128 tokens",
        {"document_tokens": 128, "query_tokens": 32},
        ("bm25-ms-marco-minilm-l6",),
        steps=100,
    ),
)

# Of each system over them, by the published one's.
NAMES = {name: f"{name}-small" for kind in KINDS for name in (*kind.systems, *kind.joined)}

Heard = Callable[[str, int, int], None]


def make(
    client: docker.DockerClient,
    out: Path,
    *,
    cache: Path,
    heard: Heard,
    kinds: Sequence[Kind] = KINDS,
    steps: int | None = None,
    corpus: Path | None = None,
) -> list[Path]:
    """Train what is missing; returns the files of the systems.

    Args:
        out: ``out/models`` is for ``--models``, ``out/images`` for ``HARNESS_IMAGES``.
        heard, steps, corpus: as for ``train_missing``.
        kinds: what to train.

    Raises:
        ImageError: the engine's image or the start cannot be had, or a training fails.
        EngineError: the Docker engine does not answer.
    """
    known = catalog.systems(catalog.images_dir())
    train_missing(client, out / "models", kinds, cache=cache, heard=heard, steps=steps, corpus=corpus)

    def write(kind: Kind, name: str, **changes: Any) -> Path:
        places: dict[str, Any] = {"models": out / "models", "images": out / "images"}
        return stand_in.write(known[name].file, NAMES[name], note=kind.note, **places, **changes)

    written = [
        write(kind, name, params={key: value for key, value in kind.params.items() if key in known[name].params})
        for kind in kinds
        for name in kind.systems
    ]
    return written + [write(kind, name, components=NAMES) for kind in kinds for name in kind.joined]


def train_missing(
    client: docker.DockerClient,
    models: Path,
    kinds: Sequence[Kind],
    *,
    cache: Path,
    heard: Heard,
    steps: int | None = None,
    corpus: Path | None = None,
) -> None:
    """Train the kinds that ``models`` lacks.

    What is there and unchanged is kept: the same scripts, packages, start and documents made it, and its checksums
    hold.  A kind's folders count only once the note of all their checksums is written, which comes last.

    Args:
        heard: is told what is trained, the steps done and all steps.
        steps: of each training, instead of the kind's own; weights of other numbers of steps are trained anew.
        corpus: the documents to train on, gzipped JSON lines; SciFact's if not given.
    """
    known = catalog.systems(catalog.images_dir())
    corpus = corpus or data_root() / "datasets" / "scifact" / "corpus.jsonl.gz"
    models.mkdir(parents=True, exist_ok=True)
    filesystem.remove_leftovers(models)
    engine = next(system for system in known.values() if system.engine == _TRAINED_IN)
    for kind in kinds:
        taken = steps or kind.steps
        key = _key(kind, engine, known[_START], corpus, taken)
        if _made(models, kind) != key:
            log.info(f"training {kind.name} for {', '.join(kind.systems)}: some minutes on two CPUs")
            image = builder.ImageBuilder(client, cache).ensure_engine(engine)
            origin = assets.fetch(_START, known[_START].assets, cache, None)
            _train(client, image, kind, origin, corpus, models, heard, taken)
            _note(models, kind, key)


def _train(
    client: docker.DockerClient,
    image: builder.Image,
    kind: Kind,
    origin: Path,
    corpus: Path,
    models: Path,
    heard: Heard,
    steps: int,
) -> None:
    (start,) = (path for path in origin.iterdir() if path.is_dir())
    with filesystem.scratch_folder(models, kind.name) as scratch:
        fresh = scratch / "out"
        fresh.mkdir()
        scratch.chmod(0o755)
        container.run(
            client,
            image,
            "checkpoints.training",
            [kind.name, "/start", "/corpus.jsonl.gz", "/out", str(steps)],
            given={"/start": start, "/corpus.jsonl.gz": corpus},
            out=fresh,
            memory_bytes=_MEMORY_BYTES,
            heard=lambda told: heard(str(told.get("what")), int(told.get("done", 0)), int(told.get("of", 0))),
        )
        _note_file(models, kind).unlink(missing_ok=True)
        for made, places in kind.folders.items():
            for place in places:
                filesystem.remove_tree(models / place)
                shutil.copytree(fresh / made, models / place)


def _note(models: Path, kind: Kind, key: str) -> None:
    places = [place for each in kind.folders.values() for place in each]
    folders = {place: stand_in.checksums(models / place) for place in places}
    with filesystem.atomic_write(_note_file(models, kind)) as partial:
        partial.write_text(json.dumps({"key": key, "folders": folders}, indent=2) + "\n", encoding="utf-8")


def _made(models: Path, kind: Kind) -> str | None:
    """Return the key of the stored checkpoint, or ``None`` if it is incomplete."""
    with suppress(OSError, ValueError, KeyError):
        noted = json.loads(_note_file(models, kind).read_text(encoding="utf-8"))
        if all(stand_in.checksums(models / name) == found for name, found in noted["folders"].items()):
            return str(noted["key"])
    return None


def _note_file(models: Path, kind: Kind) -> Path:
    return models / f"{kind.name}.made.json"


def _key(kind: Kind, engine: System, start: System, corpus: Path, steps: int) -> str:
    """Hash of everything that decides the weights, as far as arithmetic is the same everywhere."""
    scripts = sorted((Path(__file__).parent / "training").glob("*.py"))
    return digest(
        {
            "kind": kind.name,
            "steps": steps,
            "scripts": {path.name: filesystem.sha256(path) for path in scripts},
            "packages": [filesystem.sha256(lock) for lock in (engine.lock, *engine.shared_locks.values())],
            "start": {name: sha for asset in start.assets for name, sha in asset.sha256.items()},
            "corpus": filesystem.sha256(corpus),
        }
    )

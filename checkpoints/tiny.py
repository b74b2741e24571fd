"""Tiny checkpoints for every system that there is: of the published format, made from a seed in a second.

They know no language, but a vector of theirs is a bag of words, so that a system over them finds what the contract's
ten documents are about.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import docker

from checkpoints import container, dense, llm, rerank, rerank_heads, rerank_long, sparse, stand_in
from harness.errors import UnknownName
from harness.launch.images import builder, catalog
from harness.launch.images.systems import System

log = logging.getLogger("harness.checkpoints")

NOTE = "random weights that match words, made to try the system out"
# Any engine does that has torch and transformers.
_MADE_IN = "dense"


def recipe(system: System, folder: str) -> tuple[str, str]:
    """Return the module of this folder that makes an asset of a system, and its kind.

    Raises:
        UnknownName: nothing here makes what the system's parameters say; add it, so that the system can be tried.
    """
    named = [name for name, value in system.params.items() if value == folder]
    if system.engine == "rerank":
        if (kind := _whole_documents(system, folder)) in rerank_heads.KINDS:
            return "rerank_heads", kind
        if folder in rerank_long.KINDS:
            return "rerank_long", folder
        return "rerank", _rerank(system, folder)
    if system.engine == "llm-rerank":
        return "llm", "qwen2" if system.params["method"] == "judgement" else "llama"
    if "rerank_model" in named:  # a server of a reranker
        return "rerank", _rerank(system, folder, "rerank_head")
    if "checkpoint" in named:
        return "colbert", ""
    if "expansion_model" in named:
        return "sparse", "doct5query"
    sides = [name for name in ("model", "document_model", "query_model") if name in named]
    if sides and "method" in system.params:
        method = str(system.params["method"])
        if method in sparse.KINDS:
            # Documents are DistilBERT's with all published ones; queries that have a model of their own are not.
            return "sparse", method if method != "splade" or sides == ["query_model"] else "splade-distilbert"
    elif sides:
        return "dense", _dense(system, folder, sides[0])
    known = (*dense.KINDS, *sparse.KINDS, *rerank.KINDS, *rerank_heads.KINDS, *rerank_long.KINDS, *llm.KINDS, "colbert")
    raise UnknownName("kind of checkpoint", f"{system.name}/{folder}", known)


def _rerank(system: System, folder: str, parameter: str = "head") -> str:
    head = str(system.params[parameter])
    if head != "classifier":
        return {"modules": "ettin", "linear": "-".join((*_encoders(folder), "linear"))}[head]
    hubs = " ".join(asset.hub or "" for asset in system.assets if asset.folder == folder).lower()
    return next((kind for kind, part in (("electra", "electra"), ("xlm-roberta", "bge")) if part in hubs), "bert")


def _whole_documents(system: System, folder: str) -> str:
    """Return the kind of checkpoint of a head over whole documents: its aggregation and what else shapes it."""
    kind = str(system.params.get("aggregation", ""))
    if kind == "parade-transformer":
        kind = f"{kind}-pretr-l6" if "pretr" in folder else f"{kind}-rand-l2"
        kind = f"{kind}-separators" if system.params.get("separators") else kind
    if system.params.get("attention") == "per_dimension":
        kind = f"{kind}-per-dimension"
    return "-".join((kind, *_encoders(folder)))


def _encoders(folder: str) -> list[str]:
    """Name the encoder of a folder of one's own weights, unless it is BERT."""
    return [name for name in ("deberta", "electra") if name in folder]


def _dense(system: System, folder: str, side: str) -> str:
    pooling = str(system.params.get("pooling", ""))
    if folder in dense.KINDS:
        return folder
    if pooling == "dpr":
        return "dpr-question" if side == "query_model" else "dpr-context"
    if pooling == "ance":
        return "ance"
    if "original_positions" in system.params:
        return "bert-4k"
    if "multilingual" in folder:
        return "bert-multilingual"
    hubs = [asset.hub or "" for asset in system.assets if asset.folder == folder]
    return "distilbert" if any("distilbert" in hub for hub in hubs) else "bert"


def make(
    client: docker.DockerClient,
    systems: Iterable[System],
    out: Path,
    *,
    texts: list[str],
    cache: Path,
) -> dict[str, str]:
    """Make the checkpoints of all these systems and the files of systems over them; returns their names by the old.

    Args:
        out: an empty folder; ``out/models`` is for ``--models`` and ``out/images`` for ``HARNESS_IMAGES``.
        texts: what the vocabularies are to spell in whole words.

    Raises:
        ImageError: the engine's image cannot be had, or a checkpoint not be made.
        EngineError: the Docker engine does not answer.
    """
    chosen = [system for system in systems if system.assets or system.components]
    plain = sorted((system for system in chosen if not system.components), key=lambda system: system.name)
    asked = {asset.folder: recipe(system, asset.folder) for system in plain for asset in system.assets}
    # Prefixes are whole words too: spelt, their letters would outweigh a short text.
    prefixes = [str(system.params.get(f"{side}_prefix", "")) for system in plain for side in ("query", "document")]
    texts = [*texts, *filter(None, prefixes)]
    models, images, job = out / "models", out / "images", out / "job"
    for folder in (models, images, job):
        folder.mkdir(parents=True)
    wanted = [{"folder": folder, "module": module, "kind": kind} for folder, (module, kind) in asked.items()]
    (job / "wanted.json").write_text(json.dumps({"wanted": wanted, "texts": texts}), encoding="utf-8")
    engine = next(system for system in catalog.systems(catalog.images_dir()).values() if system.engine == _MADE_IN)
    image = builder.ImageBuilder(client, cache).ensure_engine(engine)
    container.run(
        client,
        image,
        "checkpoints.tiny_weights",
        ["/job/wanted.json", "/out"],
        given={"/job": job},
        out=models,
        memory_bytes=2 << 30,
        heard=lambda told: log.info(str(told)),
    )
    renamed = {system.name: f"{system.name}-tiny" for system in chosen}
    for system in chosen:
        _write(system, renamed, models, images)
    return renamed


def _write(system: System, renamed: dict[str, str], models: Path, images: Path) -> None:
    components: dict[str, Any] = {each.name: renamed.get(each.name, each.name) for each in system.components}
    stand_in.write(
        system.engine_dir / "systems" / f"{system.name}.toml",
        renamed[system.name],
        models=models,
        images=images,
        note=NOTE,
        components=components,
    )

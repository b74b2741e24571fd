"""Checkpoints are trained and read by the real engines; those of a whole training rank, wrong ones worse."""

from __future__ import annotations

import gzip
import json
import math
import random
import shutil
import tomllib
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import docker
import pytest
import tomlkit

from checkpoints import container, small
from harness.config import data_root
from harness.errors import ImageError
from harness.launch.images import builder, catalog
from tests.checkpoints.conftest import CACHE
from tests.support.chance import chance

pytestmark = pytest.mark.docker

SCIFACT = data_root() / "datasets" / "scifact"
# With a ranking by chance, nDCG@10 over so many documents is about 0.005.
OTHERS = 700

Ranked = Callable[..., float]
# Too few to learn anything, enough for a rate that rises and falls, and every file of a training.
FEW_STEPS, FEW_DOCUMENTS = 2, 300
DRAWN = chance("training").choice(small.KINDS)


def make(engine: docker.DockerClient, folder: Path, kinds: Sequence[small.Kind], **changes: Any) -> None:
    small.make(engine, folder, cache=CACHE, heard=lambda *_: None, kinds=kinds, **changes)


def hardly_make(engine: docker.DockerClient, folder: Path, steps: int = FEW_STEPS) -> None:
    """Train one kind of checkpoint, drawn at random, for a few steps."""
    corpus = folder / "corpus.jsonl.gz"
    if not corpus.exists():
        with gzip.open(SCIFACT / "corpus.jsonl.gz", "rb") as lines:
            corpus.write_bytes(gzip.compress(b"".join(islice(lines, FEW_DOCUMENTS)), mtime=0))
    make(engine, folder, (DRAWN,), steps=steps, corpus=corpus)


@pytest.fixture(scope="module")
def hardly_trained(engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("few-steps")
    hardly_make(engine, folder)
    return folder


@pytest.fixture(scope="module")
def trained(engine: docker.DockerClient) -> Path:
    """The checkpoints of the suite ``small``; kept in the cache, as training takes minutes."""
    folder = CACHE / "tmp" / "tests-small"
    make(engine, folder, small.KINDS)
    return folder


@pytest.fixture(scope="module")
def judged() -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for line in (SCIFACT / "qrels.trec").read_text().splitlines():
        query, _, document, grade = line.split()
        found.setdefault(query, {})[document] = int(grade)
    return found


@pytest.fixture
def measured(
    engine: docker.DockerClient, judged: dict[str, dict[str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Ranked:
    """nDCG@10 of a system on SciFact's queries, over the relevant documents and some others."""

    def run(made: Path, name: str, *, queries: int | None = None, others: int = OTHERS) -> float:
        images = tmp_path / "images"
        if not images.exists():
            shutil.copytree(made / "images", images)
        monkeypatch.setenv("HARNESS_IMAGES", str(images))
        asked = dict(list(judged.items())[:queries])
        system = catalog.system(name)
        image = builder.ImageBuilder(engine, CACHE, made / "models").ensure(system)
        job, out = tmp_path / f"job-{name}", tmp_path / f"out-{name}"
        job.mkdir()
        out.mkdir()
        (job / "params.json").write_text(json.dumps(system.params))
        (job / "corpus.jsonl").write_text(_documents({each for found in asked.values() for each in found}, others))
        topics = (SCIFACT / "queries.jsonl").read_text().splitlines(keepends=True)
        (job / "queries.jsonl").write_text("".join(line for line in topics if json.loads(line)["_id"] in asked))
        found: dict[str, list[str]] = {}
        container.run(
            engine,
            image,
            "checkpoints.rank",
            ["/job", "/out"],
            given={"/job": job},
            out=out,
            memory_bytes=4 << 30,
            heard=lambda told: found.__setitem__(told["query"], told["hits"]) if "query" in told else None,
        )
        assert found.keys() == asked.keys()
        return sum(_ndcg(found[query], relevant) for query, relevant in asked.items()) / len(asked)

    return run


def _documents(needed: set[str], count: int) -> str:
    with gzip.open(SCIFACT / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = list(lines)
    ids = [json.loads(row)["_id"] for row in rows]
    others = random.Random(0).sample([number for number, each in enumerate(ids) if each not in needed], count)
    kept = sorted([number for number, each in enumerate(ids) if each in needed] + others)
    return "".join(rows[number] for number in kept)


def _ndcg(hits: list[str], relevant: dict[str, int]) -> float:
    gain = sum(relevant.get(each, 0) / math.log2(rank + 2) for rank, each in enumerate(hits[:10]))
    best = sum(grade / math.log2(rank + 2) for rank, grade in enumerate(sorted(relevant.values(), reverse=True)[:10]))
    return gain / best


def _variant(name: str, new: str, **params: str) -> None:
    """The same system with other parameters, under another name."""
    (path,) = catalog.own_images_dir().glob(f"*/systems/{name}.toml")
    told = tomllib.loads(path.read_text())
    for table in ("build_params", "search_params"):
        told[table].update({key: value for key, value in params.items() if key in told[table]})
    path.with_name(f"{new}.toml").write_text(tomlkit.dumps(told))


def test_trained_checkpoint_ranks_in_its_engine(hardly_trained: Path, measured: Ranked) -> None:
    assert 0 <= measured(hardly_trained, small.NAMES[DRAWN.systems[-1]], queries=3, others=5) <= 1


def test_existing_checkpoints_are_kept_and_broken_ones_are_remade(
    hardly_trained: Path, tmp_path: Path, engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "small"
    shutil.copytree(hardly_trained, folder)
    made: list[str] = []

    def train(*arguments: object) -> None:
        made.append(arguments[2].name)

    monkeypatch.setattr(small, "_train", train)

    def again(steps: int = FEW_STEPS) -> list[str]:
        made.clear()
        hardly_make(engine, folder, steps)
        return list(made)

    assert again() == []
    weights = max((folder / "models").rglob("*.*"), key=lambda path: path.stat().st_size)
    whole = weights.read_bytes()
    weights.write_bytes(whole[:1000])
    assert again() == [DRAWN.name], "half a file is not taken for a whole one"
    assert again() == [], "what was made has been noted"
    (folder / "models" / f"{DRAWN.name}.made.json").unlink()
    assert again() == [DRAWN.name]
    assert again(FEW_STEPS + 1) == [DRAWN.name]


@pytest.mark.soak
def test_dpr_ranks_and_wrong_pooling_ranks_worse(trained: Path, measured: Ranked) -> None:
    right = measured(trained, "dpr-small")
    assert right > 0.5
    _variant("dpr-small", "dpr-mean", pooling="mean")
    assert measured(trained, "dpr-mean") < right - 0.08
    _variant("dpr-small", "dpr-swapped", query_model="dpr-context", document_model="dpr-question")
    with pytest.raises(ImageError, match="swap them"):
        measured(trained, "dpr-swapped")


@pytest.mark.soak
def test_splade_ranks_and_swapped_encoders_rank_worse(trained: Path, measured: Ranked) -> None:
    right = measured(trained, "bt-splade-l-small")
    assert right > 0.6
    _variant(
        "bt-splade-l-small",
        "bt-splade-swapped",
        query_model="bt-splade-l-document",
        document_model="bt-splade-l-query",
    )
    assert measured(trained, "bt-splade-swapped") < right - 0.04


@pytest.mark.soak
def test_colbert_ranks(trained: Path, measured: Ranked) -> None:
    assert measured(trained, "colbertv2-l-small") > 0.6


@pytest.mark.soak
def test_cross_encoder_ranks(trained: Path, measured: Ranked) -> None:
    assert measured(trained, "ms-marco-minilm-l6-small", queries=30, others=100) > 0.4

"""The trained checkpoints rank, through the real engines; with a wrong pooling or swapped encoders they rank worse."""

from __future__ import annotations

import gzip
import json
import math
import random
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import docker
import pytest

from checkpoints import container, small, stand_in
from harness import catalog
from harness.errors import ImageError
from harness.images import making
from tests.checkpoints.conftest import CACHE

pytestmark = pytest.mark.docker

SCIFACT = catalog.data_root() / "datasets" / "scifact"
# With a ranking by chance, nDCG@10 over so many documents is about 0.005.
OTHERS = 700

Ranked = Callable[[str], float]


@pytest.fixture(scope="module")
def trained(engine: docker.DockerClient) -> Path:
    """The checkpoints of the suite ``small``; kept in the cache, as training takes minutes."""
    folder = CACHE / "tmp" / "tests-small"
    small.make(engine, folder, cache=CACHE, say=print, heard=lambda *_: None)
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
    engine: docker.DockerClient,
    trained: Path,
    judged: dict[str, dict[str, int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Ranked:
    """nDCG@10 of a system on SciFact's queries, over all relevant documents and some others."""
    images = tmp_path / "images"
    shutil.copytree(trained / "images", images)
    monkeypatch.setenv("HARNESS_IMAGES", str(images))

    def run(name: str) -> float:
        system = catalog.system(name)
        image = making.ensure(engine, system, cache=CACHE, models=trained / "models", report=print)
        job, out = tmp_path / f"job-{name}", tmp_path / f"out-{name}"
        job.mkdir()
        out.mkdir()
        (job / "params.json").write_text(json.dumps(system.params))
        (job / "corpus.jsonl").write_text(_documents({each for found in judged.values() for each in found}))
        shutil.copyfile(SCIFACT / "queries.jsonl", job / "queries.jsonl")
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
        assert found.keys() == judged.keys()
        return sum(_ndcg(found[query], relevant) for query, relevant in judged.items()) / len(judged)

    return run


def _documents(needed: set[str]) -> str:
    with gzip.open(SCIFACT / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = list(lines)
    ids = [json.loads(row)["_id"] for row in rows]
    others = random.Random(0).sample([number for number, each in enumerate(ids) if each not in needed], OTHERS)
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
    path.with_name(f"{new}.toml").write_text(stand_in.as_toml(told))


def test_dpr_ranks_and_a_wrong_pooling_shows(measured: Ranked) -> None:
    right = measured("dpr-small")
    assert right > 0.5
    _variant("dpr-small", "dpr-mean", pooling="mean")
    assert measured("dpr-mean") < right - 0.08


def test_dprs_encoders_cannot_be_swapped(measured: Ranked) -> None:
    _variant("dpr-small", "dpr-swapped", query_model="dpr-context", document_model="dpr-question")
    with pytest.raises(ImageError, match="swap them"):
        measured("dpr-swapped")


def test_splade_ranks_and_swapped_encoders_show(measured: Ranked) -> None:
    right = measured("bt-splade-l-small")
    assert right > 0.6
    _variant(
        "bt-splade-l-small",
        "bt-splade-swapped",
        query_model="bt-splade-l-document",
        document_model="bt-splade-l-query",
    )
    assert measured("bt-splade-swapped") < right - 0.04


def test_colbert_ranks(measured: Ranked) -> None:
    assert measured("colbertv2-l-small") > 0.6


def test_what_is_there_is_kept_and_what_is_broken_is_made_again(
    trained: Path, tmp_path: Path, engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "small"
    shutil.copytree(trained, folder)
    made: list[str] = []

    def train(*arguments: object) -> None:
        made.append(arguments[2].name)  # type: ignore[attr-defined]

    monkeypatch.setattr(small, "_train", train)

    def again() -> list[str]:
        made.clear()
        small.make(engine, folder, cache=CACHE, say=print, heard=lambda *_: None)
        return list(made)

    assert again() == []
    with (folder / "models" / "dpr-context" / "pytorch_model.bin").open("r+b") as weights:
        weights.truncate(1000)
    assert again() == ["dpr"], "half a file is not taken for a whole one"
    (folder / "models" / "splade.made.json").unlink()
    assert again() == ["splade"]
    assert again() == []

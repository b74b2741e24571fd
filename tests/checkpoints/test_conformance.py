"""Every shipped system with weights meets the contract with tiny weights of the published format.

A late interaction and a learned sparse system drawn by chance in each run, the others in ``make soak``.  The dense
engine's contract is held in tests/test_main_job.py over published weights.  A new system is covered by being there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import pytest

from checkpoints import tiny
from harness.driver.records import Envelope
from harness.experiments.conformance import examine
from harness.launch.docker import DockerLauncher
from harness.launch.doctor import Level
from harness.launch.images import catalog, platforms
from tests.checkpoints.conftest import CACHE, TEXTS
from tests.support.chance import chance

pytestmark = pytest.mark.docker

SHIPPED = catalog.systems(catalog.images_dir())
WITH_WEIGHTS = sorted(
    system.name for system in SHIPPED.values() if system.assets or any(each.assets for each in system.components)
)
NOW = {
    chance("contract").choice([name for name in WITH_WEIGHTS if SHIPPED[name].engine in engines])
    for engines in (("colbert",), ("impact", "seismic", "bmp"), ("rerank",))
}
# A model this small writes no ranking, so the order of the index stays, and judges nothing; nor are the ten heaviest
# terms of its query, all that Seismic reads, those that matter.
_UNABLE = ("smollm2-rankgpt", "mxbai-rerank-base-v2", "seismic-splade-tiny")
UNABLE = {name: ["puts the document that is meant first"] for name in _UNABLE}


def _cases() -> list[Any]:
    return [pytest.param(name, marks=() if name in NOW else pytest.mark.soak) for name in WITH_WEIGHTS]


@pytest.fixture(scope="module")
def made(engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Callable[[frozenset[str]], Path]:
    """Makes shipped systems once more, as ``<system>-tiny``, over tiny checkpoints; gives their folder."""

    @functools.cache
    def make(names: frozenset[str]) -> Path:
        systems = list(catalog.named(names).values())
        systems += [each for system in systems for each in system.components]
        folder = tmp_path_factory.mktemp("tiny") / "made"
        tiny.make(engine, systems, folder, texts=TEXTS, cache=CACHE)
        return folder

    return make


@pytest.mark.parametrize("name", _cases())
def test_shipped_system_meets_the_contract_with_tiny_weights(
    name: str, made: Callable[[frozenset[str]], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(frozenset(NOW if name in NOW else {name}))
    monkeypatch.setenv("HARNESS_IMAGES", str(folder / "images"))
    system, models = catalog.system(f"{name}-tiny"), folder / "models"
    assert system.stand_in, "tables say that these are not the published weights"
    with closing(DockerLauncher(CACHE, models)) as launcher:
        checks = list(examine(launcher, system, Envelope("cpu1-mem2", 1, 2 << 30), tmp_path))
    failed = [(check.what, check.fact) for check in checks if check.level is not Level.OK]
    assert [(what, fact) for what, fact in failed if what not in UNABLE.get(name, [])] == []
    assert len(checks) == 10, "none is left out after one that failed"


@pytest.mark.parametrize("name", ["bm25s", "pisa", "static-minilm", "tantivy"])
def test_engine_without_a_checkpoint_meets_the_contract(engine: docker.DockerClient, name: str, tmp_path: Path) -> None:
    system = catalog.system(name)
    if reason := system.for_platform(platforms.host()).lacking:
        pytest.skip(reason)
    with closing(DockerLauncher(CACHE)) as launcher:
        checks = list(examine(launcher, system, Envelope("cpu1-mem1", 1, 1 << 30), tmp_path))
    assert [(check.what, check.fact) for check in checks if check.level is not Level.OK] == []
    assert len(checks) == 10, "none is left out after one that failed"


def test_reranker_under_openvino_meets_the_contract_without_pytorch(
    engine: docker.DockerClient,
    made: Callable[[frozenset[str]], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = made(frozenset({"ms-marco-minilm-l2"}))
    (tmp_path / "rerank" / "systems").mkdir(parents=True)
    plain = (folder / "images" / "rerank" / "systems" / "ms-marco-minilm-l2-tiny.toml").read_text()
    text = plain.replace("[search_params]\n", '[search_params]\nbackend = "openvino"\n')
    (tmp_path / "rerank" / "systems" / "lean-tiny.toml").write_text(text)
    monkeypatch.setenv("HARNESS_IMAGES", str(tmp_path))
    system = catalog.system("lean-tiny")
    with closing(DockerLauncher(CACHE, folder / "models")) as launcher:
        checks = list(examine(launcher, system, Envelope("cpu1-mem1", 1, 1 << 30), tmp_path))
        image = launcher.find(system)
    assert [check.what for check in checks if check.level is not Level.OK] == [] and len(checks) == 10
    assert image is not None
    listed = engine.containers.run(image.digest, ["/opt/encoder"], entrypoint=["ls"], remove=True)
    assert listed.split() == [b"packages"]


def test_deepct_builds_with_pytorch_and_searches_without(
    engine: docker.DockerClient,
    made: Callable[[frozenset[str]], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = made(frozenset({"deepct"}))
    monkeypatch.setenv("HARNESS_IMAGES", str(folder / "images"))
    system = catalog.system("deepct-tiny")
    with closing(DockerLauncher(CACHE, folder / "models")) as launcher:
        checks = list(examine(launcher, system, Envelope("cpu1-mem1", 1, 1 << 30), tmp_path))
        images = [launcher.find(each) for each in (system, system.for_job("search"))]
    assert [check.what for check in checks if check.level is not Level.OK] == [] and len(checks) == 10
    listed = [
        engine.containers.run(each.digest, ["/opt/encoder"], entrypoint=["ls"], remove=True) for each in images if each
    ]
    assert [each.split() for each in listed] == [[b"full", b"packages"], [b"packages"]]


def test_systems_with_weights_are_found() -> None:
    assert {
        "bt-splade-l",
        "bmp-splade-tiny",
        "seismic-splade-tiny",
        "colbertv2-m",
        "dpr",
        "minilm",
        "hybrid-minilm",
    } <= set(WITH_WEIGHTS)

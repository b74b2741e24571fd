"""Every shipped system with weights meets the contract with tiny weights of the published format.

A late interaction, a learned sparse or a reranking system is drawn by chance in each run, and an engine without a
checkpoint; the others are in ``make soak``.  tests/test_main_job.py holds the dense engine's contract over published
weights.  A new system is covered by being there.
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
from harness.launch.checks import Level
from harness.launch.docker import DockerLauncher
from harness.launch.images import catalog, platforms
from harness.launch.images.systems import System
from tests.checkpoints.conftest import CACHE, TEXTS
from tests.support.chance import chance, drawn
from tests.support.container_output import output_of

pytestmark = pytest.mark.docker

SHIPPED = catalog.systems(catalog.images_dir())
WITH_WEIGHTS = sorted(
    system.name for system in SHIPPED.values() if system.assets or any(each.assets for each in system.components)
)
# One family, then one of its systems: families differ more than their systems, and have different sizes.
_FAMILIES = (("colbert",), ("impact", "seismic", "bmp"), ("rerank",))
_DRAW = chance("contract")
_FAMILY = _DRAW.choice(_FAMILIES)
NOW = {_DRAW.choice([name for name in WITH_WEIGHTS if SHIPPED[name].engine in _FAMILY])}
# A model this small writes no ranking, so the order of the index stays, and judges nothing; nor are the ten heaviest
# terms of its query, all that Seismic reads, those that matter.
_UNABLE = ("smollm2-rankgpt", "mxbai-rerank-base-v2", "seismic-splade-tiny")
UNABLE = {name: ["puts the document that is meant first"] for name in _UNABLE}
# Of the engines without a checkpoint.
_WITHOUT_CHECKPOINT = ("bm25s", "pisa", "static-minilm", "tantivy")
# Systems that search without PyTorch: their packages to build with and to search with, and a parameter to add.
_WITHOUT_PYTORCH = {
    "ms-marco-minilm-l2": ('backend = "openvino"\n', [[b"packages"], [b"packages"]]),
    "deepct": ("", [[b"full", b"packages"], [b"packages"]]),
}
# Their checkpoints are made in one container.
_TOGETHER = frozenset({*NOW, *_WITHOUT_PYTORCH})


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


def _check(system: System, folder: Path, models: Path | None = None, gib: int = 1) -> list[str]:
    """Examine a system; return the digests of its images to build and to search with.

    All but what such small weights are unable to do must hold.
    """
    with closing(DockerLauncher(CACHE, models)) as launcher:
        checks = list(examine(launcher, system, Envelope(f"cpu1-mem{gib}", 1, gib << 30), folder))
        images = [launcher.find(each) for each in (system, system.for_job("search"))]
    failed = [(check.what, check.fact) for check in checks if check.level is not Level.OK]
    assert [each for each in failed if each[0] not in UNABLE.get(system.name.removesuffix("-tiny"), [])] == []
    assert len(checks) == 10, "none is left out after one that failed"
    return [image.digest for image in images if image]


@pytest.mark.parametrize("name", _cases())
def test_shipped_system_meets_the_contract_with_tiny_weights(
    name: str, made: Callable[[frozenset[str]], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(_TOGETHER if name in NOW else frozenset({name}))
    monkeypatch.setenv("HARNESS_IMAGES", str(folder / "images"))
    system = catalog.system(f"{name}-tiny")
    assert system.stand_in, "tables say that these are not the published weights"
    _check(system, tmp_path, folder / "models", gib=2)


@pytest.mark.parametrize("name", drawn("engine without a checkpoint", _WITHOUT_CHECKPOINT, 1))
def test_engine_without_a_checkpoint_meets_the_contract(engine: docker.DockerClient, name: str, tmp_path: Path) -> None:
    system = catalog.system(name)
    if reason := system.for_platform(platforms.host()).lacking:
        pytest.skip(reason)
    _check(system, tmp_path)


@pytest.mark.parametrize("name", _WITHOUT_PYTORCH)
def test_system_without_pytorch_where_it_needs_none_meets_the_contract(
    engine: docker.DockerClient,
    made: Callable[[frozenset[str]], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    """The reranker searches under OpenVINO alone, and DeepCT builds with PyTorch."""
    backend, packages = _WITHOUT_PYTORCH[name]
    folder = made(_TOGETHER)
    (file,) = (folder / "images").glob(f"*/systems/{name}-tiny.toml")
    copy = tmp_path / "images" / file.relative_to(folder / "images")
    copy.parent.mkdir(parents=True)
    copy.write_text(file.read_text().replace("[search_params]\n", f"[search_params]\n{backend}"))
    monkeypatch.setenv("HARNESS_IMAGES", str(tmp_path / "images"))
    digests = _check(catalog.system(f"{name}-tiny"), tmp_path, folder / "models")
    listed = [output_of(engine, each, ["/opt/encoder"], entrypoint=["ls"]) for each in digests]
    assert [each.split() for each in listed] == packages


def test_systems_with_weights_are_found() -> None:
    assert {"bt-splade-l", "bmp-splade-tiny", "colbertv2-m", "dpr", "minilm", "hybrid-minilm"} <= set(WITH_WEIGHTS)

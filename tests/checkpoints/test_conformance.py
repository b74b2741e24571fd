"""The contract, kept by every shipped system that has weights, over tiny weights of the published format.

A new system is covered by being there.
"""

from __future__ import annotations

from contextlib import closing
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from harness import catalog
from harness.conformance import examine
from harness.launch.docker import DockerLauncher
from harness.progress import Screen
from harness.records import Envelope
from tests.checkpoints.conftest import CACHE

pytestmark = pytest.mark.docker

WITH_WEIGHTS = sorted(
    system.name
    for system in catalog.systems(catalog.images_dir()).values()
    if system.system_assets or any(each.system_assets for each in system.components)
)


@pytest.mark.parametrize("name", WITH_WEIGHTS)
def test_it_keeps_the_contract(name: str, tiny_systems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_IMAGES", str(tiny_systems / "images"))
    system = catalog.system(f"{name}-tiny")
    assert system.stand_in, "tables say that these are not the published weights"
    with closing(DockerLauncher(CACHE, tiny_systems / "models")) as launcher:
        checks = list(
            examine(launcher, system, Envelope("cpu1-mem2", 1, 2 << 30), tmp_path, Screen(Console(file=StringIO())))
        )
    assert [(check.what, check.detail) for check in checks if not check.ok] == []
    assert len(checks) == 8, "none is left out after one that failed"


def test_systems_with_weights_are_found() -> None:
    assert {"minilm", "dpr", "bt-splade-l", "colbertv2-m"} <= set(WITH_WEIGHTS)

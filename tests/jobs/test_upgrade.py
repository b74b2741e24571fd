"""An upgrade of harness measures nothing again: another version, other docstrings in the driver, rebuilt images."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import harness
from harness import driver
from harness.driver import records
from harness.jobs import suite
from harness.jobs.cell_plans import Planner, SuitePlan
from harness.jobs.inputs import RunOptions
from harness.launch.base import Launcher, Prepared
from harness.launch.fake import FakeLauncher
from harness.launch.images import driver_code, recipes
from harness.launch.images.systems import System
from harness.results.reader import read_jobs
from tests.conftest import Bench


class Images(FakeLauncher):
    """A fake launcher of images, each made with this id."""

    def __init__(self, image_id: str) -> None:
        super().__init__()
        self.image_id = image_id

    def recipe(self, system: System) -> str:
        return recipes.recipe(system)

    def find(self, system: System) -> Prepared | None:
        return Prepared(system, self.recipe(system), self.image_id, system.image)


def planned(bench: Bench, path: Path, launcher: Launcher) -> SuitePlan:
    return Planner(launcher).plan(suite.load(path), RunOptions(bench.results, bench.cache, path.parent))


def upgrade(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace harness by another version, and the driver's docstrings by others."""
    shutil.copytree(Path(driver.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in folder.rglob("*.py"):
        text = path.read_text("utf-8")
        path.write_text(text.replace('"""', f'"""{uuid.uuid4()} ', 1), "utf-8")
    monkeypatch.setattr(driver, "__file__", str(folder / "__init__.py"))
    monkeypatch.setattr(harness, "__version__", "9.9.9")
    driver_code.code_hash.cache_clear()


@pytest.fixture(autouse=True)
def _fresh_hash() -> Iterator[None]:
    yield
    driver_code.code_hash.cache_clear()


@pytest.mark.slow
def test_jobs_and_indexes_stay_done_after_an_upgrade(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bench.suite()
    bench.run(Images("sha256:old"), path)
    before = driver_code.code_hash()
    upgrade(tmp_path / "upgraded", monkeypatch)
    assert driver_code.code_hash() == before
    after = Images("sha256:new")
    assert {job.why for job in planned(bench, path, after).jobs} == {"done (ok)"}
    assert not bench.run(after, path).jobs and not after.launched
    assert [result.provenance.image_digest for result, _ in bench.run(after, path, fresh=True).jobs] == ["sha256:new"]
    assert [job.spec.kind for job in after.launched] == ["search"], "its index was there"
    digests = {job.result.provenance.image_digest for job in read_jobs(bench.results)}
    assert digests == {"sha256:old", "sha256:new"}


def test_another_protocol_or_engine_is_measured_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    path, launcher = bench.suite(), Images("sha256:1")
    bench.run(launcher, path)
    with monkeypatch.context() as patch:
        patch.setattr(recipes, "PROTOCOL_VERSION", records.PROTOCOL_VERSION + 1)
        assert {job.why for job in planned(bench, path, launcher).jobs} == {"to do"}
    assert {job.why for job in planned(bench, path, launcher).jobs} == {"done (ok)"}
    with (bench.folder / "engines" / "planted" / "adapter.py").open("a") as adapter:
        adapter.write("# a comment\n")
    assert {job.why for job in planned(bench, path, launcher).jobs} == {"to do"}, (
        "an engine's bytes are what is measured"
    )

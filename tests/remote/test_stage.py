"""A staged folder has all that jobs need, under the same identities, without network, home or installed harness."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import docker
import pytest

from harness.errors import FileError, ImageError, UsageError
from harness.filesystem import CHECKSUMS, this_process
from harness.jobs import indexes, suite
from harness.jobs.inputs import RunOptions, gather
from harness.jobs.plan import plan_here
from harness.launch.docker import DockerLauncher
from harness.launch.images import recipes, sif
from harness.launch.process import ProcessLauncher
from harness.remote import stage
from tests.conftest import Bench
from tests.support.command_line import call

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _no_packages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the packages, which this interpreter has: their installation takes half a minute."""
    if "packages" not in request.keywords:
        monkeypatch.setattr(stage, "run_pip", lambda *_: None)


def options(bench: Bench) -> RunOptions:
    return RunOptions(bench.results, bench.cache, bench.folder)


def staged(bench: Bench, launcher: str = "process") -> Path:
    path, folder = bench.folder / "test-suite.toml", bench.folder / "staged"
    stage.stage(suite.load(path), path, options(bench), launcher, folder)
    return folder


def alone(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the staged harness with an empty environment, without a network where this machine can take it away."""
    apart = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--map-current-user"]
    apart = apart if subprocess.run([*apart, "true"], check=False, capture_output=True).returncode == 0 else []
    command = [*apart, folder / "harness", *arguments]
    return subprocess.run(
        command, env={"PATH": "/usr/bin:/bin", "HOME": ""}, cwd="/", capture_output=True, text=True, check=False
    )


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """The inode and time of each file that a second call may not make again."""
    again = {CHECKSUMS, "suite.toml", "harness"}
    found = [path for path in folder.rglob("*") if path.is_file() and path.name not in again]
    kept = [path for path in found if "locks" not in path.parts and "hashes" not in path.parts]
    return {str(path.relative_to(folder)): (path.stat().st_ino, path.stat().st_mtime_ns) for path in kept}


def check(folder: Path) -> int:
    return subprocess.run(["sha256sum", "--quiet", "-c", CHECKSUMS], cwd=folder, check=False).returncode


def test_the_staged_harness_measures_offline_the_jobs_that_are_planned_here(bench: Bench) -> None:
    bench.suite('[languages]\ntiny = "de"\n')
    folder = staged(bench)
    ran = alone(folder, "run", folder / "suite.toml", "--launcher", "process", "--results", bench.folder / "there")
    assert ran.returncode == 0, ran.stderr
    here = RunOptions(bench.folder / "there", bench.cache, bench.folder)
    inputs = gather(suite.load(bench.folder / "test-suite.toml"), here)
    planned = plan_here(inputs, here, ProcessLauncher(bench.cache))
    assert planned and all(job.done for job in planned)
    assert inputs.language("tiny") == "de"
    assert check(folder) == 0, "a run changes no staged file"


def test_a_second_call_makes_nothing_twice_and_goes_on_after_a_stop(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.suite()

    def stop(*_: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stage, "run_pip", stop)
        with pytest.raises(KeyboardInterrupt):
            staged(bench)
    folder = bench.folder / "staged"
    assert not (folder / "python").exists() and not (folder / CHECKSUMS).exists()
    before = {name: at for name, at in files(folder).items() if ".partial" not in name}
    assert any("corpora" in name for name in before) and any("datasets" in name for name in before)
    dead = f"{this_process().rpartition('_')[0]}_1"
    for place in ("datasets", "cache/indexes"):
        (folder / place / f"of-an-earlier-suite.{dead}.partial").mkdir(parents=True)
        (folder / place / f"of-an-earlier-suite.{dead}.partial" / "file").touch()
    staged(bench)
    after = files(folder)
    assert before.items() <= after.items() and not [name for name in after if ".partial" in name]
    staged(bench)
    assert files(folder) == after and check(folder) == 0


def test_files_that_strangers_changed_or_added_are_refused(bench: Bench) -> None:
    bench.suite()
    folder = staged(bench)
    queries = folder / "datasets" / "tiny" / "queries.jsonl"
    content = queries.read_text()
    queries.write_text(content.replace("river", "rover"))
    assert check(folder) == 1
    with pytest.raises(FileError, match=r"1 file changed since, first datasets/tiny/queries.jsonl; remove the folder"):
        staged(bench)
    queries.write_text(content)
    (folder / CHECKSUMS).write_text(f"{'0' * 64}  ../../etc/passwd\n")
    with pytest.raises(FileError, match="must stay below"):
        staged(bench)
    (folder / CHECKSUMS).unlink()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"has 'notes.txt', which `harness stage` has not written; name a new folder"):
        staged(bench)


def test_a_copy_of_changed_data_is_made_again(bench: Bench) -> None:
    bench.suite()
    folder = staged(bench)
    queries = bench.folder / "tiny" / "queries.jsonl"
    queries.write_text(queries.read_text().replace("river", "rover"))
    staged(bench)
    assert "rover" in (folder / "datasets" / "tiny" / "queries.jsonl").read_text() and check(folder) == 0


def test_finished_indexes_go_along_and_changed_ones_do_not(bench: Bench, logged: list[str]) -> None:
    bench.suite()
    launcher = ProcessLauncher(bench.cache)
    bench.run(launcher)
    (key,) = {path.name for path in (bench.cache / "indexes").iterdir()}
    folder = staged(bench)
    copy, own = indexes.find(folder / "cache", key), indexes.find(bench.cache, key)
    assert copy and own and copy.facts == own.facts and copy.unchanged(float("inf"))
    shutil.rmtree(folder)
    victim = next(path for path in own.folder.rglob("*") if path.is_file())
    victim.write_bytes(victim.read_bytes() + b"x")
    staged(bench)
    assert indexes.find(folder / "cache", key) is None
    assert f"  the index {key} has changed since it was built; it is left out" in logged


def test_the_suite_names_the_copies_also_in_groups(bench: Bench) -> None:
    text = (
        '[[group]]\nsystems = ["planted"]\ndatasets = ["./tiny"] # mine\n[hardware.own]\ncpus = 1\nmemory = "256MiB"\n'
    )
    path = bench.folder / "test-suite.toml"
    path.write_text(f'name = "grouped"\nprofiles = ["own"]\nlanguages = {{ tiny = "de" }}\n{text}', encoding="utf-8")
    folder = staged(bench)
    read = suite.load(folder / "suite.toml")
    assert (read.name, read.datasets, read.languages) == ("grouped", ("./datasets/tiny",), {"tiny": "de"})
    assert read.group[0].datasets == ("./datasets/tiny",) and read.hardware["own"].cpus == 1


def test_the_wrapper_says_which_python_is_missing(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.suite()
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    monkeypatch.setattr(ProcessLauncher, "prepare_all", lambda *_: iter(()))
    folder = staged(bench)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "dirname").symlink_to("/usr/bin/dirname")
    command = [folder / "harness", "--version"]
    done = subprocess.run(command, env={"PATH": str(tmp_path / "bin")}, capture_output=True, text=True, check=False)
    version = ".".join(map(str, sys.version_info[:2]))
    assert done.returncode == 1 and done.stderr.startswith(f"harness: Python {version} is not on this machine")


def test_packages_that_cannot_be_installed_are_one_line(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.suite()
    monkeypatch.setattr(stage, "run_pip", lambda *_: "no matching distribution")
    with pytest.raises(ImageError, match=r"harness's packages could not be installed: no matching distribution; see"):
        staged(bench)
    assert not [path for path in (bench.folder / "staged").iterdir() if path.name.startswith("python")]


@pytest.mark.docker
@pytest.mark.usefixtures("engine")
def test_images_are_staged_for_apptainer_once_and_taken_from_ones_own_cache(
    bench: Bench, engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which("apptainer"):
        pytest.skip("apptainer is not installed")
    path = bench.suite()
    command = ("stage", str(path), str(bench.folder / "staged"), "--cache", str(bench.cache))
    done = call(*command)
    assert done.exit_code == 0, done.output
    folder = bench.folder / "staged"
    inputs = gather(suite.load(path), options(bench))
    recipe = DockerLauncher(bench.cache).recipe(inputs.systems["planted"])
    made = sif.find_whole(folder / "cache", recipe)
    assert made and check(folder) == 0
    record = json.loads(made.path.with_suffix(".json").read_text())
    assert (
        engine.images.get(record["image"]).labels["harness.recipe"]
        == recipe
        == recipes.recipe(inputs.systems["planted"])
    )
    shutil.copytree(folder / "cache" / "sif", bench.cache / "sif")
    shutil.rmtree(folder)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent.sock")
    assert call(*command).exit_code == 0, "no engine is needed"
    copied = sif.find_whole(folder / "cache", recipe)
    assert copied and copied.digest == made.digest

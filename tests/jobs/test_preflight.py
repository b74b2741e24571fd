"""Tests of the checks before a run: all that is missing is named at once, and nothing else is refused."""

from __future__ import annotations

import logging
import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness import config
from harness.driver.records import Envelope
from harness.errors import EngineError, FileError, MissingWeights
from harness.jobs import preflight, suite
from harness.jobs.inputs import Inputs, RunOptions
from harness.jobs.shipped_runs import shipped_runs
from harness.launch.base import Launcher, Prepared
from harness.launch.fake import FakeLauncher
from harness.launch.images.systems import System
from harness.launch.process import ProcessLauncher
from tests.conftest import Bench, protocol

BARE = """\
description = "bare"
[[assets]]
folder = "{folder}"
licence = "MIT"
hub = "a/{folder}"
revision = "{revision}"
[assets.sha256]
"w.bin" = "{sha256}"
"""


class Small(FakeLauncher):
    """A host of 1 GiB."""

    def cannot(self, envelope: Envelope) -> str | None:
        return f"{envelope.name} is too large" if envelope.memory_bytes > 2**30 else None


def gathered(bench: Bench, path: Path, launcher: Launcher, *, fresh_index: bool = False) -> Inputs:
    options = RunOptions(bench.results, bench.cache, path.parent, fresh_index=fresh_index)
    return preflight.gather(suite.load(path), options, launcher)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "harness.jobs.preflight")
    return caplog


def with_weights(bench: Bench, name: str) -> None:
    file = bench.folder / "engines/planted/systems" / f"{name}.toml"
    file.write_text(BARE.format(folder=f"{name}-weights", revision="a" * 40, sha256="0" * 64), encoding="utf-8")


def test_run_that_lacks_nothing_says_nothing_and_assumes_no_time(bench: Bench, lines: pytest.LogCaptureFixture) -> None:
    path = bench.suite(protocol(2))
    assert gathered(bench, path, FakeLauncher()).cells
    assert lines.messages == [], "the rule of `harness plan` says 2 min 1 s, and nothing here was measured"
    bench.run(FakeLauncher(), path)
    lines.clear()
    gathered(bench, path, FakeLauncher())
    assert lines.messages == [], "all is done"


def test_time_is_that_of_earlier_jobs_and_a_minute_needs_no_line(bench: Bench, lines: pytest.LogCaptureFixture) -> None:
    bench.run(FakeLauncher(), bench.suite(protocol(1)))
    lines.clear()
    gathered(bench, bench.suite(protocol(2, seed=1)), FakeLauncher())
    assert lines.messages == ["  time: about 2 min 0 s for 2 jobs and their indexes (by earlier jobs)"]
    lines.clear()
    gathered(bench, bench.suite(protocol(1, seed=1)), FakeLauncher())
    assert lines.messages == []


def test_hardware_that_this_host_lacks_is_named_once_with_its_cells(
    bench: Bench, lines: pytest.LogCaptureFixture
) -> None:
    for name in ("b", "c", "d"):
        bench.plant(name)
    path = bench.suite(systems=["planted", "b", "c", "d"], profiles=["cpu1-mem1", "cpu1-mem4"])
    gathered(bench, path, Small())
    assert lines.messages == [
        "  hardware: cpu1-mem4 is too large, so 4 cells of planted, b, c and 1 more system are not measured; use other"
        " hardware, or --only"
    ]


def test_build_profile_that_is_too_large_matters_until_the_index_is_there(
    bench: Bench, lines: pytest.LogCaptureFixture
) -> None:
    path = bench.suite()
    path.write_text(path.read_text().replace('build_profile = "cpu1-mem1"', 'build_profile = "cpu2-mem4"'))
    gathered(bench, path, Small())
    assert lines.messages == [
        "  index builds: cpu2-mem4 is too large, so 1 cell of planted is not measured; choose another build_profile"
    ]
    bench.run(FakeLauncher(), path)
    lines.clear()
    path.write_text(path.read_text().replace("k = 3", "k = 4"))
    gathered(bench, path, Small())
    assert lines.messages == []
    gathered(bench, path, Small(), fresh_index=True)
    assert len(lines.messages) == 1 and lines.messages[0].startswith("  index builds: cpu2-mem4 is too large")


@pytest.mark.slow
def test_all_missing_data_is_named_at_once_with_everything_else(bench: Bench, lines: pytest.LogCaptureFixture) -> None:
    with_weights(bench, "bare")
    (bench.folder / "half").mkdir()
    (bench.folder / "half" / "corpus.jsonl").write_text('{"_id": "a", "text": "b"}\n', encoding="utf-8")
    cpus = len(os.sched_getaffinity(0))
    path = bench.suite(
        f'[hardware.large]\ncpus = {cpus + 1}\nmemory = "1GiB"\n',
        systems=["bare"],
        datasets=["./gone", "./half"],
        profiles=["cpu1-mem1", "large"],
    )
    with pytest.raises(FileError) as caught:
        gathered(bench, path, ProcessLauncher(bench.folder / "new"))
    assert str(caught.value).startswith(f"{bench.folder}/half: lacks queries.jsonl and qrels.trec (harness)")
    assert [line.split(",")[0].split(";")[0] for line in lines.messages] == [
        f"  hardware: profile large needs {cpus + 1} CPUs",
        "  bare: cannot find w.bin of 'bare-weights': the hub does not answer for a/bare-weights",
        f"  {bench.folder}/gone: this folder does not exist",
    ]
    assert "2 cells of bare are not measured" in lines.messages[0]
    assert not bench.results.exists()


def test_missing_data_is_named_where_no_engine_answers(bench: Bench) -> None:
    class Silent(FakeLauncher):
        def check(self) -> None:
            raise EngineError("no engine")

    with pytest.raises(FileError, match="gone: this folder does not exist"):
        gathered(bench, bench.suite(datasets=["./gone"]), Silent())
    with pytest.raises(EngineError, match="no engine"):
        gathered(bench, bench.suite(), Silent())


def test_room_for_indexes_and_images_is_compared_with_the_free_disk(
    bench: Bench, lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, free = bench.suite(protocol(1)), {"bytes": 3 << 20}
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free["bytes"]))
    gathered(bench, path, FakeLauncher())
    assert not [line for line in lines.messages if "disk" in line], "an index of 1 KiB, and no images"
    lines.clear()
    gathered(bench, path, ProcessLauncher(bench.folder / "new"))
    assert lines.messages[0] == (
        "  disk: this run may need 1.0 GiB (1.0 GiB for images, 1 MiB for indexes), and"
        f" {bench.cache} has 3 MiB free; make room, or name a folder on a larger disk with --cache"
    )
    free["bytes"] = 2 << 30
    lines.clear()
    gathered(bench, path, ProcessLauncher(bench.folder / "new"))
    assert not [line for line in lines.messages if "disk" in line]


def quickstart(bench: Bench, launcher: Launcher, **changes: str) -> Inputs:
    """Gather the inputs of the demo, in a folder where nothing was measured."""
    text = (config.data_root() / "suites" / "quickstart.toml").read_text(encoding="utf-8")
    for old, new in changes.items():
        text = text.replace(f'"{old}"', f'"{new}"')
    path = bench.folder / "quickstart.toml"
    path.write_text(text, encoding="utf-8")
    return gathered(bench, path, launcher)


@pytest.mark.slow
def test_time_of_a_first_run_is_a_range_by_the_shipped_results(bench: Bench, lines: pytest.LogCaptureFixture) -> None:
    quickstart(bench, FakeLauncher())
    machine = shipped_runs().machine
    (line,) = lines.messages
    found = re.fullmatch(r"  time: (\d+) to (\d+) min for 17 jobs and their indexes \((.*)\)", line)
    assert found, line
    assert found[3] == f"estimated from the shipped machine, {machine}"
    least, most = int(found[1]), int(found[2])
    assert 0 < least < most <= 4 * (least + 1)


@pytest.mark.slow
def test_time_of_a_first_run_leaves_out_systems_that_no_result_has(
    bench: Bench, lines: pytest.LogCaptureFixture
) -> None:
    quickstart(bench, FakeLauncher(), tantivy="planted")
    (line,) = lines.messages
    assert " for 14 jobs and their indexes (" in line and line.endswith("; not known for planted"), line


@pytest.mark.slow
def test_room_is_that_of_shipped_images_and_indexes(
    bench: Bench, lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    quickstart(bench, ProcessLauncher(bench.folder / "new"))
    (line,) = [line for line in lines.messages if "disk: " in line]
    found = re.search(
        r"may need (\d+\.\d) GiB \((\d+\.\d) GiB for images, (\d+) MiB for indexes\), and .* has 1 MiB", line
    )
    assert found, line
    runs = shipped_runs()
    engines = ("tantivy", "bm25", "minilm", "hybrid-minilm", "null")
    assert float(found[2]) == pytest.approx(2 * sum(runs.image_bytes(name) or 0 for name in engines) / 2**30, abs=0.06)
    parts = ("tantivy", "bm25", "minilm")
    assert int(found[3]) == -(
        -sum(round(runs.figure(name, "scifact-1200", 1200, "index_bytes") or 0) for name in parts) // 2**20
    )


class Unfetched(FakeLauncher):
    """A launcher that fetches files and has no image yet."""

    fetches_files = True

    def find(self, system: System) -> Prepared | None:
        return None


@pytest.mark.slow
def test_runs_elsewhere_name_all_missing_data_and_the_weights_of_images(
    bench: Bench, lines: pytest.LogCaptureFixture
) -> None:
    path = bench.suite(datasets=["./gone", "./lost"])
    options = RunOptions(bench.results, bench.cache, path.parent)
    with pytest.raises(FileError, match="lost: this folder does not exist"):
        preflight.gather_elsewhere(suite.load(path), options)
    assert [line.partition(";")[0] for line in lines.messages] == [f"  {bench.folder}/gone: this folder does not exist"]
    lines.clear()
    with_weights(bench, "bare")
    made = preflight.gather_elsewhere(suite.load(bench.suite(systems=["bare", "planted"])), options)
    lacking = preflight.lacking_images(made.images(made.cells), options, Unfetched(cache=bench.cache))
    assert list(lacking) == ["bare"] and isinstance(lacking["bare"], MissingWeights)
    assert lines.messages == [f"  {lacking['bare']}"]

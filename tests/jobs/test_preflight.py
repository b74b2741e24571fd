"""Tests of the checks before a run: all that is missing is named at once, and nothing else is refused."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.driver.records import Envelope
from harness.errors import EngineError, FileError
from harness.jobs import preflight, suite
from harness.jobs.inputs import Inputs, RunOptions
from harness.launch.base import Launcher
from harness.launch.fake import FakeLauncher
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

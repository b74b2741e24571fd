"""Two versions of one engine: a lock each, images of their own, one index where the format allows it."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker.errors import APIError

from harness.driver.records import Outcome
from harness.results.reader import read_jobs
from tests.images.conftest import CACHE
from tests.support.command_line import Call, call

pytestmark = [pytest.mark.docker, pytest.mark.slow]

# tantivy 0.27.0, which the shipped engine has, writes an index format that 0.25.1 reads and 0.22.2 does not.
_HASHES = {
    "old": ("0.25.1", "05abf37ddbc5063c575548be0d62931629c086bff7a5a1b67cf5a8f5ebf4cd8c"),
    "older": ("0.22.2", "0aba594be4e6d7f7343b03b4506bbf23ec5491519e9d82f6f835a32e615587d6"),
}
_LOCK = """\
pip==26.3 \\
    --hash=sha256:f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13
tantivy=={} \\
    --hash=sha256:{}
"""
_SUITE = """
systems = ["tantivy", "tantivy@old", "tantivy@older"]
datasets = ["scifact-1200"]
profiles = ["cpu1-mem1"]
build_profile = "cpu1-mem1"
overhead = false
[same_index]
"tantivy@old" = "tantivy"
"tantivy@older" = "tantivy"
[protocol]
trials = 3
sample_size = 60
repeats = 0
warmup_queries = 12
warmup_cap = 12
[[expect]]
system = "tantivy@older"
profile = "cpu1-mem1"
outcome = "crash"
"""


@pytest.fixture
def harness(engine: docker.DockerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    """The command line beside a suite of three versions."""
    if engine.info()["Architecture"] != "x86_64":
        pytest.skip("the wheels of the old versions are those for x86_64")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_CACHE", str(CACHE))
    monkeypatch.setenv("HARNESS_IMAGES", str(tmp_path / "own"))
    (tmp_path / "own" / "tantivy").mkdir(parents=True)
    for name, (version, sha256) in _HASHES.items():
        (tmp_path / "own" / "tantivy" / f"requirements@{name}.lock").write_text(_LOCK.format(version, sha256))
    (tmp_path / "versions.toml").write_text(_SUITE)
    yield call
    for image in engine.images.list():
        for tag in image.tags:
            if "tantivy__old" in tag:
                with contextlib.suppress(APIError):
                    engine.images.remove(tag)


def test_versions_share_an_index_and_their_answers_are_compared(harness: Call, tmp_path: Path) -> None:
    done = harness("run", "versions.toml")
    assert done.exit_code == 0, done.output
    jobs = read_jobs(tmp_path / "results")
    by_system = {name: [job.result for job in jobs if job.result.spec.cell.system == name] for name in _SYSTEMS}
    assert {len(results) for results in by_system.values()} == {3}
    versions = {name: results[0].measured and results[0].measured.libraries for name, results in by_system.items()}
    assert versions["tantivy"] == {"tantivy": "0.27.0"} and versions["tantivy@old"] == {"tantivy": "0.25.1"}
    assert len({result.spec.index_key for results in by_system.values() for result in results}) == 1, "one index"
    assert len({result.spec.recipe for results in by_system.values() for result in results}) == 3, "three images"
    older = by_system["tantivy@older"][0]
    assert older.outcome is Outcome.CRASH and "IncompatibleIndex" in str(older.detail)
    order = sorted((result.started_at, name) for name, results in by_system.items() for result in results)
    names = [name for _, name in order if name != "tantivy@older"]
    assert sorted(names[:2]) != ["tantivy", "tantivy"] or sorted(names[1:3]) != ["tantivy", "tantivy"], "interleaved"
    compared = json.loads(harness("compare", "tantivy@old", "tantivy", "--format", "json").stdout)["comparisons"][0]
    assert compared["answers"]["queries"] == 60 and compared["answers"]["depth"] == 10
    shown = harness("compare", "tantivy@old", "tantivy").stdout
    # The CPU time of so few queries is not always known.
    assert "- answers: " in shown and "- needs: " in shown and "memory " in shown
    lines = csv.DictReader(io.StringIO(harness("report", "--format", "csv").stdout))
    assert {line["system"] for line in lines} == set(_SYSTEMS)


_SYSTEMS = ("tantivy", "tantivy@old", "tantivy@older")

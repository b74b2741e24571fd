"""A results folder that is full, read-only, or held by another run: one line, nothing lost, and on again afterwards."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import docker
import pytest

from harness.driver.records import Outcome
from harness.results.reader import read_jobs
from tests.conftest import Bench, protocol
from tests.integration import support
from tests.integration.proxy import wait_until

pytestmark = pytest.mark.slow


def mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this user may not mount here: {' '.join(done.stderr.split())}")


@contextmanager
def _mounted(place: Path, *arguments: str) -> Iterator[None]:
    place.mkdir(exist_ok=True)
    mount(*arguments, str(place))
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def small_disk(place: Path, kib: int) -> AbstractContextManager[None]:
    return _mounted(place, "-t", "tmpfs", "-o", f"size={kib}k", "harness-test")


@pytest.mark.slow
def test_full_disk_ends_the_run_in_one_line_and_the_next_run_continues(bench: Bench) -> None:
    command = support.command(bench, bench.suite(protocol(20, warmup_cap=2)), "--launcher", "fake")
    with small_disk(bench.results, 200):
        full = support.run_here(bench, command)
        assert full.code == 1
        assert "No space left on device" in full.complaint or "the disk is full" in full.complaint
        assert full.complaint.startswith("harness: ") and "what was finished is kept" in full.complaint
        finished = support.stored(bench.results)
        assert 0 < len(finished) < 20
        assert support.run_here(bench, command).code == 1, "there is no more room than before"
        assert support.stored(bench.results) == finished
        mount("-o", "remount,size=64m", str(bench.results))
        done = support.run_here(bench, command)
        assert done.code == 0, done.said
        assert finished.items() <= support.stored(bench.results).items()
        assert [job.result.outcome for job in read_jobs(bench.results)] == [Outcome.OK] * 20
        assert support.leftovers(bench) == []


@pytest.mark.docker
def test_job_failure_on_a_full_disk_is_not_the_systems_fault(bench: Bench, engine: docker.DockerClient) -> None:
    bench.plant("filling", misdeed="some_files", at=3)
    command = support.command(bench, bench.suite(protocol(1, warmup_cap=2), systems=["filling"]))
    with small_disk(bench.results, 6 << 10):
        full = support.run_here(bench, command)
        assert (full.code, "the disk is full" in full.complaint) == (1, True), full.said
        assert read_jobs(bench.results) == ()
        mount("-o", "remount,size=64m", str(bench.results))
        done = support.run_here(bench, command)
        assert done.code == 0, done.said
        assert [job.result.outcome for job in read_jobs(bench.results)] == [Outcome.OK]
        assert support.leftovers(bench) == []
    assert support.orphans(engine, "filling") == []


@pytest.mark.slow
def test_full_cache_is_reported_in_one_line(bench: Bench) -> None:
    command = support.command(bench, bench.suite(protocol(1, warmup_cap=2)), "--launcher", "fake")
    (bench.cache / "process").unlink()
    with small_disk(bench.cache, 4):
        full = support.run_here(bench, command)
        assert full.code == 1 and full.complaint.startswith("harness: "), full.said
        assert "No space left on device; make room" in full.complaint
        assert support.leftovers(bench) == []


@pytest.mark.slow
def test_read_only_results_folder_is_one_line_and_loses_nothing(bench: Bench) -> None:
    command = support.command(bench, bench.suite(protocol(2, warmup_cap=2)), "--launcher", "fake")
    assert support.run_here(bench, command).code == 0
    before = dict(support.files(bench.results))
    with _mounted(bench.results, "--bind", str(bench.results)):
        mount("-o", "remount,bind,ro", str(bench.results))
        refused = support.run_here(bench, [*command, "--fresh"])
        assert refused.code == 1
        place = bench.results / "test-suite"
        assert refused.complaint == (
            f"harness: {place}: cannot be written: Read-only file system; choose another --results"
        )
    assert dict(support.files(bench.results)) == before
    assert support.run_here(bench, [*command, "--fresh"]).code == 0


@pytest.mark.slow
def test_second_run_on_the_same_results_is_refused_and_the_first_continues(bench: Bench) -> None:
    bench.plant("slow", service_s=0.4)
    command = support.command(bench, bench.suite(protocol(2, warmup_cap=2), systems=["slow"]), "--launcher", "process")
    first, staging = support.start(bench, command), bench.results / "test-suite" / ".staging"
    wait_until(lambda: staging.exists() or first.poll() is not None, "the first run holds the folder")
    second = support.run_here(bench, command)
    assert first.poll() is None, "the second came too late to meet it"
    assert second.code == 1
    refusal = "another run holds it; wait, or choose another --results"
    assert second.complaint == f"harness: {bench.results / 'test-suite'}: {refusal}"
    ended = support.finish(bench, first)
    assert ended.code == 0, ended.said
    assert [job.result.outcome for job in read_jobs(bench.results)] == [Outcome.OK] * 2
    assert support.leftovers(bench) == []

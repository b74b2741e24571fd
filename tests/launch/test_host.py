"""Tests of the host's resources and of envelopes that exceed them."""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.driver.records import Envelope
from harness.launch import host
from harness.results.schema import Placement


def test_cpus_are_those_of_the_affinity_mask() -> None:
    assert host.cpus() == len(os.sched_getaffinity(0))
    assert host.memory_bytes() > 1 << 28


def test_envelope_as_large_as_the_host_fits() -> None:
    assert host.cannot_provide(Envelope("all", host.cpus(), host.memory_bytes())) is None


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "cpus", lambda: 2)
    monkeypatch.setattr(host, "memory_bytes", lambda: 4 << 30)


@pytest.mark.usefixtures("small")
def test_too_large_envelope_names_the_exceeded_resource() -> None:
    message = host.cannot_provide(Envelope("cpu16-mem4", 16, 4 << 30))
    assert message == "profile cpu16-mem4 needs 16 CPUs, this host gives 2"
    message = host.cannot_provide(Envelope("cpu1-mem32", 1, 32 << 30))
    assert message == "profile cpu1-mem32 needs 32768 MiB, this host has 4096"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Use a folder on a disk, as memory file systems keep all pages."""
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as name:
        (Path(name) / "below").mkdir()
        (Path(name) / "below" / "index").write_bytes(os.urandom(4 << 20))
        (Path(name) / "empty").touch()
        (Path(name) / "link").symlink_to("nowhere")
        yield Path(name)


def test_dropped_pages_are_confirmed_by_the_kernel(folder: Path) -> None:
    path = folder / "below" / "index"
    with path.open("rb") as file:
        assert file.read() and host._pages(file.fileno()) == (1024, 1024)
        assert host.forget_pages(folder) == "dropped"
        assert host._pages(file.fileno())[1] <= 10


def test_pages_in_use_are_not_reported_as_dropped(folder: Path) -> None:
    with (folder / "below" / "index").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
        assert sum(held[:: mmap.PAGESIZE]) > 0  # mapped, page by page
        assert host.forget_pages(folder) is None


def test_page_cache_of_an_unreadable_file_is_unknown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "no")

    monkeypatch.setattr(host.os, "open", refuse)
    assert host.forget_pages(folder) is None


def test_harness_moves_all_its_threads_away_and_back() -> None:
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("one CPU: nowhere to step to")
    job, mine = max(before), before - {max(before)}
    done, started = threading.Event(), threading.Event()
    earlier: list[int] = []

    def wait() -> None:
        earlier.append(threading.get_native_id())
        started.set()
        done.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    started.wait()
    placement = Placement((job,), (), None, tuple(mine), apart=True)
    with host.aside(placement):
        assert os.sched_getaffinity(0) == os.sched_getaffinity(earlier[0]) == mine
    assert os.sched_getaffinity(0) == os.sched_getaffinity(earlier[0]) == before
    done.set()
    thread.join()

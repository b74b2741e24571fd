"""What this host has to give, and what does not fit on it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.launch import host
from harness.records import Envelope


def test_cpus_are_those_that_we_may_use() -> None:
    assert host.cpus() == len(os.sched_getaffinity(0))
    assert host.memory_bytes() > 1 << 28


def test_an_envelope_of_the_hosts_own_size_fits() -> None:
    assert host.larger_than_host(Envelope("all", host.cpus(), host.memory_bytes())) is None


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "cpus", lambda: 2)
    monkeypatch.setattr(host, "memory_bytes", lambda: 4 << 30)


@pytest.mark.usefixtures("small")
def test_an_envelope_that_is_larger_than_the_host_says_in_what() -> None:
    said = host.larger_than_host(Envelope("cpu16-mem4", 16, 4 << 30))
    assert said == "profile cpu16-mem4 needs 16 CPUs, this host gives 2"
    said = host.larger_than_host(Envelope("cpu1-mem32", 1, 32 << 30))
    assert said == "profile cpu1-mem32 needs 32768 MiB, this host has 4096"


@pytest.mark.parametrize(
    ("text", "found"),
    [("0\n", {0}), ("0-2,5\n", {0, 1, 2, 5}), ("0-1,8-9,12", {0, 1, 8, 9, 12}), ("\n", set())],
)
def test_the_kernels_cpu_lists_are_read(text: str, found: set[int]) -> None:
    assert host.parse_cpu_list(text) == found


def test_memory_nodes_are_those_of_the_chosen_cpus(tmp_path: Path) -> None:
    for node, cpus in {"node0": "0-3", "node1": "4-7", "node10": "8-11"}.items():
        (tmp_path / node).mkdir()
        (tmp_path / node / "cpulist").write_text(f"{cpus}\n")
    (tmp_path / "node2").mkdir()  # memory alone, as an expander shows it
    assert host.numa_nodes((5, 6), tmp_path) == (1,)
    assert host.numa_nodes((3, 4, 11), tmp_path) == (0, 1, 10)
    assert host.numa_nodes((99,), tmp_path) == ()
    assert host.numa_nodes((0,), tmp_path / "none") == ()

"""Each wrong limit is named, and nothing else."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from harness.driver import envelope
from harness.driver.cgroup import UNLIMITED
from harness.driver.records import Cpuset
from tests.support.job_fixtures import ASKED, SEEN

CPUSET = Cpuset((2, 3), (1,))

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "too few CPUs": ({"cpus": (0,)}, "1 CPUs in the affinity mask, asked for 2"),
    "too many CPUs": ({"cpus": (0, 1, 2)}, "3 CPUs in the affinity mask, asked for 2"),
    "other CPUs": ({"cpus": (0, 1)}, "CPUs 0-1 in the affinity mask, asked for CPUs 2-3"),
    "another CPU": ({"cpus": (2, 5)}, "CPUs 2,5 in the affinity mask, asked for CPUs 2-3"),
    "another node": ({"numa_nodes": (0,)}, "memory from NUMA nodes 0, asked for nodes 1"),
    "all nodes": ({"numa_nodes": (0, 1, 2)}, "memory from NUMA nodes 0-2, asked for nodes 1"),
    "unknown nodes": ({"numa_nodes": None}, "memory from NUMA nodes unknown, asked for nodes 1"),
    "more memory": ({"memory_bytes": 2 << 30}, "memory limit 2147483648 bytes, asked for 1073741824"),
    "less memory": ({"memory_bytes": (1 << 30) - 4096}, "memory limit 1073737728 bytes, asked for 1073741824"),
    "endless memory": ({"memory_bytes": UNLIMITED}, "memory limit -1 bytes, asked for 1073741824"),
    "unknown memory": ({"memory_bytes": None}, "memory limit None bytes, asked for 1073741824"),
    "swap": ({"swap_bytes": 1 << 20}, "swap limit 1048576 bytes, asked for 0"),
    "endless swap": ({"swap_bytes": UNLIMITED}, "swap limit -1 bytes, asked for 0"),
    "unknown swap": ({"swap_bytes": None}, "swap limit None bytes, asked for 0"),
    "a quota": ({"cpu_quota": 2.0}, "CPU quota of 2.0 CPUs, asked for none"),
    "an unknown quota": ({"cpu_quota": None}, "CPU quota unknown, asked for none: the container does not see the cpu"),
    "more processes": ({"pids": 513}, "pids limit 513, asked for 512"),
    "endless processes": ({"pids": UNLIMITED}, "pids limit -1, asked for 512"),
    "unknown processes": ({"pids": None}, "pids limit None, asked for 512"),
    "a GPU": ({"gpus": 1}, "1 GPUs visible, asked for 0"),
    "a network": ({"network_interfaces": ("eth0", "lo")}, "network interfaces eth0, lo, asked for none"),
    "an unknown network": ({"network_interfaces": ()}, "network interfaces unknown"),
    "the host's network": ({"network_interfaces": ("enp3s0", "lo")}, "network interfaces enp3s0, lo, asked for none"),
    "a writable root": ({"root_read_only": False}, "the root file system is writable"),
    "an unknown root": ({"root_read_only": None}, "the root file system is writable"),
    "capabilities": ({"effective_capabilities": 0x400}, "capabilities 1024, asked for none"),
    "unknown capabilities": ({"effective_capabilities": None}, "capabilities None, asked for none"),
    "new privileges": ({"no_new_privileges": False}, "no-new-privileges is off"),
    "unknown privileges": ({"no_new_privileges": None}, "no-new-privileges is off"),
    "root": ({"uid": 0}, "runs as root"),
}


def test_matching_envelope_has_no_mismatches() -> None:
    assert envelope.mismatches(ASKED, SEEN, envelope.LIMITS, CPUSET) == []
    assert envelope.mismatches(ASKED, replace(SEEN, pids=100), envelope.LIMITS, CPUSET) == []


def test_any_cpus_match_without_a_cpuset() -> None:
    elsewhere = replace(SEEN, cpus=(0, 7), numa_nodes=None)
    assert envelope.mismatches(ASKED, elsewhere, envelope.LIMITS) == []
    (wrong,) = envelope.mismatches(ASKED, elsewhere, envelope.LIMITS, Cpuset((2, 3)))
    assert wrong == "CPUs 0,7 in the affinity mask, asked for CPUs 2-3", "a host without nodes holds memory to none"


def test_limit_rounded_down_to_a_page_matches() -> None:
    assert envelope.mismatches(replace(ASKED, memory_bytes=(1 << 30) + 4095), SEEN, envelope.LIMITS) == []


@pytest.mark.parametrize("name", WRONG)
def test_each_wrong_limit_is_named(name: str) -> None:
    change, message = WRONG[name]
    (wrong,) = envelope.mismatches(ASKED, replace(SEEN, **change), envelope.LIMITS, CPUSET)
    assert wrong.startswith(message)


def test_a_limit_is_verified_where_the_launcher_enforces_it() -> None:
    wrong = replace(SEEN, cpus=(1,), numa_nodes=(7,), memory_bytes=None, swap_bytes=1, cpu_quota=0.5, pids=None, gpus=9)
    wrong = replace(wrong, network_interfaces=("eth0",), root_read_only=False, effective_capabilities=1)
    wrong = replace(wrong, no_new_privileges=False, uid=0)
    assert {limit: len(envelope.mismatches(ASKED, wrong, (limit,), CPUSET)) for limit in envelope.LIMITS} == (
        dict.fromkeys(envelope.LIMITS, 1)
    )
    assert envelope.mismatches(ASKED, wrong, (), CPUSET) == []


def test_each_library_with_more_threads_than_cpus_is_named() -> None:
    wrong = envelope.thread_mismatches(ASKED, {"torch_intraop": 2, "faiss_omp": 3, "rayon": 56, "jvm": 1})
    assert wrong == ["faiss_omp says 3 threads on 2 CPUs", "rayon says 56 threads on 2 CPUs"]
    assert envelope.thread_mismatches(ASKED, {}) == []


def test_own_envelope_is_read() -> None:
    seen = envelope.read()
    assert set(seen.cpus) == os.sched_getaffinity(0)
    assert seen.uid == os.getuid()
    assert "lo" in seen.network_interfaces
    assert seen.effective_capabilities is not None
    assert seen.no_new_privileges in (True, False)
    assert seen.threads == {}
    assert seen.numa_nodes, "every kernel of today shows it"


def test_numa_nodes_are_none_if_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "_status", dict)
    assert envelope.read().numa_nodes is None
    monkeypatch.setattr(envelope, "_status", lambda: {"Mems_allowed_list": "0-1,4"})
    assert envelope.read().numa_nodes == (0, 1, 4)


def test_swap_is_0_on_a_host_without_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope.cgroup, "own", lambda: None)
    monkeypatch.setattr(envelope, "_host_swap_bytes", lambda: 0)
    assert envelope.read().swap_bytes == 0
    monkeypatch.setattr(envelope, "_host_swap_bytes", lambda: 1 << 30)
    assert envelope.read().swap_bytes is None

"""Jobs get whole cores of one NUMA node, and CPUs that no other run holds."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness.launch import cpu_placement
from harness.launch.cpu_placement import place, placed
from harness.results.schema import Placement


def tree(root: Path, cores: list[tuple[int, ...]], nodes: dict[int, str], online: str) -> Path:
    """A ``/sys/devices/system`` as kernels show it."""
    (root / "cpu").mkdir(parents=True)
    for siblings in cores:
        for cpu in siblings:
            folder = root / "cpu" / f"cpu{cpu}" / "topology"
            folder.mkdir(parents=True)
            (folder / "thread_siblings_list").write_text(",".join(map(str, siblings)) + "\n")
    (root / "cpu" / "online").write_text(online + "\n")
    for node, cpus in nodes.items():
        (root / "node" / f"node{node}").mkdir(parents=True)
        (root / "node" / f"node{node}" / "cpulist").write_text(cpus + "\n")
    return root


def smt(root: Path) -> Path:
    """4 cores, 8 threads; siblings are n and n + 4."""
    return tree(root, [(core, core + 4) for core in range(4)], {0: "0-7"}, "0-7")


def two_nodes(root: Path) -> Path:
    """2 packages of 4 cores, 8 threads each."""
    return tree(root, [(core, core + 8) for core in range(8)], {0: "0-3,8-11", 1: "4-7,12-15"}, "0-15")


@pytest.mark.parametrize(
    ("count", "cpus", "rest", "apart"),
    [(1, (1,), (0,), True), (2, (0, 1), (0, 1), False)],
)
def test_place_divides_two_cpus_without_smt(
    tmp_path: Path, count: int, cpus: tuple[int, ...], rest: tuple[int, ...], apart: bool
) -> None:
    root = tree(tmp_path / "sys", [(0,), (1,)], {0: "0-1"}, "0-1")
    assert place(count, {0, 1}, root) == Placement(cpus, (0,), whole_cores=True, harness_cpus=rest, apart=apart)


@pytest.mark.parametrize(
    ("count", "cpus", "rest"),
    [
        (1, (3,), (0, 1, 2, 4, 5, 6)),  # 7, its sibling, stays idle
        (2, (3, 7), (0, 1, 2, 4, 5, 6)),
        (3, (2, 3, 7), (0, 1, 4, 5)),
        (4, (2, 3, 6, 7), (0, 1, 4, 5)),
        (6, (1, 2, 3, 5, 6, 7), (0, 4)),
    ],
)
def test_smt_siblings_stay_together_and_job_and_harness_share_no_core(
    tmp_path: Path, count: int, cpus: tuple[int, ...], rest: tuple[int, ...]
) -> None:
    assert place(count, range(8), smt(tmp_path / "sys")) == Placement(cpus, (0,), True, rest, apart=True)


def test_harness_on_a_sibling_is_reported_if_no_core_is_left(tmp_path: Path) -> None:
    placed = place(7, range(8), smt(tmp_path / "sys"))
    assert placed == Placement((0, 1, 2, 3, 5, 6, 7), (0,), False, (4,), apart=True)
    everything = place(8, range(8), tmp_path / "sys")
    assert everything == Placement(tuple(range(8)), (0,), True, tuple(range(8)), apart=False)


@pytest.mark.parametrize(
    ("count", "cpus", "nodes"),
    [
        (2, (7, 15), (1,)),
        (8, (4, 5, 6, 7, 12, 13, 14, 15), (1,)),
        (10, (3, 4, 5, 6, 7, 11, 12, 13, 14, 15), (0, 1)),
    ],
)
def test_job_stays_within_one_node_if_it_fits(
    tmp_path: Path, count: int, cpus: tuple[int, ...], nodes: tuple[int, ...]
) -> None:
    placed = place(count, range(16), two_nodes(tmp_path / "sys"))
    assert (placed.cpus, placed.numa_nodes, placed.whole_cores) == (cpus, nodes, True)


def test_node_with_whole_cores_is_preferred(tmp_path: Path) -> None:
    usable = {0, 1, 2, 8, 9, 10, 4, 5, 6, 7}  # node 1: half of each core only
    placed = place(2, usable, two_nodes(tmp_path / "sys"))
    assert (placed.cpus, placed.numa_nodes, placed.whole_cores) == ((2, 10), (0,), True)


def test_half_cores_are_used_if_the_affinity_leaves_no_others(tmp_path: Path) -> None:
    placed = place(2, {0, 1, 2, 6}, smt(tmp_path / "sys"))
    assert (placed.cpus, placed.whole_cores) == ((2, 6), True)
    halves = place(2, {0, 1, 2, 3}, tmp_path / "sys")
    assert halves == Placement((2, 3), (0,), whole_cores=False, harness_cpus=(0, 1), apart=True)
    mixed = place(3, {0, 1, 2, 6}, tmp_path / "sys")
    assert (mixed.cpus, mixed.whole_cores, mixed.harness_cpus) == ((1, 2, 6), False, (0,))


def test_core_with_an_offline_sibling_is_whole(tmp_path: Path) -> None:
    root = tree(tmp_path / "sys", [(0, 2), (1, 3)], {0: "0-3"}, "0-1")
    assert place(1, {0, 1}, root) == Placement((1,), (0,), whole_cores=True, harness_cpus=(0,), apart=True)


@pytest.mark.parametrize(
    ("count", "usable", "cpus"),
    [(1, {0, 1}, (1,)), (2, {7, 0, 3, 5}, (5, 7)), (1, {0}, (0,)), (3, set(range(16)), (13, 14, 15))],
)
def test_highest_cpus_are_used_without_a_topology_and_nothing_is_claimed(
    tmp_path: Path, count: int, usable: set[int], cpus: tuple[int, ...]
) -> None:
    placed = place(count, usable, tmp_path)
    assert (placed.cpus, placed.numa_nodes, placed.whole_cores) == (cpus, (), None)
    assert placed.apart == (len(usable) > count)


def test_memory_only_node_is_ignored(tmp_path: Path) -> None:
    root = tree(tmp_path / "sys", [(0,), (1,)], {0: "0-1", 2: "", 10: ""}, "0-1")  # 2 and 10: expanders
    assert cpu_placement.read({0, 1}, root).nodes == {0}


_HOLD = """
from harness.launch import cpu_placement
with cpu_placement.placed(1) as placement:
    print(*placement.cpus, flush=True)
    input()
"""


@pytest.fixture
def four(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shared host of four CPUs."""
    monkeypatch.setenv(cpu_placement.VARIABLE, str(tmp_path / "cpus"))
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: {0, 1, 2, 3})
    monkeypatch.setattr(cpu_placement, "_WAIT_S", 0.01)
    return tmp_path / "cpus"


def test_jobs_on_a_host_have_separate_cpus(four: Path) -> None:
    with placed(1) as first, placed(2) as second:
        assert len(first.cpus) == 1
        assert len(second.cpus) == 2
        assert not set(first.cpus) & set(second.cpus)
        assert not set(first.cpus) & set(second.harness_cpus), "the harness keeps off the other's CPU, too"


@pytest.mark.slow
def test_job_waits_until_enough_cpus_are_free(four: Path) -> None:
    begun = threading.Event()

    def second() -> None:
        with placed(2):
            begun.set()

    waiting = threading.Thread(target=second)
    with placed(3):
        waiting.start()
        assert not begun.wait(0.2), "one CPU is not enough for two"
        with placed(1) as one:
            assert len(one.cpus) == 1, "who waits holds nothing"
    waiting.join(10)
    assert begun.is_set()


def test_job_does_not_wait_for_more_cpus_than_exist(four: Path) -> None:
    with placed(9) as placement:
        assert set(placement.cpus) == {0, 1, 2, 3}


def test_failed_job_frees_its_cpus(four: Path) -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError), placed(4):
            raise RuntimeError
    with placed(4) as placement:
        assert set(placement.cpus) == {0, 1, 2, 3}


@pytest.mark.slow
def test_a_killed_harness_frees_its_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cpu_placement.VARIABLE, str(tmp_path / "cpus"))
    monkeypatch.setattr(cpu_placement, "_WAIT_S", 0.01)
    expected = cpu_placement.place(1).cpus
    with subprocess.Popen([sys.executable, "-c", _HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout
        assert tuple(map(int, other.stdout.readline().split())) == expected
        with placed(1) as mine:
            assert mine.cpus != expected
        other.kill()
    with placed(1) as mine:
        assert mine.cpus == expected


def test_harness_alone_on_the_host_locks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cpu_placement.VARIABLE, raising=False)
    with placed(1) as first, placed(1) as second:
        assert first == second == cpu_placement.place(1)


@pytest.mark.parametrize(
    ("count", "given", "held", "mine", "expected"),
    [
        # One thread of each core of the allocation is given, and the other threads are idle.
        (1, {3}, {3, 7}, {2, 3, 6, 7}, Placement((3,), (), True, (2, 6), apart=True)),
        (2, {2, 3}, {2, 3, 6, 7}, {1, 2, 3, 5, 6, 7}, Placement((2, 3), (), True, (1, 5), apart=True)),
        # The other thread belongs to another user's job.
        (1, {3}, {3}, {2, 3}, Placement((3,), (), False, (2,), apart=True)),
        # harness has nothing but the job's own core.
        (1, {3}, {3, 7}, {3, 7}, Placement((3,), (), False, (7,), apart=True)),
        (1, {3}, {3, 7}, {3}, Placement((3,), (), True, (3,), apart=False)),
        (2, {3}, {3, 7}, {3, 7}, None),
    ],
)
def test_cpus_that_a_scheduler_gave_are_kept_and_judged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    given: set[int],
    held: set[int],
    mine: set[int],
    expected: Placement | None,
) -> None:
    monkeypatch.setattr(cpu_placement.os, "sched_getaffinity", lambda _: mine)
    assert cpu_placement.place_among(count, given, held, smt(tmp_path / "sys")) == expected


def test_siblings_are_all_threads_of_the_cores(tmp_path: Path) -> None:
    assert cpu_placement.siblings([3, 1], smt(tmp_path / "sys")) == {1, 3, 5, 7}

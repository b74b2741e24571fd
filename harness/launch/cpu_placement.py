"""Placement of jobs on CPUs: whole physical cores of one NUMA node for the job, the rest for the harness.

Two jobs on one core share its execution units and caches, and memory of another node is further away: both change
latency without showing anywhere.  Several harnesses on one host lease their CPUs from each other by file locks.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness import filesystem
from harness.driver.procfs import parse_list, read_text
from harness.results.schema import Placement

SYSTEM = Path("/sys/devices/system")
_FIRST = 0  # the CPU that kernels give most of their own work to
# Set by harness.aws.batch, which starts several harnesses on one host: the folder that they share.
VARIABLE = "HARNESS_CPU_LEASES"
_WAIT_S = 1.0


@dataclass(frozen=True)
class Core:
    """One physical core: its online CPUs (hardware threads), its CPUs that we may use, and its node."""

    online: frozenset[int]
    usable: frozenset[int]
    node: int | None

    @property
    def whole(self) -> bool:
        """Return whether we may use all of it."""
        return self.usable == self.online


@dataclass(frozen=True)
class Topology:
    """The cores that we may use; ``shown`` is false where the kernel hides which CPUs share one."""

    cores: tuple[Core, ...]
    shown: bool

    @property
    def nodes(self) -> set[int]:
        """Return the NUMA nodes; empty where the kernel shows none."""
        return {core.node for core in self.cores if core.node is not None}


def read(usable: Iterable[int], root: Path = SYSTEM) -> Topology:
    """Read the topology of the usable CPUs from a ``/sys/devices/system`` tree."""
    left, node_of = set(usable), _nodes(root)
    online = _cpu_list(root / "cpu" / "online")
    cores, shown = [], True
    while left:
        cpu = min(left)
        siblings = _siblings(cpu, root)
        if not siblings:
            shown, siblings = False, {cpu}
        # An offline CPU cannot be used, so it does not count as a sibling.
        siblings = (siblings & online if online else siblings) | {cpu}
        cores.append(Core(frozenset(siblings), frozenset(siblings & left), node_of.get(cpu)))
        left -= siblings
    return Topology(tuple(cores), shown)


def place(count: int, usable: Iterable[int] | None = None, root: Path = SYSTEM) -> Placement:
    """Choose ``count`` CPUs for a job, and the CPUs that the harness keeps to while it runs.

    Whole cores of one NUMA node first; CPU 0's core last; else the highest numbers.  Of a core that is needed in
    part only, the rest stays idle where the harness has another CPU.

    Args:
        count: CPUs that the job needs; at most as many as are usable.
        usable: CPUs that this process may use; by default its affinity.
        root: the ``/sys/devices/system`` tree.
    """
    mine = os.sched_getaffinity(0) if usable is None else set(usable)
    seen = read(mine, root)
    candidates = _candidates(seen, count) if seen.shown else [set(sorted(mine)[-count:])]
    chosen = max(candidates, key=lambda cpus: _merit(cpus, seen))
    nodes = {core.node for core in seen.cores if core.usable & chosen and core.node is not None}
    return _placement(chosen, nodes, mine - chosen, seen, whole=_whole(chosen, seen))


def place_among(count: int, given: set[int], held: set[int], root: Path = SYSTEM) -> Placement | None:
    """Choose ``count`` CPUs for a job among those that a scheduler gave it; None: these are too few.

    Args:
        count: CPUs that the job needs.
        given: the job's affinity.
        held: CPUs that no other work of the scheduler uses; on nodes with SMT ``given`` may be one thread of each core.
        root: the ``/sys/devices/system`` tree.
    """
    if len(given) < count:
        return None
    chosen, mine = set(place(count, given, root).cpus), os.sched_getaffinity(0)
    seen = read(held | mine, root)
    nodes = set[int]()  # the scheduler decides, and a job may use the memory of all
    return _placement(chosen, nodes, mine - chosen, seen, whole=_touched(chosen, seen) <= held)


def _placement(chosen: set[int], nodes: set[int], rest: set[int], seen: Topology, *, whole: bool) -> Placement:
    """Return the placement of a job on chosen CPUs.

    Args:
        chosen: its CPUs.
        nodes: the NUMA nodes of its memory; empty: any.
        rest: the other CPUs that this process may use.
        seen: the topology of all of them.
        whole: no other work may run on the cores of the chosen CPUs, the harness's left aside.
    """
    # Where only siblings are left, the harness takes them: better half a core than the job's own CPU.
    apart = rest - _touched(chosen, seen) if seen.shown else rest
    return Placement(
        cpus=tuple(sorted(chosen)),
        numa_nodes=tuple(sorted(nodes)),
        whole_cores=whole and bool(apart or not rest) if seen.shown else None,
        harness_cpus=tuple(sorted(apart or rest or chosen)),
        apart=bool(rest),
    )


def siblings(cpus: Iterable[int], root: Path = SYSTEM) -> set[int]:
    """Return CPUs with all other threads of their cores."""
    return set(cpus).union(*(_siblings(cpu, root) for cpu in cpus))


def _candidates(seen: Topology, count: int) -> list[set[int]]:
    """Return a set of CPUs from each node with enough, else one from all nodes."""
    groups = [[core for core in seen.cores if core.node == node] for node in {core.node for core in seen.cores}]
    enough = [group for group in groups if sum(len(core.usable) for core in group) >= count]
    return [_take(group, count) for group in enough or [list(seen.cores)]]


def _take(cores: list[Core], count: int) -> set[int]:
    """Take whole cores before half ones, away from CPU 0, larger before smaller, high numbers first."""
    taken: set[int] = set()
    order = sorted(
        cores,
        key=lambda core: (core.whole, _FIRST not in core.online, len(core.online), core.node or 0, max(core.usable)),
        reverse=True,
    )
    for core in order:
        taken.update(sorted(core.usable)[: count - len(taken)])
    return taken


def _merit(cpus: set[int], seen: Topology) -> tuple[bool, bool, int]:
    return _whole(cpus, seen), _FIRST not in _touched(cpus, seen), max(cpus)


def _whole(cpus: set[int], seen: Topology) -> bool:
    """Return whether all cores that the job touches are ours in whole."""
    return all(core.whole for core in seen.cores if core.usable & cpus)


def _touched(cpus: set[int], seen: Topology) -> set[int]:
    """Return the job's CPUs and their siblings."""
    return {cpu for core in seen.cores if core.usable & cpus for cpu in core.online}


def _siblings(cpu: int, root: Path) -> set[int]:
    """Return the CPUs of the same physical core; empty: unknown."""
    folder = root / "cpu" / f"cpu{cpu}" / "topology"
    return _cpu_list(folder / "thread_siblings_list") or _cpu_list(folder / "core_cpus_list")


def _nodes(root: Path) -> dict[int, int]:
    node_of = {}
    for path in (root / "node").glob("node[0-9]*"):
        for cpu in _cpu_list(path / "cpulist"):
            node_of[cpu] = int(path.name.removeprefix("node"))
    return node_of


def _cpu_list(path: Path) -> set[int]:
    return parse_list(read_text(path) or "")


@contextmanager
def placed(count: int) -> Iterator[Placement]:
    """Choose ``count`` CPUs for a job as :func:`place` does, among the CPUs that no other harness holds.

    Waits until there are enough; holds them until the context ends.
    """
    folder = os.environ.get(VARIABLE)
    if folder is None:
        yield place(count)
        return
    with ExitStack() as leases:
        while (placement := _take_lock(count, Path(folder), leases)) is None:
            time.sleep(_WAIT_S)
        yield placement


def _take_lock(count: int, folder: Path, leases: ExitStack) -> Placement | None:
    mine = os.sched_getaffinity(0)
    with filesystem.cache_lock(folder, "choosing"), ExitStack() as tried:
        free = _lock(mine, folder, tried)
        # A job of more CPUs than the host has is refused elsewhere, and must not wait here.
        if len(free) < min(count, len(mine)):
            return None
        placement = place(count, free)
        tried.close()
        _lock(placement.cpus, folder, leases)
        return placement


def _lock(cpus: Iterable[int], folder: Path, held: ExitStack) -> set[int]:
    """Lock the free ones of these CPUs, until ``held`` is closed."""
    taken = set()
    for cpu in cpus:
        path = folder / f"cpu{cpu}.lock"
        path.touch()
        with contextlib.suppress(BlockingIOError):
            held.enter_context(filesystem.lock(path, wait=False))
            taken.add(cpu)
    return taken

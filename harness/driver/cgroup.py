"""One reader for cgroup v1 and v2.  Standard library only: it is copied into every image.

It reads a cgroup from inside the container (``/sys/fs/cgroup``) and from the host (path of ``/proc/<pid>/cgroup``).
Every reading is ``None`` if the kernel does not show the file; unlimited is :data:`UNLIMITED`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

from harness.driver.procfs import ReadFile, number_after, parse_list, read_text

ROOT = Path("/sys/fs/cgroup")
UNLIMITED = -1
# v1 shows "no limit" as the largest page-aligned int64; no real limit is above this.
_V1_UNLIMITED = 1 << 62


@dataclass(frozen=True)
class MemoryStat:
    """Part of ``memory.stat``, children included, from one reading.

    ``anon_bytes`` is anonymous plus shared memory (tmpfs, shm), never file pages; ``mapped_bytes`` is file pages that
    are mapped and were first touched by this cgroup; ``swap_bytes`` is what it has in swap (v1 alone shows it here).
    """

    anon_bytes: int
    mapped_bytes: int | None
    swap_bytes: int | None
    major_faults: int | None


# The names in ``memory.stat`` of anonymous, shared, mapped and swapped memory, and of major faults.
_STAT_NAMES = {
    1: ("total_rss", "total_shmem", "total_mapped_file", "total_swap", "total_pgmajfault"),
    2: ("anon", "shmem", "file_mapped", "swap", "pgmajfault"),
}


@dataclass(frozen=True)
class Limit:
    """A limit and the cgroup folder that has it; ``value`` is ``None`` if unknown, :data:`UNLIMITED` without one."""

    folder: Path
    value: float | None


@dataclass(frozen=True)
class Cgroup:
    """The folders that hold one cgroup's files; on v2 all are the same.

    ``read`` gets a file's content; ``cpuacct`` is v1's own folder for CPU time where it is not ``cpu``; without a
    ``cpuset`` folder nothing is known of CPUs and NUMA nodes.
    """

    version: int
    memory: Path
    cpu: Path
    pids: Path
    cpuacct: Path | None = None
    cpuset: Path | None = None
    read: ReadFile = read_text

    @property
    def folders(self) -> tuple[Path, ...]:
        """All folders that it is read from."""
        return self.memory, self.cpu, self.pids, self.cpuacct or self.cpu, self.cpuset or self.cpu

    def memory_parents(self) -> list[Cgroup]:
        """Return the visible ancestors, whose memory limits hold too, the nearest first."""
        return [replace(self, memory=folder) for folder in _above(self.memory)]

    def cpu_parents(self) -> list[Cgroup]:
        """Return the visible ancestors, whose CPU quotas hold too, each with its ``cpuset``.

        On v1 each controller has its own tree: a parent has the cpuset of the same path, if that is an ancestor.
        """
        cpusets = _by_path(_above(self.cpuset)) if self.cpuset else {}
        parents = _by_path(_above(self.cpu)).items()
        return [replace(self, cpu=folder, cpuset=cpusets.get(path)) for path, folder in parents]

    def least_memory(self) -> Limit:
        """Return the smallest memory limit in force, page cache included: its own or an ancestor's, in bytes."""
        groups = (self, *self.memory_parents())
        return _least(Limit(group.memory, group.memory_limit_bytes()) for group in groups)

    def least_swap_bytes(self) -> int | None:
        """Return the swap allowed on top of the smallest memory limit, in bytes."""
        groups = (self, *self.memory_parents())
        if self.version == 2:
            return _bytes(_least(Limit(group.memory, group.swap_limit_bytes()) for group in groups))
        both = _bytes(_least(Limit(group.memory, group._memory_and_swap_bytes()) for group in groups))
        memory = _bytes(self.least_memory())
        return both if both is None or both == UNLIMITED else None if memory is None else max(0, both - memory)

    def least_cpu_quota(self) -> float | None:
        """Return the smallest CPU quota in force, its own or an ancestor's; as :meth:`cpu_quota`."""
        own = self.cpu_quota()
        above = [Limit(group.cpu, group.cpu_quota()) for group in self.cpu_parents()]
        return own if own is None else _least([Limit(self.cpu, own), *above]).value

    def memory_limit_bytes(self) -> int | None:
        """Read the limit of all charged memory, page cache included."""
        return self._limit(self.memory / ("memory.max" if self.version == 2 else "memory.limit_in_bytes"))

    def swap_limit_bytes(self) -> int | None:
        """Read the swap allowed on top of the memory limit."""
        if self.version == 2:
            return self._limit(self.memory / "memory.swap.max")
        both = self._memory_and_swap_bytes()
        memory = self.memory_limit_bytes()
        if both is None or memory is None:
            return None
        return UNLIMITED if both == UNLIMITED else both - memory

    def _memory_and_swap_bytes(self) -> int | None:
        return self._limit(self.memory / "memory.memsw.limit_in_bytes")

    def cpu_quota(self) -> float | None:
        """Read the CPUs that the bandwidth quota allows; :data:`UNLIMITED` without a quota.

        None: the cpu controller is not visible (v2: not delegated to this cgroup, or the root; v1: not mounted), so
        that a quota further up could be in force.
        """
        if self.version == 2:
            text = self.read(self.cpu / "cpu.max")
            if text is None:
                return self._kernel_without_quotas("cpu.weight")
            words = text.split()
            if len(words) != 2:
                return None
            return float(UNLIMITED) if words[0] == "max" else int(words[0]) / int(words[1])
        quota, period = self._number(self.cpu / "cpu.cfs_quota_us"), self._number(self.cpu / "cpu.cfs_period_us")
        if quota is None and period is None:
            return self._kernel_without_quotas("cpu.shares")
        if quota is None or not period:
            return None
        return float(UNLIMITED) if quota < 0 else quota / period

    def _kernel_without_quotas(self, other: str) -> float | None:
        """Return UNLIMITED if the controller shows its ``other`` file: this kernel was built without quotas."""
        return None if self.read(self.cpu / other) is None else float(UNLIMITED)

    def cpus(self) -> set[int] | None:
        """Read the allowed CPUs."""
        return self._list("cpuset.cpus.effective" if self.version == 2 else "cpuset.effective_cpus")

    def numa_nodes(self) -> set[int] | None:
        """Read the allowed NUMA nodes of its memory."""
        return self._list("cpuset.mems.effective" if self.version == 2 else "cpuset.effective_mems")

    def pids_limit(self) -> int | None:
        """Read the maximum number of processes and threads."""
        return self._limit(self.pids / "pids.max")

    def memory_stat(self) -> MemoryStat | None:
        """Read the memory in use; None if the kernel does not show it."""
        text = self.read(self.memory / "memory.stat")
        if text is None:
            return None
        anon, shmem, mapped, swap, faults = (number_after(text, name) for name in _STAT_NAMES[self.version])
        return None if anon is None else MemoryStat(anon + (shmem or 0), mapped, swap, faults)

    def swap_bytes(self) -> int | None:
        """Read the swap in use."""
        if self.version == 2:
            return self._number(self.memory / "memory.swap.current")
        stat = self.memory_stat()
        return stat.swap_bytes if stat else None

    def peak_bytes(self) -> int | None:
        """Read the kernel's high-water mark of charged memory, page cache included."""
        return self._number(self.memory / ("memory.peak" if self.version == 2 else "memory.max_usage_in_bytes"))

    def oom_kills(self) -> int | None:
        """Count the processes that the OOM killer ended in this cgroup."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        return number_after(self.read(self.memory / name), "oom_kill")

    def throttled_periods(self) -> int | None:
        """Count the quota periods in which the cgroup was stopped."""
        return number_after(self.read(self.cpu / "cpu.stat"), "nr_throttled")

    def throttled_ns(self) -> int | None:
        """Read the time that a quota stopped the cgroup so far."""
        text = self.read(self.cpu / "cpu.stat")
        if self.version == 1:
            return number_after(text, "throttled_time")
        stopped_us = number_after(text, "throttled_usec")
        return None if stopped_us is None else stopped_us * 1000

    def cpu_ns(self) -> int | None:
        """Read the CPU time used so far, children included."""
        if self.version == 1:
            return self._number((self.cpuacct or self.cpu) / "cpuacct.usage")
        used_us = number_after(self.read(self.cpu / "cpu.stat"), "usage_usec")
        return None if used_us is None else used_us * 1000

    def threads(self) -> list[int] | None:
        """Read the thread ids in the reader's pid namespace."""
        text = self.read(self.memory / ("cgroup.threads" if self.version == 2 else "tasks"))
        return None if text is None else [int(word) for word in text.split() if word.isdigit()]

    def _list(self, name: str) -> set[int] | None:
        text = self.read(self.cpuset / name) if self.cpuset else None
        # An empty list is the reading of a cgroup that is just being removed.
        return parse_list(text or "") or None

    def _number(self, path: Path) -> int | None:
        text = (self.read(path) or "").strip()
        return int(text) if text.lstrip("-").isdigit() else None

    def _limit(self, path: Path) -> int | None:
        if (self.read(path) or "").strip() == "max":
            return UNLIMITED
        value = self._number(path)
        return UNLIMITED if value is not None and value >= _V1_UNLIMITED else value


def own(root: Path = ROOT, membership: str | None = None) -> Cgroup | None:
    """Return the cgroup of this container, as the engine mounts it at ``root``.

    An engine may show containers the host's whole tree (on v2 its cgroup namespace, and Apptainer always): then
    ``root`` has no limits, and ours is below it.

    Args:
        root: where the cgroup file system is mounted.
        membership: the content of ``/proc/self/cgroup``; read by default.
    """
    if membership is None:
        membership = read_text(Path("/proc/self/cgroup")) or ""
    if (root / "cgroup.controllers").exists():
        return of_process(membership, root) or Cgroup(2, root, root, root, cpuset=root)
    if (root / "memory" / "memory.limit_in_bytes").exists():
        return of_process(membership, root) or Cgroup(
            1, root / "memory", root / "cpu", root / "pids", root / "cpuacct", root / "cpuset"
        )
    return None


def of_process(membership: str, root: Path = ROOT) -> Cgroup | None:
    """Return the cgroup of a process, as seen from the host.

    Args:
        membership: the content of ``/proc/<pid>/cgroup``.
    """
    paths: dict[str, str] = {}
    for line in membership.splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        for controller in parts[1].split(","):
            paths[controller] = parts[2].lstrip("/")
    # A host with both hierarchies lists "0::" too; its memory controller decides which one counts.
    if "memory" in paths:
        memory, cpu, pids, cpuacct, cpuset = (
            root / name / paths.get(name, paths["memory"]) for name in ("memory", "cpu", "pids", "cpuacct", "cpuset")
        )
        return Cgroup(1, memory, cpu, pids, cpuacct, cpuset) if memory.is_dir() else None
    if "" in paths:
        folder = root / paths[""]
        return Cgroup(2, folder, folder, folder, cpuset=folder) if folder.is_dir() else None
    return None


def host_version(root: Path = ROOT) -> int | None:
    """Return the cgroup version of this host's memory controller."""
    group = own(root)
    return group.version if group else None


def _least(limits: Iterable[Limit]) -> Limit:
    """Return the smallest limit; the first where none limits anything."""
    own, *above = limits
    bounding = [limit for limit in (own, *above) if limit.value is not None and limit.value > UNLIMITED]
    return min(bounding, key=lambda limit: limit.value or 0.0, default=own)


def _bytes(limit: Limit) -> int | None:
    return None if limit.value is None else int(limit.value)


def _above(folder: Path) -> list[Path]:
    """Return the folders of a cgroup's ancestors, the nearest first, up to the controller's mount."""
    return list(takewhile(lambda up: (up / "cgroup.procs").exists(), folder.parents))


def _by_path(folders: list[Path]) -> dict[Path, Path]:
    """Map folders by their paths below the last one."""
    return {folder.relative_to(folders[-1]): folder for folder in folders}

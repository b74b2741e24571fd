"""One reader for cgroup v1 and v2.  Standard library only: it is copied into every image.

The same class reads a cgroup from inside (where ``/sys/fs/cgroup`` shows the container's own) and from the
host (where the path comes from ``/proc/<pid>/cgroup``).  Every reading is ``None`` where the kernel does not
show the file; unlimited is :data:`UNLIMITED`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
UNLIMITED = -1
# v1 shows "no limit" as the largest page-aligned int64; anything above this is no limit that exists.
_V1_UNLIMITED = 1 << 62


@dataclass(frozen=True)
class Cgroup:
    """The folders that hold one cgroup's files; on v2 all three are the same."""

    version: int
    memory: Path
    cpu: Path
    pids: Path

    def memory_limit_bytes(self) -> int | None:
        """Limit of all charged memory, page cache included."""
        return _limit(self.memory / ("memory.max" if self.version == 2 else "memory.limit_in_bytes"))

    def swap_limit_bytes(self) -> int | None:
        """Swap allowed on top of the memory limit."""
        if self.version == 2:
            return _limit(self.memory / "memory.swap.max")
        both = _limit(self.memory / "memory.memsw.limit_in_bytes")
        memory = self.memory_limit_bytes()
        if both is None or memory is None:
            return None
        return UNLIMITED if both == UNLIMITED else both - memory

    def cpu_quota(self) -> float | None:
        """CPUs that the bandwidth quota allows; :data:`UNLIMITED` without a quota."""
        if self.version == 2:
            words = (_read(self.cpu / "cpu.max") or "").split()
            if len(words) != 2:
                return None
            return float(UNLIMITED) if words[0] == "max" else int(words[0]) / int(words[1])
        quota, period = _number(self.cpu / "cpu.cfs_quota_us"), _number(self.cpu / "cpu.cfs_period_us")
        if quota is None or not period:
            return None
        return float(UNLIMITED) if quota < 0 else quota / period

    def pids_limit(self) -> int | None:
        """Most processes and threads at once."""
        return _limit(self.pids / "pids.max")

    def anon_bytes(self) -> int | None:
        """Anonymous plus shared memory (tmpfs, shm) now, children included; never file pages."""
        stat = _table(self.memory / "memory.stat")
        anon, shmem = ("anon", "shmem") if self.version == 2 else ("total_rss", "total_shmem")
        if anon not in stat:
            return None
        return stat[anon] + stat.get(shmem, 0)

    def peak_bytes(self) -> int | None:
        """The kernel's high-water mark of all that was charged, page cache included."""
        return _number(self.memory / ("memory.peak" if self.version == 2 else "memory.max_usage_in_bytes"))

    def oom_kills(self) -> int | None:
        """Processes that the OOM killer ended in this cgroup."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        return _table(self.memory / name).get("oom_kill")

    def throttled_periods(self) -> int | None:
        """Quota periods in which the cgroup was stopped."""
        return _table(self.cpu / "cpu.stat").get("nr_throttled")


def own(root: Path = ROOT) -> Cgroup | None:
    """The cgroup of the container we are in, as the engine mounts it at ``root``."""
    if (root / "cgroup.controllers").exists():
        return Cgroup(2, root, root, root)
    if (root / "memory" / "memory.limit_in_bytes").exists():
        return Cgroup(1, root / "memory", root / "cpu", root / "pids")
    return None


def of_process(membership: str, root: Path = ROOT) -> Cgroup | None:
    """The cgroup of a process, seen from the host.

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
        folders = [root / name / paths.get(name, paths["memory"]) for name in ("memory", "cpu", "pids")]
        return Cgroup(1, *folders) if folders[0].is_dir() else None
    if "" in paths:
        folder = root / paths[""]
        return Cgroup(2, folder, folder, folder) if folder.is_dir() else None
    return None


def host_version(root: Path = ROOT) -> int | None:
    """The cgroup version whose memory controller this host uses."""
    found = own(root)
    return found.version if found else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return None


def _number(path: Path) -> int | None:
    text = (_read(path) or "").strip()
    return int(text) if text.lstrip("-").isdigit() else None


def _limit(path: Path) -> int | None:
    if (_read(path) or "").strip() == "max":
        return UNLIMITED
    value = _number(path)
    return UNLIMITED if value is not None and value >= _V1_UNLIMITED else value


def _table(path: Path) -> dict[str, int]:
    pairs = (line.split() for line in (_read(path) or "").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}

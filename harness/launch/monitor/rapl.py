"""Energy of whole CPU packages, from the counters that Linux shows in ``/sys/class/powercap`` (RAPL of Intel and AMD).

A counter belongs to a package and to no process, so it is read only for a job that has all CPUs of its packages.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from harness.driver.procfs import OpenFiles, ReadFile, read_text

_POWERCAP = Path("/sys/class/powercap")
_CPUS = Path("/sys/devices/system/cpu")
_CPUINFO = Path("/proc/cpuinfo")
_PACKAGE = re.compile(r"package-(\d+)(?:-die-\d+)?")  # not core, uncore, dram or psys
# No package draws more; microjoules a microsecond.
_MOST_W = 1000
# The register changes once a millisecond or less often, in steps.
_STEP_US = 10_000


class PackageCounters:
    """Energy counters of the packages that a job has to itself."""

    def __init__(self, ranges_uj: Mapping[Path, int], read: ReadFile) -> None:
        """Prepare; ``ranges_uj`` has the largest value of each counter's file, in microjoules."""
        self._ranges_uj = ranges_uj
        self._read = read
        self._last_uj: dict[Path, int] = {}
        self._last_ns = 0
        self._total_uj: int | None = 0

    def total_uj(self, t_ns: int) -> int | None:
        """Return the microjoules since the first reading, all packages together.

        ``None`` from then on, once a counter may have gone round more than once since the last reading, was set back,
        or cannot be read.

        Args:
            t_ns: time of this reading, on a clock that never goes back.
        """
        if self._total_uj is not None:
            most_uj = _MOST_W * ((t_ns - self._last_ns) // 1000 + _STEP_US)
            grown = [self._grown_uj(path, most_uj) for path in self._ranges_uj]
            known = [value for value in grown if value is not None]
            self._total_uj = self._total_uj + sum(known) if len(known) == len(grown) else None
            self._last_ns = t_ns
        return self._total_uj

    def _grown_uj(self, path: Path, most_uj: int) -> int | None:
        text, range_uj = (self._read(path) or "").strip(), self._ranges_uj[path]
        if not text.isdigit():
            return None
        last_uj, self._last_uj[path] = self._last_uj.get(path), int(text)
        if last_uj is None:
            return 0
        grown_uj = (int(text) - last_uj) % range_uj
        return grown_uj if grown_uj <= most_uj < range_uj else None


@contextmanager
def following(cpus: Collection[int]) -> Iterator[PackageCounters | None]:
    """Follow the packages that a job's CPUs make up; None where their energy is not known."""
    with closing(OpenFiles()) as files:
        found = counters_of(cpus, files)
        yield None if isinstance(found, str) else found


def counters_of(cpus: Collection[int], read: ReadFile) -> PackageCounters | str:
    """Return the counters of the packages that these CPUs make up, or the reason why their energy is not known.

    Args:
        cpus: all CPUs of a job.
        read: reads a counter, again and again.
    """
    if re.search(r"^flags\b.*\bhypervisor\b", read_text(_CPUINFO) or "", re.MULTILINE):
        return "this host is a virtual machine: other machines may use its CPU packages"
    packages = _packages()
    own = {packages.get(cpu) for cpu in cpus}
    if None in own:
        return "the kernel does not show which CPUs form a package"
    if others := sum(package in own and cpu not in cpus for cpu, package in packages.items()):
        return f"the job does not have {others} of the CPUs of its packages; use a profile of all CPUs of a package"
    ranges_uj, seen = {}, set()
    for zone in sorted(_POWERCAP.glob("intel-rapl:*")):
        name = _PACKAGE.fullmatch((read_text(zone / "name") or "").strip())
        if name and int(name[1]) in own:
            if read(zone / "energy_uj") is None:
                return f"{zone / 'energy_uj'} cannot be read; run as root, or let this user read it"
            ranges_uj[zone / "energy_uj"] = int(read_text(zone / "max_energy_range_uj") or 0)
            seen.add(int(name[1]))
    if seen != own or not all(ranges_uj.values()):
        return f"{_POWERCAP} has no energy counter of some of the job's packages"
    return PackageCounters(ranges_uj, read)


def _packages() -> dict[int, int]:
    """Return the package of each online CPU."""
    found = {}
    for path in _CPUS.glob("cpu[0-9]*/topology/physical_package_id"):
        package = (read_text(path) or "").strip()
        if package.isdigit():  # -1: not known
            found[int(path.parts[-3].removeprefix("cpu"))] = int(package)
    return found

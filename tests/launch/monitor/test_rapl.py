"""Energy of CPU packages, from a written tree of powercap: no machine of the project shows a real one."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from harness.driver.procfs import OpenFiles, ReadFile, read_text
from harness.launch.monitor import rapl
from harness.launch.monitor.rapl import PackageCounters
from harness.launch.monitor.sampler import Sampler
from tests.launch.monitor.test_sampler import Scripted

MS = 1_000_000
RANGE_UJ = 262_143_328_850


class Host:
    """Two packages of two CPUs each; the second package has two dies."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        for name, path in {"_POWERCAP": "powercap", "_CPUS": "cpu", "_CPUINFO": "cpuinfo"}.items():
            monkeypatch.setattr(rapl, name, root / path)
        for cpu in range(4):
            self.write(f"cpu/cpu{cpu}/topology/physical_package_id", cpu // 2)
        self.write("cpuinfo", "flags\t\t: fpu sse\n")
        names = {"0": "package-0", "0:0": "core", "0:1": "dram", "1": "package-1-die-0", "2": "package-1-die-1"}
        for zone, name in names.items():
            self.write(f"powercap/intel-rapl:{zone}/name", name)
            self.write(f"powercap/intel-rapl:{zone}/max_energy_range_uj", RANGE_UJ)
            self.count(zone, 1_000_000)

    def write(self, path: str, content: object) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(f"{content}\n")

    def count(self, zone: str, energy_uj: object) -> None:
        self.write(f"powercap/intel-rapl:{zone}/energy_uj", energy_uj)

    def counters(self, *cpus: int, read: ReadFile = read_text) -> PackageCounters | str:
        return rapl.counters_of(cpus, read)

    def counted(self, *cpus: int, read: ReadFile = read_text) -> PackageCounters:
        found = self.counters(*cpus, read=read)
        assert isinstance(found, PackageCounters)
        return found


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def test_energy_is_summed_over_the_packages_of_the_job_and_over_a_wrap(host: Host) -> None:
    with closing(OpenFiles()) as files:
        both, first = host.counted(0, 1, 2, 3, read=files), host.counted(0, 1, read=files)
        host.count("2", RANGE_UJ - 300_000)
        assert (both.total_uj(0), first.total_uj(0)) == (0, 0)
        host.count("0", 3_500_000)  # 2.5 J
        host.count("1", 1_250_000)  # 0.25 J
        host.count("2", 1_700_000)  # 0.3 J to the end of the range, and 1.7 J
        host.count("0:1", 9_000_000)
        assert (both.total_uj(100 * MS), first.total_uj(100 * MS)) == (4_750_000, 2_500_000)
        host.count("2", 1_800_000)
        assert (both.total_uj(200 * MS), first.total_uj(200 * MS)) == (4_850_000, 2_500_000)


@pytest.mark.parametrize(
    ("later_uj", "passed_ms", "range_uj", "total_uj"),
    [
        (3_000_000, 100, RANGE_UJ, 2_000_000),
        # 1,000 W for 10 ms more than have passed, because the register changes in steps.
        (11_000_000, 0, RANGE_UJ, 10_000_000),
        (11_000_001, 0, RANGE_UJ, None),
        (0, 100, RANGE_UJ, None),  # set back
        # At 1,000 W 65.5 kJ may have gone round after 65.5 s.
        (3_000_000, 65_000, 65_532_610_987, 2_000_000),
        (3_000_000, 66_000, 65_532_610_987, None),
        ("", 100, RANGE_UJ, None),
    ],
)
def test_energy_is_unknown_from_an_uncertain_step_on(
    host: Host, later_uj: object, passed_ms: int, range_uj: int, total_uj: int | None
) -> None:
    host.write("powercap/intel-rapl:0/max_energy_range_uj", range_uj)
    counters = host.counted(0, 1)
    assert counters.total_uj(5 * MS) == 0
    host.count("0", later_uj)
    assert counters.total_uj((5 + passed_ms) * MS) == total_uj
    host.count("0", later_uj or 2_000_000)
    assert counters.total_uj((6 + passed_ms) * MS) == total_uj


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        ("cpu/cpu4/topology/physical_package_id", 0, "the job does not have 1 of the CPUs of its packages"),
        ("cpu/cpu1/topology/physical_package_id", -1, "the kernel does not show which CPUs form a package"),
        ("cpuinfo", "flags : fpu hypervisor sse", "this host is a virtual machine"),
        ("powercap/intel-rapl:0/name", "psys", "has no energy counter of some of the job's packages"),
        ("powercap/intel-rapl:0/max_energy_range_uj", 0, "has no energy counter of some of the job's packages"),
    ],
)
def test_energy_that_is_not_the_jobs_alone_is_not_counted(host: Host, path: str, content: object, reason: str) -> None:
    assert isinstance(host.counters(0, 1), PackageCounters)
    host.write(path, content)
    assert reason in str(host.counters(0, 1))


def test_half_of_a_package_and_a_counter_that_only_root_reads_give_a_reason(host: Host) -> None:
    assert "does not have 1 of the CPUs" in str(host.counters(0, 1, 2))

    def denied(path: Path) -> str | None:
        return None if path.name == "energy_uj" else read_text(path)

    assert "intel-rapl:0/energy_uj cannot be read; run as root" in str(host.counters(0, 1, read=denied))


def test_the_sampler_reads_energy_with_its_counters(host: Host) -> None:
    sampler = Sampler(Scripted(), packages=host.counted(0, 1))
    sampler.mark()
    host.count("0", 1_400_000)
    sampler.mark()
    assert [reading.package_uj for reading in sampler.counters().readings] == [0, 400_000]

"""Tests of the cgroup reader on recordings of v1 and v2."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from harness.driver import cgroup
from harness.driver.cgroup import UNLIMITED, Cgroup, Limit, MemoryStat
from harness.driver.procfs import OpenFiles, format_list, parse_list
from harness.launch.container import group_of
from tests.support.recorded_cgroups import DRIVERS, FOLDER, docker_says, unfold

MIB = 1 << 20
V1_NO_LIMIT = (1 << 63) - 4096
ID = "9859cadea1858408ffa6935e078da7aca359510c8d1df32526495fe22c9c3eb8"
V1_PROCESS = "".join(
    f"{number}:{name}:/docker/{ID}\n" for number, name in enumerate(("cpu", "cpuacct", "cpuset", "memory", "pids"), 1)
)


@pytest.fixture
def v1(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDER / "cgroup-v1", tmp_path / "v1"))


@pytest.fixture
def v2(tmp_path: Path) -> Path:
    return unfold(tmp_path / "v2", "systemd/limited/busy.inside").cgroups


own = cgroup.own


def test_v1_recording_is_read(v1: Path) -> None:
    group = own(v1)
    assert group.version == 1 and limits(group) == (64 << 20, 0, 512, UNLIMITED)
    assert (group.memory_stat().anon_bytes, group.peak_bytes()) == (29_511_680, 31_129_600)
    assert group.oom_kills() == group.throttled_periods() == 0


def seen_of(root: Path, recording: str) -> Cgroup:
    """Return the container's cgroup, found from the host or from inside."""
    seen = unfold(root / recording, recording)
    if recording.endswith(".inside"):
        group = cgroup.own(seen.cgroups, seen.membership)
    else:
        assert cgroup.host_version(seen.cgroups) == 2
        group = cgroup.of_process(seen.membership, seen.cgroups)
    assert group is not None and group.version == 2
    return group


def limits(group: Cgroup) -> tuple[int | None, int | None, int | None, float | None]:
    return group.memory_limit_bytes(), group.swap_limit_bytes(), group.pids_limit(), group.cpu_quota()


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("view", ["host", "inside"])
def test_v2_shows_the_requested_limits(tmp_path: Path, driver: str, view: str) -> None:
    asked = docker_says(f"{driver}/limited/container")["HostConfig"]
    assert (asked["Memory"], asked["MemorySwap"], asked["PidsLimit"], asked["NanoCpus"]) == (256 * MIB,) * 2 + (512, 0)
    for moment in ("before", "busy", "killed"):
        assert limits(seen_of(tmp_path, f"{driver}/limited/{moment}.{view}")) == (256 * MIB, 0, 512, UNLIMITED)


@pytest.mark.parametrize("view", ["host", "inside"])
def test_v2_shows_other_limits(tmp_path: Path, view: str) -> None:
    assert limits(seen_of(tmp_path, f"systemd/quota/busy.{view}")) == (256 * MIB, 0, 512, 0.5)
    assert limits(seen_of(tmp_path, f"systemd/swap/busy.{view}")) == (64 * MIB, 128 * MIB, 512, UNLIMITED)
    memory, swap, _, quota = limits(seen_of(tmp_path, f"systemd/unlimited/busy.{view}"))
    assert (memory, swap, quota) == (UNLIMITED,) * 3


@pytest.mark.parametrize("driver", DRIVERS)
def test_v2_counts_allocated_memory(tmp_path: Path, driver: str) -> None:
    before, busy, killed = (
        seen_of(tmp_path, f"{driver}/limited/{moment}.host") for moment in ("before", "busy", "killed")
    )
    first, then, last = (group.memory_stat() for group in (before, busy, killed))
    # 48 MiB in the first process, 4 MiB shared, 16 MiB in a child with an interpreter of its own.
    assert (48 + 4 + 16) * MIB < then.anon_bytes - first.anon_bytes < (48 + 4 + 16 + 8) * MIB
    assert (first.mapped_bytes, then.mapped_bytes) == (0, 16 * MIB), "a file that was mapped and touched"
    assert last.anon_bytes == pytest.approx(then.anon_bytes, rel=0.01), "what the killed child took is gone"
    for group in (before, busy):
        peak, anon = group.peak_bytes(), group.memory_stat().anon_bytes
        assert peak is not None and anon is not None and anon < peak < 256 * MIB
    assert killed.peak_bytes() == 256 * MIB
    assert [group.oom_kills() for group in (before, busy, killed)] == [0, 0, 1]


@pytest.mark.parametrize("driver", DRIVERS)
def test_v2_counters_equal_those_of_the_engine(tmp_path: Path, driver: str) -> None:
    for moment in ("limited/before", "limited/busy", "limited/killed"):
        group, stats = seen_of(tmp_path, f"{driver}/{moment}.host"), docker_says(f"{driver}/{moment}")
        of_memory = stats["memory_stats"]["stats"]
        assert group.memory_stat().anon_bytes == pytest.approx(of_memory["anon"] + of_memory["shmem"], rel=0.01)
        stat = group.memory_stat()
        assert (stat.mapped_bytes, stat.major_faults) == (of_memory["file_mapped"], of_memory["pgmajfault"])
        assert group.cpu_ns() == pytest.approx(stats["cpu_stats"]["cpu_usage"]["total_usage"], rel=0.01)
        assert len(group.threads() or []) == stats["pids_stats"]["current"]


def test_v2_counts_throttling_under_a_quota(tmp_path: Path) -> None:
    group, stats = seen_of(tmp_path, "systemd/quota/busy.host"), docker_says("systemd/quota/busy")["cpu_stats"]
    assert group.throttled_periods() == stats["throttling_data"]["throttled_periods"] > 20
    assert group.throttled_ns() == stats["throttling_data"]["throttled_time"] > 1e9
    free = seen_of(tmp_path, "systemd/limited/busy.host")
    assert (free.throttled_periods(), free.throttled_ns()) == (0, 0)


def test_v2_shows_swap_in_use(tmp_path: Path) -> None:
    seen = unfold(tmp_path, "systemd/swap/busy.host")
    group = cgroup.of_process(seen.membership, seen.cgroups)
    of_processes = sum(
        int(re.search(r"^VmSwap:\s+(\d+) kB", path.read_text(), re.MULTILINE)[1]) * 1024
        for path in seen.proc.glob("*/status")
    )
    assert of_processes > 8 * MIB
    # Shared memory and the page tables' own are of no process.
    assert of_processes <= (group.swap_bytes() or 0) <= of_processes + 6 * MIB
    assert group.oom_kills() == 0 and group.peak_bytes() == 64 * MIB


@pytest.mark.parametrize(("driver", "folder"), [("cgroupfs", "docker/{}"), ("systemd", "system.slice/docker-{}.scope")])
def test_a_container_of_a_v2_host_is_found_from_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str, folder: str
) -> None:
    name = docker_says(f"{driver}/limited/container")["Id"]
    seen = unfold(tmp_path, f"{driver}/limited/busy.host")
    assert seen.membership == f"0::/{folder.format(name)}\n"
    monkeypatch.setattr(cgroup.of_process, "__defaults__", (seen.cgroups,))
    group = group_of(name, seen.membership)
    assert group is not None and group.memory == seen.cgroups / folder.format(name)
    assert group_of("another", seen.membership) is None, "a remote engine's pid is not ours"
    assert group_of(name, "0::/\n") is None, "a process that is exiting"


def test_a_container_in_the_hosts_namespace_finds_itself(tmp_path: Path) -> None:
    name = docker_says("systemd/host-namespace/container")["Id"]
    seen = unfold(tmp_path, "systemd/host-namespace/busy.inside")
    assert seen.membership == f"0::/system.slice/docker-{name}.scope\n"
    assert not (seen.cgroups / "memory.max").exists(), "the host's root has no limits"
    group = cgroup.own(seen.cgroups, seen.membership)
    assert limits(group) == (256 * MIB, 0, 512, UNLIMITED)


def test_v1_counts_children_and_shared_memory(v1: Path) -> None:
    (v1 / "memory" / "memory.stat").write_text("rss 1\nshmem 2\ntotal_rss 4096\ntotal_shmem 8192\ntotal_cache 99\n")
    assert own(v1).memory_stat().anon_bytes == 4096 + 8192


def test_max_and_the_largest_number_are_unlimited(v1: Path, v2: Path) -> None:
    for name in ("memory.max", "memory.swap.max", "pids.max"):
        (v2 / name).write_text("max\n")
    for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
        (v1 / "memory" / name).write_text("9223372036854771712\n")
    (v1 / "pids" / "pids.max").write_text("max\n")
    assert limits(own(v1)) == limits(own(v2)) == (UNLIMITED,) * 4


def test_v1_swap_limit_excludes_memory(v1: Path) -> None:
    # As `docker run --memory=64m` alone sets it.
    (v1 / "memory" / "memory.memsw.limit_in_bytes").write_text(f"{128 << 20}\n")
    assert own(v1).swap_limit_bytes() == 64 << 20


def test_quota_is_in_cpus(v1: Path, v2: Path) -> None:
    (v1 / "cpu" / "cpu.cfs_quota_us").write_text("150000\n")
    (v2 / "cpu.max").write_text("50000 100000\n")
    assert own(v1).cpu_quota() == 1.5
    assert own(v2).cpu_quota() == 0.5


def test_hidden_controller_has_an_unknown_quota(v1: Path, v2: Path) -> None:
    for path in (v1 / "cpu" / "cpu.cfs_quota_us", v1 / "cpu" / "cpu.cfs_period_us", v2 / "cpu.max"):
        path.unlink()
    # v1: no such hierarchy in the container; v2: not delegated, or the root cgroup.
    assert own(v1).cpu_quota() is None and own(v2).cpu_quota() is None
    # A kernel without bandwidth control shows the controller, and no file for quotas.
    (v1 / "cpu" / "cpu.shares").write_text("1024\n")
    (v2 / "cpu.weight").write_text("100\n")
    assert own(v1).cpu_quota() == own(v2).cpu_quota() == UNLIMITED


@pytest.mark.parametrize("text", ["", "max\n", "1 2 3\n"])
def test_malformed_quota_is_unknown(v1: Path, v2: Path, text: str) -> None:
    (v1 / "cpu" / "cpu.cfs_period_us").unlink()
    (v1 / "cpu" / "cpu.shares").write_text("1024\n")
    (v2 / "cpu.max").write_text(text)
    (v2 / "cpu.weight").write_text("100\n")
    assert own(v1).cpu_quota() is own(v2).cpu_quota() is None


@pytest.mark.parametrize(
    ("text", "found"),
    [("0\n", {0}), ("0-2,5\n", {0, 1, 2, 5}), ("0-1,8-9,12", {0, 1, 8, 9, 12}), ("\n", set())],
)
def test_kernel_cpu_lists_are_read_and_written(text: str, found: set[int]) -> None:
    assert parse_list(text) == found
    assert format_list(found) == text.strip()
    assert format_list([*found, *found]) == text.strip()


def test_cpus_and_numa_nodes_are_those_in_force(v1: Path, v2: Path) -> None:
    (v1 / "cpuset").mkdir()
    (v1 / "cpuset" / "cpuset.effective_cpus").write_text("1,4-5\n")
    (v1 / "cpuset" / "cpuset.effective_mems").write_text("1\n")
    (v2 / "cpuset.cpus.effective").write_text("1,4-5\n")
    (v2 / "cpuset.mems.effective").write_text("1\n")
    for root in (v1, v2):
        assert (own(root).cpus(), own(root).numa_nodes()) == ({1, 4, 5}, {1})
    (v2 / "cpuset.cpus.effective").write_text("\n")
    (v2 / "cpuset.mems.effective").unlink()
    assert (own(v2).cpus(), own(v2).numa_nodes()) == (None, None)


def test_parents_of_a_cgroup_reach_to_the_visible_root(tmp_path: Path) -> None:
    seen = unfold(tmp_path, "systemd/limited/busy.host")
    top, group = seen.cgroups, cgroup.of_process(seen.membership, seen.cgroups)
    for folder in (top, top / "system.slice"):
        (folder / "cgroup.procs").touch()
    assert [up.memory for up in group.memory_parents()] == [top / "system.slice", top]
    assert [(up.cpu, up.cpuset) for up in group.cpu_parents()] == [(top / "system.slice",) * 2, (top, top)]


def tree(root: Path, **paths: str) -> Cgroup:
    """A cgroup on v1 whose controllers have these paths, its parents with all files that a cgroup has."""
    for controller, path in paths.items():
        (root / controller / path).mkdir(parents=True, exist_ok=True)
        for up in Path(path).parents:
            (root / controller / up / "cgroup.procs").touch()
    membership = "".join(f"1:{controller}:/{path}\n" for controller, path in paths.items())
    return cgroup.of_process(membership, root)


def test_v1_controllers_have_their_own_parents(tmp_path: Path) -> None:
    group = tree(tmp_path, memory="docker/x", cpu="a/b/docker/x", cpuset="a/docker/x")
    assert [up.memory for up in group.memory_parents()] == [tmp_path / "memory" / "docker", tmp_path / "memory"]
    cpu, cpuset = tmp_path / "cpu", tmp_path / "cpuset"
    assert [(up.cpu, up.cpuset) for up in group.cpu_parents()] == [
        (cpu / "a" / "b" / "docker", None),
        (cpu / "a" / "b", None),
        (cpu / "a", cpuset / "a"),
        (cpu, cpuset),
    ], "a cpuset counts for the parent of its own path alone"
    group = tree(tmp_path / "deep", memory="a/b/docker/x", cpu="docker/x")
    assert len(group.memory_parents()) == 4 and len(group.cpu_parents()) == 2
    assert Cgroup(1, *(tmp_path / "cpu" / "a",) * 3).cpu_parents()[0].cpuset is None


def test_smallest_limit_of_all_ancestors_is_in_force(tmp_path: Path) -> None:
    """Slurm limits a step, and the task below it says unlimited."""
    step = "slurm/uid_1/job_2/step_0"
    group = tree(tmp_path, memory=f"{step}/task_0", cpu="")
    memory = tmp_path / "memory"

    def limit(path: str, bytes_: int | None, with_swap: int | None) -> None:
        for name, value in (("memory.limit_in_bytes", bytes_), ("memory.memsw.limit_in_bytes", with_swap)):
            (memory / path / name).write_text(f"{V1_NO_LIMIT if value is None else value}\n")

    for path in (step, "slurm/uid_1/job_2", "slurm/uid_1", "slurm", f"{step}/task_0"):
        limit(path, None, None)
    assert group.least_memory() == Limit(memory / step / "task_0", UNLIMITED)
    assert group.least_swap_bytes() == UNLIMITED
    limit("slurm/uid_1/job_2", 1000 * MIB, 1000 * MIB)
    limit(step, 300 * MIB, None)
    assert group.least_memory() == Limit(memory / step, 300 * MIB)
    assert group.least_swap_bytes() == 700 * MIB, "the job's own limit of both leaves as much to swap"
    limit(step, 300 * MIB, 300 * MIB)
    assert group.least_swap_bytes() == 0
    assert group.least_cpu_quota() is None, "unknown is not unlimited"
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert group.least_cpu_quota() == UNLIMITED


def test_smallest_limits_of_version_2(tmp_path: Path) -> None:
    scope = tmp_path / "system.slice" / "slurmstepd.scope"
    job, step = scope / "job_7", scope / "job_7" / "step_0"
    task = step / "user" / "task_0"
    task.mkdir(parents=True)
    for folder in (task, *task.parents):
        if folder == tmp_path.parent:
            break
        (folder / "cgroup.procs").touch()
        for name in ("memory.max", "memory.swap.max"):
            (folder / name).write_text("max\n")
        (folder / "cpu.max").write_text("max 100000\n")
    (tmp_path / "cpu.max").unlink()  # the root has none
    (job / "memory.max").write_text(f"{500 * MIB}\n")
    (step / "memory.max").write_text(f"{300 * MIB}\n")
    (step / "memory.swap.max").write_text("0\n")
    group = cgroup.of_process("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n", tmp_path)
    assert group.least_memory() == Limit(step, 300 * MIB)
    assert group.least_swap_bytes() == 0 and group.least_cpu_quota() == UNLIMITED
    (job / "cpu.max").write_text("150000 100000\n")
    assert group.least_cpu_quota() == 1.5


def test_memory_is_read_in_one_piece(v1: Path, v2: Path) -> None:
    assert own(v1).memory_stat() == MemoryStat(29_511_680, 12_288, 0, 3)
    text = (v2 / "memory.stat").read_text()
    anon, shared = (int(re.search(rf"^{name} (\d+)$", text, re.MULTILINE)[1]) for name in ("anon", "shmem"))
    assert shared == 4 * MIB
    assert own(v2).memory_stat() == MemoryStat(anon + shared, 16 * MIB, None, 1), "mapped file pages stand apart"


def test_swap_in_use_is_read_or_unknown(v1: Path, v2: Path) -> None:
    assert own(v1).swap_bytes() == 0
    assert own(v2).swap_bytes() == 0
    (v2 / "memory.swap.current").unlink()
    assert own(v2).swap_bytes() is None, "a kernel without swap accounting says not known"


def test_counters_of_both_versions_are_read(v1: Path, v2: Path) -> None:
    (v1 / "cpuacct").mkdir()
    (v1 / "cpuacct" / "cpuacct.usage").write_text("6191704000\n")
    (v1 / "cpu" / "cpu.stat").write_text("nr_periods 90\nnr_throttled 7\nthrottled_time 123456789\n")
    assert (own(v1).cpu_ns(), own(v1).throttled_ns()) == (6_191_704_000, 123_456_789), "nanoseconds"
    assert own(v1).throttled_periods() == 7
    (v1 / "memory" / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    (v1 / "memory" / "tasks").write_text("17\n18\n")
    assert (own(v1).oom_kills(), own(v1).threads()) == (3, [17, 18])
    (v2 / "cpu.stat").write_text("usage_usec 2157410\nnr_throttled 7\nthrottled_usec 40\n")
    assert (own(v2).cpu_ns(), own(v2).throttled_ns()) == (2_157_410_000, 40_000)


@pytest.mark.parametrize(
    "text", ["", "anon", "anon \n", "anon x\n", "inactive_anon 7\n", "file 1\nactive_anon 9\n", "xanon 7\n"]
)
def test_similar_name_is_not_read(v2: Path, text: str) -> None:
    (v2 / "memory.stat").write_text(text)
    assert own(v2).memory_stat() is None


def test_open_files_return_new_content(v1: Path, v2: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for root in (v1, v2):
        kept = OpenFiles()
        group = replace(own(root), read=kept)
        assert group.memory_stat().anon_bytes == own(root).memory_stat().anon_bytes
        path = group.memory / "memory.stat"
        path.write_text(re.sub(r"(?m)^(anon|total_rss) \d+$", r"\1 1", path.read_text()))
        assert group.memory_stat().anon_bytes == (1 if root == v1 else 1 + 4 * MIB)
        # The recording on v1 has no list of threads: what was not there is not looked for again.
        assert group.threads() == group.threads() == (None if root == v1 else own(v2).threads())
        kept.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("version", [1, 2])
def test_missing_file_is_none_and_not_0(tmp_path: Path, version: int) -> None:
    gone = Cgroup(version, tmp_path, tmp_path, tmp_path)
    assert gone.memory_parents() == gone.cpu_parents() == []
    limits = (gone.memory_limit_bytes, gone.swap_limit_bytes, gone.cpu_quota, gone.pids_limit, gone.cpus)
    memory = (gone.numa_nodes, gone.memory_stat, gone.peak_bytes, gone.oom_kills, gone.swap_bytes)
    times = (gone.throttled_periods, gone.throttled_ns, gone.cpu_ns, gone.threads)
    assert all(reading() is None for reading in (*limits, *memory, *times))


def test_controllers_mounted_together_are_found(tmp_path: Path) -> None:
    shutil.copytree(FOLDER / "cgroup-v1" / "memory", tmp_path / "memory" / "docker" / ID)
    shutil.copytree(FOLDER / "cgroup-v1" / "cpu", tmp_path / "cpu,cpuacct" / "docker" / ID)
    (tmp_path / "cpu").symlink_to("cpu,cpuacct")
    membership = f"5:cpu,cpuacct:/docker/{ID}\n3:memory:/docker/{ID}\n1:name=systemd:/docker/{ID}\n"
    group = cgroup.of_process(membership, tmp_path)
    assert group is not None and group.throttled_periods() == 0


def test_on_a_hybrid_host_the_memory_controller_decides(tmp_path: Path) -> None:
    shutil.copytree(FOLDER / "cgroup-v1" / "memory", tmp_path / "memory" / "docker" / ID)
    (tmp_path / "unified" / "docker" / ID).mkdir(parents=True)
    (tmp_path / "unified" / "cgroup.controllers").write_text("\n")
    group = cgroup.of_process(V1_PROCESS + f"0::/docker/{ID}\n", tmp_path)
    assert group is not None and group.version == 1
    # A hybrid host's own root has v2 in a folder of its own, which holds no memory controller.
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert cgroup.host_version(tmp_path) == 1


@pytest.mark.parametrize("membership", ["", "\n", "nonsense", "0::/gone\n", V1_PROCESS, "1:name=systemd:/x\n"])
def test_process_with_a_missing_cgroup_has_none(tmp_path: Path, membership: str) -> None:
    assert cgroup.of_process(membership, tmp_path) is None


def test_host_without_cgroups_has_no_version(tmp_path: Path, v1: Path, v2: Path) -> None:
    assert cgroup.host_version(tmp_path) is None
    assert cgroup.host_version(v1) == 1
    assert cgroup.host_version(v2) == 2

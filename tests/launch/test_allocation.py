"""What limits a job of an ordinary user: found, asked for, and refused with what to ask for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness import child_process
from harness.driver import cgroup
from harness.driver.cgroup import Cgroup
from harness.driver.records import Envelope
from harness.errors import EngineError
from harness.launch import allocation
from harness.launch.allocation import MIB, OWN_BYTES, SlurmStep, UserScope
from harness.launch.docker import DockerLauncher
from harness.results.schema import Placement
from tests.driver.test_cgroup import V1_NO_LIMIT, tree

ASKED = Envelope("cpu1-mem512m", 1, 512 * MIB, pids=100)
HERE = Placement((3,), (0,), True, (0, 1), apart=True)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("srun", "systemd-run"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


def delegated(root: Path, controllers: str) -> Path:
    manager = root / "user.slice" / f"user-{os.getuid()}.slice" / f"user@{os.getuid()}.service"
    manager.mkdir(parents=True)
    (root / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (manager / "cgroup.controllers").write_text(controllers + "\n")
    return root


def test_step_of_an_allocation_limits_a_job(programs: None, tmp_path: Path) -> None:
    step = allocation.holder({"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "node3"})
    assert isinstance(step, SlurmStep) and step.node == "node3" and not step.inside
    assert step.command(ASKED, None) == [
        *("srun", "--exact", "--nodes=1", "--ntasks=1", "--nodelist=node3", "--hint=nomultithread"),
        *("--cpus-per-task=1", "--mem=512M", "--quit-on-interrupt"),
    ]
    inside = allocation.holder({"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n", "SLURM_STEP_ID": "0"})
    assert "--overlap" in inside.command(ASKED, None), "it shares what its own step holds"
    with_gpu = step.command(Envelope("gpu", 2, 1 << 30, gpus=1), None)
    assert "--gres=gpu:1" in with_gpu and "--cpus-per-task=2" in with_gpu and "--mem=1024M" in with_gpu


@pytest.mark.parametrize(
    ("environ", "controllers", "message"),
    [
        ({"SLURM_JOB_ID": "7"}, None, "this process has the Slurm allocation 7 and does not run on its node"),
        ({"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n3"}, None, "memory controller is not found on node n3"),
        ({}, None, "no Slurm allocation here: nothing else limits a job's memory, because this host has cgroup v1"),
        ({}, "cpu memory pids", r"systemd does not delegate cpuset to user \d+: ask the administrator for"),
        ({}, "pids", r"systemd does not delegate cpu, cpuset, memory to user \d+: .*Delegate=cpu cpuset memory pids"),
    ],
)
def test_nothing_that_limits_is_one_line_with_what_to_ask_for(
    programs: None, tmp_path: Path, environ: dict[str, str], controllers: str | None, message: str
) -> None:
    root = tmp_path / "cgroup"
    root.mkdir()
    if controllers is not None:
        delegated(root, controllers)
    with pytest.raises(EngineError, match=message) as raised:
        allocation.holder(environ, root)
    assert "\n" not in str(raised.value)


def test_scope_limits_what_is_delegated(programs: None, tmp_path: Path) -> None:
    scope = allocation.holder({}, delegated(tmp_path / "cgroup", "cpuset cpu memory pids"))
    assert scope == UserScope()
    words = scope.command(ASKED, HERE)
    assert words[:5] == ["systemd-run", "--user", "--scope", "--quiet", "--collect"] and words[-1] == "--"
    assert {"MemoryMax=536870912", "MemorySwapMax=0", "TasksMax=100", "CPUWeight=100", "AllowedCPUs=3"} <= set(words)
    assert not any(word.startswith("OOMPolicy") for word in words), "an unknown version may refuse it"
    (tmp_path / "systemd-run").write_text("#!/bin/sh\necho 'systemd 255 (255.4-1)'\n")
    assert "OOMPolicy=continue" in scope.command(ASKED, HERE)


def test_user_without_a_systemd_is_told_to_log_in(programs: None, tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("memory\n")
    assert "has no systemd of its own" in (allocation.lacks_scope(tmp_path, 1234) or "")


def slurm(root: Path, limit_bytes: int) -> Cgroup:
    group = tree(root, memory="slurm/uid_1/job_7/step_batch/task_0")
    (root / "memory" / "slurm" / "uid_1" / "job_7" / "memory.limit_in_bytes").write_text(f"{limit_bytes}\n")
    return group


def test_allocation_that_is_too_small_says_what_to_ask_for(tmp_path: Path) -> None:
    step = SlurmStep("node3", slurm(tmp_path, 600 * MIB))
    assert step.room_bytes() == 600 * MIB - OWN_BYTES
    assert step.cannot(ASKED) == (
        "profile cpu1-mem512m needs 512 MiB and harness 512 MiB, but the allocation has 600 MiB"
        f" ({tmp_path}/memory/slurm/uid_1/job_7); ask Slurm for --mem 1024M or more"
    )
    assert SlurmStep("node3", slurm(tmp_path / "more", 1024 * MIB)).cannot(ASKED) is None
    unlimited = SlurmStep("node3", slurm(tmp_path / "unlimited", V1_NO_LIMIT))
    assert unlimited.cannot(ASKED) is None, "it has the node's memory"
    odd = Envelope("odd", 1, 512 * MIB + 1)
    assert "Slurm limits whole MiB only" in (step.cannot(odd) or "")
    assert "ask Slurm for more" in (step.cannot(Envelope("wide", 10_000, MIB)) or "")


def test_step_inherits_nothing_that_another_step_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "EXPORT_ENV",
        "LABELIO",
        "CPU_BIND",
        "CPU_BIND_LIST",
        "MEM_PER_CPU",
        "MEM_PER_NODE",
        "NTASKS",
        "CPUS_PER_TASK",
        "STEP_ID",
    ):
        monkeypatch.setenv(f"SLURM_{name}", "x")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SECRET_TOKEN", "x")
    seen = child_process.environment(*SlurmStep.variables)
    assert {name for name in seen if name.startswith(("SLURM", "SECRET"))} == {"SLURM_JOB_ID"}


@pytest.mark.parametrize(
    ("said", "never"),
    [
        ("srun: error: Unable to create step for job 2: Memory required by task is not available", True),
        ("srun: error: Unable to create step for job 2: More processors requested than permitted", True),
        ("srun: job 2 step creation temporarily disabled, retrying (Requested nodes are busy)", False),
        ("srun: error: Unable to contact slurm controller (connect failure)", False),
    ],
)
def test_job_that_the_allocation_can_never_hold_is_told_from_a_busy_one(said: str, never: bool) -> None:
    assert bool(SlurmStep.too_large.search(said)) is never


@pytest.mark.parametrize(
    ("said", "oom"),
    [
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.",
            True,
        ),
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.0.batch.", True),
        ("srun: error: node3: task 0: Out Of Memory", True),
        ("slurmstepd: error: *** STEP 7.0 ON node3 CANCELLED AT 2026-11-29T17:00:00 DUE TO TIME LIMIT ***", False),
        ("", False),
    ],
)
def test_report_of_slurm_is_a_source(said: str, oom: bool) -> None:
    assert bool(SlurmStep.out_of_memory.search(said)) is oom


def test_counters_that_the_harness_shares_are_not_the_jobs(tmp_path: Path) -> None:
    job = tree(tmp_path, memory="slurm/job_7/step_0/task_0", cpu="", cpuacct="", cpuset="slurm/job_7/step_0")
    ours = tree(tmp_path, memory="slurm/job_7/step_batch/task_0", cpu="", cpuacct="", cpuset="slurm/job_7/step_batch")
    (tmp_path / "cpuacct" / "cpuacct.usage").write_text("12345\n")
    assert job.cpu_ns() == 12345, "of the whole host"
    own = allocation.apart(job, ours)
    assert own.cpu_ns() is None and own.memory == job.memory and own.cpuset == job.cpuset
    # Nor are those of a cgroup above ours.
    assert allocation.apart(cgroup.of_process("1:memory:/slurm/job_7\n", tmp_path) or job, ours).memory_stat() is None


def test_engine_is_refused_in_an_allocation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with pytest.raises(EngineError, match=r"Slurm job 7, and an engine starts containers outside of it: .*apptainer"):
        DockerLauncher(tmp_path).check()

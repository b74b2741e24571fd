"""Real containers: limits are enforced and verified inside; failures have their outcome."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.models.containers import Container

from harness.driver.records import Outcome
from harness.filesystem import this_process
from harness.launch import container as module
from harness.launch import podman
from harness.launch.base import LaunchRequest
from harness.launch.container import LABEL
from harness.launch.docker import DockerLauncher
from harness.results.isolation import CONTAINER
from harness.results.reader import read_jobs
from harness.results.schema import Result
from tests.conftest import Bench, make_bench
from tests.integration import support
from tests.integration.proxy import wait_until
from tests.support.chance import drawn

pytestmark = pytest.mark.docker

# What a container does wrong, how that ends, and words that say so.  What an adapter does wrong to its driver is the
# subject of tests/launch/test_process.py; what attacks, of tests/integration/test_hostile.py.
WRONG = {
    "oom": (Outcome.OOM, "the kernel killed the job at the memory limit of 256 MiB"),
    "oom_child": (Outcome.OOM, "the kernel killed one of its processes at the memory limit of 256 MiB"),
    "exit": (Outcome.CRASH, "exit code 0: it left no measurement"),
    "write_index": (Outcome.CRASH, "Read-only file system"),
    "big_file": (Outcome.CRASH, "File too large"),
}


@pytest.fixture
def launcher(bench: Bench, engine: docker.DockerClient) -> DockerLauncher:
    made = DockerLauncher(bench.cache)
    yield made
    made.close()


def test_a_job_that_the_engine_refuses_ends_no_other(
    bench: Bench, launcher: DockerLauncher, engine: docker.DockerClient
) -> None:
    tiny = '\n[hardware.tiny]\ncpus = 1\nmemory = "5MiB"\n'
    suite = bench.suite(tiny, systems=["planted"], profiles=["tiny", "cpu1-mem256m"])
    summary = bench.run(launcher, suite)
    outcomes = {result.spec.cell.profile: (result.outcome, str(result.detail)) for result, _ in summary.jobs}
    assert outcomes["cpu1-mem256m"][0] is Outcome.OK
    outcome, detail = outcomes["tiny"]
    if podman.is_engine(engine):  # it has no least limit
        assert outcome is Outcome.OOM
        return
    assert outcome is Outcome.NOT_APPLICABLE
    assert detail == "the engine refuses this job: Minimum memory limit allowed is 6MB"


def ours(engine: docker.DockerClient) -> list[Container]:
    """Containers of jobs that this test process launched."""
    # One that goes while the list is made is none of them.
    filters = {"label": f"{LABEL}={this_process()}", "name": "harness-"}
    return engine.containers.list(all=True, filters=filters, ignore_removed=True)


def test_limits_are_set_verified_inside_and_stored(
    bench: Bench, launcher: DockerLauncher, engine: docker.DockerClient
) -> None:
    bench.plant("slow", service_s=0.1)
    seen: list[dict[str, object]] = []

    def look() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not seen:
            running = [
                container.attrs
                for container in ours(engine)
                if "search" in container.name and container.status == "running"
            ]
            seen.extend(running)
            time.sleep(0.1)

    looking = threading.Thread(target=look)
    looking.start()
    bench.run(launcher, bench.suite(systems=["slow"]))
    looking.join()

    host = seen[0]["HostConfig"]
    assert host["CpusetCpus"].isdigit() and host["NanoCpus"] == 0 and host["CpuQuota"] == 0
    assert host["Memory"] == host["MemorySwap"] == 256 << 20
    assert host["NetworkMode"] == "none" and host["ReadonlyRootfs"]
    # Podman names each dropped capability.
    assert host["CapDrop"] == ["ALL"] or (podman.is_engine(engine) and len(host["CapDrop"]) > 10)
    assert (
        host["SecurityOpt"][0].startswith("no-new-privileges") and host["PidsLimit"] == 512 and not host["Privileged"]
    )
    assert seen[0]["Config"]["User"] == "65532:65532"
    writable = {mount["Destination"] for mount in seen[0]["Mounts"] if mount["RW"]}
    assert writable == {"/job/out"}
    assert not any("docker.sock" in mount["Source"] for mount in seen[0]["Mounts"])

    (job,) = read_jobs(bench.results)
    result = job.result
    effective = result.measured.effective
    assert result.outcome is Outcome.OK and result.isolation is CONTAINER
    assert effective.cpus == result.observed.placement.cpus and host["CpusetCpus"] == str(effective.cpus[0])
    # Not where the host shows no nodes, and then no container is held to any.
    assert not host["CpusetMems"] or effective.numa_nodes == result.observed.placement.numa_nodes
    assert len(effective.cpus) == 1 and effective.memory_bytes == 256 << 20 and effective.swap_bytes == 0
    assert effective.pids == 512 and effective.uid == 65532 and effective.effective_capabilities == 0
    assert (
        effective.root_read_only and effective.no_new_privileges and effective.network_interfaces == ("lo",)
    ) or not any(name.startswith("eth") for name in effective.network_interfaces)
    memory = result.observed.memory
    assert 2 << 20 < memory.peak_anon_bytes < 256 << 20 and memory.peak_anon_bytes <= memory.peak_cgroup_bytes
    assert result.observed.throttled_periods == 0 and result.observed.oom_kills == 0
    assert ours(engine) == []


@pytest.mark.parametrize(
    ("kind", "seen_by_host", "message"),
    [
        ("build", True, "seen from outside: held to CPUs {other}, asked for CPUs {asked}"),
        ("search", False, "CPUs {other} in the affinity mask, asked for CPUs {asked}"),
    ],
)
def test_job_on_wrong_cpus_is_refused(
    bench: Bench, launcher: DockerLauncher, monkeypatch: pytest.MonkeyPatch, kind: str, seen_by_host: bool, message: str
) -> None:
    """Assign other CPUs, equal in number."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU has no other")
    cpus: dict[str, str] = {}
    create = module.create_arguments

    def move(*given: Any, **more: Any) -> dict[str, Any]:
        arguments = create(*given, **more)
        if f"-{kind}-" in arguments["name"]:
            asked = arguments["cpuset_cpus"]
            other = str(min(cpu for cpu in os.sched_getaffinity(1) if cpu != int(asked)))
            cpus.update(asked=asked, other=other)
            return {**arguments, "cpuset_cpus": other}
        return arguments

    monkeypatch.setattr(module, "create_arguments", move)
    if not seen_by_host:  # as with a remote engine
        monkeypatch.setattr(module, "group_of", lambda *_: None)
    (result, _), *_ = bench.run(launcher, bench.suite()).jobs
    assert result.outcome is Outcome.ENVELOPE_MISMATCH, result.detail
    assert result.detail == ("index build: " if kind == "build" else "") + message.format(**cpus)
    assert result.measured is None or result.measured.load_s is None
    assert result.answers.trials_finished == 0 and result.answers.warmup_done == 0
    if kind == "search" and not seen_by_host:
        assert result.measured.effective is not None and result.measured.effective.cpus == (int(cpus["other"]),)


# Limits that an engine may ignore, as Podman does where a user lacks a controller, and the words about them.
_IGNORED = {
    "mem_limit": "memory limit",
    "pids_limit": "pids limit",
    "cpuset_cpus": "CPUs in the affinity mask",
    "security_opt": "no-new-privileges is off",
    "read_only": "the root file system is writable",
    "network_mode": "network interfaces",
}


def test_a_limit_that_the_engine_ignores_ends_the_job(
    bench: Bench, launcher: DockerLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, ignored = module.create_arguments, dict(enumerate(_IGNORED))
    systems = [f"ignored{number}" for number in ignored]
    for system in systems:
        bench.plant(system)

    def ignore(job: LaunchRequest, *given: Any, **more: Any) -> dict[str, Any]:
        arguments = create(job, *given, **more)
        if job.spec.kind == "search":
            del arguments[ignored[int(job.spec.system.removeprefix("ignored"))]]
            arguments = {
                key: value for key, value in arguments.items() if key != "memswap_limit" or "mem_limit" in arguments
            }
        return arguments

    monkeypatch.setattr(module, "create_arguments", ignore)
    if len(os.sched_getaffinity(0)) < 2:
        systems.remove(f"ignored{list(_IGNORED).index('cpuset_cpus')}")
    monkeypatch.setattr(module, "group_of", lambda *_: None)  # the look from inside must find it alone
    ended = {result.spec.cell.system: result for result, _ in bench.run(launcher, bench.suite(systems=systems)).jobs}
    for number, name in ignored.items():
        if f"ignored{number}" in systems:
            result = ended[f"ignored{number}"]
            assert result.outcome is Outcome.ENVELOPE_MISMATCH, (name, result.detail)
            assert _IGNORED[name] in str(result.detail), name


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory, engine: docker.DockerClient) -> dict[str, Result]:
    """Return the results of one run over all failures; none of its containers is left."""
    bench = make_bench(tmp_path_factory.mktemp("wrong"))
    for misdeed in WRONG:
        bench.plant(misdeed, misdeed=misdeed, at=3)
    made = DockerLauncher(bench.cache)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_IMAGES", str(bench.folder / "engines"))
        jobs = bench.run(made, bench.suite(systems=list(WRONG))).jobs
    made.close()
    assert ours(engine) == []
    return {result.spec.cell.system: result for result, _ in jobs}


@pytest.mark.parametrize("misdeed", WRONG)
def test_misdeed_in_a_container_has_its_outcome(wrong: dict[str, Result], misdeed: str) -> None:
    outcome, detail = WRONG[misdeed]
    result = wrong[misdeed]
    assert (result.outcome, detail in (result.detail or "")) == (outcome, True), result.detail


def plant_image(bench: Bench, name: str, last_line: str) -> None:
    """Add an engine whose Dockerfile ends with one more line, and a system of it."""
    folder = bench.folder / "engines" / name
    (folder / "systems").mkdir(parents=True)
    for file in ("engine.toml", "requirements.lock", "adapter.py", "Dockerfile"):
        shutil.copy(bench.folder / "engines" / "planted" / file, folder / file)
    with (folder / "Dockerfile").open("a") as dockerfile:
        dockerfile.write(last_line + "\n")
    (folder / "systems" / f"{name}.toml").write_text('description = "planted"\n')


# The SDK does not close the socket of a build that failed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_bad_image_is_reported_with_its_reason_and_others_run(bench: Bench, launcher: DockerLauncher) -> None:
    last_lines = {
        "fails": ("USER 0\nRUN echo the reason is here && exit 3", "the reason is here"),
        "stays": ('ENTRYPOINT ["nope"]', "the image does not start"),
        "writes": ("VOLUME /scratch", "its image declares VOLUME /scratch; remove it"),
    }
    for name, (last_line, _) in last_lines.items():
        plant_image(bench, name, last_line)
    summary = bench.run(launcher, bench.suite(systems=[*last_lines, "planted"]))
    results = {result.spec.cell.system: result for result, _ in summary.jobs}
    assert results["planted"].outcome is Outcome.OK
    for name, (_, detail) in last_lines.items():
        assert results[name].outcome is Outcome.CRASH
        assert detail in (results[name].detail or "")


def test_health_check_of_an_image_does_not_run(bench: Bench, launcher: DockerLauncher) -> None:
    plant_image(bench, "checked", "HEALTHCHECK --interval=200ms CMD touch /job/out/checked && sleep 1")
    text = "[search_params]\nservice_s = 0.15\n"
    (bench.folder / "engines" / "checked" / "systems" / "checked.toml").write_text('description = "x"\n' + text)
    (result, _), *_ = bench.run(launcher, bench.suite(systems=["checked"])).jobs
    assert result.outcome is Outcome.OK
    assert result.wall_s > 1
    (job,) = read_jobs(bench.results)
    # A second process would have been charged to the job.
    assert result.observed.memory.peak_anon_bytes is not None and result.observed.memory.peak_anon_bytes < 64 << 20
    assert job.result.provenance.image_bytes is not None and job.result.provenance.image_bytes > 50 << 20


@pytest.fixture
def leave(host: str, bench: Bench, launcher: DockerLauncher, engine: docker.DockerClient) -> Callable[..., str]:
    """Leave a container that belongs to another process of this host, by its pid and start; gives its id."""
    bench.run(launcher)  # the image is there now
    (image,) = {job.result.provenance.image_digest for job in read_jobs(bench.results)}
    own = this_process().rsplit("_", 2)[0]

    def create(pid: int, started: object) -> str:
        return str(engine.containers.create(image, labels={LABEL: f"{own}_{pid}_{started}"}).id)

    return create


def test_runs_that_start_together_all_remove_the_containers_of_a_dead_one(
    bench: Bench, engine: docker.DockerClient, leave: Callable[..., str]
) -> None:
    """The engine refuses to remove a container that another run is just removing."""
    dead = {leave(4194303, 77) for _ in range(4)}
    together = threading.Barrier(8)

    def sweep() -> None:
        together.wait()
        DockerLauncher(bench.cache).sweep()

    with ThreadPoolExecutor(8) as runs:
        ends = [runs.submit(sweep) for _ in range(8)]
    for end in ends:
        end.result()
    left = {container.id for container in engine.containers.list(all=True, ignore_removed=True)}
    assert not left & dead


def test_containers_of_a_dead_run_are_removed_and_those_of_a_running_one_stay(
    launcher: DockerLauncher, engine: docker.DockerClient, leave: Callable[..., str]
) -> None:
    init = Path("/proc/1/stat").read_text().rpartition(")")[2].split()[19]
    living, dead, reused = leave(1, init), leave(4194303, 77), leave(1, int(init) + 77)
    try:
        assert launcher.sweep() == 2
        left = {container.id for container in engine.containers.list(all=True, ignore_removed=True)}
        assert living in left and not {dead, reused} & left
    finally:
        engine.containers.get(living).remove(force=True)


def test_gpu_profile_is_not_applicable_without_a_gpu(bench: Bench, launcher: DockerLauncher) -> None:
    from harness.launch.monitor import gpu

    if gpu.probe().models:
        pytest.skip("this host has a GPU")
    (result, _), *_ = bench.run(launcher, bench.suite(profiles=["gpu1-cpu1-mem4"])).jobs
    assert result.outcome is Outcome.NOT_APPLICABLE
    assert (result.detail or "").startswith("no GPU on this host")
    assert result.observed.memory.peak_gpu_bytes is None


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("times", drawn("Ctrl-C", [1, 3], 1))
def test_ctrl_c_ends_the_container_at_once_and_the_next_run_continues(
    bench: Bench, engine: docker.DockerClient, times: int
) -> None:
    """Leftovers of a kill are tested in tests/integration/test_kill.py."""
    bench.plant("steady", service_s=0.2)
    command = support.command(bench, bench.suite(systems=["steady"]))
    child = support.start(bench, command)
    mine = {"label": LABEL, "status": "running", "name": "harness-steady-search"}
    wait_until(lambda: engine.containers.list(filters=mine, ignore_removed=True) or child.poll() is not None, "it runs")
    for _ in range(times):
        child.send_signal(signal.SIGINT)
        time.sleep(0.05)
    stopped = support.finish(bench, child)
    assert stopped.code == 130 and "Traceback" not in stopped.said, stopped.said
    assert "stopped; what was finished is kept" in stopped.said, stopped.said
    assert engine.containers.list(all=True, filters={"name": "harness-steady"}, ignore_removed=True) == []
    done = support.run_here(bench, command)
    assert done.code == 0 and "removed" not in done.said, done.said
    assert engine.containers.list(all=True, filters={"name": "harness-steady"}, ignore_removed=True) == []
    assert [job.result.outcome for job in read_jobs(bench.results)] == [Outcome.OK]
    assert not (bench.results / "test-suite" / ".staging").exists()

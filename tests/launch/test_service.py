"""Real services: a server and its client in containers of their own, right or wrong."""

from __future__ import annotations

import os
import shutil
import threading
import time
from types import SimpleNamespace

import docker
import pytest

from harness.analysis.evaluate_job import JobEvaluator
from harness.analysis.rows import build_rows
from harness.driver.records import Outcome
from harness.launch import service
from harness.launch.docker import DockerLauncher
from harness.launch.images import catalog
from harness.launch.monitor.traces import CounterReading
from harness.results.reader import read_jobs
from harness.results.schema import Result
from tests.conftest import Bench, protocol, write_dataset
from tests.launch.test_docker import ours

pytestmark = pytest.mark.docker

# What a server or its client does wrong in a search, how that ends, and words that say so.
WRONG = {
    "exit": ({"misdeed": "exit", "at": 3}, Outcome.CRASH, "the server ended with exit code 3 before its client did"),
    "kill": ({"misdeed": "kill", "at": 3}, Outcome.CRASH, "the server ended with exit code 137"),
    "oom": ({"misdeed": "oom", "at": 3}, Outcome.OOM, "the kernel killed the job at the memory limit of 256 MiB"),
    "oom-child": (
        {"misdeed": "oom_child", "at": 3},
        Outcome.OOM,
        "the kernel killed one of its processes at the memory limit of 256 MiB",
    ),
    "hang": ({"misdeed": "hang", "at": 3, "timeout_s": 1}, Outcome.CRASH, "QueryFailed: no answer within 1 s"),
    "lie": ({"misdeed": "lie", "at": 3}, Outcome.BAD_OUTPUT, "the corpus lacks 1 document id"),
    "error": ({"answer": "status_500", "at": 3}, Outcome.CRASH, "QueryFailed: status 500"),
    "close": ({"answer": "close", "at": 3}, Outcome.CRASH, "QueryFailed: the connection failed"),
    "html": ({"answer": "not_json", "at": 3}, Outcome.CRASH, "QueryFailed: an answer that is not JSON: <html>"),
    "huge": ({"answer": "huge", "at": 3}, Outcome.CRASH, "QueryFailed: an answer of more than 32 MiB"),
    "exit-in-load": ({"misdeed": "exit_in_load"}, Outcome.CRASH, "its last line: the planted server leaves"),
    "oom-in-load": ({"misdeed": "oom_in_load"}, Outcome.OOM, "at the memory limit of 256 MiB"),
    "no-command": ({"misdeed": "no_command"}, Outcome.CRASH, "ValueError: the planted service has no command"),
    "greedy-client": ({"client": "oom"}, Outcome.CRASH, "the client needed more than its 2048 MiB"),
}
WRONG_BUILDS = {
    "exit-in-build": ("exit_in_build", Outcome.CRASH, "the server ended with exit code 3"),
    "oom-in-build": ("oom_in_build", Outcome.OOM, "at the memory limit of 1024 MiB"),
    "fails-at-term": ("fails_at_term", Outcome.CRASH, "exit code 5 when it was asked to"),
}


@pytest.fixture
def launcher(bench: Bench, engine: docker.DockerClient) -> DockerLauncher:
    made = DockerLauncher(bench.cache)
    yield made
    made.close()


def by_system(bench: Bench) -> dict[str, Result]:
    return {job.result.spec.cell.system: job.result for job in read_jobs(bench.results)}


def test_a_server_has_the_envelope_and_its_client_other_cpus(
    bench: Bench, launcher: DockerLauncher, engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HARNESS_CPU_LEASES", raising=False)  # tests beside this one may hold all CPUs
    bench.plant("slow", "planted-service", service_s=0.02, burn_s=0.6)
    seen: dict[str, dict[str, object]] = {}

    def look() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and len(seen) < 2:
            for container in ours(engine):
                if "-search-" in container.name and container.status == "running":
                    kind = "client" if container.attrs["HostConfig"]["NetworkMode"] == "none" else "server"
                    seen[kind] = container.attrs
            time.sleep(0.02)

    looking = threading.Thread(target=look)
    looking.start()
    bench.run(launcher, bench.suite(systems=["slow"]))
    looking.join()
    (job,) = read_jobs(bench.results)
    result = job.result
    assert result.outcome is Outcome.OK, result.detail

    server, client = seen["server"]["HostConfig"], seen["client"]["HostConfig"]
    assert server["NetworkMode"] == f"container:{seen['client']['Id']}"
    assert server["Memory"] == server["MemorySwap"] == 256 << 20 and client["Memory"] == 2 << 30
    for host in (server, client):
        assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"] and not host["PortBindings"]
    mounts = {kind: {mount["Destination"]: mount["RW"] for mount in each["Mounts"]} for kind, each in seen.items()}
    assert mounts["client"] == {"/job": False, "/job/out": True, "/corpus": False}
    assert mounts["server"] == {"/job": False, "/job/out": True, "/index": True}

    placement, effective = result.observed.placement, result.measured.effective
    assert effective.memory_bytes == 256 << 20 and effective.cpus == placement.cpus
    assert server["CpusetCpus"] == str(placement.cpus[0])
    assert client["CpusetCpus"] == ",".join(map(str, placement.client_cpus))
    if len(os.sched_getaffinity(0)) > 1:
        assert not set(placement.client_cpus) & set(placement.cpus)
    # A restart until the server answers, which is a part of all that passed before the first query.
    assert 0.03 < result.measured.load_s < result.observed.ready_s
    assert 2 << 20 < result.observed.memory.peak_anon_bytes < 256 << 20
    counters = result.observed.counters
    assert counters.cpu_s > 0 and 0 < counters.client_cpu_s < counters.wall_s
    built = result.index.observed.counters
    assert 0.3 < built.client_cpu_s < 0.7
    # The server wrote into its index folder; the index in the cache stays as it was built.
    (index,) = (bench.cache / "indexes").glob("*/data")
    assert [path.name for path in index.iterdir()] == ["words.json"]
    assert ours(engine) == []


def test_cpu_time_of_a_client_that_has_ended_stays() -> None:
    """Its cgroup is gone before the server's last reading, mostly."""
    server = SimpleNamespace(name="cgroup", read=lambda: CounterReading(0, cpu_ns=9))
    source = service._PairSource(server, SimpleNamespace(cpu_ns=iter([None, 5, None]).__next__))
    assert [source.read().client_cpu_ns for _ in range(3)] == [None, 5, 5]


@pytest.mark.parametrize("part", [0, 1, 2])  # side by side
def test_what_a_server_or_its_client_does_wrong_has_an_outcome(
    bench: Bench, launcher: DockerLauncher, engine: docker.DockerClient, part: int
) -> None:
    wrong = dict(list(WRONG.items())[part::3])
    for system, (params, _, _) in wrong.items():
        bench.plant(system, "planted-service", **params)
    bench.run(launcher, bench.suite(protocol(1), systems=["served", *wrong]))
    ended = by_system(bench)
    assert ended.pop("served").outcome is Outcome.OK
    found = {system: (result.outcome, str(result.detail)) for system, result in ended.items()}
    assert not {
        name: found[name] for name, (_, outcome, text) in wrong.items() if not _fits(found[name], outcome, text)
    }
    assert ours(engine) == []


def test_a_server_that_is_never_ready_or_never_ends_is_out_of_time(
    bench: Bench, launcher: DockerLauncher, engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apart from the others, which need not be quick on a busy machine."""
    bench.run(launcher, bench.suite(protocol(1), systems=["served"]))  # its index is the deaf one's too
    monkeypatch.setattr(service, "_STOP_S", 1)
    bench.plant("deaf", "planted-service", deaf=1)
    bench.run(launcher, bench.suite(protocol(1, load_timeout_s=4.0), systems=["deaf"]))
    bench.plant("ignores-term", "planted-service", build_misdeed="ignores_term")
    bench.run(launcher, bench.suite(protocol(1), systems=["ignores-term"]))
    found = {system: (result.outcome, str(result.detail)) for system, result in by_system(bench).items()}
    assert found.pop("served")[0] is Outcome.OK
    words = {"deaf": "load took more than 4 s", "ignores-term": "the server did not end within 1 s"}
    assert not {name: found[name] for name, text in words.items() if not _fits(found[name], Outcome.TIMEOUT, text)}
    assert ours(engine) == []


def test_a_server_that_spoils_a_build_has_an_outcome(
    bench: Bench, launcher: DockerLauncher, engine: docker.DockerClient
) -> None:
    for system, (misdeed, _, _) in WRONG_BUILDS.items():
        bench.plant(system, "planted-service", build_misdeed=misdeed)
    bench.run(launcher, bench.suite(protocol(1), systems=list(WRONG_BUILDS)))
    found = {system: (result.outcome, str(result.detail)) for system, result in by_system(bench).items()}
    expected = WRONG_BUILDS.items()
    assert not {name: found[name] for name, (_, outcome, text) in expected if not _fits(found[name], outcome, text)}
    assert ours(engine) == []


def test_a_published_image_is_measured_without_a_driver_in_it(
    bench: Bench, launcher: DockerLauncher, engine: docker.DockerClient
) -> None:
    """Its own entry point starts it, as a uid of its own; its limits are read from outside."""
    planted = launcher.prepare(catalog.systems(bench.folder / "engines")["served"])
    holder = engine.containers.create(planted.digest)
    published = holder.commit(changes='ENTRYPOINT ["python3", "-m", "server", "/data"]')
    holder.remove()
    folder = bench.folder / "engines" / "published"
    shutil.copytree(bench.folder / "engines" / "planted-service", folder)
    (folder / "systems" / "served.toml").rename(folder / "systems" / "published.toml")
    settings = f'image = "{published.id}"\ncommand = ["{{}}"]\nindex_path = "/data"\nuser = 1234\n'
    with (folder / "engine.toml").open("a") as file:
        file.write(settings)
    try:
        bench.run(launcher, bench.suite(protocol(1), systems=["published"]))
    finally:
        engine.images.remove(published.id, force=True)
    (job,) = read_jobs(bench.results)
    result = job.result
    assert result.outcome is Outcome.OK, result.detail
    assert result.measured.effective is None and 2 << 20 < result.observed.memory.peak_anon_bytes < 256 << 20
    (row,) = build_rows([job], JobEvaluator(("RR@10",))).table.rows
    assert any("a published image, were read from outside alone" in finding.text for finding in row.findings)


def test_a_published_image_that_is_nowhere_is_one_line(bench: Bench, launcher: DockerLauncher) -> None:
    folder = bench.folder / "engines" / "planted-service"
    with (folder / "engine.toml").open("a") as file:
        file.write(f'image = "registry.invalid/served@sha256:{"0" * 64}"\n')
    bench.run(launcher, bench.suite(protocol(1), systems=["served"]))
    (job,) = read_jobs(bench.results)
    assert job.result.outcome is Outcome.CRASH
    assert "registry.invalid/served@sha256:" in str(job.result.detail) and "cannot be pulled" in str(job.result.detail)


def _fits(found: tuple[Outcome, str], outcome: Outcome, text: str) -> bool:
    return found[0] is outcome and text in found[1]


def test_a_server_that_fails_updates_is_measured_and_they_are_counted(bench: Bench, launcher: DockerLauncher) -> None:
    write_dataset(bench.folder / "tiny", 10)
    bench.plant("planted-service", "planted-service", connections=2)
    bench.plant("failing", "planted-service", connections=2, updates="failing")
    mixed = "[mixed]\nquery_qps = 10\nupdate_qps = 20\ndeleted_share = 0.4\n"
    suite = bench.suite(protocol(1) + mixed, systems=["planted-service", "failing"], scenarios=["mixed"])
    bench.run(launcher, suite)
    jobs = read_jobs(bench.results)
    assert {job.result.outcome for job in jobs} == {Outcome.OK}, [job.result.detail for job in jobs]
    rows = {row.system: row for row in build_rows(jobs, JobEvaluator(("RR@10",))).table.rows}
    right, failing = (rows[name].updates for name in ("planted-service", "failing"))
    assert right is not None and failing is not None
    assert right.failed == right.lost == 0 and right.recall.value == 1.0 and right.checked > 0
    assert failing.failed > 0 and failing.lost == 0 and failing.recall.value == 1.0

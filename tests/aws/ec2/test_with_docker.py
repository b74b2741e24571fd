"""User data executed by stand-in instances: real images, real jobs, and what becomes of them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from harness.aws.ec2.user_data import render_user_data
from harness.aws.objects import Objects
from harness.driver.records import Outcome
from harness.launch.docker import DockerLauncher
from harness.launch.fake import FakeLauncher
from harness.launch.images import catalog
from harness.remote import local_results, records
from harness.remote.records import MOST_BYTES, Heartbeat, PlannedPart, ShippedImage, WorkerEnd, read
from harness.remote.shipment import Fetcher, Shipper
from harness.results.reader import read_jobs
from harness.results.schema import job_key
from harness.results.store import Store
from tests.aws import rights, server
from tests.aws.ec2 import imds, standin
from tests.conftest import Bench, protocol
from tests.images.test_fusion import declare
from tests.remote.planning import RUN, TYPE, WORKER_ID, Engine, Planning, rights_of, uploaded
from tests.remote.test_worker_upload import PartRun

pytestmark = pytest.mark.docker

INSTANCE = "i-00000000000000{:03}"
# Long enough for a first boot, which downloads all packages over a slow line.
BOOT_S = 900


@pytest.fixture(scope="module")
def ground(engine: docker.DockerClient) -> standin.Ground:
    return standin.ground(engine)


class Shipped:
    """A suite of one planted system, planned and shipped; ``whole``: with its image, which most workers need."""

    def __init__(self, bench: Bench, work: Objects, trials: int, whole: bool, **params: float) -> None:
        self.image: ShippedImage | None = None
        bench.plant("shipped", **params)
        # An image of its own: a test beside this one may keep another name for an equal one.
        with (bench.folder / "engines" / "planted" / "adapter.py").open("a") as adapter:
            adapter.write(f"# {bench.folder}\n")
        self.bundle = Shipper(work, Engine().client, bench.cache).bundle()
        path = bench.suite(protocol(trials), systems=["shipped"])
        if not whole:
            self.planning = Planning(bench, path, FakeLauncher(), work)
            return
        launcher = DockerLauncher(bench.cache)
        try:
            first = Planning(bench, path, launcher, work)
            system = first.inputs.system(first.planned[0].cell)
            prepared = launcher.prepare(system)
            self.image = Shipper(work, launcher.client, bench.cache).image(prepared)
            self.planning = Planning(bench, path, launcher, work)  # with its image at hand
        finally:
            launcher.close()

    @property
    def images(self) -> tuple[ShippedImage, ...]:
        return (self.image,) if self.image else ()

    def user_data(self, part: str = "0001", limit_s: int = 1800) -> str:
        place = self.planning.work.place
        return render_user_data(place, RUN, part, self.bundle, server.REGION, limit_s, gpus=False)


@pytest.fixture
def ship(bench: Bench, work: Objects, engine: docker.DockerClient) -> Iterator[Callable[..., Shipped]]:
    made: list[ShippedImage] = []

    def ship(trials: int = 2, whole: bool = True, **params: float) -> Shipped:
        shipped = Shipped(bench, work, trials, whole, **params)
        made.extend(shipped.images)
        return shipped

    yield ship
    for image in made:
        engine.images.remove(image.reference, force=True)


def worker_id(number: int) -> str:
    """Return the id of a numbered instance's machine."""
    return f"{imds.ROLE_ID}:{INSTANCE.format(number)}"


def written(work: Objects, number: int, name: str) -> bytes:
    """Return what a worker wrote, or nothing."""
    return work.below(records.worker(worker_id(number))).get(name, MOST_BYTES) or b""


def end(work: Objects, number: int) -> WorkerEnd:
    return read(WorkerEnd, "end", written(work, number, records.END))


def wait_until(condition: Callable[[], object], timeout_s: float = BOOT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.3)


def check_no_secrets(work: Objects, *texts: str) -> None:
    for each in work.list():
        content = work.get(each.name, 1 << 30) or b""
        assert not [secret for secret in server.SECRETS if secret.encode() in content], each.name
    assert not [secret for secret in server.SECRETS if any(secret in text for text in texts)]


def check_rights(endpoint: str, number: int) -> None:
    """Compare a worker's requests with its few rights, and each right with the requests."""
    identity = worker_id(number)
    seen = server.requests(endpoint)
    assert rights.differing(seen, server.worker_key(identity), [rights_of(identity)]) == ([], [])


# A first boot installs all packages; so does any where none has been kept.
@pytest.mark.parametrize("fresh", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_user_data_makes_a_worker_whose_jobs_are_fetched(
    ground: standin.Ground,
    ship: Callable[..., Shipped],
    work: Objects,
    tmp_path: Path,
    engine: docker.DockerClient,
    aws: str,
    fresh: bool,
) -> None:
    shipped = ship(trials=2, service_s=0.002)
    planning, terminated = shipped.planning, []
    (image,) = shipped.images
    part = planning.part(builds=True, images=(image,))
    engine.images.remove(image.reference, force=True)  # the worker has only what was shipped
    user_data = shipped.user_data()
    folder, id_ = tmp_path / "instance", INSTANCE.format(1)
    with standin.booted(
        ground, folder, user_data, imds.of(id_), fresh=fresh, on_end=lambda: terminated.append(id_)
    ) as machine:
        assert machine.wait(BOOT_S), machine.log
        ended = end(work, 1)
        assert ended.ok and ended.instance_id == id_, (ended, machine.log)
        assert terminated == [id_] and not machine.processes and not machine.containers()
        assert "shutdown -P +30" in machine.power_log and "shutdown -P now" in machine.power_log
        machine.keep_packages()
        assert "IMDSv1" not in machine.log and not [path for path in machine.metadata.requests if "identity" in path]
        log = machine.log
    assert uploaded(work, worker_id(1)) == sorted(planning.specs)
    assert len(part.jobs) == 2 and planning.shipper.adopt_index(worker_id(1), part.builds[0].key)
    store = Store(tmp_path / "here", "test-suite")
    with store.held():
        for key, spec in planning.specs.items():
            result = local_results.fetch_job(work, worker_id(1), key, spec, store)
            assert result.outcome is Outcome.OK, result.detail
            instance = result.instance
            assert instance and (instance.instance_id, instance.instance_type) == (id_, TYPE)
            assert result.environment.instance_type == TYPE and result.environment.harness_commit
            assert instance.ami_id and instance.availability_zone == f"{server.REGION}a" and instance.cpu_platform
            assert result.environment.docker_version
    assert {job.run_path is not None for job in read_jobs(store.folder)} == {True}
    heartbeat = read(Heartbeat, "heartbeat", written(work, 1, records.HEARTBEAT))
    assert (heartbeat.phase, heartbeat.current, heartbeat.instance_id) == ("finishing", None, id_)
    log_text = written(work, 1, records.LOG).decode()
    assert "fetching the image of shipped" in log_text and "worker: end: all is done" in log_text
    check_rights(aws, 1)
    check_no_secrets(work, user_data, log, json.dumps(engine.images.get(image.digest).attrs))


def test_second_worker_resumes_after_the_first_died(
    ground: standin.Ground, ship: Callable[..., Shipped], work: Objects, tmp_path: Path
) -> None:
    shipped = ship(trials=4, service_s=0.2)
    planning = shipped.planning
    part = planning.part(images=shipped.images)
    with standin.booted(ground, tmp_path / "first", shipped.user_data(), imds.of(INSTANCE.format(1))) as first:
        wait_until(lambda: uploaded(work, worker_id(1)) and first.containers())
        first.kill()
        assert not first.processes and not first.containers()
        heartbeat = read(Heartbeat, "heartbeat", written(work, 1, records.HEARTBEAT))
    there = uploaded(work, worker_id(1))
    assert 1 <= len(there) < 4 and heartbeat.phase == "measuring"
    assert not written(work, 1, records.END)
    left = tuple(job for job in part.jobs if job.key not in there)
    planning.part("0002", images=shipped.images, jobs=left)
    with standin.booted(ground, tmp_path / "second", shipped.user_data("0002"), imds.of(INSTANCE.format(2))) as second:
        assert second.wait(BOOT_S), second.log
        assert end(work, 2).ok, second.log
    store = Store(tmp_path / "here", "test-suite")
    with store.held():
        found = {
            key: local_results.fetch_job(work, worker_id(number), key, planning.specs[key], store)
            for number in (1, 2)
            for key in uploaded(work, worker_id(number))
        }
    assert found.keys() == planning.specs.keys()
    by_instance = {key: result.instance.instance_id for key, result in found.items() if result.instance}
    assert by_instance == {key: INSTANCE.format(1 if key in there else 2) for key in found}


def test_worker_that_cannot_be_set_up_reports_and_powers_off(
    ground: standin.Ground, ship: Callable[..., Shipped], work: Objects, tmp_path: Path
) -> None:
    shipped = ship(whole=False)
    planning = shipped.planning
    planning.part()
    work.put(shipped.bundle.name, b"another bundle")
    (tmp_path / "instance" / "worker").mkdir(parents=True)
    text = f"role {server.ACCOUNT} with {server.ACCESS_KEY}\n"
    (tmp_path / "instance" / "worker" / "log.txt").write_text(text)
    user_data = re.sub(r"for try in 1 2 3 4 5|sleep \$\(\(try \* 5\)\)", _sooner, shipped.user_data())
    with standin.booted(ground, tmp_path / "instance", user_data, imds.of(INSTANCE.format(1))) as machine:
        assert machine.wait(BOOT_S), machine.log
        ended = end(work, 1)
    assert not ended.ok and ended.instance_id == INSTANCE.format(1)
    assert ended.detail == ("the machine could not be set up: fetching harness ended with exit code 1; see its log")
    assert "the bundle is not what was shipped" in written(work, 1, records.LOG).decode()
    check_no_secrets(work)


def _sooner(found: re.Match[str]) -> str:
    return "for try in 1 2" if found[0].startswith("for") else "sleep 0"


def test_worker_builds_a_hybrid_and_its_components_with_shipped_images(
    bench: Bench, work: Objects, tmp_path: Path, engine: docker.DockerClient
) -> None:
    declare(bench)
    with (bench.folder / "engines" / "toy" / "adapter.py").open("a") as adapter:
        adapter.write(f"# {bench.folder}\n")
    path, launcher = bench.suite(protocol(1), systems=["both"]), DockerLauncher(bench.cache)
    images: tuple[ShippedImage, ...] = ()
    try:
        launcher.prepare(catalog.system("both"))
        planning = Planning(bench, path, launcher, work)
        whole = planning.part(builds=True)
        planned = PlannedPart("0001", TYPE, 0.1, 30, whole.jobs, whole.builds)
        index_of = {job_key(job.spec): job.spec.index_key for job in planning.planned}
        part = Shipper(work, launcher.client, bench.cache).part(
            planned, whole.jobs, planning.inputs, planning.images, {}, lambda job: index_of[job.key]
        )
        images = part.images
        assert sorted(image.image for image in images) == ["both", "letters", "words"]
        for image in images:
            engine.images.remove(image.reference, force=True)
        runner = PartRun(planning, replace(part, suite=whole.suite), tmp_path / "worker")
        for image in images:
            Fetcher(work, runner.folder / "cache").image(engine, image)
        runner.run(runner.follower(), launcher)
    finally:
        launcher.close()
        for image in images:
            engine.images.remove(image.reference, force=True)
    assert runner.status.troubles == () and list(runner.stored) == [job.key for job in whole.jobs]
    (result,) = [stored.result for stored in runner.stored.values()]
    assert result.outcome is Outcome.OK and result.index is not None, result.detail
    assert result.index.components.keys() == {"words", "letters"}
    assert all(planning.shipper.adopt_index(WORKER_ID, build.key) for build in part.builds)

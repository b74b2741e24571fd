"""User data executed by a stand-in instance: a real image, real jobs, and what becomes of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from harness.aws.ec2.user_data import render_user_data
from harness.aws.objects import Objects
from harness.driver.records import Outcome
from harness.launch.docker import DockerLauncher
from harness.launch.images import catalog
from harness.remote import local_results, records
from harness.remote.records import MOST_BYTES, Heartbeat, ShippedImage, WorkerEnd, read
from harness.remote.shipment import Shipper
from harness.results.reader import read_jobs
from harness.results.store import Store
from tests.aws import policies, rights, server
from tests.aws.ec2 import imds, standin
from tests.conftest import Bench, protocol
from tests.remote.conftest import WORK
from tests.remote.planning import RUN, TYPE, WORKER_ID, Planning, uploaded

pytestmark = pytest.mark.docker

INSTANCE = "i-00000000000000{:03}"
# Long enough for a first boot, which downloads all packages over a slow line.
BOOT_S = 900
ID = "i-0123456789abcdef0"


@pytest.fixture
def launcher(bench: Bench) -> Iterator[DockerLauncher]:
    made = DockerLauncher(bench.cache)
    yield made
    made.close()


@pytest.fixture
def image(bench: Bench, work: Objects, launcher: DockerLauncher) -> Iterator[ShippedImage]:
    """The shipped image of a planted system, which the engine has until the end of the test."""
    bench.plant("shipped", service_s=0.002)
    # An image of its own: a test beside this one may keep another name for an equal one.
    with (bench.folder / "engines" / "planted" / "adapter.py").open("a") as adapter:
        adapter.write(f"# {bench.folder}\n")
    prepared = launcher.prepare(catalog.system("shipped"))
    shipped = Shipper(work, launcher.client, bench.cache).image(prepared)
    yield shipped
    launcher.client.images.remove(shipped.reference, force=True)


def written(work: Objects, name: str) -> bytes:
    """Return what the worker wrote, or nothing."""
    return work.below(records.worker(WORKER_ID)).get(name, MOST_BYTES) or b""


# A first boot installs all packages; so does any where none has been kept.
@pytest.mark.parametrize("fresh", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_user_data_makes_a_worker_whose_jobs_are_fetched(
    bench: Bench,
    work: Objects,
    image: ShippedImage,
    launcher: DockerLauncher,
    tmp_path: Path,
    engine: docker.DockerClient,
    aws: str,
    fresh: bool,
) -> None:
    planning = Planning(bench, bench.suite(protocol(2), systems=["shipped"]), launcher, work)
    part, bundle = planning.part(builds=True, images=(image,)), planning.shipper.bundle()
    engine.images.remove(image.reference, force=True)  # the worker has only what was shipped
    user_data = render_user_data(WORK, RUN, "0001", bundle, server.REGION, 1800, gpus=False)
    ground, terminated = standin.ground(engine), list[str]()
    with standin.booted(
        ground, tmp_path / "instance", user_data, imds.of(ID), fresh=fresh, on_end=lambda: terminated.append(ID)
    ) as machine:
        assert machine.wait(BOOT_S), machine.log
        ended = read(WorkerEnd, "end", written(work, records.END))
        assert ended.ok, (ended, machine.log)
        assert terminated == [ID] and not machine.processes and not machine.containers()
        assert "shutdown -P +30" in machine.power_log and "shutdown -P now" in machine.power_log
        machine.keep_packages()
        assert "IMDSv1" not in machine.log and not [path for path in machine.metadata.requests if "identity" in path]
        log = machine.log
    assert uploaded(work) == sorted(planning.specs)
    assert len(part.jobs) == 2 and planning.shipper.adopt_index(WORKER_ID, part.builds[0].key)
    store = Store(tmp_path / "here", "test-suite")
    with store.held():
        for key, spec in planning.specs.items():
            result = local_results.fetch_job(work, WORKER_ID, key, spec, store)
            assert result.outcome is Outcome.OK, result.detail
            instance = result.instance
            assert instance and (instance.instance_id, instance.instance_type) == (ID, TYPE)
            assert result.environment.instance_type == TYPE and result.environment.harness_commit
            assert instance.ami_id and instance.availability_zone == f"{server.REGION}a" and instance.cpu_platform
            assert result.environment.docker_version
    assert {job.run_path is not None for job in read_jobs(store.folder)} == {True}
    heartbeat = read(Heartbeat, "heartbeat", written(work, records.HEARTBEAT))
    assert (heartbeat.phase, heartbeat.current) == ("finishing", None)
    log_text = written(work, records.LOG).decode()
    assert "fetching the image of shipped" in log_text and "worker: end: all is done" in log_text
    allowed = [policies.of_role("worker", WORK)]
    assert rights.differing(server.requests(aws), server.worker_key(WORKER_ID), allowed) == ([], [])
    texts = [user_data, log, json.dumps(engine.images.get(image.digest).attrs), server.everything_stored(aws)]
    assert not [secret for secret in server.SECRETS for text in texts if secret in text]

"""A part by hand: what an orchestrator would plan of a bench's suite for one machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.aws.objects import Objects
from harness.config import read_toml
from harness.jobs import inputs, suite
from harness.jobs.inputs import Inputs, RunOptions
from harness.jobs.plan import plan_here
from harness.launch.base import Launcher
from harness.remote import records
from harness.remote.partition import index_builds
from harness.remote.records import PartJob, ShippedImage, WorkerPart, dump
from harness.remote.shipment import Shipper
from harness.results.schema import ResultSpec, job_key
from tests.aws.ec2 import imds
from tests.conftest import Bench

TYPE = "c7g.large"
RUN = "test-suite-20260101T000000-abcdef"
# A worker's id: its aws:userid.
WORKER_ID = f"{imds.ROLE_ID}:i-0123456789abcdef0"


class Engine:
    """A launcher whose engine says how it stores images, and has none."""

    def __init__(self, driver: str = "overlay2") -> None:
        status = [["driver-type", driver]] if driver.startswith("io.") else [["Backing Filesystem", driver]]
        self.client: Any = SimpleNamespace(info=lambda: {"DriverStatus": status})


def uploaded(work: Objects, worker_id: str = WORKER_ID) -> list[str]:
    """Return the keys of the jobs that a worker has uploaded, sorted."""
    listed = work.below(records.worker(worker_id)).list(f"{records.JOBS}/")
    return [Path(each.name).stem for each in listed]


class Planning:
    """Plans a suite of a bench for machines of one type."""

    def __init__(self, bench: Bench, path: Path, launcher: Launcher, work: Objects) -> None:
        self.bench, self.work, self.run = bench, work, work.below(records.run(RUN))
        self.worker_id = WORKER_ID
        self.shipper = Shipper(work, Engine().client, bench.cache)
        loaded = suite.load(path)
        self.raw = {"name": loaded.name, **read_toml(path)}
        options = RunOptions(
            bench.results, bench.cache, bench.folder, instance_types=dict.fromkeys(loaded.profiles, TYPE)
        )
        self.inputs: Inputs = inputs.gather(loaded, options)
        self.planned = plan_here(self.inputs, options, launcher)
        self.launcher = launcher
        found = {name: launcher.find(system) for name, system in self.inputs.images(self.inputs.cells).items()}
        self.images = {
            name: replace(image, components=tuple(map(launcher.prepare, image.system.components)))
            for name, image in found.items()
            if image is not None
        }
        self.specs: dict[str, ResultSpec] = {job_key(job.spec): job.spec for job in self.planned}

    @property
    def folder(self) -> Objects:
        """The worker's own folder."""
        return self.work.below(records.worker(self.worker_id))

    def part(
        self, name: str = "0001", builds: bool = False, images: tuple[ShippedImage, ...] = (), **changes: object
    ) -> WorkerPart:
        """Ship the datasets, and write the part of all jobs."""
        builds_ = index_builds(self.inputs, self.launcher, self.planned)
        fields = {
            "jobs": tuple(PartJob(job.cell, job.spec.job, 0, job_key(job.spec)) for job in self.planned),
            "builds": tuple(builds_.values()) if builds else (),
            "images": images,
            "datasets": {name: self.shipper.dataset(each) for name, each in self.inputs.datasets.items()},
            **changes,
        }
        made = WorkerPart(name, TYPE, self.raw, **fields)
        self.run.put(records.part(name), dump(made))
        return made

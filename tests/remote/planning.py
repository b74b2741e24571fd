"""A part by hand: what an orchestrator would plan of a bench's suite for one machine."""

from __future__ import annotations

from pathlib import Path

from harness import inputs, suite
from harness.aws.objects import Objects
from harness.declared import read_toml
from harness.inputs import Inputs, Options
from harness.launch.base import Launcher
from harness.remote import layout, shipping
from harness.remote.records import IndexBuild, Part, PartJob, ShippedImage, dump
from harness.result import ResultSpec, job_key
from tests.conftest import Bench

TYPE = "c7g.large"
RUN = "test-suite-20260101T000000-abcdef"


class Planning:
    """Plans a suite of a bench for machines of one type."""

    def __init__(self, bench: Bench, path: Path, launcher: Launcher, work: Objects) -> None:
        self.bench, self.work, self.run = bench, work, work.below(layout.run(RUN))
        loaded = suite.load(path)
        self.raw = {"name": loaded.name, **read_toml(path)}
        options = Options(bench.results, bench.cache, bench.folder, instance_types=dict.fromkeys(loaded.profiles, TYPE))
        self.inputs: Inputs = inputs.gather(loaded, options)
        self.planned = inputs.planned(self.inputs, options, launcher)
        self.specs: dict[str, ResultSpec] = {job_key(job.spec): job.spec for job in self.planned}

    def part(
        self, name: str = "0001", builds: bool = False, images: tuple[ShippedImage, ...] = (), **changes: object
    ) -> Part:
        """Ship the datasets, and write the part of all jobs."""
        said: list[str] = []
        asked = {
            job.spec.index_key: IndexBuild(job.spec.index_key, job.cell.system, job.cell.dataset)
            for job in self.planned
        }
        fields = {
            "jobs": tuple(PartJob(job.cell, job.spec.job, 0, job_key(job.spec)) for job in self.planned),
            "builds": tuple(asked.values()) if builds else (),
            "images": images,
            "datasets": {
                name: shipping.dataset(self.work, each, self.bench.cache, said.append)
                for name, each in self.inputs.datasets.items()
            },
            **changes,
        }
        made = Part(name, RUN, TYPE, self.raw, **fields)  # type: ignore[arg-type]
        self.run.put(layout.part(name), dump(made))
        return made

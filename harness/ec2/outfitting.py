"""Ships what a run's boxes need, and writes each box's part."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.ec2.planning import Ready, There
from harness.ec2.records import Group
from harness.ec2.shipper import Shipper
from harness.inputs import Inputs
from harness.launch.base import Prepared
from harness.remote.records import IndexBuild, Input, Part, PartJob, ShippedImage
from harness.result import Cell


@dataclass
class Outfitter:
    """Makes parts; each thing is shipped once."""

    inputs: Inputs
    ready: Ready
    there: There
    shipper: Shipper
    run_id: str
    # A job -> the key of its index.
    index_of: Callable[[PartJob], str]
    _images: dict[str, ShippedImage] = field(default_factory=dict)
    _datasets: dict[str, Input] = field(default_factory=dict)
    _indexes: dict[str, Input] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ship(self, groups: tuple[Group, ...]) -> None:
        """Bring all that these groups need to S3, before anything is launched."""
        for group in groups:
            for cell in _cells(group):
                self._cell(cell)
            for build in group.builds:
                self._build(build)
            for key in dict.fromkeys(map(self.index_of, group.jobs)):
                if key in self.there.local:
                    self._index(key)

    def part(self, group: Group, name: str, jobs: tuple[PartJob, ...]) -> Part:
        """What a group's box is to do."""
        with self._lock:
            images: dict[str, ShippedImage] = {}
            datasets: dict[str, Input] = {}
            for cell in dict.fromkeys(job.cell for job in jobs):
                images |= {shipped.image: shipped for shipped in self._cell(cell)}
                datasets[cell.dataset] = self._dataset(cell.dataset)
            builds = tuple(build for build in group.builds if self._index(build.key) is None)
            for build in builds:
                images |= {shipped.image: shipped for shipped in self._build(build)}
                datasets[build.dataset] = self._dataset(build.dataset)
            keys = dict.fromkeys(map(self.index_of, jobs))
            indexes = {key: found for key in keys if (found := self._index(key)) is not None}
        return Part(
            name=name,
            run_id=self.run_id,
            instance_type=group.instance_type,
            suite=self.inputs.suite.model_dump(mode="json", exclude_none=True),
            jobs=jobs,
            builds=builds,
            images=tuple(images.values()),
            datasets=datasets,
            indexes=indexes,
        )

    def _cell(self, cell: Cell) -> list[ShippedImage]:
        self._dataset(cell.dataset)
        both = {each.image: each for each in (self.inputs.system(cell), self.inputs.builder(cell))}
        return [self._image(self.ready.images[name]) for name in both]

    def _build(self, build: IndexBuild) -> list[ShippedImage]:
        self._dataset(build.dataset)
        return [self._image(self.ready.images[self.inputs.systems[build.system].on(self.inputs.build_gpus).image])]

    def _image(self, prepared: Prepared) -> ShippedImage:
        name = prepared.system.image
        if name not in self._images:
            self._images[name] = self.shipper.image(prepared)
        return self._images[name]

    def _dataset(self, name: str) -> Input:
        if name not in self._datasets:
            self._datasets[name] = self.shipper.dataset(self.inputs.datasets[name])
        return self._datasets[name]

    def _index(self, key: str) -> Input | None:
        """The index in S3, shipped where the cache has it; asked again until it is there."""
        if key not in self._indexes:
            local = self.there.local.get(key)
            shipper = self.shipper
            found = shipper.index(key, local) if local is not None else shipper.find_index(key, keep=True)
            if found is None:
                return None
            self._indexes[key] = found
        return self._indexes[key]


def _cells(group: Group) -> list[Cell]:
    return list(dict.fromkeys(job.cell for job in group.jobs))

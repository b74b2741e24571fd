"""Ship what boxes need to S3: each input is named by its content, and whole once its record lies beside it.

An input is packed into a temporary file of the cache and uploaded under a name that its bytes decide; then its record
(:class:`Input`) is written.  If two ship the same at once, one record stays and both use it.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import docker
from docker.errors import ImageNotFound

from harness import leftovers
from harness.aws.objects import Objects
from harness.datasets import Dataset, shipped
from harness.engine import engine_errors
from harness.errors import AwsError, ImageError, UsageError
from harness.images import making
from harness.indexes import Index
from harness.inputs import Inputs
from harness.launch.base import Prepared, Report
from harness.records import digest, to_json
from harness.remote import archive, bundle, layout
from harness.remote.layout import ARCHIVE
from harness.remote.records import MOST_BYTES, Input, Part, PartJob, PlannedPart, ShippedImage, dump, read

# Of the packed form; a change ships everything anew.
_FORMAT = 1
# The bucket's rule deletes inputs after 90 days.
RENEWED_AFTER = timedelta(days=60)
FACTS = "facts.json"
INDEX_DATA = "data"
_SHA256 = re.compile(r"[0-9a-f]{64}")

T = TypeVar("T")


class EngineOwner(Protocol):
    """A launcher with a container engine, as far as shipping needs it."""

    @property
    def client(self) -> docker.DockerClient:
        """The engine's client."""


class Shipper:
    """Ships inputs below a work place, and writes parts that name them; threads may share it.

    Inputs that are whole in S3 are not packed again; those that the bucket's rule would soon delete are renewed.
    """

    def __init__(self, work: Objects, launcher: EngineOwner, cache: Path, say: Report) -> None:
        """Check the engine, before anything is asked or paid.

        Raises:
            EngineError: it does not answer.
            UsageError: it uses the containerd image store, where an image has another id than boxes find.
        """
        with engine_errors():
            status = launcher.client.info().get("DriverStatus") or []
        if any("io.containerd.snapshotter" in str(value) for pair in status for value in pair):
            raise UsageError(
                "this Docker engine uses the containerd image store, which names images otherwise than the instances'"
                ' engines do; switch it off ("features": {"containerd-snapshotter": false} in its daemon.json)'
            )
        self._work, self._launcher, self._cache, self._say = work, launcher, cache, say
        self._shipped: dict[tuple[str, str], Any] = {}
        self._lock = threading.RLock()

    def bundle(self) -> Input:
        """Ship harness itself, its engines and data."""
        entries = bundle.entries()
        parts = [
            # As the tar has it: an executable file is another file.
            [name, _sha256(content), isinstance(content, Path) and bool(content.stat().st_mode & 0o100)]
            for name, content in entries
        ]
        name = f"{layout.BUNDLES}/{digest([_FORMAT, parts])}{ARCHIVE}"
        return self._ship(name, "harness", lambda path: archive.write_gz(path, entries))

    def image(self, prepared: Prepared) -> ShippedImage:
        """Ship a system's image as the engine saves it, with its tag.

        Raises:
            ImageError: the image has changed or is gone since it was made ready.
        """
        client = self._launcher.client
        reference = _tag(client, prepared)
        if reference is None:
            raise ImageError(f"system {prepared.system.name!r}: its image was made anew or removed; run this again")

        def save(path: Path) -> None:
            with archive.compressed(path) as target, engine_errors():
                for chunk in client.api.get_image(reference):
                    target.write(chunk)

        name = f"{layout.IMAGES}/{prepared.digest.removeprefix('sha256:')}{ARCHIVE}"
        file = self._ship(name, f"the image of {prepared.system.image}", save)
        return ShippedImage(prepared.system.image, prepared.digest, reference, file)

    def dataset(self, dataset: Dataset) -> Input:
        """Ship a dataset; a folder of its name with the tar's files loads as the same dataset."""
        queries = [asdict(query) for query in dataset.queries]
        name = digest([_FORMAT, dataset.corpus.sha256, dataset.qrels_sha256, queries])
        return self._ship(
            f"{layout.DATASETS}/{name}{ARCHIVE}",
            f"the dataset {dataset.name}",
            lambda path: archive.write_gz(path, shipped.entries(dataset)),
        )

    def index(self, key: str, index: Index) -> Input:
        """Ship an index of the cache; the first one of a key stays."""
        return self._ship(index_name(key), f"the index {key}", lambda path: _pack_index(path, index))

    def find_index(self, key: str, *, keep: bool = False) -> Input | None:
        """Find an index in S3; ``keep``: renew it for boxes, or remove a record whose bytes are gone."""
        name = index_name(key)
        found = _find(self._work, name)
        if keep and found is not None:
            return self._renewed(name, found)
        # The record is written last, so nobody is writing the bytes of one that is there.
        if keep and self._work.size(f"{name}.json") is not None:
            self._work.delete([f"{name}.json"])
        return found

    def adopt_index(self, box_id: str, key: str) -> Input | None:
        """Copy an index that a box built to the inputs, unless one of that key is there; ``None``: the box has none.

        Raises:
            AwsError: its record names another object than the box's own.
        """
        found = self.find_index(key)
        if found is not None:
            return found
        name = f"{layout.box(box_id)}/{layout.index(key)}"
        built = _read(self._work, f"{name}.json")
        if built is None:
            return None
        if not _SHA256.fullmatch(built.sha256) or built.name != _bytes_name(name, built.sha256):
            place = self._work.place.below(f"{name}.json")
            raise AwsError(f"{place}: names no index of this box; it is left there, and not used", "BadInput")
        if self._work.size(built.name) != built.size_bytes:
            return None
        ours = Input(_bytes_name(index_name(key), built.sha256), built.sha256, built.size_bytes)
        self._work.copy(built.name, ours.name)
        return _record(self._work, index_name(key), ours)

    def part(
        self,
        planned: PlannedPart,
        run_id: str,
        jobs: tuple[PartJob, ...],
        inputs: Inputs,
        ready_images: Mapping[str, Prepared],
        local_indexes: Mapping[str, Index],
        index_of: Callable[[PartJob], str],
    ) -> Part:
        """Ship what a part needs for these jobs, and return it; ``index_of`` gives the key of a job's index."""
        with self._lock:
            keys = dict.fromkeys((*map(index_of, jobs), *(build.key for build in planned.builds)))
            indexes = {key: found for key in keys if (found := self._index_of(key, local_indexes.get(key))) is not None}
            builds = tuple(build for build in planned.builds if build.key not in indexes)
            builders = [inputs.systems[build.system].on(inputs.build_gpus).image for build in builds]
            images = dict.fromkeys([*inputs.images(job.cell for job in jobs), *builders])
            datasets = dict.fromkeys([*(job.cell.dataset for job in jobs), *(build.dataset for build in builds)])
            return Part(
                name=planned.name,
                run_id=run_id,
                instance_type=planned.instance_type,
                suite=inputs.suite.model_dump(mode="json"),
                jobs=jobs,
                builds=builds,
                images=tuple(self._image(ready_images[name]) for name in images),
                datasets={name: self._dataset(inputs.datasets[name]) for name in datasets},
                indexes={key: indexes[key] for key in map(index_of, jobs) if key in indexes},
            )

    def _image(self, prepared: Prepared) -> ShippedImage:
        return self._once("image", prepared.system.image, lambda: self.image(prepared))

    def _dataset(self, dataset: Dataset) -> Input:
        return self._once("dataset", dataset.name, lambda: self.dataset(dataset))

    def _index_of(self, key: str, local: Index | None) -> Input | None:
        """Return an index in S3, shipped from the cache if it is there."""
        if local is None:
            return self._once("index", key, lambda: self.find_index(key, keep=True))
        return self._once("index", key, lambda: self.index(key, local))

    def _once(self, kind: str, name: str, ship: Callable[[], T]) -> T:
        """Ship a thing, unless this shipper has shipped it; ask again for one that is not there yet."""
        if self._shipped.get((kind, name)) is None:
            self._shipped[kind, name] = ship()
        return cast(T, self._shipped[kind, name])

    def _ship(self, name: str, what: str, pack: Callable[[Path], None]) -> Input:
        found = _find(self._work, name)
        if found is not None:
            return self._renewed(name, found)
        return _record(self._work, name, _upload(self._work, name, what, pack, self._cache, self._say))

    def _renewed(self, name: str, found: Input) -> Input:
        """Renew bytes and record before the bucket's rule deletes them."""
        for each in (found.name, f"{name}.json"):
            age = self._work.age(each)
            if age is not None and age > RENEWED_AFTER:
                self._work.renew(each)
        return found


def index_name(key: str) -> str:
    """Name an index among the inputs."""
    return f"{layout.INPUTS}/{layout.index(key)}"


def upload_index(work: Objects, box_id: str, key: str, index: Index, cache: Path, say: Report) -> None:
    """Upload an index that this box built to the box's own folder."""
    name = f"{layout.box(box_id)}/{layout.index(key)}"
    made = _upload(work, name, f"the index {key}", lambda path: _pack_index(path, index), cache, say)
    work.put_new(f"{name}.json", dump(made))


def _tag(client: docker.DockerClient, prepared: Prepared) -> str | None:
    """Return an image's tag in the engine; found by id, because a recipe names several platforms' images."""
    with engine_errors():
        try:
            found = client.images.get(prepared.digest)
        except ImageNotFound:
            return None
    beginning = f"harness-{prepared.system.image}:{found.labels.get(making.RECIPE_LABEL, '')[:12]}"
    return next((tag for tag in found.tags if tag.startswith(beginning)), None)


def _pack_index(path: Path, index: Index) -> None:
    entries: list[tuple[str, Path | bytes]] = [(FACTS, to_json(index.facts, indent=2).encode())]
    for each in sorted(Path(entry.path) for entry in leftovers.files(index.folder)):
        name = f"{INDEX_DATA}/{each.relative_to(index.folder).as_posix()}"
        entries.append((f"{name}/", b"") if each.is_dir() else (name, each))
    archive.write_gz(path, entries)


def _find(work: Objects, name: str) -> Input | None:
    """Read an input's record; ``None``: there is none, or its bytes are gone."""
    found = _read(work, f"{name}.json")
    return found if found is not None and work.size(found.name) == found.size_bytes else None


def _read(work: Objects, name: str) -> Input | None:
    content = work.get(name, MOST_BYTES)
    return None if content is None else read(Input, str(work.place.below(name)), content)


def _upload(work: Objects, name: str, what: str, pack: Callable[[Path], None], cache: Path, say: Report) -> Input:
    """Pack an input and upload its bytes, without a record."""
    with leftovers.scratch(cache / "shipping", "packed") as folder:
        path = folder / "packed"
        pack(path)
        checksum = _sha256(path)
        made = Input(_bytes_name(name, checksum), checksum, path.stat().st_size)
        say(f"uploading {what}, {made.size_bytes / 2**20:.1f} MiB")
        work.upload(made.name, path)
    return made


def _record(work: Objects, name: str, made: Input) -> Input:
    """Write an input's record; return the one that stays."""
    if work.put_new(f"{name}.json", dump(made)):
        return made
    found = _find(work, name)
    if found is None:  # the bytes that it names are gone
        work.put(f"{name}.json", dump(made))
    return found or made


def _bytes_name(name: str, sha256: str) -> str:
    return f"{name.removesuffix(ARCHIVE)}.{sha256[:12]}{ARCHIVE}"


def _sha256(content: Path | bytes) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

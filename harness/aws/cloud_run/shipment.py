"""Inputs in S3: the orchestrator ships them, a worker fetches them.

An input is packed into a temporary file of the cache and uploaded under a name that its bytes decide; then its record
(:class:`ShippedInput`) is written.  If two ship the same at once, one record stays and both use it.
"""

from __future__ import annotations

import gzip
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import docker
from docker.errors import ImageNotFound
from docker.models.images import Image

from harness import filesystem
from harness.aws.cloud_run import archive, records
from harness.aws.cloud_run.bundle import bundle_entries
from harness.aws.cloud_run.records import (
    ARCHIVE,
    PartJob,
    PlannedPart,
    ShippedImage,
    ShippedInput,
    WorkerPart,
    dump,
    fetch,
)
from harness.aws.errors import OURS_TO_MEND, PASSING
from harness.aws.objects import MISSING, Objects
from harness.datasets import Dataset, native
from harness.errors import AwsError, ImageError, JobError, UsageError
from harness.jobs import indexes
from harness.jobs.indexes import Index
from harness.jobs.inputs import Inputs
from harness.launch.base import Prepared
from harness.launch.docker_errors import engine_errors
from harness.launch.images import builder
from harness.records import digest
from harness.untrusted import to_json

log = logging.getLogger(__name__)

# Version of the packed form; a change ships everything again.
_FORMAT = 1
# The bucket's rule deletes inputs after 90 days.
RENEWED_AFTER = timedelta(days=60)
FACTS = "facts.json"
INDEX_DATA = "data"
# Text packs well, but no corpus is so much larger than its tar.
_MOST_TIMES = 1000
_LEAST_BYTES = 1 << 30

T = TypeVar("T")


class Shipper:
    """Uploader of inputs below a work place, and author of the parts that name them.

    Inputs that are whole in S3 are not packed again; those that the bucket's rule would soon delete are renewed.
    """

    def __init__(self, work: Objects, engine: docker.DockerClient, cache: Path) -> None:
        """Refuse an engine whose images have other ids on workers."""
        with engine_errors():
            status = engine.info().get("DriverStatus") or []
        if any("io.containerd.snapshotter" in str(value) for pair in status for value in pair):
            raise UsageError(
                "this Docker engine uses the containerd image store, which names images otherwise than the instances'"
                ' engines do; switch it off ("features": {"containerd-snapshotter": false} in its daemon.json)'
            )
        self._work, self._engine, self._cache = work, engine, cache
        self._shipped: dict[tuple[str, str], Any] = {}

    def bundle(self) -> ShippedInput:
        """Ship harness itself, its engines and data."""
        entries = bundle_entries()
        parts = [
            # As the tar has it: an executable file is another file.
            [name, filesystem.sha256(content), bool(content.stat().st_mode & 0o100)]
            if isinstance(content, Path)
            else [name, content.decode(), False]
            for name, content in entries
        ]
        name = f"{records.BUNDLES}/{digest([_FORMAT, parts])}{ARCHIVE}"
        return self._ship(name, "harness", lambda path: archive.write_gz(path, entries))

    def image(self, prepared: Prepared) -> ShippedImage:
        """Ship a system's image with its tag."""
        system, reference = prepared.system, _tag(self._engine, prepared)
        if reference is None:
            raise ImageError(f"system {system.name!r}: its image was rebuilt or removed; run this again")

        def save(path: Path) -> None:
            with archive.compressed(path) as target, engine_errors():
                for chunk in self._engine.api.get_image(reference):
                    target.write(chunk)

        name = f"{records.IMAGES}/{prepared.digest.removeprefix('sha256:')}{ARCHIVE}"
        file = self._ship(name, f"the image of {system.image}", save)
        return ShippedImage(system.image, prepared.digest, reference, file)

    def dataset(self, dataset: Dataset) -> ShippedInput:
        """Ship a dataset as a folder that loads as the same dataset."""
        queries = [asdict(query) for query in dataset.queries]
        name = digest([_FORMAT, dataset.corpus.sha256, dataset.qrels_sha256, queries])
        return self._ship(
            f"{records.DATASETS}/{name}{ARCHIVE}",
            f"the dataset {dataset.name}",
            lambda path: archive.write_gz(path, native.copy_files(dataset)),
        )

    def index(self, key: str, index: Index) -> ShippedInput:
        """Ship an index of the cache, unless its key is there."""
        return self._ship(index_name(key), f"the index {key}", lambda path: _pack_index(path, index))

    def find_index(self, key: str) -> ShippedInput | None:
        """Find an index in S3."""
        return _find(self._work, index_name(key))

    def adopt_index(self, worker_id: str, key: str, most_bytes: int = 1 << 40) -> ShippedInput | None:
        """Copy a worker's index to the inputs, unless its key is there.

        An `AwsError` of code ``BadInput``: what the worker wrote is no index, whatever is wrong with it.
        """
        shipped = self.find_index(key)
        if shipped is not None:
            return shipped
        name = f"{records.worker(worker_id)}/{records.index(key)}"
        place = self._work.place.below(f"{name}.json")
        try:
            built = fetch(ShippedInput, self._work, f"{name}.json")
            if built is None:
                return None
            size = built.size_bytes
            known = re.fullmatch(r"[0-9a-f]{64}", built.sha256) and built == _input(name, built.sha256, size)
            if not known or not self._work.size(built.name) == size <= most_bytes:
                raise AwsError(f"{place}: names no index of this worker, or one that is cut or too large")
            ours = _input(index_name(key), built.sha256, size)
            self._work.copy(built.name, ours.name)
            # Of the copy: the worker may write to its own object at any time.
            if self._work.sha256(ours.name) != ours.sha256:
                self._work.delete([ours.name])
                raise AwsError(f"{place}: names another content than its index has")
        except AwsError as error:
            if error.code in PASSING | OURS_TO_MEND:
                raise
            raise AwsError(f"{error}; it is left there, and not used", "BadInput") from error
        return _record(self._work, index_name(key), ours)

    def part(
        self,
        planned: PlannedPart,
        jobs: tuple[PartJob, ...],
        inputs: Inputs,
        ready_images: Mapping[str, Prepared],
        local_indexes: Mapping[str, Index],
        index_of: Callable[[PartJob], str],
    ) -> WorkerPart:
        """Ship a part's inputs; ``index_of`` returns the key of a job's index."""
        joined = [key for build in planned.builds for key in build.components.values()]
        keys = dict.fromkeys((*map(index_of, jobs), *(build.key for build in planned.builds), *joined))
        indexes = {key: shipped for key in keys if (shipped := self._index_of(key, local_indexes.get(key))) is not None}
        builds = tuple(build for build in planned.builds if build.key not in indexes)
        needed = [ready_images[name] for name in inputs.images(job.cell for job in jobs)]
        # A worker builds an index of its jobs that no other part has built.
        unbuilt = {(job.cell.system, None): None for job in jobs if index_of(job) not in indexes}
        for system, component in unbuilt | {(build.system, build.component): None for build in builds}:
            needed += _builders(ready_images[inputs.systems[system].on(inputs.build_gpus).image], component)
        by_name = {f"{image.system.image} {image.digest}": image for image in needed}
        images = tuple(self._once("image", name, partial(self.image, image)) for name, image in by_name.items())
        names = dict.fromkeys([*(job.cell.dataset for job in jobs), *(build.dataset for build in builds)])
        datasets = {name: self._once("dataset", name, partial(self.dataset, inputs.datasets[name])) for name in names}
        joined = [key for build in builds for key in build.components.values()]
        used = {key: indexes[key] for key in (*map(index_of, jobs), *joined) if key in indexes}
        languages = {name: code for name in names if (code := inputs.language(name))}
        suite = {**inputs.suite.model_dump(mode="json"), "languages": languages}
        return WorkerPart(planned.name, planned.instance_type, suite, jobs, builds, images, datasets, used)

    def _index_of(self, key: str, local: Index | None) -> ShippedInput | None:
        """Ship an index of the cache, or find it in S3 and renew it."""
        ship = partial(self._stored_input, index_name(key)) if local is None else partial(self.index, key, local)
        return self._once("index", key, ship)

    def _once(self, kind: str, name: str, ship: Callable[[], T]) -> T:
        """Ship a thing once; ask again while it is missing."""
        if self._shipped.get((kind, name)) is None:
            self._shipped[kind, name] = ship()
        return cast(T, self._shipped[kind, name])

    def _ship(self, name: str, what: str, pack: Callable[[Path], None]) -> ShippedInput:
        stored = self._stored_input(name)
        return stored or _record(self._work, name, _upload(self._work, name, what, pack, self._cache))

    def _stored_input(self, name: str) -> ShippedInput | None:
        """Find an input; renew it before the bucket's rule deletes it."""
        stored = _find(self._work, name)
        for part in (stored.name, f"{name}.json") if stored else ():
            self._work.renew(part, RENEWED_AFTER)
        return stored


def _builders(image: Prepared, component: str | None) -> list[Prepared]:
    """Return the images that build an index: its own and its components', or that of one component."""
    pairs = zip(image.system.components, image.components, strict=True)
    parts = {part.name: Prepared(part, digest, digest) for part, digest in pairs}
    return [parts[component]] if component else [image, *parts.values()]


def index_name(key: str) -> str:
    """Name an index among the inputs."""
    return f"{records.INPUTS}/{records.index(key)}"


def upload_index(work: Objects, worker_id: str, key: str, index: Index, cache: Path) -> None:
    """Upload an index that this worker built to the worker's own folder."""
    name = f"{records.worker(worker_id)}/{records.index(key)}"
    made = _upload(work, name, f"the index {key}", lambda path: _pack_index(path, index), cache)
    work.put_new(f"{name}.json", dump(made))


class Fetcher:
    """Downloader of a worker's inputs; each is checked against its record."""

    def __init__(self, work: Objects, cache: Path) -> None:
        self._work, self._cache = work, cache

    def image(self, engine: docker.DockerClient, shipped: ShippedImage) -> None:
        """Load an image under its tag, unless the engine has it."""
        if _found(engine, shipped.digest) is None:
            with self._downloaded(shipped.file, f"the image of {shipped.image}") as file, engine_errors():
                engine.images.load(cast(bytes, file))  # streams it
        loaded = _found(engine, shipped.digest)
        if loaded is None:
            raise AwsError(
                f"the image of {shipped.image}: no image here has the id {shipped.digest} after loading;"
                " switch the containerd image store off in both engines or in none",
                "BadImage",
            )
        with engine_errors():
            loaded.tag(*shipped.reference.rsplit(":", 1))

    def dataset(self, shipped: ShippedInput, folder: Path) -> None:
        """Unpack a dataset into a new folder."""
        folder.mkdir(parents=True)
        self._unpack(shipped, f"the dataset {folder.name}", folder)

    def index(self, key: str, shipped: ShippedInput) -> None:
        """Unpack and verify an index, unless the cache has it."""
        if indexes.find(self._cache, key):
            return
        cached = indexes.folder(self._cache, key)
        with filesystem.scratch_folder(cached.parent, cached.name) as fresh:
            self._unpack(
                shipped, f"the index {key}", fresh, lambda name: name == FACTS or name.split("/")[0] == INDEX_DATA
            )
            made, content = indexes.read(fresh), None
            with suppress(JobError):
                content = indexes.content(fresh / INDEX_DATA)
            if made is None or content != (made.facts.index_bytes, made.facts.content_sha256):
                place = self._work.place.below(shipped.name)
                raise AwsError(f"{place}: holds another index than its {FACTS} says; delete it, run again", "BadInput")
            fresh.chmod(0o755)
            filesystem.remove_tree(cached)  # damaged
            fresh.rename(cached)

    def _unpack(
        self, shipped: ShippedInput, what: str, folder: Path, allowed: Callable[[str], bool] | None = None
    ) -> None:
        most, place = _LEAST_BYTES + _MOST_TIMES * shipped.size_bytes, str(self._work.place.below(shipped.name))
        with self._downloaded(shipped, what) as file, gzip.open(file) as source:
            archive.unpack(cast(IO[bytes], source), folder, what=place, most_bytes=most, allowed=allowed)

    @contextmanager
    def _downloaded(self, shipped: ShippedInput, what: str) -> Iterator[IO[bytes]]:
        """Open the content of an input, downloaded and checked against its record."""
        log.info(f"fetching {what}, {shipped.size_bytes / 2**20:.1f} MiB")
        place = self._work.place.below(shipped.name)
        with filesystem.scratch_folder(self._cache / "shipping", "fetched") as folder:
            path = folder / "it"
            try:
                sha256 = self._work.download(shipped.name, path)
            except AwsError as error:
                if error.code not in MISSING | {"AccessDenied"}:  # which it is for workers, that may not list
                    raise
                raise AwsError(f"{place}: cannot be read, or is not there; run again", "BadInput") from error
            if sha256 != shipped.sha256:
                raise AwsError(f"{place}: its content is not what was shipped; delete it, then run again", "BadInput")
            with path.open("rb") as file:
                yield file


def _found(engine: docker.DockerClient, digest: str) -> Image | None:
    with engine_errors(), suppress(ImageNotFound):
        return engine.images.get(digest)
    return None


def _tag(engine: docker.DockerClient, prepared: Prepared) -> str | None:
    """Return an image's tag in the engine."""
    # By id, because a recipe names several platforms' images.
    image = _found(engine, prepared.digest)
    if image is None:
        return None
    beginning = f"harness-{prepared.system.image}:{image.labels.get(builder.RECIPE_LABEL, '')[:12]}"
    return next((tag for tag in image.tags if tag.startswith(beginning)), None)


def _pack_index(path: Path, index: Index) -> None:
    entries: list[tuple[str, Path | bytes]] = [(FACTS, to_json(index.facts, indent=2).encode())]
    for file in sorted(Path(entry.path) for entry in filesystem.walk(index.folder)):
        name = f"{INDEX_DATA}/{file.relative_to(index.folder).as_posix()}"
        entries.append((f"{name}/", b"") if file.is_dir() else (name, file))
    archive.write_gz(path, entries)


def _find(work: Objects, name: str) -> ShippedInput | None:
    """Read the record of an input whose bytes are there."""
    record = fetch(ShippedInput, work, f"{name}.json")
    return record if record is not None and work.size(record.name) == record.size_bytes else None


def _upload(work: Objects, name: str, what: str, pack: Callable[[Path], None], cache: Path) -> ShippedInput:
    """Pack an input and upload its bytes, without a record."""
    with filesystem.scratch_folder(cache / "shipping", "packed") as folder:
        path = folder / "packed"
        pack(path)
        made = _input(name, filesystem.sha256(path), path.stat().st_size)
        log.info(f"uploading {what}, {made.size_bytes / 2**20:.1f} MiB")
        work.upload(made.name, path)
    return made


def _record(work: Objects, name: str, made: ShippedInput) -> ShippedInput:
    """Write an input's record; return the one that stays."""
    if not work.put_new(f"{name}.json", dump(made)):
        earlier = _find(work, name)
        if earlier is not None:
            return earlier
        work.put(f"{name}.json", dump(made))  # the bytes that the stored one names are gone
    return made


def _input(name: str, sha256: str, size_bytes: int) -> ShippedInput:
    """Describe an input whose bytes lie under its name with their hash."""
    return ShippedInput(f"{name.removesuffix(ARCHIVE)}.{sha256[:12]}{ARCHIVE}", sha256, size_bytes)

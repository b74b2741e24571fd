"""Inputs in the storage: the orchestrator ships them, a worker fetches them.

An input is packed into a temporary file of the cache and uploaded under the hash of its bytes, never over an object
that is there.  Packing is deterministic, so two orchestrators that ship the same input use one object.

No object is believed for its name, because whoever may write to the storage can have placed it.  The ledger in this
machine's cache says what was packed or checked here, and the storage states by its checksum whether the object still is
that.  Otherwise the input is packed again, and gets another name if
a stranger's object has the first.

Workers take all names and hashes from their part, and the hash of the bundle from their launch.  This trust remains:

- Whoever may write ``runs/`` of the work place decides what workers do: the policies let runners, and no worker.  So
  runners of one work place trust each other.  Runners who do not need a work place each.
- The worker that built an index decides what it holds.  An orchestrator adopts indexes only from workers of its own
  run, under the hash that the worker wrote; a worker that fetches one checks that it agrees with its ``facts.json``.
  Only another build could tell whether it is right.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import docker
from docker.errors import ImageNotFound
from docker.models.images import Image

from harness import filesystem
from harness.datasets import Dataset, native
from harness.driver.records import digest
from harness.errors import ImageError, JobError, RemoteError, UsageError
from harness.jobs import indexes
from harness.jobs.indexes import Index
from harness.jobs.inputs import Inputs
from harness.launch.base import Prepared
from harness.launch.connection import engine_errors
from harness.launch.images import builder
from harness.remote import archive, records
from harness.remote.bundle import bundle_entries
from harness.remote.failures import OURS_TO_MEND, PASSING
from harness.remote.records import (
    ARCHIVE,
    PartJob,
    PlannedPart,
    ShippedImage,
    ShippedInput,
    WorkerPart,
    dump,
    fetch,
)
from harness.remote.storage import ObjectState, Storage
from harness.untrusted import to_json

log = logging.getLogger(__name__)

# The bucket's rule deletes inputs after 90 days.
RENEWED_AFTER = timedelta(days=60)
FACTS = "facts.json"
INDEX_DATA = "data"
_INDEXES = f"{records.INPUTS}/{records.INDEXES}"
# Text packs well, but no corpus is so much larger than its tar.
_MOST_TIMES = 1000
_LEAST_BYTES = 1 << 30

# Version of the packed form; a change ships everything again.
_FORMAT = 2
T = TypeVar("T")


@dataclass(frozen=True)
class LedgerEntry:
    """An object whose content this machine knows; ``checksum`` is what the storage stated of it (`ObjectState`)."""

    shipped: ShippedInput
    checksum: str

    def is_there(self, state: ObjectState | None) -> bool:
        """Return whether the storage still states that content."""
        wanted = (self.shipped.size_bytes, self.checksum)
        return state is not None and bool(self.checksum) and (state.size_bytes, state.checksum) == wanted


class Shipper:
    """Uploader of inputs below a work place, and author of the parts that name them.

    Inputs of the ledger are not packed again; those that the bucket's rule would soon delete are copied.
    """

    def __init__(self, work: Storage, engine: docker.DockerClient | None, cache: Path) -> None:
        """Refuse an engine whose images have other ids on workers; without one, workers make the systems themselves."""
        status: list[list[str]] = []
        if engine is not None:
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
        """Ship harness itself, its engines and data; it is small, and so it is packed each time."""
        return self._upload(records.BUNDLES, "harness", lambda path: archive.write_gz(path, bundle_entries())).shipped

    def image(self, prepared: Prepared) -> ShippedImage:
        """Ship a system's image with its tag."""
        system, engine = prepared.system, self._engine
        reference = None if engine is None else _tag(engine, prepared)
        if engine is None or reference is None:
            raise ImageError(f"system {system.name!r}: its image was rebuilt or removed; run this again")

        def save(path: Path) -> None:
            with archive.compressed(path) as target, engine_errors():
                for chunk in engine.api.get_image(reference):
                    target.write(chunk)

        key = f"image {prepared.digest} {reference}"
        file = self._ship(key, records.IMAGES, f"the image of {system.image}", save)
        return ShippedImage(system.image, prepared.digest, reference, file)

    def dataset(self, dataset: Dataset) -> ShippedInput:
        """Ship a dataset as a folder that loads as the same dataset."""
        queries = [asdict(query) for query in dataset.queries]
        return self._ship(
            f"dataset {digest([dataset.corpus.sha256, dataset.qrels_sha256, queries])}",
            records.DATASETS,
            f"the dataset {dataset.name}",
            lambda path: archive.write_gz(path, native.copy_files(dataset)),
        )

    def index(self, key: str, index: Index) -> ShippedInput:
        """Ship an index of the cache, unless one of its key is shipped."""
        return self._ship(_index(key), _INDEXES, f"the index {key}", lambda path: _pack_index(path, index))

    def find_index(self, key: str) -> ShippedInput | None:
        """Find an index that this machine shipped, or adopted from a worker of its own runs."""
        return self._known(_index(key), _INDEXES)

    def adopt_index(self, worker_id: str, key: str, most_bytes: int = 1 << 40) -> ShippedInput | None:
        """Copy a worker's index to the inputs, unless one of its key is shipped.

        A `RemoteError` of code ``BadInput``: the worker wrote something else than an index.
        """
        shipped = self.find_index(key)
        if shipped is not None:
            return shipped
        name = f"{records.worker(worker_id)}/{records.index(key)}"
        place = self._work.where(f"{name}.json")
        try:
            built = fetch(ShippedInput, self._work, f"{name}.json")
            if built is None:
                return None
            size = built.size_bytes
            known = re.fullmatch(r"[0-9a-f]{64}", built.sha256) and built.name == _with_hash(name, built.sha256)
            if not known or not self._work.size(built.name) == size <= most_bytes:
                raise RemoteError(
                    f"{place}: does not name an index of this worker, or the index is cut short or too large"
                )
            adopted = self._copy(built, _INDEXES)
            if adopted is None:
                raise RemoteError(f"{place}: its hash does not match the index")
        except RemoteError as error:
            if error.code in PASSING | OURS_TO_MEND:
                raise
            raise RemoteError(f"{error}; it stays there and was not used", "BadInput") from error
        self._note(_index(key), adopted)
        return adopted.shipped

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
            image = ready_images[inputs.building(system).image]
            parts = {part.system.name: part for part in image.components}
            needed += [parts[component]] if component else [image, *parts.values()]
        by_name = {f"{image.system.image} {image.digest}": image for image in needed if self._engine}
        images = tuple(self._once("image", name, partial(self.image, image)) for name, image in by_name.items())
        names = dict.fromkeys([*(job.cell.dataset for job in jobs), *(build.dataset for build in builds)])
        datasets = {name: self._once("dataset", name, partial(self.dataset, inputs.datasets[name])) for name in names}
        joined = [key for build in builds for key in build.components.values()]
        used = {key: indexes[key] for key in (*map(index_of, jobs), *joined) if key in indexes}
        languages = {name: code for name in names if (code := inputs.language(name))}
        suite = {**inputs.suite.model_dump(mode="json"), "languages": languages}
        return WorkerPart(
            planned.name, planned.instance_type, suite, jobs, builds, images, datasets, used, dict(inputs.platforms)
        )

    def _index_of(self, key: str, local: Index | None) -> ShippedInput | None:
        """Ship an index of the cache, or find one that is shipped."""
        ship = partial(self.find_index, key) if local is None else partial(self.index, key, local)
        return self._once("index", key, ship)

    def _once(self, kind: str, name: str, ship: Callable[[], T]) -> T:
        """Ship a thing once; ask again while it is missing."""
        if self._shipped.get((kind, name)) is None:
            self._shipped[kind, name] = ship()
        return cast(T, self._shipped[kind, name])

    def _ship(self, key: str, folder: str, what: str, pack: Callable[[Path], None]) -> ShippedInput:
        known = self._known(key, folder)
        if known is not None:
            return known
        entry = self._upload(folder, what, pack)
        self._note(key, entry)
        return entry.shipped

    def _known(self, key: str, folder: str) -> ShippedInput | None:
        """Return the input of an entry that still holds; copy it before the bucket's rule deletes it."""
        entry = self._entry(key)
        state = None if entry is None else self._work.state(entry.shipped.name)
        if entry is None or state is None or not entry.is_there(state):
            return None
        if state.age <= RENEWED_AFTER:
            return entry.shipped
        renewed = self._copy(entry.shipped, folder)
        if renewed is None:
            return None
        self._note(key, renewed)
        return renewed.shipped

    def _entry(self, key: str) -> LedgerEntry | None:
        """Return the ledger's entry of a key, which names an input's content (hashes, an image's digest)."""
        with suppress(OSError, RemoteError):
            return records.read(LedgerEntry, key, self._ledger_file(key).read_bytes())
        return None

    def _note(self, key: str, entry: LedgerEntry) -> None:
        """Write an entry of the ledger over an earlier one."""
        file = self._ledger_file(key)
        file.parent.mkdir(parents=True, exist_ok=True)
        with filesystem.atomic_write(file) as path:
            path.write_bytes(dump(entry))

    def _ledger_file(self, key: str) -> Path:
        return self._cache / "shipped" / f"{digest([_FORMAT, self._work.where(), key])}.json"

    def _upload(self, folder: str, what: str, pack: Callable[[Path], None]) -> LedgerEntry:
        """Pack an input; upload it unless the storage has the same bytes under their hash."""
        with _packed(self._cache, pack) as path:
            sha256, size = filesystem.sha256(path), path.stat().st_size
            checksum = self._work.checksum_of(path)
            # The second, if a stranger's object or one that soon expires has the first.
            for name in (f"{folder}/{sha256}{ARCHIVE}", _fresh_name(folder, sha256)):
                entry, state = LedgerEntry(ShippedInput(name, sha256, size), checksum), self._work.state(name)
                if state is None:
                    log.info(f"uploading {what}, {size / 2**20:.1f} MiB")
                    self._work.upload_new(name, path)
                    state = self._work.state(name)
                if state is not None and entry.is_there(state) and state.age <= RENEWED_AFTER:
                    return entry
        place = self._work.where(folder)
        raise RemoteError(
            f"{place}: another program replaced the upload at once; check who may write there", "BadInput"
        )

    def _copy(self, source: ShippedInput, folder: str) -> LedgerEntry | None:
        """Copy an object to a fresh name of the inputs; ``None``: it has another content than its hash says."""
        copy = replace(source, name=_fresh_name(folder, source.sha256))
        self._work.copy_new(source.name, copy.name)
        # Of the copy: a worker may write to its own object at any time.
        state = self._work.verified(copy.name, source.sha256, source.size_bytes)
        return None if state is None else LedgerEntry(copy, state.checksum)


def upload_index(work: Storage, worker_id: str, key: str, index: Index, cache: Path) -> None:
    """Upload an index that this worker built to the worker's own folder."""
    name = f"{records.worker(worker_id)}/{records.index(key)}"
    with _packed(cache, lambda path: _pack_index(path, index)) as path:
        sha256 = filesystem.sha256(path)
        made = ShippedInput(_with_hash(name, sha256), sha256, path.stat().st_size)
        log.info(f"uploading the index {key}, {made.size_bytes / 2**20:.1f} MiB")
        work.upload_new(made.name, path)
    work.put_new(f"{name}.json", dump(made))


class Fetcher:
    """Downloader of a worker's inputs; each is checked against its record."""

    def __init__(self, work: Storage, cache: Path) -> None:
        self._work, self._cache = work, cache

    def image(self, engine: docker.DockerClient, shipped: ShippedImage) -> None:
        """Load an image under its tag, unless the engine has it."""
        if _found(engine, shipped.digest) is None:
            with self._downloaded(shipped.file, f"the image of {shipped.image}") as file, engine_errors():
                engine.images.load(cast(bytes, file))  # streams it
        loaded = _found(engine, shipped.digest)
        if loaded is None:
            raise RemoteError(
                f"the image of {shipped.image}: no image here has the id {shipped.digest} after loading;"
                " switch the containerd image store off in both engines or in none",
                "BadImage",
            )
        with engine_errors():
            loaded.tag(*shipped.reference.rsplit(":", 1))

    def dataset(self, shipped: ShippedInput, folder: Path) -> None:
        """Unpack a dataset into a new folder."""
        folder.mkdir(parents=True)
        self.unpack(shipped, f"the dataset {folder.name}", folder)

    def index(self, key: str, shipped: ShippedInput) -> None:
        """Unpack and verify an index, unless the cache has it."""
        if indexes.find(self._cache, key):
            return
        with filesystem.fresh_folder(indexes.folder(self._cache, key)) as fresh:
            self.unpack(
                shipped, f"the index {key}", fresh, lambda name: name == FACTS or name.split("/")[0] == INDEX_DATA
            )
            made, content = indexes.read(fresh), None
            with suppress(JobError):
                content = indexes.content(fresh / INDEX_DATA)
            if made is None or content != (made.facts.index_bytes, made.facts.content_sha256):
                place = self._work.where(shipped.name)
                raise RemoteError(
                    f"{place}: holds another index than its {FACTS} says; delete it, run again", "BadInput"
                )
            fresh.chmod(0o755)

    def unpack(
        self, shipped: ShippedInput, what: str, folder: Path, allowed: Callable[[str], bool] | None = None
    ) -> None:
        """Download an input, check it against its record, and unpack it into an existing folder."""
        most, place = _LEAST_BYTES + _MOST_TIMES * shipped.size_bytes, self._work.where(shipped.name)
        with self._downloaded(shipped, what) as file:
            archive.unpack_gz(file, folder, what=place, most_bytes=most, allowed=allowed)

    @contextmanager
    def _downloaded(self, shipped: ShippedInput, what: str) -> Iterator[IO[bytes]]:
        """Open the content of an input, downloaded and checked against its record."""
        log.info(f"fetching {what}, {shipped.size_bytes / 2**20:.1f} MiB")
        place = self._work.where(shipped.name)
        with filesystem.scratch_folder(self._cache / "shipping", "fetched") as folder:
            path = folder / "it"
            sha256 = self._work.download(shipped.name, path, shipped.size_bytes)
            if sha256 is None:
                raise RemoteError(f"{place}: is missing or cannot be read; run again", "BadInput")
            if sha256 != shipped.sha256:
                raise RemoteError(f"{place}: its content is not what was shipped; run again", "BadInput")
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
    # Podman puts a registry in front.
    return next((tag for tag in image.tags if tag.rpartition("/")[2].startswith(beginning)), None)


def _pack_index(path: Path, index: Index) -> None:
    entries: list[tuple[str, Path | bytes]] = [(FACTS, to_json(index.facts, indent=2).encode())]
    for file in sorted(Path(entry.path) for entry in filesystem.walk(index.folder)):
        name = f"{INDEX_DATA}/{file.relative_to(index.folder).as_posix()}"
        entries.append((f"{name}/", b"") if file.is_dir() else (name, file))
    archive.write_gz(path, entries)


@contextmanager
def _packed(cache: Path, pack: Callable[[Path], None]) -> Iterator[Path]:
    """Pack an input into a temporary file."""
    with filesystem.scratch_folder(cache / "shipping", "packed") as folder:
        pack(folder / "packed")
        yield folder / "packed"


def _index(key: str) -> str:
    """Return an index's key in the ledger."""
    return f"index {key}"


def _with_hash(name: str, sha256: str) -> str:
    """Return the name of an archive's bytes."""
    return f"{name.removesuffix(ARCHIVE)}.{sha256}{ARCHIVE}"


def _fresh_name(folder: str, sha256: str) -> str:
    """Return a name with a random part, so that no object has it yet."""
    return f"{folder}/{sha256}.{secrets.token_hex(8)}{ARCHIVE}"

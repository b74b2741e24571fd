"""What boxes need, brought to S3: named by content, and whole once its record lies beside it.

Each thing is packed into a temporary file in the cache, uploaded under a name that its bytes decide, and then its
record (:class:`Input`) is written.  Of two who ship the same at once one's record stays, and both go by that.  What is
whole there already is not packed again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import docker
from docker.errors import ImageNotFound

from harness import cache_folder, leftovers
from harness.aws.objects import Objects
from harness.datasets import Dataset, shipped
from harness.engine import engine_errors
from harness.errors import ImageError, UsageError
from harness.images import making
from harness.indexes import Index
from harness.launch.base import Prepared, Report
from harness.records import digest, to_json
from harness.remote import bundling, layout, tarballs
from harness.remote.records import MOST_BYTES, Input, ShippedImage, dump, read

# Of the packed form; a change ships all anew.
_FORMAT = 1
# `harness ec2 up` has all of it deleted after 90 days.
RENEWED_AFTER = timedelta(days=60)
FACTS = "facts.json"
INDEX_DATA = "data"
_ENDING = ".tar.gz"


def bundle(objects: Objects, say: Report, *, cache: Path | None = None) -> Input:
    """Ship harness itself, its engines and data: a tar laid out as a checkout.

    Args:
        objects: the work place.
        say: told of an upload.
        cache: holds the packed file meanwhile.

    Raises:
        AwsError: S3 refuses or is not reached.
        UsageError: HARNESS_IMAGES holds far too much.
    """
    found = bundling.entries()
    parts = [
        # As the tar has it: an executable file is another file.
        [name, _sha256(content), isinstance(content, Path) and bool(content.stat().st_mode & 0o100)]
        for name, content in found
    ]
    name = f"{layout.BUNDLES}/{digest([_FORMAT, parts])}{_ENDING}"
    return _ship(objects, name, "harness", lambda path: tarballs.write_gz(path, found), say, cache)


def check_engine(client: docker.DockerClient) -> None:
    """See that this engine names images as boxes' engines do.

    Raises:
        EngineError: it does not answer.
        UsageError: it uses the containerd image store, where an image's id is another than boxes find.
    """
    with engine_errors():
        status = client.info().get("DriverStatus") or []
    if any("io.containerd.snapshotter" in str(value) for pair in status for value in pair):
        raise UsageError(
            "this Docker engine uses the containerd image store, which names images otherwise than the instances'"
            ' engines do; switch it off ("features": {"containerd-snapshotter": false} in its daemon.json)'
        )


def image(
    objects: Objects, client: docker.DockerClient, prepared: Prepared, say: Report, *, cache: Path | None = None
) -> ShippedImage:
    """Ship a system's image as the engine saves it, with its tag.

    Raises:
        AwsError: S3 refuses or is not reached.
        EngineError: the engine does not answer.
        ImageError: the image has changed or gone since it was made ready.
    """
    reference = _tag(client, prepared)
    if reference is None:
        raise ImageError(f"system {prepared.system.name!r}: its image was made anew or removed; run this again")

    def save(path: Path) -> None:
        with tarballs.compressed(path) as target, engine_errors():
            for chunk in client.api.get_image(reference):
                target.write(chunk)

    name = f"{layout.IMAGES}/{prepared.digest.removeprefix('sha256:')}{_ENDING}"
    file = _ship(objects, name, f"the image of {prepared.system.image}", save, say, cache)
    return ShippedImage(prepared.system.image, prepared.digest, reference, file)


def _tag(client: docker.DockerClient, prepared: Prepared) -> str | None:
    """The tag by which an engine finds a system's image, if the image is there.

    It is looked for by its id and not by its recipe: it may be for another platform than this engine's.
    """
    with engine_errors():
        try:
            found = client.images.get(prepared.digest)
        except ImageNotFound:
            return None
    beginning = f"harness-{prepared.system.image}:{found.labels.get(making.RECIPE_LABEL, '')[:12]}"
    return next((tag for tag in found.tags if tag.startswith(beginning)), None)


def dataset(objects: Objects, dataset: Dataset, cache: Path, say: Report) -> Input:
    """Ship a dataset; a folder of its name that holds what is in the tar loads as the same dataset.

    Raises:
        AwsError: S3 refuses or is not reached.
        UsageError: NLTK's sentence model is needed and not there.
    """
    queries = [asdict(query) for query in dataset.queries]
    name = digest([_FORMAT, dataset.corpus.sha256, dataset.qrels_sha256, queries])
    return _ship(
        objects,
        f"{layout.DATASETS}/{name}{_ENDING}",
        f"the dataset {dataset.name}",
        lambda path: tarballs.write_gz(path, shipped.entries(dataset)),
        say,
        cache,
    )


def index(objects: Objects, key: str, index: Index, say: Report, *, cache: Path | None = None) -> Input:
    """Ship a finished index with its facts.  Of two that were built under one key the first stays.

    Raises:
        AwsError: S3 refuses or is not reached.
    """
    entries: list[tuple[str, Path | bytes]] = [(FACTS, to_json(index.facts, indent=2).encode())]
    for path in sorted(Path(entry.path) for entry in leftovers.files(index.folder)):
        name = f"{INDEX_DATA}/{path.relative_to(index.folder).as_posix()}"
        entries.append((f"{name}/", b"") if path.is_dir() else (name, path))
    return _ship(
        objects, index_name(key), f"the index {key}", lambda path: tarballs.write_gz(path, entries), say, cache
    )


def lasting(objects: Objects, shipped: Input) -> Input:
    """See that what is shipped outlives the run: it is made anew where it lies before the work place's rule deletes it.

    Raises:
        AwsError: S3 refuses or is not reached.
    """
    record = f"{shipped.name.removesuffix(f'.{shipped.sha256[:12]}{_ENDING}')}{_ENDING}.json"
    for name in (shipped.name, record):
        age = objects.age(name)
        if age is not None and age > RENEWED_AFTER:
            objects.renew(name)
    return shipped


def drop_stale_index(objects: Objects, key: str) -> None:
    """Remove the record of an index whose bytes are gone: boxes may not write over it.

    Raises:
        AwsError: S3 refuses or is not reached.
    """
    # Whoever ships writes the record last: one that is there without its bytes is nobody's who is at it.
    if objects.get(f"{index_name(key)}.json", MOST_BYTES) is not None and find_index(objects, key) is None:
        objects.delete([f"{index_name(key)}.json"])


def find_index(objects: Objects, key: str) -> Input | None:
    """The index of that key, if it is whole there.

    Raises:
        AwsError: S3 refuses or is not reached.
    """
    return find(objects, index_name(key))


def index_name(key: str) -> str:
    """Where the index of a key lies."""
    return f"{layout.INDEXES}/{key}{_ENDING}"


def find(objects: Objects, name: str) -> Input | None:
    """What is shipped under a name; ``None``: it is not there, or not whole.

    Raises:
        AwsError: S3 refuses or is not reached, or what lies there is no such record.
    """
    content = objects.get(f"{name}.json", MOST_BYTES)
    if content is None:
        return None
    found = read(Input, str(objects.place.below(f"{name}.json")), content)
    return found if objects.size(found.name) == found.size_bytes else None


def _ship(
    objects: Objects, name: str, what: str, make: Callable[[Path], None], say: Report, cache: Path | None
) -> Input:
    there = find(objects, name)
    if there is not None:
        return there
    with leftovers.scratch((cache or cache_folder.default()) / "shipping", "packed") as folder:
        path = folder / "packed"
        make(path)
        checksum = _sha256(path)
        made = Input(f"{name.removesuffix(_ENDING)}.{checksum[:12]}{_ENDING}", checksum, path.stat().st_size)
        say(f"uploading {what}, {made.size_bytes / 2**20:.1f} MiB")
        objects.upload(made.name, path)
    if objects.put_new(f"{name}.json", dump(made)):
        return made
    there = find(objects, name)
    if there is None:  # what that record names is gone
        objects.put(f"{name}.json", dump(made))
    return there or made


def _sha256(content: Path | bytes) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

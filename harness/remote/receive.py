"""Fetch shipped inputs from S3 to this box, and use nothing but what was sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import docker
from docker.errors import ImageNotFound
from docker.models.images import Image

from harness import indexes, leftovers
from harness.aws.objects import Objects
from harness.engine import engine_errors
from harness.errors import AwsError, JobError
from harness.indexes import Index
from harness.launch.base import Report
from harness.remote import archive
from harness.remote.records import Input, ShippedImage
from harness.remote.shipping import FACTS, INDEX_DATA

# Text packs well, but no corpus is so much larger than its tar.
_MOST_TIMES = 1000
_LEAST_BYTES = 1 << 30
# Between tries of one download.
_WAITS_S = (1.0, 5.0, 20.0)


def image(work: Objects, client: docker.DockerClient, shipped: ShippedImage, cache: Path, say: Report) -> None:
    """Load an image into the engine under its tag, unless the engine has it.

    Raises:
        AwsError: it is missing in S3, or another one.
        EngineError: the engine does not answer, or refuses.
    """
    if _has(client, shipped.digest) is None:
        if shipped.file is None:
            raise AwsError(f"the image of {shipped.image} was not shipped; run again", "BadInput")
        say(f"loading the image of {shipped.image}, {shipped.file.size_bytes / 2**20:.1f} MiB")
        with _downloaded(work, shipped.file, cache) as file, engine_errors():
            client.images.load(cast(bytes, file))  # streams it
    found = _has(client, shipped.digest)
    if found is None:
        raise AwsError(
            f"the image of {shipped.image}: after loading, no image here has the id {shipped.digest}; does one of the"
            " engines use the containerd image store, which names images otherwise? switch it off in both or in none",
            "BadImage",
        )
    repository, _, tag = shipped.reference.rpartition(":")
    with engine_errors():
        found.tag(repository, tag)


def dataset(work: Objects, shipped: Input, folder: Path, cache: Path, say: Report) -> None:
    """Unpack a dataset into a new folder.

    Raises:
        AwsError: it is missing in S3, or another one.
    """
    say(f"fetching the dataset {folder.name}, {shipped.size_bytes / 2**20:.1f} MiB")
    folder.mkdir(parents=True)
    _unpack(work, shipped, folder, cache)


def index(work: Objects, key: str, shipped: Input, cache: Path, say: Report) -> Index:
    """Unpack an index into the cache, unless the cache has it.

    Raises:
        AwsError: it is missing in S3, or not as its facts say.
    """
    there = indexes.find(cache, key)
    if there:
        return there
    say(f"fetching the index {key}, {shipped.size_bytes / 2**20:.1f} MiB")
    home = indexes.folder(cache, key)
    home.parent.mkdir(parents=True, exist_ok=True)
    partial = leftovers.in_the_making(home)
    partial.mkdir()
    try:
        _unpack(work, shipped, partial, cache, _in_index)
        made = indexes.read(partial)
        try:
            found = indexes.content(partial / INDEX_DATA)
        except JobError:
            found = None
        if made is None or found != (made.facts.index_bytes, made.facts.content_sha256):
            place = work.place.below(shipped.name)
            raise AwsError(f"{place}: holds another index than its {FACTS} says; delete it, run again", "BadInput")
        partial.chmod(0o755)
        leftovers.remove(home)  # damaged, or it had been found
        partial.rename(home)
    finally:
        leftovers.remove(partial)
    return Index(home / INDEX_DATA, made.facts)


def _in_index(name: str) -> bool:
    return name in (FACTS, INDEX_DATA) or name.startswith(f"{INDEX_DATA}/")


def _unpack(
    work: Objects, shipped: Input, folder: Path, cache: Path, allowed: Callable[[str], bool] | None = None
) -> None:
    most, what = _LEAST_BYTES + _MOST_TIMES * shipped.size_bytes, str(work.place.below(shipped.name))
    with _downloaded(work, shipped, cache) as file:
        archive.unpack(file, folder, what=what, most_bytes=most, allowed=allowed)


@contextmanager
def _downloaded(work: Objects, shipped: Input, cache: Path) -> Iterator[IO[bytes]]:
    """Open the content of an input, downloaded and checked against its record."""
    place = work.place.below(shipped.name)
    if work.size(shipped.name) != shipped.size_bytes:
        raise AwsError(f"{place}: is not there, or has another size than was shipped; run again", "BadInput")
    with leftovers.scratch(cache / "shipping", "fetched") as folder, (folder / "fetched").open("w+b") as file:
        if _download(work, shipped.name, file) != shipped.sha256:
            raise AwsError(f"{place}: its content is not what was shipped; delete it, then run again", "BadInput")
        file.seek(0)
        yield file


def _download(work: Objects, name: str, file: IO[bytes]) -> str:
    """Download an object; start again, a few times, if the transfer breaks off."""
    for wait_s in _WAITS_S:
        try:
            return work.download(name, file)
        except AwsError:
            time.sleep(wait_s)
            file.seek(0)
            file.truncate()
    return work.download(name, file)


def _has(client: docker.DockerClient, digest: str) -> Image | None:
    with engine_errors():
        try:
            return client.images.get(digest)
        except ImageNotFound:
            return None

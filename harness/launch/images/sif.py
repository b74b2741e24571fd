"""Images for Apptainer (SIF) in the cache: found by their recipe, made of the archive of an engine's image.

Each file has a record, a small JSON file with its name; the two are copied together to another machine's cache.
"""

from __future__ import annotations

import contextlib
import subprocess
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import docker
from pydantic import Field

from harness import child_process, filesystem
from harness.config import ConfigModel, read_record
from harness.errors import FileError, ImageError
from harness.filesystem import sha256
from harness.launch import connection
from harness.launch.connection import engine_errors
from harness.launch.images import driver_code, image_archive, platforms
from harness.launch.images.builder import Image, ImageBuilder
from harness.launch.images.systems import System
from harness.progress import Progress, silent
from harness.untrusted import MAX_TEXT, one_line, to_json

FOLDER = "sif"
_MAX_RECORD_BYTES = 1 << 16
_ENGINE_S = 120
_SHA256 = r"^[0-9a-f]{64}$"
# Every Apptainer and kernel reads gzip.  Level 1 takes a quarter of the time of the usual level, for 7 % more bytes.
_SQUASHFS = "-comp gzip -Xcompression-level 1"
_BUILT_NOTHING = "install Apptainer (https://apptainer.org), or make the image on a machine that has it"


@dataclass(frozen=True)
class SifImage:
    """An image in the cache.  ``digest`` (``sha256:...``) names the content of its file.

    ``recipe`` is the hash of its inputs, as of :class:`harness.launch.images.builder.Image`.
    """

    path: Path
    recipe: str
    digest: str
    size_bytes: int


class SifRecord(ConfigModel):
    """The record of a SIF file; ``image`` is the id of the engine's image that it was made of."""

    recipe: str = Field(pattern=_SHA256)
    sha256: str = Field(pattern=_SHA256)
    size_bytes: int = Field(ge=1)
    platform: str
    driver: str
    image: str


def find(cache: Path, recipe: str) -> SifImage | None:
    """Return the image of a recipe whose driver measures alike, if its file has the recorded size; hash nothing."""
    for path in sorted((cache / FOLDER).glob(f"*-{recipe[:12]}*.json")):
        with contextlib.suppress(FileError, OSError):
            record = read_record(SifRecord, path, _MAX_RECORD_BYTES, "make the image again")
            file = path.with_suffix(".sif")
            if (record.recipe, record.size_bytes) == (recipe, file.stat().st_size) and driver_code.measures_alike(
                record.driver
            ):
                return SifImage(file, recipe, f"sha256:{record.sha256}", record.size_bytes)
    return None


def find_whole(cache: Path, recipe: str) -> SifImage | None:
    """Return the image of a recipe, as :func:`find`, if its file has the recorded hash."""
    found = find(cache, recipe)
    return found if found and found.digest == f"sha256:{sha256(found.path)}" else None


def make(cache: Path, archive: Path, image: Image) -> SifImage:
    """Return the image of a recipe; make a missing or changed one from its archive, as an ordinary user.

    Args:
        archive: of the image, written by :mod:`harness.launch.images.image_archive`.
        image: what the archive holds.

    Raises:
        ImageError: ``apptainer`` is missing or failed; quotes its last words.
        StoreError: the disk is full.
    """
    name = _name(image)
    with (
        filesystem.cache_lock(cache, f"{FOLDER}-{name}"),
        # It first removes the folder of an interrupted build.
        filesystem.scratch_folder(cache / FOLDER, name) as scratch,
    ):
        if found := find_whole(cache, image.recipe):
            return found
        built = scratch / f"{name}.sif"
        _build(image, archive, built, scratch)
        built.chmod(0o644)
        size, checksum = built.stat().st_size, sha256(built)
        record = SifRecord(
            recipe=image.recipe,
            sha256=checksum,
            size_bytes=size,
            platform=image.platform,
            driver=image.driver,
            image=image.digest,
        )
        described = scratch / f"{name}.json"
        described.write_text(to_json(record.model_dump(), indent=2), encoding="utf-8")
        target = cache / FOLDER / built.name
        # A file without its record counts as absent, so the record goes first and comes last.
        target.with_suffix(".json").unlink(missing_ok=True)
        built.replace(target)
        described.replace(target.with_suffix(".json"))
    return SifImage(target, image.recipe, f"sha256:{checksum}", size)


def make_from_engine(client: docker.DockerClient, cache: Path, image: Image) -> SifImage:
    """Return the image of an engine's image; a missing one is made of an archive that is removed afterwards.

    Raises:
        ImageError, StoreError: as :func:`make`, and as :func:`harness.launch.images.image_archive.write`.
        EngineError: the engine does not answer.
    """
    if found := find_whole(cache, image.recipe):
        return found
    with filesystem.scratch_folder(cache / "tmp", _name(image)) as scratch:
        archive = scratch / "image.tar"
        image_archive.write(client, image, archive)
        return make(cache, archive, image)


def build(
    cache: Path, engine_cache: Path, models: Path | None, system: System, progress: Progress = silent
) -> SifImage:
    """Return a system's image; make a missing one of an engine's image, which is built if need be.

    Args:
        cache: gets the image.
        engine_cache: what building needs: packages, weights.
        models: a local folder of models, besides the hub.
        system: for this host's platform.
        progress: takes the steps of the build.

    Raises:
        ImageError, StoreError: as :func:`make`, and as :meth:`ImageBuilder.ensure`.
        EngineError: no engine answers.
    """
    with engine_errors(), closing(connection.connect(_ENGINE_S)) as client:
        client.ping()
        # The drivers of older images cannot read the limits of an allocation.
        builder = ImageBuilder(client, engine_cache, models, progress=progress, measures_alike=driver_code.is_current)
        return make_from_engine(client, cache, builder.ensure(system))


def _owner(image: Image) -> str:
    """Return the owner of an image of the engine: a system's name, or ``engine-`` and an engine's."""
    return image.reference.partition(":")[0].removeprefix("harness-")


def _name(image: Image) -> str:
    return f"{_owner(image)}-{platforms.with_platform(image.recipe[:12], image.platform)}"


def _build(image: Image, archive: Path, target: Path, scratch: Path) -> None:
    """Build a SIF file; leave nothing running."""
    # Its caches and the unpacked image are as large as the image: they go where the image goes.
    folders = {"APPTAINER_TMPDIR": str(scratch), "APPTAINER_CACHEDIR": str(scratch / "cache")}
    arguments = ["--disable-cache", "--mksquashfs-args", _SQUASHFS, str(target), f"docker-archive:{archive}"]
    what = f"system {_owner(image)!r}: its image for Apptainer could not be made"
    try:
        child = subprocess.Popen(
            ["apptainer", "--quiet", "build", *arguments],
            env=child_process.environment(**folders),
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise ImageError(f"{what}: apptainer does not start ({error.strerror}); {_BUILT_NOTHING}") from error
    try:
        output = child.communicate()[0].decode("utf-8", "replace")
    finally:
        child_process.kill_group(child)
    if child.returncode or not target.is_file():
        filesystem.raise_if_disk_full(what, output)
        lines = [line for line in output.splitlines() if line.strip()]
        last = one_line(" | ".join(lines[-2:]) or f"exit code {child.returncode}", MAX_TEXT)
        raise ImageError(f"{what}: {last}; free the named cause, or make it on another machine")

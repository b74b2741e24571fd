"""Images as files in a folder, for machines without an engine or a network."""

from __future__ import annotations

import shutil
from pathlib import Path

import docker

from harness import filesystem
from harness.launch.images import image_archive, sif
from harness.launch.images.builder import Image

# What each form is read by.
FORMS = {"oci": "docker load, podman load, apptainer", "sif": "apptainer"}


def export(client: docker.DockerClient, cache: Path, image: Image, folder: Path, form: str) -> Path:
    """Write an image as a file of a folder; keep a file that is whole.

    Args:
        cache: keeps SIF images.
        form: a key of :data:`FORMS`.  ``sif`` writes the image's record too: a cache's ``sif`` folder takes both.

    Raises:
        ImageError: the image is damaged, or apptainer is missing or fails.
        EngineError: the engine does not answer.
        StoreError, FileError: the disk is full, or the folder cannot be written.
    """
    if form == "oci":
        target = folder / f"{image.reference.replace(':', '-')}.tar"
        image_archive.write(client, image, target)
        return target
    made = sif.make_from_engine(client, cache, image)
    for source in (made.path.with_suffix(".json"), made.path):
        copy(source, folder / source.name)
    return folder / made.path.name


def copy(source: Path, target: Path) -> None:
    """Copy a file whole, unless the target has its content.

    Raises:
        StoreError, FileError: the disk is full, or the target cannot be written.
    """
    same_size = target.is_file() and target.stat().st_size == source.stat().st_size
    if same_size and filesystem.sha256(target) == filesystem.sha256(source):
        return
    with filesystem.atomic_write(target) as path:
        shutil.copyfile(source, path)

"""Readers of the files that images get: wheels, sdists, folders of models."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from functools import partial
from pathlib import Path

from harness import filesystem
from harness.errors import HarnessError
from harness.launch.images import assets, driver_code, image_archive, pins, sif
from harness.launch.images.asset import Asset
from harness.remote import stage
from tests.fuzz.child import NAMED, Reader
from tests.launch.images import test_image_archive as images
from tests.support import package_index, wheel_file

_FILES = {"config.json": b'{"a": 1}\n', "model.safetensors": b"weights " * 4000}
_PACKAGES = ("a.whl", "b.tar.gz")


def _make_packages(folder: Path) -> None:
    members = {"toy/other.py": b"pass\n", **{f"toy/data/{name}": content for name, content in _FILES.items()}}
    (folder / "a.whl").write_bytes(wheel_file.packed(members))
    (folder / "b.tar.gz").write_bytes(package_index.sdist(members))


def _read_packages(folder: Path, scratch: Path) -> object:
    """Extract the files that an asset names from each distribution; a damaged one does not spare the next."""
    found: list[object] = []
    for package in _PACKAGES:
        (scratch / package).mkdir()
        with suppress(*assets._DAMAGE):
            files = assets._extracted(
                folder / package, {f"toy/data/{name}": name for name in _FILES}, scratch / package
            )
            found += [(name, path.read_bytes()) for name, path in files.items()]
    return found


def _asset(**more: object) -> Asset:
    return Asset.model_validate({"folder": "model", "hub": "us/model", "licence": "MIT", "files": [*_FILES], **more})


def _make_models(folder: Path) -> None:
    """Write a folder of models: one by its name, one as the hub's cache keeps it, with links."""
    blobs = folder / "models--us--model" / "blobs"
    for place in (folder / "plain" / "model", folder / "linked" / "model", blobs):
        place.mkdir(parents=True)
    for name, content in _FILES.items():
        (folder / "plain" / "model" / name).write_bytes(content)
        blob = blobs / hashlib.sha256(content).hexdigest()
        blob.write_bytes(content)
        (folder / "linked" / "model" / name).symlink_to(os.path.relpath(blob, folder / "linked" / "model"))


def _read_models(folder: Path, scratch: Path) -> object:
    """Pin an asset by each folder of models, and fetch its files from the first."""
    found: list[object] = []
    for models in (folder / "plain", folder / "linked"):
        with suppress(HarnessError):
            found.append(pins.from_folder(_asset(), models).sha256)
    # Without its name on the hub, which would be asked first.
    pinned = _asset(hub=None, files=[], sha256={n: hashlib.sha256(c).hexdigest() for n, c in _FILES.items()})
    with suppress(HarnessError):
        tree = assets.fetch("us", (pinned,), scratch, folder / "plain")
        found += [path.read_bytes() for path in tree.rglob("*") if path.is_file()]
    return found


def _make_image(folder: Path) -> None:
    """Write an image as Docker 20 sends it, with its link, and as containerd's store does, packed."""
    packed, _ = images.containerd()
    (folder / "docker.tar").write_bytes(images.tar(images.docker_20()))
    (folder / "containerd.tar").write_bytes(images.tar(packed))


def _read_image(folder: Path, scratch: Path) -> object:
    """Write what an engine sent as one tar; its blobs have the hashes that the image names, or there is none."""
    found: list[object] = []
    for number, (name, digest) in enumerate(
        (("docker", images.image().digest), ("containerd", images.containerd()[1]))
    ):
        (scratch / str(number)).mkdir()
        with suppress(HarnessError, OSError), (folder / f"{name}.tar").open("rb") as file:
            sent = iter(partial(file.read, 1 << 16), b"")
            image_archive.write_sent(sent, images.image(digest), scratch / f"{number}.tar", scratch / str(number))
            found.append(hashlib.sha256((scratch / f"{number}.tar").read_bytes()).hexdigest())
    assert len(set(found)) <= 1, "the same image gives the same bytes"
    return found


def _make_staged(folder: Path) -> None:
    """Write a staged folder with an image for Apptainer."""
    (folder / "cache" / "sif").mkdir(parents=True)
    (folder / "cache" / "sif" / f"toy-{'0' * 12}.sif").write_bytes(b"image")
    record = sif.SifRecord(
        recipe="0" * 64,
        sha256=hashlib.sha256(b"image").hexdigest(),
        size_bytes=5,
        platform="linux/amd64",
        driver=driver_code.code_hash(),
        image="sha256:0",
    )
    (folder / "cache" / "sif" / f"toy-{'0' * 12}.json").write_text(record.model_dump_json(), encoding="utf-8")
    filesystem.write_checksums(folder)


def _read_staged(folder: Path, _scratch: Path) -> object:
    """Find the image, and check the folder."""
    found = sif.find_whole(folder / "cache", "0" * 64)
    assert found is None or found.path.read_bytes() == b"image"
    stage._check_earlier(folder)
    return found


READERS = (
    # An engine sends a stream, which has no oddities of a file.
    Reader(
        "images of an engine",
        _make_image,
        _read_image,
        ("docker.tar", "containerd.tar"),
        skips=NAMED | {"a socket"},
        weight=0.5,
    ),
    Reader(
        "staged folders", _make_staged, _read_staged, ("cache/sif/*.json", "cache/sif/*.sif", "SHA256SUMS"), weight=0.5
    ),
    # harness itself writes a distribution's file, so that it is a regular one.
    Reader(
        "distributions", _make_packages, _read_packages, _PACKAGES, errors=(), skips=NAMED | {"a socket"}, weight=0.5
    ),
    Reader(
        "folders of models",
        _make_models,
        _read_models,
        (*(f"plain/model/{name}" for name in _FILES), "models--us--model/blobs/*"),
        errors=(),
        skips=frozenset({"a sparse file of 1 GiB"}),  # weights may be as large
        weight=0.25,
    ),
)

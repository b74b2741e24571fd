"""Readers of the files that images get: wheels, sdists, folders of models."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from harness.errors import HarnessError
from harness.launch.images import assets, pins
from harness.launch.images.systems import Asset
from tests.fuzz.child import NAMED, Reader
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


READERS = (
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

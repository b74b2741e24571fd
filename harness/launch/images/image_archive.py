"""An image of the engine as one tar: a docker-archive and an OCI layout at once, the same bytes for the same image.

``docker load``, ``podman load`` and apptainer read ``manifest.json``; tools of OCI read ``index.json``.  Both name the
same blobs.  Engines write other layouts: Docker 20 a folder for each layer, Docker 25 and Podman theirs.  What the
engine sends is read as a stranger's: its size is bounded, and every blob must have the hash that the image names.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import posixpath
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import docker

from harness import filesystem
from harness.containment import is_plain_name, tar_entries
from harness.errors import ImageError
from harness.launch.connection import engine_errors
from harness.launch.images import recipes
from harness.launch.images.builder import Image
from harness.untrusted import one_line, parse_json, read_whole, reason_of

_BLOBS = "blobs/sha256"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"
# The tar of an image is larger than its files: a header and padding for each, and the engine may count them packed.
_MOST_TIMES, _LEAST_BYTES = 8, 1 << 30
_MAX_JSON_BYTES = 16 << 20
_MAX_LAYERS = 512
_PIECE_BYTES = 1 << 20
_GZIP = b"\x1f\x8b"


def write(client: docker.DockerClient, image: Image, target: Path) -> None:
    """Write an image as one tar.

    Args:
        target: the file; it exists afterwards only if it is whole.  Its folder holds as much again meanwhile.

    Raises:
        ImageError: the engine sent a damaged image, or another one.
        EngineError: the engine does not answer.
        StoreError, FileError: the disk is full, or the file cannot be written.
    """
    with filesystem.scratch_folder(target.parent, "image") as scratch, engine_errors():
        sent = client.api.get_image(image.reference)
        write_sent(sent, image, target, scratch)


def write_sent(sent: Iterable[bytes], image: Image, target: Path, scratch: Path) -> None:
    """Write the tar that an engine sends of an image, in any layout, as one tar; see :func:`write`.

    Args:
        scratch: an empty folder.
    """
    try:
        content = _unpack(sent, scratch, _MOST_TIMES * image.size_bytes + _LEAST_BYTES)
        entries = dict(_entries(content, image))
    except (tarfile.TarError, EOFError, ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
        raise ImageError(
            f"{image.reference}: the engine sent a damaged image ({one_line(reason_of(error), 200)}); run this again"
        ) from error
    with filesystem.atomic_write(target) as path, path.open("wb") as file:
        recipes.write_tar(file, entries)


@dataclass(frozen=True)
class _Sent:
    """The files that the engine sent, by their names; ``links`` lead to other names."""

    files: dict[str, Path] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def name(self, name: str) -> str:
        """Return the name of a file after at most one link.

        Raises:
            ValueError: no file has that name.
        """
        found = self.links.get(name, name)
        if found not in self.files:
            raise ValueError(f"it has no file {one_line(name, 100)!r}")
        return found

    def json(self, name: str) -> Any:
        """Read a small file of JSON."""
        return parse_json(read_whole(self.files[self.name(name)], _MAX_JSON_BYTES))


def _unpack(sent: Iterable[bytes], scratch: Path, most_bytes: int) -> _Sent:
    """Write the files of the engine's tar under names of our own; never follow a link."""
    found = _Sent()
    for number, (entry, content) in enumerate(tar_entries(cast(IO[bytes], _Stream(sent)), most_bytes=most_bytes)):
        name = entry.name.removeprefix("./")
        if entry.issym() or entry.islnk():
            # Docker 20 links a layer that comes twice.
            beside = posixpath.dirname(name) if entry.issym() else ""
            found.links[name] = posixpath.normpath(posixpath.join(beside, entry.linkname))
        elif content is not None and not entry.issparse():
            if not is_plain_name(name) or name in found.files:
                raise ValueError(f"its file {one_line(name, 100)!r} has a wrong name")
            path = scratch / str(number)
            with path.open("wb") as file:
                found.hashes[name] = _copy(content, file)
            found.files[name] = path
    return found


def _entries(sent: _Sent, image: Image) -> Iterator[tuple[str, Path | bytes | None]]:
    """Yield the files of the tar in their order.

    Raises:
        ValueError: a blob has another hash than the image names.
    """
    listed = sent.json("manifest.json")
    if not isinstance(listed, list) or len(listed) != 1:
        raise ValueError("its manifest does not name one image")
    config_name = sent.name(str(listed[0]["Config"]))
    _check_identity(sent, config_name, image.digest)
    config = sent.files[config_name]
    layers, wanted = [str(name) for name in listed[0]["Layers"]], _diff_ids(sent.json(config_name))
    if len(layers) != len(wanted):
        raise ValueError(f"it names {len(wanted)} layers and has {len(layers)}")
    blobs = {f"{_BLOBS}/{sent.hashes[config_name]}": config}
    rows = [_row(_CONFIG, sent.hashes[config_name], config.stat().st_size)]
    for layer, sha256 in zip(layers, wanted, strict=True):
        path = _plain_layer(sent, sent.name(layer), sha256)
        blobs[f"{_BLOBS}/{sha256}"] = path
        rows.append(_row(_LAYER, sha256, path.stat().st_size))
    manifest = _as_json({"schemaVersion": 2, "mediaType": _MANIFEST, "config": rows[0], "layers": rows[1:]})
    manifest_row = _row(_MANIFEST, hashlib.sha256(manifest).hexdigest(), len(manifest))
    # The first is read by podman, the second by engines with containerd's store.
    named = {
        "org.opencontainers.image.ref.name": image.reference,
        "io.containerd.image.name": f"docker.io/library/{image.reference}",
    }
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [{**manifest_row, "annotations": named}]}
    paths = [f"{_BLOBS}/{row['digest'].removeprefix('sha256:')}" for row in rows]
    docker_manifest = [{"Config": paths[0], "RepoTags": [image.reference], "Layers": paths[1:]}]
    # Small files first: a reader of a stream learns at once what it gets.
    yield "oci-layout", _as_json({"imageLayoutVersion": "1.0.0"})
    yield "index.json", _as_json(index)
    yield "manifest.json", _as_json(docker_manifest)
    yield from ((folder, None) for folder in ("blobs", _BLOBS))  # apptainer makes no folder by itself
    yield f"{_BLOBS}/{hashlib.sha256(manifest).hexdigest()}", manifest
    yield from blobs.items()


def _check_identity(sent: _Sent, config: str, digest: str) -> None:
    """Check that the configuration is the image's: an id names it, or a manifest that names it."""
    if digest == f"sha256:{sent.hashes[config]}":
        return
    manifest = f"{_BLOBS}/{digest.removeprefix('sha256:')}"  # the id of an image in containerd's store
    for _ in range(2):  # it may be an index of one platform's manifest
        if sent.hashes.get(manifest) != manifest.rpartition("/")[2]:
            break
        read = sent.json(manifest)
        if "config" in read:
            if read["config"]["digest"] == f"sha256:{sent.hashes[config]}":
                return
            break
        present = [row["digest"].removeprefix("sha256:") for row in read["manifests"]]
        manifest = next((name for each in present if (name := f"{_BLOBS}/{each}") in sent.files), "")
    raise ValueError(f"it is another image than {digest[:19]}")


def _diff_ids(config: Any) -> list[str]:
    """Return the hashes of an image's unpacked layers."""
    diff_ids = config["rootfs"]["diff_ids"]
    if not isinstance(diff_ids, list) or len(diff_ids) > _MAX_LAYERS:
        raise ValueError(f"it has more than {_MAX_LAYERS} layers")
    hashes = [str(each).removeprefix("sha256:") for each in diff_ids]
    if any(len(each) != 64 or set(each) - set("0123456789abcdef") for each in hashes):
        raise ValueError("its layers have no SHA-256")
    return hashes


def _plain_layer(sent: _Sent, name: str, sha256: str) -> Path:
    """Return a layer as a plain tar of that hash; unpack one that the engine stores packed."""
    path = sent.files[name]
    if sent.hashes[name] == sha256:
        return path
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
    if packed:
        plain = path.with_name(f"{path.name}.tar")
        most_bytes = _MOST_TIMES * path.stat().st_size + _LEAST_BYTES
        with gzip.open(path) as source, plain.open("wb") as target:
            if _copy(cast(IO[bytes], source), target, most_bytes) == sha256:
                return plain
    raise ValueError(f"its layer {one_line(name, 100)} has another content than its hash {sha256[:12]}")


def _copy(source: IO[bytes], target: IO[bytes], most_bytes: int | None = None) -> str:
    """Copy a stream; return its SHA-256."""
    digest, left = hashlib.sha256(), most_bytes
    while piece := source.read(_PIECE_BYTES):
        if left is not None and (left := left - len(piece)) < 0:
            raise ValueError(f"a layer unpacks to more than {most_bytes:,} bytes")
        digest.update(piece)
        target.write(piece)
    return digest.hexdigest()


def _row(kind: str, sha256: str, size: int) -> dict[str, Any]:
    return {"mediaType": kind, "digest": f"sha256:{sha256}", "size": size}


def _as_json(value: Mapping[str, Any] | list[Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


class _Stream(io.RawIOBase):
    """A file to read of the pieces that an engine sends."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._next: Callable[[], bytes] = iter(pieces).__next__
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Return exactly ``size`` bytes, fewer at the end alone."""
        parts: list[memoryview] = []
        while size > 0:
            if not self._rest:
                try:
                    self._rest = memoryview(self._next())
                except StopIteration:
                    break
                continue
            parts.append(self._rest[:size])
            size -= len(parts[-1])
            self._rest = self._rest[len(parts[-1]) :]
        return b"".join(parts)

"""An image as one tar: the same bytes from every engine's layout; what an engine sends is a stranger's."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from harness.errors import ImageError
from harness.launch.images import image_archive
from harness.launch.images.builder import Image

REFERENCE = "harness-toy:0123456789ab"
Files = dict[str, bytes | str]  # a text is a link


def tar(files: Files) -> bytes:
    """Pack files and links, in their order."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as opened:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                opened.addfile(entry)
            else:
                entry.size = len(content)
                opened.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


LAYERS = [tar({"a.txt": b"one"}), tar({"b.txt": b"two" * 5000}), tar({"a.txt": b"one"})]  # the last comes twice


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


CONFIG = json.dumps(
    {
        "architecture": "amd64",
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha(x)}" for x in LAYERS]},
    }
).encode()


def manifest(config: str, layers: list[str]) -> bytes:
    return json.dumps([{"Config": config, "RepoTags": [REFERENCE], "Layers": layers}]).encode()


def docker_20() -> Files:
    folders = ["1" * 64, "2" * 64, "3" * 64]
    files: Files = {f"{name}/layer.tar": layer for name, layer in zip(folders[:2], LAYERS, strict=False)}
    files[f"{folders[2]}/layer.tar"] = f"../{folders[0]}/layer.tar"
    files[f"{sha(CONFIG)}.json"] = CONFIG
    return {**files, "manifest.json": manifest(f"{sha(CONFIG)}.json", [f"{name}/layer.tar" for name in folders])}


def docker_25() -> Files:
    blobs: Files = {f"blobs/sha256/{sha(blob)}": blob for blob in (CONFIG, *LAYERS)}
    names = [f"blobs/sha256/{sha(layer)}" for layer in LAYERS]
    return {**blobs, "index.json": b"{}", "manifest.json": manifest(f"blobs/sha256/{sha(CONFIG)}", names)}


def podman() -> Files:
    files: Files = {f"{sha(layer)}.tar": layer for layer in LAYERS}
    files[f"{sha(CONFIG)}.json"] = CONFIG
    return {**files, "manifest.json": manifest(f"{sha(CONFIG)}.json", [f"{sha(layer)}.tar" for layer in LAYERS])}


def containerd() -> tuple[Files, str]:
    """Packed layers, in an image whose id is its manifest's hash."""
    packed = [gzip.compress(layer) for layer in LAYERS]
    inner = json.dumps({"config": {"digest": f"sha256:{sha(CONFIG)}"}}).encode()
    blobs: Files = {f"blobs/sha256/{sha(blob)}": blob for blob in (CONFIG, inner, *packed)}
    names = [f"blobs/sha256/{sha(layer)}" for layer in packed]
    return {**blobs, "manifest.json": manifest(f"blobs/sha256/{sha(CONFIG)}", names)}, f"sha256:{sha(inner)}"


def image(digest: str = f"sha256:{sha(CONFIG)}") -> Image:
    return Image(REFERENCE, "0123456789ab" + "0" * 52, digest, 1000, "driver")


def pieces(content: bytes) -> Iterator[bytes]:
    return (content[start : start + 777] for start in range(0, len(content), 777))


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., bytes]:
    def written(sent: bytes, of: Image | None = None) -> bytes:
        scratch = tmp_path / "scratch"
        scratch.mkdir(exist_ok=True)
        image_archive.write_sent(pieces(sent), of or image(), tmp_path / "image.tar", scratch)
        return (tmp_path / "image.tar").read_bytes()

    return written


def test_every_layout_gives_the_same_bytes_which_both_kinds_of_readers_find(write: Callable[..., bytes]) -> None:
    packed, digest = containerd()
    made = [write(tar(files())) for files in (docker_20, docker_25, podman)] + [write(tar(packed), image(digest))]
    assert len(set(made)) == 1
    with tarfile.open(fileobj=io.BytesIO(made[0])) as opened:
        files = {entry.name: opened.extractfile(entry) for entry in opened if entry.isfile()}
        content = {name: file.read() for name, file in files.items() if file}
        assert {(entry.mtime, entry.uid) for entry in opened.getmembers()} == {(0, 0)}
    blobs = {name: blob for name, blob in content.items() if name.startswith("blobs/")}
    assert all(name == f"blobs/sha256/{sha(blob)}" for name, blob in blobs.items())
    (entry,) = json.loads(content["manifest.json"])
    assert [content[name] for name in entry["Layers"]] == LAYERS and content[entry["Config"]] == CONFIG
    (row,) = json.loads(content["index.json"])["manifests"]
    inner = json.loads(content[f"blobs/sha256/{row['digest'].removeprefix('sha256:')}"])
    assert [layer["digest"] for layer in inner["layers"]] == [f"sha256:{sha(layer)}" for layer in LAYERS]
    assert inner["config"] == {
        "mediaType": "application/vnd.oci.image.config.v1+json",
        "digest": f"sha256:{sha(CONFIG)}",
        "size": len(CONFIG),
    }


def changed(files: Files, name: str, content: bytes | str) -> Files:
    assert name in files or name.startswith("new")
    return {**files, name.removeprefix("new "): content}


WRONG: dict[str, tuple[Callable[[], bytes], str]] = {
    "layer": (lambda: tar(changed(docker_20(), f"{'2' * 64}/layer.tar", tar({"b.txt": b"evil"}))), "another content"),
    "config": (lambda: tar(changed(podman(), f"{sha(CONFIG)}.json", CONFIG + b" ")), "another image"),
    "link out": (lambda: tar(changed(docker_20(), f"{'3' * 64}/layer.tar", "../../../etc/passwd")), "has no file"),
    "absolute": (lambda: tar(changed(docker_20(), f"{'3' * 64}/layer.tar", "/etc/passwd")), "has no file"),
    "name": (lambda: tar(changed(docker_20(), "new ../../evil", b"x")), "wrong name"),
    "two images": (
        lambda: tar(changed(podman(), "manifest.json", json.dumps(json.loads(podman()["manifest.json"]) * 2).encode())),
        "one image",
    ),
    "few layers": (lambda: tar(changed(podman(), "manifest.json", manifest(f"{sha(CONFIG)}.json", []))), "3 layers"),
    "no manifest": (lambda: tar({"a": b""}), "has no file 'manifest.json'"),
    "cut": (lambda: tar(docker_20())[:3000], "damaged image"),
    "no tar": (lambda: b"<html>" * 1000, "damaged image"),
    "list": (lambda: tar(changed(podman(), "manifest.json", b'["x"]')), "damaged image"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_damaged_image_is_refused_and_leaves_no_file(wrong: str, write: Callable[..., bytes], tmp_path: Path) -> None:
    make, words = WRONG[wrong]
    with pytest.raises(ImageError, match=words):
        write(make())
    assert not (tmp_path / "image.tar").exists()


def test_an_image_without_end_is_refused_at_its_bound(
    write: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_archive, "_LEAST_BYTES", 0)
    with pytest.raises(ImageError, match="damaged image"):
        write(tar({**docker_20(), "0": bytes(9000)}))


@pytest.mark.docker
def test_the_engine_loads_what_was_written_as_the_same_image(engine: docker.DockerClient, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /a\nCOPY Dockerfile /b\n", encoding="ascii")
    reference = f"harness-toy:{sha(str(tmp_path).encode())[:12]}"
    built, _ = engine.images.build(path=str(tmp_path), tag=reference, rm=True, use_config_proxy=False)
    try:
        own = Image(reference, "0" * 64, str(built.id), int(built.attrs["Size"]), "driver")
        image_archive.write(engine, own, tmp_path / "one.tar")
        image_archive.write(engine, own, tmp_path / "two.tar")
        assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
        engine.images.remove(reference, force=True)
        with (tmp_path / "one.tar").open("rb") as file:
            (loaded,) = engine.images.load(file)
        assert loaded.id == built.id and engine.images.get(reference).id == built.id
    finally:
        engine.images.remove(reference, force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Dockerfile", "one.tar", "two.tar"]

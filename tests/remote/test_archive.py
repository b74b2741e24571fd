"""Tars: the same bytes for the same files, and nothing that is unpacked leaves its folder."""

from __future__ import annotations

import errno
import gzip
import io
import os
import shutil
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, cast

import pytest

from harness.containment import tar_entries
from harness.errors import RemoteError
from harness.remote import archive
from tests.support.messages import PYTHON


def tar_of(*entries: tarfile.TarInfo) -> io.BytesIO:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        for entry in entries:
            tar.addfile(entry, io.BytesIO(b"x" * entry.size))
    target.seek(0)
    return target


def entry(name: str, kind: bytes = tarfile.REGTYPE, **more: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type = kind
    if kind == tarfile.REGTYPE:
        made.size = 3
    for key, value in more.items():
        setattr(made, key, value)
    return made


def unpack(source: IO[bytes], folder: Path, most_bytes: int = 1000) -> None:
    archive.unpack(source, folder, what="s3://b/x.tar", most_bytes=most_bytes)


def test_packed_files_are_unpacked(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o700)
    plain = tmp_path / "plain"
    plain.write_bytes(b"\0" * 5000)
    plain.chmod(0o600)
    path, out = tmp_path / "x.tar.gz", tmp_path / "out"
    entries: archive.Entries = [("a/b/script", script), ("empty/", b""), ("plain", plain), ("t", "é".encode())]
    archive.write_gz(path, entries)
    out.mkdir()
    with gzip.open(path) as file:
        archive.unpack(cast(IO[bytes], file), out, what="x", most_bytes=10_000)
    assert (out / "a/b/script").read_bytes() == script.read_bytes() and os.access(out / "a/b/script", os.X_OK)
    assert (out / "plain").read_bytes() == plain.read_bytes() and (out / "plain").stat().st_mode & 0o777 == 0o644
    assert (out / "t").read_bytes() == "é".encode()
    assert (out / "empty").is_dir()


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "a/../../x", ".", "./x", "a//b", "a\\b", "a\x01", "x" * 2000], ids=lambda name: name[:9]
)
def test_names_outside_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    with pytest.raises(RemoteError, match=r"s3://b/x\.tar: .* does not belong in it") as caught:
        unpack(tar_of(entry(name)), folder)
    assert caught.value.code == "BadTar" and not list(folder.iterdir()) and list(tmp_path.rglob("x")) == []


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(RemoteError, match="is not a regular file"):
        unpack(tar_of(entry("x", kind, linkname="/etc/passwd")), tmp_path)
    assert not list(tmp_path.iterdir())


def test_duplicate_file_and_oversize_archive_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RemoteError, match="File exists"):
        unpack(tar_of(entry("x"), entry("x")), tmp_path)
    with pytest.raises(RemoteError, match="more than"):
        unpack(tar_of(entry("y"), entry("z")), tmp_path, most_bytes=5)
    assert not (tmp_path / "z").exists()
    monkeypatch.setattr(archive, "tar_entries", partial(tar_entries, most_entries=2))
    with pytest.raises(RemoteError, match="more than"):
        unpack(tar_of(*(entry(f"folder{n}", tarfile.DIRTYPE) for n in range(3))), tmp_path)


def test_a_name_must_be_allowed(tmp_path: Path) -> None:
    with pytest.raises(RemoteError, match="'y' does not belong in it"):
        archive.unpack(tar_of(entry("x"), entry("y")), tmp_path, what="t", most_bytes=99, allowed={"x"}.__contains__)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: gzip.compress(content)[:2000],
        lambda content: gzip.compress(content)[:100] + b"\xff" * 50 + gzip.compress(content)[150:],
        lambda content: gzip.compress(content)[:20],
        lambda _: b"PK\3\4 and more",
        lambda _: b"",
    ],
)
def test_a_damaged_tar_is_one_line_in_plain_words(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    target = io.BytesIO()
    archive.write(target, [("x", os.urandom(4000))])
    spoiled = io.BytesIO(spoil(target.getvalue()))
    with gzip.open(spoiled) as source, pytest.raises(RemoteError, match="it is damaged") as caught:
        unpack(cast(IO[bytes], source), tmp_path, 10_000)
    assert "\n" not in str(caught.value) and not PYTHON.search(str(caught.value))


def test_a_folder_must_be_allowed_as_a_folder(tmp_path: Path) -> None:
    folder = tar_of(entry("x", tarfile.DIRTYPE))
    with pytest.raises(RemoteError, match="'x' does not belong in it"):
        archive.unpack(folder, tmp_path, what="t", most_bytes=99, allowed={"x"}.__contains__)
    folder.seek(0)
    archive.unpack(folder, tmp_path, what="t", most_bytes=99, allowed={"x/"}.__contains__)
    assert (tmp_path / "x").is_dir()


@pytest.mark.parametrize(
    "entries",
    [
        (entry("x", tarfile.DIRTYPE), entry("x")),
        (entry("x"), entry("x", tarfile.DIRTYPE)),
        (entry("x"), entry("x/y")),
        (entry("x" * 300),),
        (entry("x" * 300, tarfile.DIRTYPE),),
    ],
    ids=["folder, file", "file, folder", "file as a folder", "long", "long folder"],
)
def test_names_that_the_disk_refuses_are_an_error_of_the_tar(
    tmp_path: Path, entries: tuple[tarfile.TarInfo, ...]
) -> None:
    with pytest.raises(RemoteError, match="it is damaged") as caught:
        unpack(tar_of(*entries), tmp_path)
    assert caught.value.code == "BadTar"


def test_full_disk_is_not_an_error_of_the_tar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(OSError, match="No space left"):
        unpack(tar_of(entry("x")), tmp_path)


class Endless(io.RawIOBase):
    """One block over and over; ``given``: bytes read so far."""

    def __init__(self, header: bytes, block: bytes) -> None:
        self.given, self._header, self._block = 0, header, block

    def read(self, size: int = -1) -> bytes:
        content = (self._header + self._block * (size // len(self._block) + 1))[:size]
        self.given, self._header = self.given + size, b""
        return content


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("size", [4 << 30, 0], ids=["large", "many"])
def test_oversize_extended_header_is_refused(tmp_path: Path, kind: bytes, size: int) -> None:
    """A few MiB become GiB in memory: headers count, not files alone."""
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, size
    block = header.tobuf(tarfile.GNU_FORMAT)
    source = Endless(block, bytes(512) if size else block)
    with pytest.raises(RemoteError, match="header has more than"):
        unpack(source, tmp_path, 1 << 40)
    assert source.given < 1 << 20


def test_size_of_a_folder_allows_no_larger_header(tmp_path: Path) -> None:
    folder, header = entry("x", tarfile.DIRTYPE, size=1 << 30), tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 1 << 29
    source = Endless(folder.tobuf(tarfile.GNU_FORMAT) + header.tobuf(tarfile.GNU_FORMAT), bytes(512))
    with pytest.raises(RemoteError, match="header has more than"):
        unpack(source, tmp_path, 1 << 40)
    assert source.given < 1 << 20


def test_negative_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RemoteError, match="more than"):
        unpack(io.BytesIO(entry("x", size=-512).tobuf(tarfile.GNU_FORMAT) + bytes(1024)), tmp_path)

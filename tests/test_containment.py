"""Tests of names, links and archives of other people."""

from __future__ import annotations

import io
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from harness import containment
from harness.errors import FileError
from tests.fuzz import archive_changes


@pytest.mark.parametrize("name", ["a/b", "a b/c.txt", "\u00e4\u00f6", "..a", "a..", "-x"])
def test_plain_names_stay_inside_a_folder(tmp_path: Path, name: str) -> None:
    assert containment.inside(tmp_path, name) == tmp_path / name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../a", "a/../b", "/a", "a//b", "a/", "./a", "a\\b", "a\nb", "\x00", "a" * 1025]
)
def test_names_that_could_leave_a_folder_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileError, match=r"must stay below") as caught:
        containment.inside(tmp_path, name)
    assert "\n" not in str(caught.value)


def test_links_are_followed_within_their_folder_alone(tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "file.py").write_text("")
    (tmp_path / "in" / "deep" / "up.py").symlink_to("../file.py")
    (tmp_path / "link").symlink_to("in")
    found = [
        path.relative_to(tmp_path / "link").as_posix() for path in containment.files_inside(tmp_path / "link", "*.py")
    ]
    assert found == ["file.py", "deep/up.py"], "the folder itself may be reached by a link"
    (tmp_path / "in-too.py").write_text("")
    (tmp_path / "in" / "deep" / "out.py").symlink_to("../../in-too.py")
    with pytest.raises(FileError, match=r"deep/out\.py: is a link out of .*in-too\.py; put the file itself there"):
        list(containment.files_inside(tmp_path / "in", "*.py"))
    (tmp_path / "in" / "loop").symlink_to("loop")
    with pytest.raises(FileError, match=r"loop: is a link that leads nowhere"):
        containment.inside(tmp_path / "in", "loop")


def test_header_of_a_tar_is_never_held_whole() -> None:
    """A header that claims 64 MiB of further names is given up after 32 KiB."""
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 64 << 20
    with pytest.raises(tarfile.ReadError, match="header has more than 32 KiB"):
        list(containment.tar_entries(io.BytesIO(header.tobuf() + bytes(64 << 20)), most_bytes=1 << 40))


@pytest.mark.slow
def test_entries_of_a_tar_are_not_kept() -> None:
    """Headers meant for all entries have 9 MiB here, and gone when the next entry is read."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for number in range(800):
            for_all = {f"k{number}": "x" * (12 << 10)}
            packed.write(tarfile.TarInfo.create_pax_global_header(for_all))
            tar.addfile(tarfile.TarInfo(f"f{number}"))
    packed.seek(0)
    tracemalloc.start()
    try:
        entries = sum(1 for _ in containment.tar_entries(packed, most_bytes=1 << 30))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert entries == 800 and peak < 2 << 20, peak


def test_zip_with_a_large_directory_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.whl"
    path.write_bytes(archive_changes.zip_of_many(1000))
    with containment.open_zip(path) as opened:
        assert len(opened.infolist()) == 1000
    path.write_bytes(archive_changes.zip_of_many(200_000))
    with pytest.raises(zipfile.BadZipFile, match="its list of files has more than 8 MiB"), containment.open_zip(path):
        pass

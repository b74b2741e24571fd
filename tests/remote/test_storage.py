"""The contract of a storage, on S3 and on a shared folder; and what a shared folder refuses."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.errors import RemoteError, UsageError
from harness.remote.failures import NO_STORAGE
from harness.remote.shared_folder import SharedFolder, open_folder
from harness.remote.storage import Storage


@pytest.fixture
def folder(tmp_path: Path) -> SharedFolder:
    path = tmp_path / "shared"
    path.mkdir(mode=0o750)
    return open_folder(path)


@pytest.fixture(params=["folder", pytest.param("S3", marks=pytest.mark.cloud)])
def storage(request: pytest.FixtureRequest) -> Storage:
    made: Storage = request.getfixturevalue("folder" if request.param == "folder" else "work")
    return made


def test_object_is_read_listed_and_deleted(storage: Storage) -> None:
    storage.put("a/one", b"1")
    storage.put("a/one", b"11")
    storage.put("b/two", b"2")
    storage.below("a", "deep").put("three", b"3")
    assert [stored.name for stored in storage.list()] == ["a/deep/three", "a/one", "b/two"]
    assert [stored.name for stored in storage.list("a/")] == ["a/deep/three", "a/one"]
    assert [stored.name for stored in storage.list("a/o")] == ["a/one"]
    assert [stored.name for stored in storage.below("a").list()] == ["deep/three", "one"]
    assert [stored.name for stored in storage.below("a").list("deep/")] == ["deep/three"]
    assert list(storage.list("none/")) == []
    assert (storage.get("a/one", 2), storage.size("a/one")) == (b"11", 2)
    assert storage.delete(["a/one", "b/absent"]) == 2
    assert storage.get("a/one", 2) is None and storage.size("a/one") is None and storage.state("a/one") is None


def test_etag_changes_with_the_content(storage: Storage) -> None:
    storage.put("a", b"1")
    [before] = storage.list("a")
    storage.put("a", b"2")
    [after] = storage.list("a")
    assert before.etag != after.etag and before.size_bytes == after.size_bytes == 1


def test_one_of_many_writers_wins(storage: Storage) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda number: storage.put_new("claim", str(number).encode()), range(8)))
    assert won.count(True) == 1
    assert storage.get("claim", 9) == str(won.index(True)).encode()
    assert len(list(storage.list())) == 1


def test_larger_object_than_allowed_is_not_read(storage: Storage, tmp_path: Path) -> None:
    storage.put("a", b"x" * 100)
    with pytest.raises(RemoteError) as caught:
        storage.get("a", 99)
    assert caught.value.code == "TooLarge" and storage.where("a") in str(caught.value)
    assert storage.download("a", tmp_path / "copy", 99) != hashlib.sha256(b"x" * 100).hexdigest() or (
        (tmp_path / "copy").stat().st_size <= 100
    )


def test_file_is_uploaded_copied_and_verified(storage: Storage, tmp_path: Path) -> None:
    path, content = tmp_path / "file", os.urandom(3 << 20)
    path.write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    assert storage.upload_new("up", path) and not storage.upload_new("up", path)
    assert storage.copy_new("up", "copied/here") and not storage.copy_new("up", "copied/here")
    state = storage.state("up")
    assert state and (state.size_bytes, state.checksum) == (len(content), storage.checksum_of(path))
    assert storage.verified("copied/here", sha256, len(content))
    assert storage.verified("copied/here", sha256, len(content) - 1) is None
    assert storage.verified("copied/here", "0" * 64, len(content)) is None
    assert storage.verified("absent", sha256, len(content)) is None
    assert storage.download("copied/here", tmp_path / "down", len(content)) == sha256
    assert (tmp_path / "down").read_bytes() == content
    assert storage.download("absent", tmp_path / "none", 1) is None


def test_clock_is_the_storages(storage: Storage) -> None:
    storage.put("a", b"")
    storage.ask_time()
    [stored] = storage.list("a")
    assert stored.modified.timestamp() <= storage.clock.now + 1
    assert storage.below("x").clock is storage.clock


def test_missing_place_has_its_own_code(tmp_path: Path) -> None:
    storage = SharedFolder(tmp_path / "none")
    for call in (lambda: storage.put("a", b""), lambda: list(storage.list()), lambda: storage.get("a", 1)):
        with pytest.raises(RemoteError, match="does not exist; make it") as caught:
            call()
        assert caught.value.code == NO_STORAGE
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../outside", "a\nb", ""])
def test_name_that_leads_out_is_refused(folder: SharedFolder, name: str) -> None:
    for call in (lambda: folder.put(name, b""), lambda: folder.get(name, 1), lambda: folder.delete([name])):
        with pytest.raises(RemoteError):
            call()


def test_link_is_neither_followed_nor_listed(folder: SharedFolder, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "outside").mkdir()
    root = Path(folder.where())
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "folder").symlink_to(tmp_path / "outside")
    (root / "own").symlink_to(root / "real")
    folder.put("real", b"x")
    for call in (
        lambda: folder.get("link", 99),
        lambda: folder.get("own", 99),
        lambda: folder.download("link", tmp_path / "copy", 99),
        lambda: folder.put("folder/a", b""),
        lambda: folder.copy_new("link", "stolen"),
    ):
        with pytest.raises(RemoteError):
            call()
    assert [stored.name for stored in folder.list()] == ["real"]
    assert not list((tmp_path / "outside").iterdir()) and (tmp_path / "secret").read_text() == "secret"


def test_pipe_is_an_error_and_does_not_block(folder: SharedFolder) -> None:
    os.mkfifo(Path(folder.where("pipe")))
    with pytest.raises(RemoteError, match="not a regular file"):
        folder.get("pipe", 1)


def test_unfinished_file_is_not_listed(folder: SharedFolder) -> None:
    (Path(folder.where()) / ".partial-0123456789abcdef").write_bytes(b"half")
    assert list(folder.list()) == []


def test_link_whose_answer_got_lost_counts_as_made(folder: SharedFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on NFS, whose client repeats a request: the second answer says that the name exists."""
    link = os.link

    def twice(*names: Path) -> None:
        link(*names)
        link(*names)

    monkeypatch.setattr(os, "link", twice)
    assert folder.put_new("claim", b"mine")
    assert not folder.put_new("claim", b"another's")
    assert folder.get("claim", 9) == b"mine"


def test_full_disk_is_one_line(folder: SharedFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RemoteError, match=r"writing .*a: No space left on device") as caught:
        folder.put("a", b"x")
    assert caught.value.code == "NoSpace" and list(Path(folder.where()).iterdir()) == []


def test_folder_that_everyone_may_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(UsageError, match="everyone may write there"):
        open_folder(tmp_path / "open")
    with pytest.raises(UsageError, match="does not exist"):
        open_folder(tmp_path / "none")

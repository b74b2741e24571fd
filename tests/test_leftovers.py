"""What was half made goes: of dead processes alone, and however it was left."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from harness import leftovers, owner


def nested(folder: Path, levels: int) -> None:
    """``levels`` folders inside each other, each with a file; deeper than any path can name."""
    here = os.open(folder, os.O_RDONLY)
    for level in range(levels):
        os.mkdir("a", dir_fd=here)
        below = os.open("a", os.O_RDONLY, dir_fd=here)
        os.close(os.open(f"file {level}", os.O_CREAT | os.O_WRONLY, dir_fd=below))
        os.close(here)
        here = below
    os.close(here)


ME = owner.me()
# As this process, but long before it.
DEAD = f"{ME.rpartition('_')[0]}_1"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_dead_processes_left_goes_and_what_living_ones_make_stays(tmp_path: Path) -> None:
    elsewhere = f"elsewhere_{DEAD.partition('_')[2]}"
    stays = ["x", f"y.{ME}.partial", "y.partial", f"z.{elsewhere}.partial", f"z.{DEAD}.other"]
    for name in (f"x.{DEAD}.partial", f"x.y.{DEAD}.partial", *stays):
        (tmp_path / name).mkdir()
    mine = leftovers.in_the_making(tmp_path / "x")
    assert mine.name == f"x.{ME}.partial" and not mine.exists()
    assert names(tmp_path) == sorted(stays)


def test_what_others_own_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"x.{DEAD}.partial").mkdir()
    with monkeypatch.context() as another:
        another.setattr(os, "geteuid", lambda: os.getuid() + 1)
        leftovers.sweep(tmp_path)
    assert len(names(tmp_path)) == 1
    leftovers.sweep(tmp_path)
    assert names(tmp_path) == []


def test_an_earlier_attempt_of_ours_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / f"x.{ME}.partial" / "data").mkdir(parents=True)
    assert not leftovers.in_the_making(tmp_path / "x").exists()


def test_a_scratch_folder_is_one_of_its_own_and_goes(tmp_path: Path) -> None:
    place = tmp_path / "new"
    with leftovers.scratch(place, "x") as one, leftovers.scratch(place, "x") as other:
        assert one != other and one.is_dir() and other.is_dir()
        (one / "file").touch()
    assert names(place) == []


def test_of_temporary_files_ours_alone_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    for name in ("tmp/harness-base-1", "tmp/other-1", "cache/tmp/source-1", "cache/wheels/0a-1", "cache/kept"):
        (tmp_path / f"{name}.{DEAD}.partial").mkdir(parents=True)
    leftovers.sweep_all(tmp_path / "cache")
    assert names(tmp_path / "tmp") == [f"other-1.{DEAD}.partial"]
    assert names(tmp_path / "cache" / "tmp") == names(tmp_path / "cache" / "wheels") == []
    with leftovers.temporary("base") as mine:
        leftovers.sweep_all(tmp_path / "cache")
        assert mine.parent == tmp_path / "tmp" and mine.is_dir()


@pytest.mark.parametrize("levels", [1, 990, 3000])
def test_a_folder_goes_however_deep_it_is(tmp_path: Path, levels: int) -> None:
    top = tmp_path / "top"
    top.mkdir()
    nested(top, levels)
    (top / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    leftovers.remove(top)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"] and (tmp_path / "kept" / "file").exists()


def test_a_folder_that_is_closed_goes(tmp_path: Path) -> None:
    """Where root removes anything, this shows no more than that it goes."""
    closed = tmp_path / "top" / "closed" / "inside"
    closed.mkdir(parents=True)
    (closed / "file").touch()
    for path in (closed, closed.parent, closed.parent.parent):
        path.chmod(0)
    leftovers.remove(tmp_path / "top")
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there_or_is_a_link_is_left(tmp_path: Path) -> None:
    leftovers.remove(tmp_path / "absent")
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    leftovers.remove(tmp_path / "link")
    assert (tmp_path / "kept").is_dir() and (tmp_path / "link").is_symlink()


def test_every_entry_is_found_and_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "file").touch()
    (tmp_path / "a" / "up").symlink_to("..")
    assert sorted(entry.name for entry in leftovers.files(tmp_path)) == ["a", "b", "file", "up"]


def test_entries_that_no_path_can_name_are_an_error_and_no_defect(tmp_path: Path) -> None:
    nested(tmp_path, 1500)
    assert len(list(leftovers.files(tmp_path))) == 3000
    leftovers.remove(tmp_path / "a")
    nested(tmp_path, 3000)
    with pytest.raises(OSError, match="File name too long"):
        list(leftovers.files(tmp_path))
    leftovers.remove(tmp_path / "a")

"""What was half made goes: of dead processes alone, and however it was left."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import filesystem

# Of so long a name a few folders inside each other are more than any path can name.
LONG = "a" * 200


def nested(folder: Path, levels: int, name: str = "a") -> None:
    """``levels`` folders inside each other, each with a file."""
    here = os.open(folder, os.O_RDONLY)
    for level in range(levels):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(os.open(f"file {level}", os.O_CREAT | os.O_WRONLY, dir_fd=below))
        os.close(here)
        here = below
    os.close(here)


ME = filesystem.me()
# As this process, but long before it.
DEAD = f"{ME.rpartition('_')[0]}_1"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_dead_processes_left_goes_and_what_living_ones_make_stays(tmp_path: Path) -> None:
    elsewhere = f"elsewhere_{DEAD.partition('_')[2]}"
    stays = ["x", f"y.{ME}.partial", "y.partial", f"z.{elsewhere}.partial", f"z.{DEAD}.other"]
    for name in (f"x.{DEAD}.partial", f"x.y.{DEAD}.partial", *stays):
        (tmp_path / name).mkdir()
    mine = filesystem.in_the_making(tmp_path / "x")
    assert mine.name == f"x.{ME}.partial" and not mine.exists()
    assert names(tmp_path) == sorted(stays)


def test_what_others_own_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"x.{DEAD}.partial").mkdir()
    with monkeypatch.context() as another:
        another.setattr(os, "geteuid", lambda: os.getuid() + 1)
        filesystem.sweep(tmp_path)
    assert len(names(tmp_path)) == 1
    filesystem.sweep(tmp_path)
    assert names(tmp_path) == []


def test_an_earlier_attempt_of_ours_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / f"x.{ME}.partial" / "data").mkdir(parents=True)
    assert not filesystem.in_the_making(tmp_path / "x").exists()


def test_a_scratch_folder_is_one_of_its_own_and_goes(tmp_path: Path) -> None:
    place = tmp_path / "new"
    with filesystem.scratch(place, "x") as one, filesystem.scratch(place, "x") as other:
        assert one != other and one.is_dir() and other.is_dir()
        (one / "file").touch()
    assert names(place) == []


def test_of_temporary_files_ours_alone_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    for name in ("tmp/harness-base-1", "tmp/other-1", "cache/tmp/source-1", "cache/wheels/0a-1", "cache/kept"):
        (tmp_path / f"{name}.{DEAD}.partial").mkdir(parents=True)
    filesystem.sweep_all(tmp_path / "cache")
    assert names(tmp_path / "tmp") == [f"other-1.{DEAD}.partial"]
    assert names(tmp_path / "cache" / "tmp") == names(tmp_path / "cache" / "wheels") == []
    with filesystem.temporary("base") as mine:
        filesystem.sweep_all(tmp_path / "cache")
        assert mine.parent == tmp_path / "tmp" and mine.is_dir()


@pytest.mark.parametrize(("levels", "name"), [(1, "a"), (1100, "a"), (40, LONG)], ids=["1", "1100", "long"])
def test_a_folder_goes_however_deep_it_is(tmp_path: Path, levels: int, name: str) -> None:
    top = tmp_path / "top"
    top.mkdir()
    nested(top, levels, name)
    (top / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    filesystem.remove(top)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"] and (tmp_path / "kept" / "file").exists()


def test_a_folder_that_is_closed_goes(tmp_path: Path) -> None:
    """Where root removes anything, this shows no more than that it goes."""
    closed = tmp_path / "top" / "closed" / "inside"
    closed.mkdir(parents=True)
    (closed / "file").touch()
    for path in (closed, closed.parent, closed.parent.parent):
        path.chmod(0)
    filesystem.remove(tmp_path / "top")
    assert list(tmp_path.iterdir()) == []


def swap_for_link(folder: Path, victim: Path) -> None:
    folder.symlink_to(victim)


def swap_for_pipe(folder: Path, _: Path) -> None:
    os.mkfifo(folder)


@pytest.mark.parametrize("swap", [swap_for_link, swap_for_pipe])
@pytest.mark.parametrize("above", ["", "a", "/".join("a" * 31), "/".join("a" * 32), "/".join("a" * 70)])
def test_a_folder_that_becomes_a_link_after_it_was_seen_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, above: str, swap: Callable[[Path, Path], None]
) -> None:
    victim, top = tmp_path / "victim", tmp_path / "top"
    (victim / "below").mkdir(parents=True)
    (victim / "file").touch()
    victim.chmod(0o755)
    (top / above / "bait").mkdir(parents=True)
    around, listing, swaps = (top / above).stat(), os.scandir, []

    class Listed(list[os.DirEntry[str]]):
        def __enter__(self) -> Listed:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    def hostile(where: int | str | Path) -> Listed:
        """A folder when it is listed, something else from then on; the first three times."""
        here = Path(f"/proc/self/fd/{where}" if isinstance(where, int) else where).resolve()
        if not os.path.samestat(here.stat(), around) or len(swaps) == 3:
            with listing(where) as entries:
                return Listed(entries)
        bait = here / "bait"
        if swaps:
            bait.unlink(missing_ok=True)
            bait.mkdir()
        with listing(where) as entries:
            found = Listed(entries)
        bait.rmdir()
        swap(bait, victim)
        (here / f"late {len(swaps)}").touch()  # so that no single look is enough
        swaps.append(bait)
        return found

    monkeypatch.setattr(os, "scandir", hostile)
    filesystem.remove(top)
    assert sorted(path.name for path in victim.iterdir()) == ["below", "file"]
    assert victim.stat().st_mode & 0o777 == 0o755
    assert len(swaps) == 3 and not top.exists(), "it went as soon as it was left alone"


def test_what_is_written_meanwhile_goes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "top" / "a").mkdir(parents=True)
    real, late = os.rmdir, iter(["file", "folder"])

    def rmdir(name: str | Path, *, dir_fd: int | None = None) -> None:
        new = next(late, None)
        if new == "file":
            (tmp_path / "top" / "a" / new).touch()
        elif new == "folder":
            (tmp_path / "top" / new).mkdir(0)
        real(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", rmdir)
    filesystem.remove(tmp_path / "top")
    assert next(late, None) is None and list(tmp_path.iterdir()) == []


def test_what_cannot_go_keeps_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/file", "b/kept", "c/file"):
        (tmp_path / "top" / name).parent.mkdir(parents=True)
        (tmp_path / "top" / name).touch()
    real = os.unlink

    def unlink(name: str, *, dir_fd: int | None = None) -> None:
        if name == "kept":
            raise PermissionError(1, "Operation not permitted")
        real(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", unlink)
    filesystem.remove(tmp_path / "top")
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["top", "top/b", "top/b/kept"]


def test_a_job_that_digs_deeper_all_the_while_does_not_hold_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "_MOST_MOVED", 3)
    nested(tmp_path, 32 * 20)
    filesystem.remove(tmp_path / "a")
    assert names(tmp_path) == ["a"], "a bound is a bound"
    monkeypatch.undo()
    filesystem.remove(tmp_path / "a")
    assert names(tmp_path) == []


def test_few_folders_are_held_open_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nested(tmp_path, 500)
    really_open, really_close = os.open, os.close
    held: set[int] = set()  # not the highest number: the process has other files, and their numbers lie anywhere
    most = 0

    def opening(*arguments: object, **keys: object) -> int:
        nonlocal most
        descriptor = really_open(*arguments, **keys)  # type: ignore[arg-type]
        held.add(descriptor)
        most = max(most, len(held))
        return descriptor

    def closing(descriptor: int) -> None:
        held.discard(descriptor)
        really_close(descriptor)

    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(os, "close", closing)
    filesystem.remove(tmp_path / "a")
    assert 2 < most < 40 and not held and names(tmp_path) == []


def test_what_is_not_there_or_is_a_link_is_left(tmp_path: Path) -> None:
    filesystem.remove(tmp_path / "absent")
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    filesystem.remove(tmp_path / "link")
    assert (tmp_path / "kept").is_dir() and (tmp_path / "link").is_symlink()


def test_every_entry_is_found_and_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "file").touch()
    (tmp_path / "a" / "up").symlink_to("..")
    assert sorted(entry.name for entry in filesystem.files(tmp_path)) == ["a", "b", "file", "up"]


def test_entries_that_no_path_can_name_are_an_error_and_no_defect(tmp_path: Path) -> None:
    nested(tmp_path, 1100)  # more than Python would recurse
    assert len(list(filesystem.files(tmp_path))) == 2200
    filesystem.remove(tmp_path / "a")
    nested(tmp_path, 40, LONG)
    with pytest.raises(OSError, match="File name too long"):
        list(filesystem.files(tmp_path))
    filesystem.remove(tmp_path / LONG)

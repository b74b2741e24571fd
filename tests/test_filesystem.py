"""Files are complete or absent, leftovers of dead processes are removed, and locks hold."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
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


ME = filesystem.this_process()
# As this process, but long before it.
DEAD = f"{ME.rpartition('_')[0]}_1"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_leftovers_are_removed_if_their_process_is_dead(tmp_path: Path) -> None:
    elsewhere = f"elsewhere_{DEAD.partition('_')[2]}"
    stays = ["x", f"y.{ME}.partial", "y.partial", f"z.{elsewhere}.partial", f"z.{DEAD}.other"]
    for name in (f"x.{DEAD}.partial", f"x.y.{DEAD}.partial", *stays):
        (tmp_path / name).mkdir()
    path = filesystem.staging_path(tmp_path / "x")
    assert path.name == f"x.{ME}.partial" and not path.exists()
    assert names(tmp_path) == sorted(stays)


def test_leftovers_of_other_users_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"x.{DEAD}.partial").mkdir()
    with monkeypatch.context() as another:
        another.setattr(os, "geteuid", lambda: os.getuid() + 1)
        filesystem.remove_leftovers(tmp_path)
    assert len(names(tmp_path)) == 1
    filesystem.remove_leftovers(tmp_path)
    assert names(tmp_path) == []


def test_scratch_folders_differ_and_are_removed(tmp_path: Path) -> None:
    parent = tmp_path / "new"
    with filesystem.scratch_folder(parent, "x") as one, filesystem.scratch_folder(parent, "x") as other:
        assert one != other and one.is_dir() and other.is_dir()
        (one / "file").touch()
    assert names(parent) == []


def test_only_own_temporary_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    for name in ("tmp/harness-base-1", "tmp/other-1", "cache/tmp/source-1", "cache/wheels/0a-1", "cache/kept"):
        (tmp_path / f"{name}.{DEAD}.partial").mkdir(parents=True)
    filesystem.remove_all_leftovers(tmp_path / "cache")
    assert names(tmp_path / "tmp") == [f"other-1.{DEAD}.partial"]
    assert names(tmp_path / "cache" / "tmp") == names(tmp_path / "cache" / "wheels") == []
    with filesystem.temporary_folder("base") as path:
        filesystem.remove_all_leftovers(tmp_path / "cache")
        assert path.parent == tmp_path / "tmp" and path.is_dir()


@pytest.mark.parametrize(
    ("levels", "name"),
    [(1, "a"), pytest.param(1100, "a", marks=pytest.mark.slow), (40, LONG)],
    ids=["1", "1100", "long"],
)
def test_tree_is_removed_at_any_depth(tmp_path: Path, levels: int, name: str) -> None:
    top = tmp_path / "top"
    top.mkdir()
    nested(top, levels, name)
    (top / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    if name != LONG:
        assert len(list(filesystem.walk(top))) == 2 * levels + 1
    filesystem.remove_tree(top)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"] and (tmp_path / "kept" / "file").exists()


def test_closed_folder_is_removed(tmp_path: Path) -> None:
    """As root, this test only shows that the folder is removed."""
    closed = tmp_path / "top" / "closed" / "inside"
    closed.mkdir(parents=True)
    (closed / "file").touch()
    for path in (closed, closed.parent, closed.parent.parent):
        path.chmod(0)
    filesystem.remove_tree(tmp_path / "top")
    assert list(tmp_path.iterdir()) == []


def swap_for_link(folder: Path, victim: Path) -> None:
    folder.symlink_to(victim)


def swap_for_pipe(folder: Path, _: Path) -> None:
    os.mkfifo(folder)


@pytest.mark.parametrize("swap", [swap_for_link, swap_for_pipe])
@pytest.mark.parametrize("above", ["", "a", "/".join("a" * 31), "/".join("a" * 32), "/".join("a" * 70)])
def test_folder_swapped_for_a_link_is_not_followed(
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
        """List a folder, then swap its entry, the first three times."""
        here = Path(f"/proc/self/fd/{where}" if isinstance(where, int) else where).resolve()
        if not os.path.samestat(here.stat(), around) or len(swaps) == 3:
            with listing(where) as entries:
                return Listed(entries)
        bait = here / "bait"
        if swaps:
            bait.unlink(missing_ok=True)
            bait.mkdir()
        with listing(where) as entries:
            listed = Listed(entries)
        bait.rmdir()
        swap(bait, victim)
        (here / f"late {len(swaps)}").touch()  # so that no single look is enough
        swaps.append(bait)
        return listed

    monkeypatch.setattr(os, "scandir", hostile)
    filesystem.remove_tree(top)
    assert sorted(path.name for path in victim.iterdir()) == ["below", "file"]
    assert victim.stat().st_mode & 0o777 == 0o755
    assert len(swaps) == 3 and not top.exists(), "it went as soon as it was left alone"


def test_file_written_during_removal_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    filesystem.remove_tree(tmp_path / "top")
    assert next(late, None) is None and list(tmp_path.iterdir()) == []


def test_entry_that_cannot_be_removed_leaves_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/file", "b/kept", "c/file"):
        (tmp_path / "top" / name).parent.mkdir(parents=True)
        (tmp_path / "top" / name).touch()
    real = os.unlink

    def unlink(name: str, *, dir_fd: int | None = None) -> None:
        if name == "kept":
            raise PermissionError(1, "Operation not permitted")
        real(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", unlink)
    filesystem.remove_tree(tmp_path / "top")
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["top", "top/b", "top/b/kept"]


def test_removal_ends_while_a_job_keeps_nesting_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "_MAX_MOVED", 3)
    nested(tmp_path, 32 * 17)
    filesystem.remove_tree(tmp_path / "a")
    assert names(tmp_path) == ["a"], "a bound is a bound"
    monkeypatch.undo()
    filesystem.remove_tree(tmp_path / "a")
    assert names(tmp_path) == []


def test_removal_holds_few_folders_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nested(tmp_path, 100)
    really_open, really_close = os.open, os.close
    held: set[int] = set()  # not the highest number: the process has other files, and their numbers lie anywhere
    most = 0

    def opening(*arguments: object, **keys: object) -> int:
        nonlocal most
        descriptor = really_open(*arguments, **keys)
        held.add(descriptor)
        most = max(most, len(held))
        return descriptor

    def closing(descriptor: int) -> None:
        held.discard(descriptor)
        really_close(descriptor)

    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(os, "close", closing)
    filesystem.remove_tree(tmp_path / "a")
    assert 2 < most < 40 and not held and names(tmp_path) == []


def test_missing_folder_or_link_is_left_alone(tmp_path: Path) -> None:
    filesystem.remove_tree(tmp_path / "absent")
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    filesystem.remove_tree(tmp_path / "link")
    assert (tmp_path / "kept").is_dir() and (tmp_path / "link").is_symlink()


def test_atomic_write_uses_no_name_that_a_stranger_can_guess(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "folder").mkdir()
    report = tmp_path / "folder" / "report.md"
    names = set()
    for _ in range(2):
        with filesystem.atomic_write(report) as path:
            path.write_text("text")
            names.add(path.name)
        for name in (*names, f"report.md.{os.getpid()}.partial"):
            report.with_name(name).unlink(missing_ok=True)
            report.with_name(name).symlink_to(tmp_path / "victim")
    assert len(names) == 2
    assert (report.read_text(), (tmp_path / "victim").read_text()) == ("text", "kept")


def test_walk_yields_every_entry_and_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "file").touch()
    (tmp_path / "a" / "up").symlink_to("..")
    assert sorted(entry.name for entry in filesystem.walk(tmp_path)) == ["a", "b", "file", "up"]


def test_walk_raises_oserror_if_a_path_is_too_long(tmp_path: Path) -> None:
    nested(tmp_path, 40, LONG)
    with pytest.raises(OSError, match="File name too long"):
        list(filesystem.walk(tmp_path))
    filesystem.remove_tree(tmp_path / LONG)


@pytest.mark.slow
def test_lock_excludes_its_name_only(tmp_path: Path) -> None:
    order: list[str] = []
    started = threading.Event()

    def second() -> None:
        started.set()
        with filesystem.cache_lock(tmp_path, "a"):
            order.append("second")

    waiting = threading.Thread(target=second)
    with filesystem.cache_lock(tmp_path, "a"):
        waiting.start()
        started.wait()
        with filesystem.cache_lock(tmp_path, "b"):
            order.append("another")
        waiting.join(0.2)
        order.append("first")
    waiting.join()
    assert order == ["another", "first", "second"]


@pytest.mark.slow
def test_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    lines = "import sys, time; from pathlib import Path; from harness import filesystem\n"
    lines += "with filesystem.cache_lock(Path(sys.argv[1]), 'a'):\n    print('held', flush=True)\n    time.sleep(600)\n"
    with subprocess.Popen([sys.executable, "-c", lines, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        holder.kill()
        with filesystem.cache_lock(tmp_path, "a"):
            pass


def test_this_process_is_alive() -> None:
    assert not filesystem.has_died(filesystem.this_process())
    assert filesystem.this_process() == filesystem.this_process()


def named(**other: object) -> str:
    """This process's name with other fields."""
    fields = dict(
        zip(("host", "boot_id", "namespace", "pid", "started"), filesystem.this_process().split("_"), strict=True)
    )
    return "_".join(str(field) for field in (fields | other).values())


def test_process_has_died_once_it_ends() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    started = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
    name = named(pid=child.pid, started=started)
    assert not filesystem.has_died(name)
    child.kill()
    deadline = time.monotonic() + 10
    while not filesystem.has_died(name) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert filesystem.has_died(name), "a zombie is dead"
    child.wait()
    assert filesystem.has_died(name)


def test_reused_process_number_is_another_process() -> None:
    assert filesystem.has_died(named(started=1))
    assert filesystem.has_died(named(boot_id="another-boot")), "the host has been started again"


def test_process_is_not_dead_if_invisible(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not filesystem.has_died(named(host="elsewhere", pid=4194303))
    assert not filesystem.has_died(named(namespace=1, pid=4194303)), (
        "a container with the host's network has the host's name"
    )
    assert filesystem.has_died(named(boot_id="another-boot", namespace=1)), "no container outlives its host"
    assert filesystem.has_died(named(pid=4194303))
    monkeypatch.setattr(os, "getpid", lambda: 4194302)  # as after an `unshare --pid` alone
    assert not filesystem.has_died(named(pid=4194303)), "/proc numbers the processes of another namespace"


@pytest.mark.slow
def test_process_in_another_pid_namespace_has_another_name() -> None:
    say = [sys.executable, "-c", "from harness.filesystem import this_process; print(this_process())"]
    unshared = ["unshare", "--pid", "--fork", "--mount-proc", *say]
    done = subprocess.run(unshared, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("this user may not unshare")
    here, other = filesystem.this_process().split("_"), done.stdout.strip().split("_")
    assert other[:2] == here[:2] and other[2] != here[2] and other[3] == "1"
    assert not filesystem.has_died(done.stdout.strip()), "its end cannot be seen from here"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x",
        "____",
        "a_b_c_d_e",
        pytest.param("_".join(filesystem.this_process().split("_")[:4]), id="part of ours"),
        pytest.param(named(pid="x"), id="a pid of letters"),
    ],
)
def test_malformed_process_name_is_not_dead(name: str) -> None:
    assert not filesystem.has_died(name)


def test_process_name_is_a_valid_file_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "a_b.example/ä")
    assert filesystem.this_process().startswith("a-b-example--_")
    assert not filesystem.has_died(filesystem.this_process()) and filesystem.has_died(named(started=1))


def test_start_time_is_read_behind_brackets_and_blanks_in_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = ["S", *map(str, range(1, 50))]
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: f"7 (a) b (c) {' '.join(fields)}")
    assert filesystem._start_time("7") == "19"


def test_lock_raises_if_held_and_not_waiting(tmp_path: Path) -> None:
    with filesystem.lock(tmp_path, wait=False), pytest.raises(BlockingIOError):
        filesystem.lock(tmp_path, wait=False)
    with filesystem.lock(tmp_path, shared=True), filesystem.lock(tmp_path, wait=False, shared=True):
        pass


def test_sha256_raises_if_the_deadline_has_passed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    assert filesystem.sha256(tmp_path / "file") == digest
    assert filesystem.sha256(tmp_path / "file", time.monotonic() + 60) == digest
    with pytest.raises(TimeoutError):
        filesystem.sha256(tmp_path / "file", time.monotonic() - 1)


@pytest.mark.parametrize("copies", [True, False])
def test_link_tree_follows_no_link(tmp_path: Path, copies: bool) -> None:
    (tmp_path / "source" / "sub").mkdir(parents=True)
    (tmp_path / "source" / "sub" / "file").write_text("x")
    filesystem.link_tree(tmp_path / "source", tmp_path / "good", copies=copies)
    assert (tmp_path / "good" / "sub" / "file").read_text() == "x"
    assert (tmp_path / "source" / "sub" / "file").samefile(tmp_path / "good" / "sub" / "file") == (not copies)
    (tmp_path / "source" / "out").symlink_to("/etc")
    with pytest.raises(OSError, match="'out' is not a regular file"):
        filesystem.link_tree(tmp_path / "source", tmp_path / "bad", copies=copies)


@pytest.mark.parametrize(
    "name", [".DS_Store", "._a.tsv", "Thumbs.db", "THUMBS.DB", "desktop.ini", "a~", "~$a.tsv", "#a#", "a.bak", "Icon\r"]
)
def test_litter_is_known_by_its_name(name: str) -> None:
    assert filesystem.is_litter(name)
    assert not filesystem.is_litter(f"a-{name.strip('~#').replace('~', '')}.tsv")

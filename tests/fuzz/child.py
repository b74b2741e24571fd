"""A child process that reads damaged files within bounds, and its parent's view of it.

Bounds are CPU time and the growth of memory, so that a busy machine changes no verdict.  A read that waits for ever
uses no CPU: the parent finds it asleep.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import multiprocessing
import os
import resource
import shutil
import signal
import stat
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from pydantic import BaseModel

from harness.errors import HarnessError
from harness.untrusted import one_line
from tests.fuzz import changes
from tests.fuzz.changes import Change

# A message is one line that a person reads.
MOST_MESSAGE = 4000
SECRET = "canary-4f1d"
# Ends a child before it takes the machine's memory.
_ADDRESS_BYTES = 6 << 30
_MOST_WALKED = 20_000
# The child is replaced when it holds more, so that the next growth is measured from a small base.
_MOST_KEPT_BYTES = 96 << 20


# Oddities that are a user's own where the user names the file: data may come through a link or a pipe.
LINKED = frozenset({"a link to a secret"})
NAMED = LINKED | {"a pipe", "a device", "a link to a device"}


@dataclass(frozen=True)
class Reader:
    """A reader of foreign files.

    ``make`` writes valid ``files`` (patterns; the first match counts) into a folder, ``read`` reads them; its second
    argument is an empty folder that it may write to.  ``errors`` are those that it may raise, ``skips`` oddities that
    its users may want.  ``weight``: the share of the usual number of examples, for a slow one.
    """

    name: str
    make: Callable[[Path], object]
    read: Callable[[Path, Path], object]
    files: tuple[str, ...]
    errors: tuple[type[Exception], ...] = (HarnessError,)
    skips: frozenset[str] = frozenset()
    weight: float = 1.0


@dataclass(frozen=True)
class Bounds:
    """Bounds of one read; a read that does nothing for three times ``asleep_s`` waits for ever."""

    cpu_s: float = 10.0
    memory_bytes: int = 512 << 20
    asleep_s: float = 2.5


@dataclass(frozen=True)
class Example:
    """A damaged file: changes of its bytes, or an odd thing in its place."""

    file: str
    changes: tuple[Change, ...] = ()
    oddity: str | None = None


class Sandbox:
    """A reader's folder and the child that reads in it; the child is replaced when it dies or has grown.

    ``table`` is the module whose ``READERS`` hold the reader: a child finds it by its name.
    """

    def __init__(
        self, reader: Reader, base: Path, bounds: Bounds = Bounds(), table: str = "tests.fuzz.readers"
    ) -> None:
        self._reader, self._base, self._bounds, self._table = reader, base, bounds, table
        for name in ("inside", "beside", "scratch"):
            (base / name).mkdir(parents=True)
        (base / "beside" / "secret.txt").write_text(f"{SECRET}\n", encoding="utf-8")
        reader.make(base / "inside")
        self._process: Any = None
        self._connection: Any = None

    def complaint(self, example: Example | None) -> str | None:
        """Return what is wrong with the read of an example, if anything; ``None`` is the unchanged folder."""
        if self._process is None:
            self._start()
        assert self._connection is not None
        self._connection.send(example)
        spent, idle = -1.0, 0
        while not self._connection.poll(self._bounds.asleep_s):
            try:
                process = psutil.Process(self._process.pid)
                now, status = sum(process.cpu_times()[:2]), process.status()
            except psutil.Error:
                break
            idle = idle + 1 if now == spent and status == psutil.STATUS_SLEEPING else 0
            spent = now
            if idle >= 2:
                self.close()
                return "waits for ever"
        try:
            found, kept_bytes = self._connection.recv()
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode
            self.close()
            if code == -signal.SIGPROF:
                return f"took more than {self._bounds.cpu_s:g} s of CPU time"
            return f"the process ended with code {code}"
        if kept_bytes > _MOST_KEPT_BYTES or found:
            self.close()
        return str(found) if found else None

    def close(self) -> None:
        """End the child."""
        if self._process is not None:
            self._connection.close()
            self._process.kill()
            self._process.join()
            _restore(self._base)
        self._process = None

    def _start(self) -> None:
        context = multiprocessing.get_context("forkserver")
        # Imported once, by the server: a child is forked in milliseconds.
        context.set_forkserver_preload(["tests.fuzz.readers", "tests.fuzz.preloaded"])
        self._connection, other = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(other, self._table, self._reader.name, self._base, self._bounds), daemon=True
        )
        self._process.start()
        other.close()


def _restore(base: Path) -> None:
    """Put back what a killed child had moved aside, and remove what it had written."""
    aside = base / "aside"
    if aside.exists():
        target = base / "inside" / (base / "aside.name").read_text(encoding="utf-8")
        _remove(target)
        aside.rename(target)
    _empty(base / "scratch")


def _empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def _serve(connection: Connection, table: str, name: str, base: Path, bounds: Bounds) -> None:
    """Read examples until the parent closes the pipe."""
    reader: Reader = importlib.import_module(table).READERS[name]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_BYTES, _ADDRESS_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.environ["HARNESS_CACHE"] = str(base / "scratch" / "cache")
    os.chdir(base / "scratch")
    first = _memory("VmRSS")
    with contextlib.suppress(EOFError):
        while True:
            example = connection.recv()
            complaint = _examine(reader, base, example, bounds)
            connection.send((complaint, _memory("VmRSS") - first))


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def _examine(reader: Reader, base: Path, example: Example | None, bounds: Bounds) -> str | None:
    with _in_place(base, example) as present:
        if not present:
            return None
        before = _tree(base)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the peak
        held = _memory("VmRSS")
        signal.setitimer(signal.ITIMER_PROF, bounds.cpu_s)
        complaint = _outcome(reader, base)
        signal.setitimer(signal.ITIMER_PROF, 0)
        grown = _memory("VmHWM") - held
        if complaint is None and grown > bounds.memory_bytes:
            complaint = f"took {grown >> 20} MiB of memory"
        if complaint is None and (after := _tree(base)) != before:
            complaint = f"changed files outside its own: {sorted(set(after) ^ set(before))[:5]}"
    _empty(base / "scratch")
    os.chdir(base / "scratch")
    return complaint


def _outcome(reader: Reader, base: Path) -> str | None:
    """Read; return what is wrong with the outcome."""
    with _Escaped() as escaped:
        try:
            value = reader.read(base / "inside", base / "scratch")
        except reader.errors as error:
            value = str(error)
            if len(one_line(value)) > MOST_MESSAGE:
                return f"a message of {len(value):,} characters: {value[:200]!r}"
        return _fault(value, secret=not LINKED & reader.skips)
    return escaped.text


class _Escaped:
    """Any exception that a reader may not raise, as text."""

    text = ""

    def __enter__(self) -> _Escaped:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None:
            return False
        calls = [
            f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
            for frame in traceback.extract_tb(trace)
            if "harness" in Path(frame.filename).parts
        ]
        what = "asked for more memory than there is:" if isinstance(error, MemoryError) else "raised"
        name = "".join(traceback.format_exception_only(kind, error)).strip()
        self.text = f"{what} {name[:300]} at {' > '.join(calls[-4:])}"
        return True


def _fault(value: object, *, secret: bool) -> str | None:
    """Return what a good value may not hold: text that UTF-8 cannot hold, or the secret beside the folder."""
    waiting, walked = [value], 0
    while waiting and walked < _MOST_WALKED:
        part, walked = waiting.pop(), walked + 1
        if isinstance(part, bytes):
            part = part[: 1 << 16].decode("utf-8", "replace")
        if isinstance(part, str):
            try:
                part.encode("utf-8")
            except UnicodeEncodeError:
                return f"returned half a surrogate pair: {part[:80]!r}"
            if secret and SECRET in part:
                return f"read the secret beside its folder: {part[:200]!r}"
        elif isinstance(part, dict):
            waiting += (*part.keys(), *part.values())
        elif isinstance(part, list | tuple | set | frozenset):
            waiting += part
        elif isinstance(part, BaseModel):
            waiting += dict(part).values()
        elif dataclasses.is_dataclass(part) and not isinstance(part, type):
            waiting += vars(part).values() if hasattr(part, "__dict__") else ()
    return None


@contextlib.contextmanager
def _in_place(base: Path, example: Example | None) -> Iterator[bool]:
    """Put an example in place of its file, and the file back afterwards."""
    if example is None:
        yield True
        return
    inside = base / "inside"
    path, aside = min(inside.glob(example.file)), base / "aside"
    (base / "aside.name").write_text(str(path.relative_to(inside)), encoding="utf-8")
    path.rename(aside)
    content = aside.read_bytes()
    try:
        if example.oddity is None:
            path.write_bytes(changes.changed(content, example.changes))
            yield True
        else:
            yield changes.put_oddity(example.oddity, path, content)
    finally:
        _remove(path)
        aside.rename(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _tree(base: Path) -> list[tuple[str, int, int, int]]:
    """Describe every file below ``base`` but those of the scratch folder."""
    found, waiting = [], [str(base)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.path == str(base / "scratch"):
                    continue
                status = entry.stat(follow_symlinks=False)
                size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
                found.append((entry.path, status.st_ino, size, status.st_mtime_ns))
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return sorted(found)

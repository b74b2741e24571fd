"""Readers that misbehave, each in its own way, and two that do not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from harness.errors import FileError
from tests.fuzz.child import Reader


def _raise(error: BaseException) -> NoReturn:
    raise error


def _take(size: int) -> None:
    held = bytearray(size)
    held[::4096] = b"x" * len(held[::4096])


def _compute() -> None:
    while True:
        pass


def _make(folder: Path) -> None:
    (folder / "file").write_text("x", encoding="utf-8")
    os.mkfifo(folder / "pipe")


# What a reader does in its folder, and the complaint.
MISDEEDS: dict[str, tuple[Callable[[Path], object], str | None]] = {
    "traceback": (lambda _: _raise(KeyError("x")), "raised KeyError: 'x'"),
    "exit": (lambda _: _raise(SystemExit(3)), "raised SystemExit: 3"),
    "death": (lambda _: os._exit(9), "the process ended with code 9"),
    "memory": (lambda _: _take(40 << 20), "MiB of memory"),
    "too much": (lambda _: _take(1 << 40), "asked for more memory than there is"),
    "compute": (lambda _: _compute(), "s of CPU time"),
    "wait": (lambda folder: (folder / "pipe").read_bytes(), "waits for ever"),
    "write": (lambda folder: (folder.parent / "beside" / "new").write_text("x"), "changed files outside its own"),
    "change": (lambda folder: (folder / "file").write_text("changed"), "changed files outside its own"),
    "secret": (lambda folder: (folder.parent / "beside" / "secret.txt").read_text(), "read the secret"),
    "surrogate": (lambda _: {"key": ["\ud800"]}, "half a surrogate pair"),
    "long message": (lambda _: _raise(FileError("\x1b" * 2000)), "a message of"),
    "a good value": (lambda _: ["a value"], None),
    "a refusal": (lambda _: _raise(FileError("no such file; name one")), None),
}


def _reader(name: str) -> Reader:
    return Reader(name, _make, lambda folder, _: MISDEEDS[name][0](folder), ("file",))


READERS = {name: _reader(name) for name in MISDEEDS}

"""What is exported is whole or absent, and takes nobody's place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from harness import filesystem
from harness.errors import FileError, StoreError


@contextlib.contextmanager
def new_file(out: Path) -> Iterator[Path]:
    """Where to write a file that becomes ``out`` when all went well; errors as :func:`new_folder`."""
    _refuse(out, out.exists())
    with _disk_errors(out), filesystem.scratch_folder(out.absolute().parent, out.name) as scratch:
        partial = scratch / out.name
        yield partial
        partial.replace(out)


@contextlib.contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Where to make a folder that becomes ``out`` when all went well.

    Raises:
        FileError: something is there, other than an empty folder.
        StoreError: it cannot be written.
    """
    _refuse(out, out.exists() and not (out.is_dir() and not any(out.iterdir())))
    with _disk_errors(out), filesystem.scratch_folder(out.absolute().parent, out.name) as scratch:
        partial = scratch / "whole"
        partial.mkdir()
        yield partial
        partial.replace(out)


def _refuse(out: Path, taken: bool) -> None:
    if taken:
        raise FileError(f"{out}: is there already, and nothing is overwritten; remove it or name another -o")
    if not out.absolute().parent.is_dir():
        raise FileError(f"{out}: there is no folder {out.absolute().parent} to write it in; make it")


@contextlib.contextmanager
def _disk_errors(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{out}: cannot be written: {error.strerror or error}; name another -o") from error

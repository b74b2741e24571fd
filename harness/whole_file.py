"""A file that is whole or absent, whatever happens while it is written."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from harness.errors import FileError, StoreError


@contextlib.contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Where to write what becomes ``path`` when all went well; nothing is left of it otherwise.

    Raises:
        StoreError: the disk is full.
        FileError: it cannot be written there.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        kind, remedy = (StoreError, "make room") if full else (FileError, "choose another place")
        raise kind(f"{path}: cannot be written: {error.strerror}; {remedy}") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)

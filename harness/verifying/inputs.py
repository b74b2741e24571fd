"""What a suite keeps beside its jobs, each named by the hash of its content: judgements and query samples."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path

from harness.untrusted import open_regular
from harness.verifying.mismatch import Mismatch, shown

# Folder of a suite, and whether its files are compressed; the hash is that of what was in them before.
KEPT = (("qrels", True), ("samples", False))


def files(suite: Path) -> Iterator[tuple[Path, bool]]:
    """The inputs that lie there, and whether each is compressed."""
    for name, packed in KEPT:
        folder = suite / name
        if folder.is_dir():
            yield from ((path, packed) for path in sorted(folder.iterdir()))


def look(suite: Path, place: str) -> Iterator[Mismatch]:
    """Those whose content is not what their name says."""
    for path, packed in files(suite):
        named = path.name.partition(".")[0]
        where = f"{place}/{path.parent.name}/{path.name}"
        try:
            content = _content(path, packed)
        except (OSError, EOFError, zlib.error) as error:
            yield Mismatch(where, f"cannot be read: {shown(error)}", f"a file of content {named}")
            continue
        if (sha256 := hashlib.sha256(content).hexdigest()) != named:
            yield Mismatch(where, f"content of sha256 {sha256}", f"{named}, by its name")


def _content(path: Path, packed: bool) -> bytes:
    with open_regular(path) as file:
        return gzip.decompress(file.read()) if packed else file.read()

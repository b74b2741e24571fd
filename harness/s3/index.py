"""The index object: the text of every ``result.json`` of a suite, so that a first reader fetches one object for all.

It is believed nothing.  An entry counts where the listing has its object, and the entry's text has that object's size
and MD5; whatever else is in it, or is not, the object itself is read.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import IO

from harness.aws.objects import Objects, Stored
from harness.errors import AwsError
from harness.s3.fetching import Moved, fetch, proof
from harness.s3.names import INDEX, Place

_MOST_BYTES = 256 << 20
_MOST_LINE_BYTES = 40 << 20  # of a result.json of the largest size, escaped
_MOST_UNPACKED_BYTES = 8 << 30
# In memory below this size.
_SPOOLED_BYTES = 16 << 20


def texts(
    objects: Objects, index: Stored, wanted: Mapping[str, Stored], taken: Callable[[Stored, bytes], None]
) -> None:
    """Hand over what an index holds of the objects that are wanted; what is wrong with it costs time alone.

    Args:
        objects: of the whole bucket.
        index: as listed.
        wanted: by key.
        taken: is given an object and its content.
    """
    if index.size_bytes > _MOST_BYTES:
        return
    folder = index.name.rpartition("/")[0]
    with tempfile.SpooledTemporaryFile(_SPOOLED_BYTES) as file:
        try:
            fetch(objects, index, file)
            file.seek(0)
            for name, text in _entries(file):
                each = wanted.get(f"{folder}/{name}")
                if each is not None and _is(text, each):
                    taken(each, text)
        # Moved: another was written; AwsError: it cannot be read; the others: it is none.
        except (Moved, AwsError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, RecursionError):
            return


def _entries(file: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """The names and contents that an index gives; ValueError: it is none."""
    unpacked = 0
    with gzip.GzipFile(fileobj=file, mode="rb") as lines:
        while line := lines.readline(_MOST_LINE_BYTES):
            unpacked += len(line)
            if unpacked > _MOST_UNPACKED_BYTES:
                return
            entry = json.loads(line)
            if not isinstance(entry, dict):
                raise ValueError("no entry of an index")
            name, text = entry.get("name"), entry.get("text")
            if isinstance(name, str) and isinstance(text, str):
                yield name, text.encode("utf-8", "surrogatepass")


def _is(text: bytes, each: Stored) -> bool:
    return len(text) == each.size_bytes and hashlib.md5(text, usedforsecurity=False).hexdigest() == each.etag


def write(objects: Objects, place: Place, suite: str, results: Mapping[str, Stored]) -> int:
    """Write the index of a suite over the one that is there; return how many results it holds.

    Args:
        objects: of the whole bucket.
        place: whose mirror holds the results.
        suite: the key of its folder.
        results: by key; those that nothing could prove are left out.

    Raises:
        AwsError: it cannot be written, or would be larger than any that is read.
    """
    held = 0
    with tempfile.SpooledTemporaryFile(_SPOOLED_BYTES) as file:
        with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as lines:
            for key, each in sorted(results.items()):
                text = _proven(place, key, each)
                if text is None:
                    continue
                entry = {"name": key.removeprefix(f"{suite}/"), "etag": each.etag, "text": text}
                lines.write(json.dumps(entry).encode() + b"\n")
                held += 1
        if held:
            size = file.tell()
            if size > _MOST_BYTES:
                raise AwsError(
                    f"{suite}: its index would have {size >> 20} MiB, and none over {_MOST_BYTES >> 20} is read;"
                    " readers fetch its results one by one: split the suite if that takes too long",
                    "TooLarge",
                )
            file.seek(0)
            objects.put(f"{suite}/{INDEX}", file.read())
    return held


def _proven(place: Place, key: str, each: Stored) -> str | None:
    try:
        content = place.path(key).read_bytes()
        return content.decode("utf-8") if proof(each.etag) and _is(content, each) else None
    except (OSError, UnicodeDecodeError):  # it went meanwhile; or it is damaged, and harness verify says so
        return None

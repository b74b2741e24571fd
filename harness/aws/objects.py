"""Objects below one place in S3: list, read, and write without overwriting by accident."""

from __future__ import annotations

import base64
import datetime
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from harness.aws.clients import Connections, S3Uri, answered_at
from harness.aws.errors import aws_errors
from harness.errors import RemoteError
from harness.remote.failures import PASSING, ignoring, retry
from harness.remote.storage import Clock, ObjectState, StoredObject, copied

MISSING = frozenset({"NoSuchKey", "404"})
CHANGED = MISSING | {"PreconditionFailed", "412"}
# A download that broke off is begun again, the last time half a minute later.
_BROKEN_OFF = PASSING | {"IncompleteReadError", "FlexibleChecksumError"}
_DOWNLOADS = 9
# Another write of the same name is under way, and S3 asks to try again.
_UNDECIDED = frozenset({"ConditionalRequestConflict", "409"})
# An upload in parts was not written by this request: perhaps by an earlier one, whose answer got lost.
_NOT_WRITTEN = CHANGED | _UNDECIDED | {"NoSuchUpload"}
# S3's own limit for one request.
_DELETE_AT_ONCE = 1000
# Objects in parts: S3 takes 10,000 parts, each of 5 GiB at most.
_LEAST_PART_BYTES, MOST_PART_BYTES, _MOST_PARTS, _PARTS_AT_ONCE = 32 << 20, 5 << 30, 9_000, 4
_CHECKED = {"ChecksumAlgorithm": "SHA256"}


def age(answer: dict[str, Any]) -> datetime.timedelta:
    """Return the age by S3's clock of the object that an answer shows."""
    modified: datetime.datetime = answer["LastModified"]
    return (answered_at(answer) or modified) - modified


def checksums_of(sha256: str) -> set[str]:
    """Return the checksums that S3 may state of an object with that content: as a whole, and in one part."""
    content = bytes.fromhex(sha256)
    return {_base64(content), _of_parts(content)}


def _of_parts(*hashes: bytes) -> str:
    return f"{_base64(hashlib.sha256(b''.join(hashes)).digest())}-{len(hashes)}"


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _part_bytes(size: int) -> int:
    return max(_LEAST_PART_BYTES, -(-size // _MOST_PARTS))


class Objects:
    """The objects below a place; names are relative to it."""

    def __init__(self, connections: Connections, place: S3Uri) -> None:
        self.place = place
        self.connections = connections

    @property
    def client(self) -> Any:
        """Return the S3 client."""
        return self.connections.client("s3")

    @property
    def clock(self) -> Clock:
        """Return the clock of S3."""
        return self.connections.clock

    def ask_time(self) -> None:
        """Ask S3 for any answer, because each says the time."""
        self.size("time")

    def where(self, name: str = "") -> str:
        """Return the URI of an object, or of the place."""
        return str(self.place.below(name))

    def below(self, *names: str) -> Objects:
        """Return the objects below a folder of this place."""
        return Objects(self.connections, self.place.below(*names))

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[StoredObject]:
        """Yield objects by name, a thousand a request: those with a prefix, and after a name."""
        base = self.place.beginning
        arguments = {"Bucket": self.place.bucket, "Prefix": base + prefix}
        if after is not None:
            arguments["StartAfter"] = base + after
        with aws_errors(f"listing {self.place}"):
            for page in self.client.get_paginator("list_objects_v2").paginate(**arguments):
                for entry in page.get("Contents", ()):
                    name = entry["Key"].removeprefix(base)
                    yield StoredObject(name, entry["Size"], entry["ETag"].strip('"'), entry["LastModified"])

    @contextmanager
    def reading(self, name: str, **conditions: str) -> Iterator[dict[str, Any]]:
        """Yield S3's answer to a read, whose ``Body`` is open meanwhile."""
        with aws_errors(f"reading {self.place.below(name)}"):
            answer = self.client.get_object(**self._address(name), **conditions)
            with closing(answer["Body"]):
                yield answer

    def get(self, name: str, most_bytes: int) -> bytes | None:
        """Return an object's content, ``None`` if it does not exist; raise a RemoteError if it is larger."""
        with ignoring(*MISSING), self.reading(name) as answer:
            content = bytes(answer["Body"].read(most_bytes + 1))
            if len(content) > most_bytes:
                text = f"larger than {most_bytes >> 20} MiB; harness wrote no such object"
                raise RemoteError(f"{self.place.below(name)}: {text}", "TooLarge")
            answer["Body"].read(1)  # at the end botocore compares length and checksum
            return content
        return None

    def download(self, name: str, path: Path, most_bytes: int) -> str | None:
        """Read an object into a file; return its SHA-256, which is wrong if it has more than ``most_bytes``.

        ``None``: it is missing; S3 tells that to a worker, which may not list, as ``AccessDenied``.
        """
        with ignoring(*MISSING, "AccessDenied"):
            return self.fetch(name, path, most_bytes)[0]
        return None

    def fetch(self, name: str, path: Path, most_bytes: int, **conditions: str) -> tuple[str, str | None]:
        """Do as :meth:`download`, of an object that meets these conditions; return its MD5 too, if S3 states that.

        Raises:
            RemoteError: it is missing, or S3 refuses.
        """

        def once() -> tuple[str, str | None]:
            with self.reading(name, **conditions) as answer, path.open("wb") as sink:
                sha256 = copied(answer["Body"], sink, most_bytes)
            # The ETag of an object in parts is longer; where KMS or the customer encrypts, it only looks like an MD5.
            plain = answer.get("ServerSideEncryption", "AES256") == "AES256" and "SSECustomerAlgorithm" not in answer
            etag = answer["ETag"].strip('"')
            return sha256, etag if plain and len(etag) == 32 else None

        return retry(once, _BROKEN_OFF, _DOWNLOADS)

    def put(self, name: str, content: bytes, **condition: str) -> dict[str, Any]:
        """Write an object, over the one that is there; return S3's answer."""
        checksum = _base64(hashlib.sha256(content).digest())
        with aws_errors(f"writing {self.place.below(name)}"):
            address = self._address(name)
            checked = {**_CHECKED, "ChecksumSHA256": checksum}
            return dict(self.client.put_object(**address, Body=content, **checked, **condition))

    def put_new(self, name: str, content: bytes) -> bool:
        """Write an object unless there is one, which S3 decides; return whether it was written."""
        return self.put_if(name, content, None) is not None

    def put_if(self, name: str, content: bytes, etag: str | None) -> str | None:
        """Write over the object of an ETag, or (``None``) where none is; return the new ETag.

        ``None``: another object is there, which may be our own, written by a request whose answer got lost.

        Raises:
            RemoteError: S3 refuses or is not reached; ``Busy``: it could not decide between two writers.
        """
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": f'"{etag}"'}
        try:
            answer = retry(lambda: self.put(name, content, **condition), _UNDECIDED)
        except RemoteError as error:
            if error.code in CHANGED:
                return None
            if error.code in _UNDECIDED:
                raise RemoteError(f"{error}; another program writes it too; try again", "Busy") from error
            raise
        return str(answer["ETag"]).strip('"')

    def upload_new(self, name: str, path: Path) -> bool:
        """Write a file of any size unless there is an object, which S3 decides; return whether it was written."""
        size, each = path.stat().st_size, _part_bytes(path.stat().st_size)
        if size <= each:
            return self.put_new(name, path.read_bytes())

        def send(upload: dict[str, Any], number: int) -> dict[str, Any]:
            with path.open("rb") as file:
                file.seek((number - 1) * each)
                return dict(self.client.upload_part(**upload, PartNumber=number, Body=file.read(each), **_CHECKED))

        return self._in_parts(name, -(-size // each), send)

    def copy_new(self, name: str, to: str) -> bool:
        """Copy an object of any size within S3 unless there is one; return whether it was written.

        It goes in parts: of S3's operations that copy, only these are sure to spare an object that is there.
        """
        size = self.size(name) or 0

        def send(upload: dict[str, Any], number: int) -> dict[str, Any]:
            first, last = (number - 1) * MOST_PART_BYTES, min(number * MOST_PART_BYTES, size) - 1
            of = {} if size <= MOST_PART_BYTES else {"CopySourceRange": f"bytes={first}-{last}"}
            source = self._address(name)
            answer = self.client.upload_part_copy(**upload, PartNumber=number, CopySource=source, **of)
            return dict(answer["CopyPartResult"])

        return self._in_parts(to, max(1, -(-size // MOST_PART_BYTES)), send)

    def _in_parts(self, name: str, count: int, send: Callable[[dict[str, Any], int], dict[str, Any]]) -> bool:
        """Write an object in parts, unless there is one; ``send`` sends a part and returns S3's answer."""
        address = self._address(name)
        with aws_errors(f"writing {self.place.below(name)}"):
            upload = {**address, "UploadId": self.client.create_multipart_upload(**address, **_CHECKED)["UploadId"]}
            try:
                with ThreadPoolExecutor(_PARTS_AT_ONCE) as pool:
                    sent = list(pool.map(lambda number: send(upload, number), range(1, count + 1)))
                parts = [
                    {"PartNumber": number, **{key: part[key] for key in ("ETag", "ChecksumSHA256") if key in part}}
                    for number, part in enumerate(sent, 1)
                ]
                done = partial(self.client.complete_multipart_upload, **upload, MultipartUpload={"Parts": parts})
                with ignoring(*_NOT_WRITTEN), aws_errors(f"writing {self.place.below(name)}"):
                    done(IfNoneMatch="*")
                    return True
                self._abort(upload)
                return False
            except BaseException:
                self._abort(upload)
                raise

    def _abort(self, upload: dict[str, Any]) -> None:
        """Drop the parts of an upload; if S3 refuses, the bucket's rule drops them later."""
        with suppress(RemoteError), aws_errors("dropping an upload"):
            self.client.abort_multipart_upload(**upload)

    def state(self, name: str) -> ObjectState | None:
        """Return what S3 states of an object; ``None``: it does not exist."""
        answer = self._head(name, ChecksumMode="ENABLED")
        if answer is None:
            return None
        return ObjectState(int(answer["ContentLength"]), str(answer.get("ChecksumSHA256", "")), age(answer))

    def checksum_of(self, path: Path) -> str:
        """Return the checksum that S3 states of a file after :meth:`upload_new`."""
        size, each = path.stat().st_size, _part_bytes(path.stat().st_size)
        with path.open("rb") as file:
            hashes = [hashlib.sha256(file.read(each)).digest() for _ in range(max(1, -(-size // each)))]
        return _base64(hashes[0]) if len(hashes) == 1 else _of_parts(*hashes)

    def verified(self, name: str, sha256: str, size_bytes: int) -> ObjectState | None:
        """Return the state of an object if it has exactly this content, else ``None``."""
        state = self.state(name)
        if state is None or state.size_bytes != size_bytes:
            return None
        # In several parts, S3 states no hash of the whole.
        whole = size_bytes <= MOST_PART_BYTES
        if state.checksum in checksums_of(sha256) or (
            not whole and self.download(name, Path(os.devnull), size_bytes) == sha256
        ):
            return state
        return None

    def size(self, name: str) -> int | None:
        """Return how many bytes an object has; ``None``: it does not exist."""
        answer = self._head(name)
        return None if answer is None else int(answer["ContentLength"])

    def _head(self, name: str, **more: str) -> dict[str, Any] | None:
        with ignoring(*MISSING), aws_errors(f"looking at {self.place.below(name)}"):
            return dict(self.client.head_object(**self._address(name), **more))
        return None

    def delete(self, names: Iterable[str]) -> int:
        """Delete objects, present or not; return how many were named."""
        keys = [{"Key": self.place.key(name)} for name in names]
        for start in range(0, len(keys), _DELETE_AT_ONCE):
            some = {"Objects": keys[start : start + _DELETE_AT_ONCE], "Quiet": True}
            with aws_errors(f"deleting in {self.place}"):
                failed = self.client.delete_objects(Bucket=self.place.bucket, Delete=some).get("Errors", ())
            if failed:
                raise RemoteError(
                    f"{self.place}: {len(failed)} cannot be deleted ({failed[0].get('Code')})", "Undeleted"
                )
        return len(keys)

    def _address(self, name: str) -> dict[str, str]:
        return {"Bucket": self.place.bucket, "Key": self.place.key(name)}

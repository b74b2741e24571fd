"""Objects below one place in S3: list, read, and write without overwriting by accident."""

from __future__ import annotations

import base64
import datetime
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.aws.clients import Connections, S3Uri, answered_at
from harness.aws.errors import PASSING, aws_errors, ignoring, retry
from harness.errors import AwsError

MISSING = frozenset({"NoSuchKey", "404"})
CHANGED = MISSING | {"PreconditionFailed", "412"}
# A download that broke off is begun again, the last time half a minute later.
_BROKEN_OFF = PASSING | {"IncompleteReadError", "FlexibleChecksumError"}
_DOWNLOADS = 9
# Another write of the same name is under way, and S3 asks to try again.
_UNDECIDED = frozenset({"ConditionalRequestConflict", "409"})
# S3's own limit for one request.
_DELETE_AT_ONCE = 1000
_CHUNK = 1 << 20
# Larger objects are copied in parts; of one copy S3 knows the checksum of the whole.
_COPY_AT_ONCE = 1 << 30


@dataclass(frozen=True)
class StoredObject:
    """An object as a listing shows it; ``name`` is relative to the place that was listed."""

    name: str
    size_bytes: int
    etag: str
    modified: datetime.datetime


def age(answer: dict[str, Any]) -> datetime.timedelta:
    """Return the age by S3's clock of the object that an answer shows."""
    modified: datetime.datetime = answer["LastModified"]
    return (answered_at(answer) or modified) - modified


class Objects:
    """The objects below a place; names are relative to it."""

    def __init__(self, connections: Connections, place: S3Uri) -> None:
        self.place = place
        self._connections = connections

    @property
    def client(self) -> Any:
        """Return the S3 client."""
        return self._connections.client("s3")

    def below(self, *names: str) -> Objects:
        """Return the objects below a folder of this place."""
        return Objects(self._connections, self.place.below(*names))

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[StoredObject]:
        """Yield objects by name, a thousand a request: those with a prefix, and after a name."""
        base = f"{self.place.prefix}/" if self.place.prefix else ""
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
        """Return an object's content; ``None``: there is none; AwsError: it is larger."""
        with ignoring(*MISSING), self.reading(name) as answer:
            content = bytes(answer["Body"].read(most_bytes + 1))
            if len(content) > most_bytes:
                text = f"larger than {most_bytes >> 20} MiB; harness wrote no such object"
                raise AwsError(f"{self.place.below(name)}: {text}", "TooLarge")
            answer["Body"].read(1)  # at the end botocore compares length and checksum
            return content
        return None

    def download(self, name: str, path: Path) -> str:
        """Read an object of any size into a file; return its SHA-256."""

        def once() -> str:
            content = hashlib.sha256()
            with self.reading(name) as answer, path.open("wb") as sink:
                while chunk := answer["Body"].read(_CHUNK):
                    content.update(chunk)
                    sink.write(chunk)
            return content.hexdigest()

        return retry(once, _BROKEN_OFF, _DOWNLOADS)

    def put(self, name: str, content: bytes, **condition: str) -> dict[str, Any]:
        """Write an object, over the one that is there; return S3's answer."""
        checksum = base64.b64encode(hashlib.sha256(content).digest()).decode()
        with aws_errors(f"writing {self.place.below(name)}"):
            address = self._address(name)
            return dict(self.client.put_object(**address, Body=content, ChecksumSHA256=checksum, **condition))

    def put_new(self, name: str, content: bytes) -> bool:
        """Write an object unless there is one, which S3 decides; return whether it was written."""
        return self.put_if(name, content, None) is not None

    def put_if(self, name: str, content: bytes, etag: str | None) -> str | None:
        """Write over the object of an ETag, or (``None``) where none is; return the new ETag.

        ``None``: another object is there, which may be our own, written by a request whose answer got lost.

        Raises:
            AwsError: S3 refuses or is not reached; ``Busy``: it could not decide between two writers.
        """
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": f'"{etag}"'}
        try:
            answer = retry(lambda: self.put(name, content, **condition), _UNDECIDED)
        except AwsError as error:
            if error.code in CHANGED:
                return None
            if error.code in _UNDECIDED:
                raise AwsError(f"{error}; somebody else writes it too, try again", "Busy") from error
            raise
        return str(answer["ETag"]).strip('"')

    def upload(self, name: str, path: Path) -> None:
        """Write a file of any size, in parts that S3 checks."""
        # upload_file would wrap S3's errors in another, which hides their codes.
        with aws_errors(f"uploading {path.name} to {self.place}"), path.open("rb") as file:
            self.client.upload_fileobj(file, **self._address(name), ExtraArgs={"ChecksumAlgorithm": "SHA256"})

    def size(self, name: str) -> int | None:
        """Return how many bytes an object has; ``None``: there is none."""
        answer = self._head(name)
        return None if answer is None else int(answer["ContentLength"])

    def sha256(self, name: str) -> str:
        """Return an object's SHA-256; download it if S3 knows only its parts'."""
        answer = self._head(name, ChecksumMode="ENABLED") or {}
        if answer.get("ChecksumType") == "FULL_OBJECT" and "ChecksumSHA256" in answer:
            return base64.b64decode(answer["ChecksumSHA256"]).hex()
        return self.download(name, Path(os.devnull))  # traffic out of AWS, which costs money

    def _head(self, name: str, **more: str) -> dict[str, Any] | None:
        with ignoring(*MISSING), aws_errors(f"looking at {self.place.below(name)}"):
            return dict(self.client.head_object(**self._address(name), **more))
        return None

    def renew(self, name: str, after: datetime.timedelta) -> None:
        """Write an older object again, as it is: rules on its age count from now."""
        answer = self._head(name)
        if answer is not None and age(answer) > after:
            # S3 copies an object onto itself only where its metadata are given again.
            self.copy(name, name, MetadataDirective="REPLACE")

    def copy(self, name: str, to: str, **more: str) -> None:
        """Copy an object of any size within S3; nothing is transferred."""
        from boto3.s3.transfer import TransferConfig

        how = {"ExtraArgs": {"ChecksumAlgorithm": "SHA256", **more}, "Config": TransferConfig(_COPY_AT_ONCE)}
        with aws_errors(f"copying {self.place.below(name)}"):
            self.client.copy(self._address(name), **self._address(to), **how)

    def delete(self, names: Iterable[str]) -> int:
        """Delete objects, present or not; return how many were named."""
        keys = [{"Key": self.place.key(name)} for name in names]
        for start in range(0, len(keys), _DELETE_AT_ONCE):
            some = {"Objects": keys[start : start + _DELETE_AT_ONCE], "Quiet": True}
            with aws_errors(f"deleting in {self.place}"):
                failed = self.client.delete_objects(Bucket=self.place.bucket, Delete=some).get("Errors", ())
            if failed:
                raise AwsError(f"{self.place}: {len(failed)} cannot be deleted ({failed[0].get('Code')})", "Undeleted")
        return len(keys)

    def _address(self, name: str) -> dict[str, str]:
        return {"Bucket": self.place.bucket, "Key": self.place.key(name)}

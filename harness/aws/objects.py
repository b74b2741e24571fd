"""Objects below one place in S3: listed, read, and written so that nothing is ever overwritten unasked."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from harness.aws import conditional
from harness.aws.conditional import checksum, said_at
from harness.aws.connections import Connections
from harness.aws.failures import aws_errors
from harness.aws.uri import S3Uri
from harness.errors import AwsError

# One request deletes at most so many (S3's own limit).
_DELETE_AT_ONCE = 1000
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Stored:
    """An object as a listing shows it; ``name`` is relative to the place that was listed."""

    name: str
    size_bytes: int
    etag: str
    modified: datetime.datetime


class Objects:
    """The objects below a place; names are relative to it."""

    def __init__(self, connections: Connections, place: S3Uri) -> None:
        self.place = place
        self._connections = connections

    @property
    def client(self) -> Any:
        """The S3 client."""
        return self._connections.client("s3")

    def below(self, *names: str) -> Objects:
        """Those below a folder of this place."""
        return Objects(self._connections, self.place.below(*names))

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[Stored]:
        """All objects whose name begins so, by name; a thousand a request.

        Args:
            prefix: the name's beginning.
            after: only names that come after this one.
        """
        base = f"{self.place.prefix}/" if self.place.prefix else ""
        arguments = {"Bucket": self.place.bucket, "Prefix": base + prefix}
        if after is not None:
            arguments["StartAfter"] = base + after
        with aws_errors(f"listing {self.place}"):
            for page in self.client.get_paginator("list_objects_v2").paginate(**arguments):
                for each in page.get("Contents", ()):
                    name = each["Key"].removeprefix(base)
                    yield Stored(name, each["Size"], each["ETag"].strip('"'), each["LastModified"])

    def get(self, name: str, most_bytes: int) -> bytes | None:
        """An object's content; ``None``: there is none.

        Raises:
            AwsError: it is larger than ``most_bytes``, or cannot be read.
        """
        try:
            with aws_errors(f"reading {self.place.below(name)}"):
                answer = self.client.get_object(Bucket=self.place.bucket, Key=self.place.key(name))
                with closing(answer["Body"]) as body:
                    content = bytes(body.read(most_bytes + 1))
                    if len(content) <= most_bytes:
                        body.read(1)  # at the end length and checksum are compared
        except AwsError as error:
            if error.code in ("NoSuchKey", "404"):
                return None
            raise
        if len(content) > most_bytes:
            raise AwsError(
                f"{self.place.below(name)}: larger than {most_bytes >> 20} MiB; it is none of ours", "TooLarge"
            )
        return content

    def put(self, name: str, content: bytes) -> datetime.datetime | None:
        """Write an object, over what is there; return S3's own time of it, where it says so."""
        with aws_errors(f"writing {self.place.below(name)}"):
            answer = self.client.put_object(
                Bucket=self.place.bucket, Key=self.place.key(name), Body=content, ChecksumSHA256=checksum(content)
            )
        return said_at(answer)

    def put_new(self, name: str, content: bytes) -> bool:
        """Write an object unless there is one of that name; whether it was written.

        S3 decides, so that of two who write at once one alone succeeds.

        Raises:
            AwsError: S3 refuses, is not reached, or cannot decide (``Busy``).
        """
        return conditional.put(self, name, content, None) is not None

    def upload(self, name: str, path: Path) -> None:
        """Write a file of any size, in parts that S3 checks."""
        with aws_errors(f"uploading {path.name} to {self.place}"):
            self.client.upload_file(
                str(path), self.place.bucket, self.place.key(name), ExtraArgs={"ChecksumAlgorithm": "SHA256"}
            )

    def download(self, name: str, sink: IO[bytes]) -> str:
        """Read an object of any size into a file; return its content's sha256.

        Raises:
            AwsError: it is not there, or was cut off.
        """
        content = hashlib.sha256()
        with aws_errors(f"downloading {self.place.below(name)}"):
            answer = self.client.get_object(Bucket=self.place.bucket, Key=self.place.key(name))
            with closing(answer["Body"]) as body:
                for chunk in iter(lambda: body.read(_CHUNK), b""):
                    content.update(chunk)
                    sink.write(chunk)
        return content.hexdigest()

    def size(self, name: str) -> int | None:
        """How many bytes an object has; ``None``: there is none."""
        try:
            with aws_errors(f"looking at {self.place.below(name)}"):
                return int(self.client.head_object(Bucket=self.place.bucket, Key=self.place.key(name))["ContentLength"])
        except AwsError as error:
            if error.code in ("NoSuchKey", "404"):
                return None
            raise

    def age(self, name: str) -> datetime.timedelta | None:
        """How long ago an object was written, by S3's own clock; ``None``: there is none, or S3 does not say."""
        try:
            with aws_errors(f"looking at {self.place.below(name)}"):
                answer = self.client.head_object(Bucket=self.place.bucket, Key=self.place.key(name))
        except AwsError as error:
            if error.code in ("NoSuchKey", "404"):
                return None
            raise
        now = said_at(answer)
        return None if now is None else now - answer["LastModified"]

    def renew(self, name: str) -> None:
        """Write an object anew, as it is, so that rules on its age count from now; nothing is transferred."""
        # S3 copies an object onto itself only where its metadata are given anew.
        self.copy(name, name, MetadataDirective="REPLACE")

    def copy(self, name: str, to: str, **more: str) -> None:
        """Copy an object within S3, of any size; nothing is transferred."""
        source = {"Bucket": self.place.bucket, "Key": self.place.key(name)}
        with aws_errors(f"copying {self.place.below(name)}"):
            self.client.copy(
                source, self.place.bucket, self.place.key(to), ExtraArgs={"ChecksumAlgorithm": "SHA256", **more}
            )

    def delete(self, names: Iterable[str]) -> int:
        """Delete objects; return how many were named."""
        waiting, done = [self.place.key(name) for name in names], 0
        while waiting:
            now, waiting = waiting[:_DELETE_AT_ONCE], waiting[_DELETE_AT_ONCE:]
            with aws_errors(f"deleting in {self.place}"):
                answer = self.client.delete_objects(
                    Bucket=self.place.bucket, Delete={"Objects": [{"Key": key} for key in now], "Quiet": True}
                )
            failed = answer.get("Errors", ())
            if failed:
                raise AwsError(
                    f"{self.place}: {len(failed)} objects cannot be deleted ({failed[0].get('Code')})", "Undeleted"
                )
            done += len(now)
        return done

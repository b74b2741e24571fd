"""``s3://bucket/prefix``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.errors import UsageError

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
SCHEME = "s3://"


@dataclass(frozen=True)
class S3Uri:
    """A place in S3.  ``prefix`` has no slash at its ends; empty: the whole bucket."""

    bucket: str
    prefix: str = ""

    def key(self, *names: str) -> str:
        """The key of something below this place."""
        return "/".join(filter(None, (self.prefix, *names)))

    def below(self, *names: str) -> S3Uri:
        """A place below this one."""
        return S3Uri(self.bucket, self.key(*names))

    def __str__(self) -> str:
        return SCHEME + "/".join(filter(None, (self.bucket, self.prefix)))


def is_s3(text: str) -> bool:
    """Whether a text names a place in S3."""
    return text.startswith(SCHEME)


def parse(text: str) -> S3Uri:
    """Read ``s3://bucket/prefix``.

    Raises:
        UsageError: it is none.
    """
    if not is_s3(text):
        raise UsageError(f"{text!r} is no place in S3; write s3://BUCKET or s3://BUCKET/PREFIX")
    bucket, _, prefix = text.removeprefix(SCHEME).partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise UsageError(f"{text!r}: {bucket!r} is no name of a bucket; write s3://BUCKET or s3://BUCKET/PREFIX")
    parts = prefix.strip("/").split("/") if prefix.strip("/") else []
    if any(part in ("", ".", "..") for part in parts):
        raise UsageError(f"{text!r}: the prefix has an empty part, '.' or '..'; write s3://BUCKET/PREFIX")
    return S3Uri(bucket, "/".join(parts))

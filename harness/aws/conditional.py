"""Writes that S3 itself refuses when somebody was faster."""

from __future__ import annotations

import base64
import datetime
import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.aws.failures import aws_errors
from harness.errors import AwsError

if TYPE_CHECKING:
    from harness.aws.objects import Objects

# 404: the object that was to be written over has gone.
_REFUSED = ("PreconditionFailed", "412", "NoSuchKey", "404")
# Another write of the same name was under way, and nobody knows yet how it ends: S3 asks to try again.
_UNDECIDED = ("ConditionalRequestConflict", "409")
_TRIES = 6
_PAUSE_S = 0.1


@dataclass(frozen=True)
class Written:
    """An object as S3 took it; ``at`` is S3's own time, where it says it."""

    etag: str
    at: datetime.datetime | None


def put(objects: Objects, name: str, content: bytes, over: str | None) -> Written | None:
    """Write an object if it is what we think it is; ``None``: it is not, or our own retry had been there before.

    Args:
        objects: below which place.
        name: the object's.
        content: all of it.
        over: the ETag of what is there now; ``None``: nothing is.

    Raises:
        AwsError: S3 refuses or is not reached; ``Busy``: it could not decide between us and somebody else.
    """
    condition = {"IfNoneMatch": "*"} if over is None else {"IfMatch": f'"{over}"'}
    place = objects.place
    where = {"Bucket": place.bucket, "Key": place.key(name)}
    for number in range(1, _TRIES + 1):
        try:
            with aws_errors(f"writing {place.below(name)}"):
                answer = objects.client.put_object(Body=content, ChecksumSHA256=checksum(content), **where, **condition)
            return Written(answer["ETag"].strip('"'), said_at(answer))
        except AwsError as error:
            if error.code in _REFUSED:
                return None
            if error.code not in _UNDECIDED:
                raise
            if number == _TRIES:
                raise AwsError(f"{error}; somebody else writes it too, try again", "Busy") from error
        time.sleep(_PAUSE_S * 2**number)
    raise AssertionError("unreachable")


def checksum(content: bytes) -> str:
    """What S3 compares the content that arrives with."""
    return base64.b64encode(hashlib.sha256(content).digest()).decode()


def said_at(answer: dict[str, Any]) -> datetime.datetime | None:
    """AWS' own clock in an answer: ours may be off."""
    from email.utils import parsedate_to_datetime

    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    return parsedate_to_datetime(date) if date else None

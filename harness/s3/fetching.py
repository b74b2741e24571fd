"""One object, whole and as it was listed, or an error."""

from __future__ import annotations

import hashlib
import re
import time
from contextlib import closing
from dataclasses import dataclass
from typing import IO

from harness.aws.failures import aws_errors
from harness.aws.objects import Objects, Stored
from harness.errors import AwsError

_CHUNK = 1 << 20
_TRIES = 5
_PAUSE_S = 0.2
# Broken off after the answer had begun, where boto3 does not try again by itself.
_AGAIN = ("Unreached", "IncompleteReadError", "FlexibleChecksumError", "Damaged")
_MD5 = re.compile(r"[0-9a-f]{32}")


class Moved(Exception):
    """The object is no longer what was listed: list again."""


@dataclass(frozen=True)
class Fetched:
    """What came: its sha256, and whether its ETag proves that S3 holds just this."""

    sha256: str
    proven: bool


def fetch(objects: Objects, each: Stored, sink: IO[bytes]) -> Fetched:
    """Read an object into an empty file; one that breaks off or arrives damaged is read again.

    Raises:
        Moved: it went, or another has its name.
        AwsError: it cannot be read.
    """
    for number in range(1, _TRIES + 1):
        try:
            return _once(objects, each, sink)
        except AwsError as error:
            if error.code in ("NoSuchKey", "404", "PreconditionFailed", "412"):
                raise Moved(each.name) from error
            if error.code not in _AGAIN or number == _TRIES:
                raise
        sink.seek(0)
        sink.truncate()
        time.sleep(_PAUSE_S * 2**number)
    raise AssertionError("unreachable")


def _once(objects: Objects, each: Stored, sink: IO[bytes]) -> Fetched:
    md5, sha256, size = hashlib.md5(usedforsecurity=False), hashlib.sha256(), 0
    place = objects.place
    with aws_errors(f"reading {place.below(each.name)}"):
        answer = objects.client.get_object(Bucket=place.bucket, Key=place.key(each.name), IfMatch=f'"{each.etag}"')
        with closing(answer["Body"]) as body:
            for chunk in iter(lambda: body.read(_CHUNK), b""):
                size += len(chunk)
                if size > each.size_bytes:
                    break
                md5.update(chunk)
                sha256.update(chunk)
                sink.write(chunk)
    proves = proof(each.etag) and not _encrypted_otherwise(answer)
    if size != each.size_bytes or (proves and md5.hexdigest() != each.etag):
        raise AwsError(
            f"{place.below(each.name)}: arrived damaged, several times; see to the network and try again", "Damaged"
        )
    return Fetched(sha256.hexdigest(), proves)


def proof(etag: str) -> bool:
    """Whether an ETag may be the MD5 of the content: those of objects in parts are not."""
    return _MD5.fullmatch(etag) is not None


def _encrypted_otherwise(answer: dict[str, object]) -> bool:
    """Encrypted by a key of KMS or the customer's: then the ETag looks like an MD5, and is none of the content."""
    return "SSECustomerAlgorithm" in answer or answer.get("ServerSideEncryption") not in (None, "AES256")

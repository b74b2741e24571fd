"""Bring jobs from boxes' folders into the local store: once each, and only those that were planned.

A job that arrives is a stranger's until names, sizes, hashes, seal and spec are checked.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
from pathlib import Path

from harness import seals
from harness.aws.objects import Objects
from harness.errors import AwsError, FileError
from harness.remote import archive, layout
from harness.result import ANSWER_DEPTHS, JUDGED_HITS, Result, ResultSpec, job_key
from harness.store import Store
from harness.stored_jobs import LOG, RESULT, RUN, SAMPLES, read_result

# Of one packed job, which is held in memory; honest ones have a few MiB.
MOST_BYTES = 512 << 20
_FILES = frozenset((LOG, RUN, SAMPLES, JUDGED_HITS, ANSWER_DEPTHS, RESULT))


def bring(work: Objects, box_id: str, key: str, expected: ResultSpec, store: Store) -> Result:
    """Store a job of a box, which was planned as ``expected``; this process holds the store.

    Raises:
        AwsError: with code ``BadJob``: it is not the job that was planned; or S3 refuses.
        StoreError: it cannot be stored, or is stored already.
    """
    box = work.below(layout.box(box_id))
    place = box.place.below(layout.job(key))
    content = box.get(layout.job(key), MOST_BYTES)
    if content is None:
        raise AwsError(f"{place}: there is no such job", "NoSuchKey")
    with store.scratch(f"arrived-{key}") as folder:
        whole = folder / key
        whole.mkdir()
        try:
            result = unpack(content, whole)
            _check(result, key, expected)
        except AwsError as error:
            raise AwsError(f"{place}: {error}; it is left there, and not stored", "BadJob") from error
        return store.adopt(whole, result).result


def unpack(content: bytes, folder: Path) -> Result:
    """Unpack a job into an empty folder; return its result, which agrees with every file beside it.

    Raises:
        AwsError: it is no packed job, or is not whole.
    """
    archive.unpack(io.BytesIO(content), folder, what="a job", most_bytes=MOST_BYTES, allowed=_FILES.__contains__)
    try:
        result = read_result(folder / RESULT)
    except FileError as error:
        raise _bad(f"{error}") from error
    files = [path for path in sorted(folder.iterdir()) if path.name != RESULT]
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    if found != result.files:
        other = sorted(name for name in found.keys() | result.files.keys() if found.get(name) != result.files.get(name))
        raise _bad(f"{', '.join(other)} are not as its {RESULT} says")
    if result.key != job_key(result.spec):
        raise _bad(f"its key {result.key[:40]!r} is not that of its spec")
    if seals.broken(json.loads((folder / RESULT).read_bytes())):
        raise _bad(f"its {RESULT} is not as it was sealed")
    return result


def _check(result: Result, key: str, expected: ResultSpec) -> None:
    """Refuse a job that is not as it was planned."""
    if job_key(expected) != key or result.key != key:
        raise _bad(f"holds the job {result.key}")
    for field in dataclasses.fields(ResultSpec):  # cannot differ under one key, unless hashes collide
        if getattr(result.spec, field.name) != getattr(expected, field.name):
            raise _bad(f"its {field.name} is not what was planned")
    measured = {result.instance.instance_type if result.instance else None, result.environment.instance_type}
    if expected.instance_type is not None and measured != {expected.instance_type}:
        types = ", ".join(sorted(str(each) for each in measured - {expected.instance_type}))
        raise _bad(f"planned for {expected.instance_type}, it was measured on {types}")


def _bad(why: str) -> AwsError:
    return AwsError(why, "BadJob")

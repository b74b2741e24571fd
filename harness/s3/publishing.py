"""A whole job folder -> S3: its files first, its record last, nothing of a finished job ever overwritten."""

from __future__ import annotations

import hashlib
from pathlib import Path

from harness.aws import conditional
from harness.aws.objects import Objects, Stored
from harness.errors import StoreError
from harness.s3.lock import Lock
from harness.s3.names import JOB_FILES
from harness.stored_jobs import RESULT


class Taken(StoreError):
    """A job of that key is in S3 already, and it is another one."""


def publish(folder: Path, job: Objects, lock: Lock) -> None:
    """Write a job, or go on where a dead run had begun to write it.

    A job without its record was never finished, and nobody else writes here: what a dead run left of one is replaced.

    Args:
        folder: holds its files.
        job: the objects of its folder.
        lock: held on its suite.

    Raises:
        Taken: another job has its key.
        StoreError: somebody took the lock over.
        AwsError: it cannot be written.
    """
    contents = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    record = contents.pop(RESULT)
    there = {each.name: each for each in job.list() if each.name in JOB_FILES}
    if RESULT in there:
        _check_same(job, record)
        return
    strays = [name for name in there if name not in contents]
    if strays:
        lock.confirm(now=True)
        job.delete(strays)
    for name, content in contents.items():
        _write(job, name, content, there.get(name), lock)
    lock.confirm()
    if conditional.put(job, RESULT, record, None) is None:
        _check_same(job, record)


def _write(job: Objects, name: str, content: bytes, there: Stored | None, lock: Lock) -> None:
    if there is None and conditional.put(job, name, content, None) is not None:
        return
    if there is None:  # ours, whose answer did not arrive; or somebody else's
        there = next((each for each in job.list(name) if each.name == name), None)
    if there is not None and _is(job, there, content):
        return
    # Asked just before, so that nobody else takes it over while this is written.
    lock.confirm(now=True)
    if conditional.put(job, name, content, there.etag if there else None) is None:
        raise StoreError(f"{job.place.below(name)}: somebody else writes it; see that one run alone writes there")


def _is(job: Objects, there: Stored, content: bytes) -> bool:
    if there.size_bytes != len(content):
        return False
    if hashlib.md5(content, usedforsecurity=False).hexdigest() == there.etag:
        return True
    return job.get(there.name, len(content)) == content


def _check_same(job: Objects, record: bytes) -> None:
    """The record that is there must be ours: the same job, of which the answer did not arrive."""
    place = job.place.below(RESULT)
    size = next((each.size_bytes for each in job.list(RESULT) if each.name == RESULT), None)
    if size == len(record) and job.get(RESULT, len(record)) == record:
        return
    raise Taken(f"{place}: exists already; nothing is ever overwritten")

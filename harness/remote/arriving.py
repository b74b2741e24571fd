"""Jobs that boxes handed over, brought into the local store: once each, and only what was asked for."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Container

from harness.aws.objects import Objects
from harness.errors import AwsError
from harness.remote import handover, layout
from harness.result import Result, ResultSpec, job_key
from harness.store import Store

_KEY = re.compile(rf"{layout.JOBS}/([0-9a-f]{{16}})\.tar")


def waiting(run: Objects, known: Container[str]) -> list[str]:
    """Keys of the jobs that lie in S3 and are not known, by name.

    Args:
        run: the run's folder.
        known: keys of jobs that are home.

    Raises:
        AwsError: S3 refuses or is not reached.
    """
    found = (_KEY.fullmatch(each.name) for each in run.list(f"{layout.JOBS}/"))
    return [each[1] for each in found if each and each[1] not in known]


def bring(run: Objects, key: str, expected: ResultSpec, store: Store) -> Result:
    """Store a job that lies in S3.

    Args:
        run: the run's folder.
        key: the job's.
        expected: what was planned under that key.
        store: where it is to be; held by this process.

    Raises:
        AwsError: with code ``BadJob``: what lies there is not the job that was planned; S3 refuses.
        StoreError: it cannot be stored, or is stored already.
    """
    name = layout.job(key)
    place = run.place.below(name)
    content = run.get(name, handover.MOST_BYTES)
    if content is None:
        raise AwsError(f"{place}: there is no such job", "NoSuchKey")
    with store.scratch(f"arrived-{key}") as folder:
        whole = folder / key
        whole.mkdir()
        try:
            result = handover.unpack(content, whole)
        except AwsError as error:
            raise AwsError(f"{place}: {error}; it is left there", "BadJob") from error
        lie = _lie(result, key, expected)
        if lie:
            raise AwsError(f"{place}: {lie}; it is left there, and not stored", "BadJob")
        return store.adopt(whole, result).result


def _lie(result: Result, key: str, expected: ResultSpec) -> str | None:
    """What is not as it was planned."""
    if job_key(expected) != key or result.key != key:
        return f"holds the job {result.key}"
    for field in dataclasses.fields(ResultSpec):  # cannot differ under one key, unless hashes collide
        if getattr(result.spec, field.name) != getattr(expected, field.name):
            return f"its {field.name} is not what was planned"
    measured = {result.instance.instance_type if result.instance else None, result.environment.instance_type}
    if expected.instance_type is not None and measured != {expected.instance_type}:
        types = ", ".join(sorted(str(each) for each in measured - {expected.instance_type}))
        return f"planned for {expected.instance_type}, it was measured on {types}"
    return None

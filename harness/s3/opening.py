"""``s3://bucket/prefix`` -> a folder that reads as any other, and what publishes into it."""

from __future__ import annotations

from pathlib import Path

from harness.aws.connections import Connections
from harness.aws.uri import S3Uri, parse
from harness.errors import UsageError
from harness.s3.mirror import Wants, Watch, keep_index, make_index, sync
from harness.s3.names import Place, suite_of
from harness.s3.shelf import Shelf, waiting_jobs


def mirrored(text: str, cache: Path, wants: Wants, watch: Watch, *, thorough: bool = False) -> Path:
    """The folder that has what is in S3 now; nothing is written there but an index, where one is missing.

    Args:
        text: ``s3://bucket/prefix``: results, or a part of them.
        cache: where the mirror is.
        wants: which files of each job.
        watch: is told of what takes long.
        thorough: read what the mirror has from an earlier time, and do not rely on what is remembered of it.

    Raises:
        UsageError: it names no place.
        AwsError: there is no such bucket, it may not be read, or it is not reached.
    """
    place, connections = Place(parse(text), cache), Connections()
    synced = sync(place, connections, wants, watch, thorough=thorough)
    keep_index(place, connections, synced)
    if waiting := waiting_jobs(place):
        watch.say(
            f"{place.uri}: {len(waiting):,} jobs that a run measured here are not in S3 yet, and left out; the next "
            "`harness run` into it publishes them"
        )
    return place.folder


def writable(text: str, cache: Path, watch: Watch) -> tuple[Path, Shelf]:
    """The folder to run in, and what publishes each job; errors as :func:`mirrored`, when it is held."""
    place = Place(parse(text), cache)
    return place.folder, Shelf(place, Connections(), watch)


def index(text: str, cache: Path, watch: Watch) -> dict[S3Uri, int]:
    """Make the index of each suite of a results folder anew, from the objects themselves.

    Returns:
        How many results each suite's index holds.

    Raises:
        UsageError: there is no job in it, or it is a part of a suite.
        AwsError: it cannot be read or written.
    """
    place, connections = Place(parse(text), cache), Connections()
    tree = sync(place, connections, Wants.RECORDS, watch).tree
    suites = sorted({suite_of(job) for job in tree.jobs})
    if not suites:
        raise UsageError(f"{place.uri}: no stored job in it; name a folder that holds results")
    if not all(f"{suite}/".startswith(place.prefix) for suite in suites):
        raise UsageError(
            f"{place.uri}: is a part of a suite, and an index is of the whole; name s3://{place.uri.bucket}/{suites[0]}"
        )
    return {S3Uri(place.uri.bucket, suite): make_index(place, connections, tree, suite) for suite in suites}

"""Results in S3: ``s3://bucket/prefix`` as a folder, to read it or to write into it.

The objects are the truth: each command lists all of them, and mirrors the new ones into the cache.
"""

from __future__ import annotations

import logging
from pathlib import Path

from harness.aws.clients import Connections, parse_uri
from harness.aws.results.mirror import FileSelection, MirroredFolder, sync
from harness.aws.results.publish import Publisher, waiting_jobs
from harness.progress import Progress, silent

log = logging.getLogger(__name__)


def open_to_read(
    text: str, cache: Path, wants: FileSelection, progress: Progress = silent, *, thorough: bool = False
) -> Path:
    """Return a folder with the files that are in S3 now; see :func:`harness.aws.results.mirror.sync`."""
    place = MirroredFolder(parse_uri(text), cache)
    sync(place, Connections(), wants, progress, thorough=thorough)
    if waiting := waiting_jobs(place):
        log.info(
            "%s: %s jobs that a run measured here are not in S3 yet, and left out; the next `harness run` into it"
            " publishes them",
            place.uri,
            f"{len(waiting):,}",
        )
    return place.folder


def open_to_write(text: str, cache: Path) -> tuple[Path, Publisher]:
    """Return the folder to run in, and its publisher, which asks S3 only once it is held."""
    place = MirroredFolder(parse_uri(text), cache)
    return place.folder, Publisher(place, Connections())

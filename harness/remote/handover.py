"""One stored job as one object: packed by the box that measured it, unpacked by whoever brings it home.

What is unpacked is a stranger's until it is checked: names, sizes, hashes, and that the key is the name of the spec.
"""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

from harness import seals
from harness.errors import AwsError, FileError
from harness.remote import tarballs
from harness.result import ANSWER_DEPTHS, JUDGED_HITS, Result, job_key
from harness.stored_jobs import LOG, RESULT, RUN, SAMPLES, read_result

# Of one packed job, which is held in memory; honest ones are a few MiB.
MOST_BYTES = 512 << 20
_FILES = frozenset((LOG, RUN, SAMPLES, JUDGED_HITS, ANSWER_DEPTHS))


def pack(folder: Path) -> bytes:
    """A stored job's folder as a tar, always the same bytes.

    Raises:
        OSError: it cannot be read.
    """
    target = io.BytesIO()
    tarballs.write(target, [(path.name, path) for path in sorted(folder.iterdir()) if path.is_file()])
    return target.getvalue()


def unpack(content: bytes, folder: Path) -> Result:
    """Unpack a job into an empty folder that is there.

    Returns:
        Its result; every file beside it is as that says, and its key is that of its spec.

    Raises:
        AwsError: it is no packed job, or is not whole.
    """
    allowed = _FILES | {RESULT}
    tarballs.unpack(
        io.BytesIO(content), folder, what="a job that arrived", most_bytes=MOST_BYTES, allowed=allowed.__contains__
    )
    try:
        result = read_result(folder / RESULT)
    except FileError as error:
        raise AwsError(f"a job that arrived: {error}", "BadJob") from error
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if path.name != RESULT
    }
    if found != result.files:
        other = sorted(name for name in found.keys() | result.files.keys() if found.get(name) != result.files.get(name))
        raise AwsError(f"a job that arrived: {', '.join(other)} are not as its {RESULT} says", "BadJob")
    if result.key != job_key(result.spec):
        raise AwsError(f"a job that arrived: its key {result.key[:40]!r} is not that of its spec", "BadJob")
    if seals.broken(json.loads((folder / RESULT).read_bytes())):
        raise AwsError(f"a job that arrived: its {RESULT} is not as it was sealed", "BadJob")
    return result

"""What a suite keeps beside its jobs: judgements and query samples, named by their hashes; manifest; verdicts."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness import seals, stored_jobs
from harness.untrusted import read_regular, sha256_of
from harness.verifying.jobs import Looked
from harness.verifying.mismatch import Mismatch, below, differences, shown

# Folder of a suite, and whether its files are compressed; the hash is that of what was in them before.
KEPT = (("qrels", True), ("samples", False))
_MOST_VERDICT_BYTES = 16 << 20


def files(suite: Path) -> Iterator[tuple[Path, bool]]:
    """The inputs that lie there, and whether each is compressed."""
    for name, packed in KEPT:
        folder = suite / name
        if folder.is_dir():
            yield from ((path, packed) for path in sorted(folder.iterdir()))


def look(suite: Path, place: str) -> Iterator[Mismatch]:
    """Those whose content is not what their name says."""
    for path, packed in files(suite):
        named = path.name.partition(".")[0]
        where = f"{place}/{path.parent.name}/{path.name}"
        try:
            sha256 = sha256_of(path, packed=packed)
        except (OSError, EOFError, zlib.error) as error:
            what = error.strerror if isinstance(error, OSError) and error.strerror else error
            yield Mismatch(where, f"cannot be read: {shown(what)}", f"a file of content {named}")
            continue
        if sha256 != named:
            yield Mismatch(where, f"content of sha256 {sha256}", f"{named}, by its name")


def manifest(suite: Path, root: Path, jobs: Mapping[Path, Looked]) -> Iterator[Mismatch]:
    """Compare a suite's manifest with its jobs.

    Args:
        suite: its folder, absolute.
        root: names places; only jobs below it are looked at.
        jobs: those that were found, by their folders.
    """
    place, top = below(root, suite / seals.MANIFEST), root.absolute()
    here = {folder: each for folder, each in jobs.items() if folder.is_relative_to(suite)}
    try:
        listed = seals.read(suite)
    except (OSError, ValueError) as error:
        yield Mismatch(place, f"cannot be read: {error}", f"a list of the jobs of {suite.name}")
        return
    if listed is None:
        yield Mismatch(place, "no such file", f"a list of the jobs of {suite.name}")
        return
    wanted = {suite / folder: seal for folder, seal in listed.items()}
    for folder, seal in wanted.items():
        # A run that ends meanwhile stores jobs that were not there when folders were listed.
        if folder not in here:
            if folder.is_relative_to(top) and not _is_there(folder):
                yield Mismatch(
                    below(root, folder), "gone", f"a job, by {seals.MANIFEST}; bring it back or strike it there"
                )
        elif (found := here[folder].seal) not in (seal, None):
            yield Mismatch(below(root, folder), f"sealed {found}", f"{seal}, by {seals.MANIFEST}")
    for folder in sorted(here.keys() - wanted.keys()):
        if here[folder].job is not None:
            yield Mismatch(below(root, folder), "is there", f"no such job: {seals.MANIFEST} does not list it")


def _is_there(job: Path) -> bool:
    try:
        return (job / stored_jobs.RESULT).exists()
    except OSError:  # a name that no file can have
        return False


def verdicts(suite: Path, root: Path, jobs: Mapping[Path, Looked]) -> Iterator[Mismatch]:
    """Check each verdict below ``root``; arguments as :func:`manifest`."""
    for path in sorted(suite.glob(f"*/*/{stored_jobs.VERDICTS}/*.json")):
        if not path.is_relative_to(root.absolute()):
            continue
        place = below(root, path)
        try:
            raw = json.loads(read_regular(path, _MOST_VERDICT_BYTES))
            if seal := seals.broken(raw):
                yield Mismatch(f"{place}: seal", shown(seal[0]), f"{seal[1]}, of what it says")
            yield from _evidence(raw, place, suite, jobs)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            yield Mismatch(place, f"cannot be read: {' '.join(str(error).split())}", "a verdict")


def _evidence(raw: Mapping[str, Any], place: str, suite: Path, jobs: Mapping[Path, Looked]) -> Iterator[Mismatch]:
    """Compare what a verdict says of its jobs with these."""
    unconstrained = raw["unconstrained"]
    others = [*unconstrained["jobs"], *unconstrained["left_out"]]
    yield from differences(f"{place}: jobs", raw["jobs"], len(raw["evidence"]) + len(others))
    for folder in others:
        if not _is_there(suite.parent / folder):
            yield Mismatch(f"{place}: unconstrained", shown(folder), "a job that is there")
    for number, each in enumerate(raw["evidence"], start=1):
        folder = suite.parent / each["job"]
        if not _is_there(folder):
            yield Mismatch(f"{place}: evidence {number}", shown(each["job"]), "a job that is there")
        elif (found := jobs.get(folder)) and found.job is not None:
            result = found.job.result
            follows = {
                "limit_bytes": result.spec.envelope.memory_bytes,
                "outcome": result.outcome.value,
                "peak_anon_bytes": result.memory.peak_anon_bytes,
                "major_faults": result.counters.major_faults,
            }
            yield from differences(f"{place}: evidence {number}", {name: each[name] for name in follows}, follows)

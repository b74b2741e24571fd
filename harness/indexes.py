"""Indexes as cached build jobs: made once for each image, corpus and build parameters."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from harness import leftovers
from harness.collect import collect
from harness.datasets import Corpus
from harness.errors import JobError
from harness.launch.base import Job, Launcher, Limits, Prepared, Progress
from harness.records import Envelope, JobSpec, Outcome, to_json
from harness.result import IndexFacts
from harness.store import check_room
from harness.untrusted import open_regular

_FACTS = TypeAdapter(IndexFacts)
_MOST_LEVELS = 64


@dataclass(frozen=True)
class Index:
    """A finished index: ``folder`` is what jobs see as ``/index``."""

    folder: Path
    facts: IndexFacts


def find(cache: Path, key: str) -> Index | None:
    """The index of that key, if it was built to its end."""
    home = cache / "indexes" / key
    try:
        facts = _FACTS.validate_json((home / "facts.json").read_bytes())
    except (OSError, ValidationError):
        return None
    return Index(home / "data", facts)


def build(
    launcher: Launcher,
    prepared: Prepared,
    corpus: Corpus,
    key: str,
    *,
    envelope: Envelope,
    limits: Limits,
    cache: Path,
    progress: Callable[[Progress], None],
) -> Index:
    """Run one build job and keep what it made.

    Raises:
        JobError: with the build's outcome; nothing is kept.
        StoreError: the cache's disk is full.
    """
    home = cache / "indexes" / key
    partial = leftovers.in_the_making(home)
    data, folder = partial / "data", partial / "job"
    data.mkdir(parents=True)
    (folder / "out").mkdir(parents=True)
    partial.chmod(0o755)
    spec = JobSpec(
        kind="build",
        system=prepared.system.name,
        params=prepared.system.params,
        envelope=envelope,
        isolation=launcher.isolation,
        corpus_size=corpus.size,
    )
    job = Job(spec, prepared, folder, corpus.folder, data, limits)
    try:
        ended = launcher.launch(job, progress)
        collected = collect(job, ended, corpus.unknown)
        if collected.outcome is not Outcome.OK or collected.measurement is None:
            check_room(cache)
            raise JobError(collected.outcome, f"index build: {collected.detail}")
        size, checksum = _content(data)
        facts = IndexFacts(
            build_s=collected.measurement.build_s or 0.0,
            index_bytes=size,
            peak_anon_bytes=collected.memory.peak_anon_bytes,
            peak_cgroup_bytes=max(collected.measurement.peak_cgroup_bytes or 0, collected.memory.peak_cgroup_bytes or 0)
            or None,
            content_sha256=checksum,
            envelope=envelope,
        )
        leftovers.remove(folder)
        (partial / "facts.json").write_text(to_json(facts, indent=2), encoding="utf-8")
        found = find(cache, key)
        if found:  # another run was faster; jobs may be reading its index
            return found
        leftovers.remove(home)  # damaged, else it had been found
        partial.rename(home)
    finally:
        leftovers.remove(partial)
    return Index(home / "data", facts)


def build_envelope(cpus: int, memory_bytes: int) -> Envelope:
    """The envelope of builds where the suite names none: all CPUs, half of the host's memory."""
    return Envelope("build", cpus, memory_bytes // 2 // 2**20 * 2**20, pids=2048)


def _content(data: Path) -> tuple[int, str]:
    """Size and hash of an index; a link or a pipe in it could lead out of it, so it is refused.

    Raises:
        JobError: it holds something else than files in folders, or what cannot be read.
    """
    size, content = 0, hashlib.sha256()
    try:
        for path in sorted(Path(entry.path) for entry in leftovers.files(data)):
            name = path.relative_to(data)
            if len(name.parts) > _MOST_LEVELS:
                raise JobError(Outcome.BAD_OUTPUT, f"index build: folders more than {_MOST_LEVELS} levels deep")
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                continue
            if not stat.S_ISREG(mode):
                raise JobError(Outcome.BAD_OUTPUT, f"index build: {str(name)!r} is no regular file")
            with open_regular(path) as file:
                checksum = hashlib.file_digest(file, "sha256").hexdigest()
            content.update(f"{name} {checksum}\n".encode("utf-8", "surrogateescape"))
            size += path.stat().st_size
    except OSError as error:
        raise JobError(
            Outcome.BAD_OUTPUT, f"index build: the index cannot be read: {error.strerror or error}"
        ) from error
    if not size:
        raise JobError(Outcome.BAD_OUTPUT, "index build: the index is empty")
    return size, content.hexdigest()

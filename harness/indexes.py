"""Indexes as cached build jobs: made once for each image, corpus and build parameters."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from harness.collect import collect
from harness.datasets import Corpus
from harness.errors import JobError
from harness.launch.base import Job, Launcher, Limits, Prepared, Progress
from harness.records import Envelope, IndexFacts, JobSpec, Outcome, to_json

_FACTS = TypeAdapter(IndexFacts)


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
    """
    home = cache / "indexes" / key
    partial = home.with_name(f"{key}.{os.getpid()}.partial")
    _clear(home.parent, key)
    shutil.rmtree(partial, ignore_errors=True)  # a dead process had our id
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
    (folder / "spec.json").write_text(to_json(spec), encoding="utf-8")
    job = Job(spec, prepared, folder, corpus.folder, data, limits)
    try:
        ended = launcher.launch(job, progress)
        collected = collect(job, ended, corpus.unknown)
        if collected.outcome is not Outcome.OK or collected.measurement is None:
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
        shutil.rmtree(folder)
        (partial / "facts.json").write_text(to_json(facts, indent=2), encoding="utf-8")
        found = find(cache, key)
        if found:  # another run was faster; jobs may be reading its index
            return found
        partial.rename(home)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Index(home / "data", facts)


def build_envelope(cpus: int, memory_bytes: int) -> Envelope:
    """The envelope of builds where the suite names none: all CPUs, half of the host's memory."""
    return Envelope("build", cpus, memory_bytes // 2 // 2**20 * 2**20, pids=2048)


def _content(data: Path) -> tuple[int, str]:
    """Size and hash of an index; a link or a pipe in it could lead out of it, so it is refused."""
    size, content = 0, hashlib.sha256()
    for path in sorted(data.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            continue
        name = path.relative_to(data)
        if not stat.S_ISREG(mode):
            raise JobError(Outcome.BAD_OUTPUT, f"index build: {str(name)!r} is no regular file")
        with path.open("rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
        content.update(f"{name} {checksum}\n".encode("utf-8", "surrogateescape"))
        size += path.stat().st_size
    if not size:
        raise JobError(Outcome.BAD_OUTPUT, "index build: the index is empty")
    return size, content.hexdigest()


def _clear(parent: Path, key: str) -> None:
    """Remove what dead builds of this index left; a living one's (of another results folder) stays."""
    for leftover in parent.glob(f"{key}.*.partial"):
        if not Path("/proc", leftover.suffixes[-2][1:]).exists():
            shutil.rmtree(leftover, ignore_errors=True)

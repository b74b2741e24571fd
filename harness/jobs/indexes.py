"""Indexes in the cache, built once for each image, corpus and set of build parameters."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from pydantic import TypeAdapter

from harness import filesystem
from harness.datasets import PreparedCorpus
from harness.driver.records import Envelope, JobSpec, Outcome
from harness.errors import JobError
from harness.jobs.collect import collect
from harness.launch import host
from harness.launch.base import Launcher, LaunchRequest, Limits, Prepared
from harness.launch.watch import most_index_bytes
from harness.progress import task
from harness.results.schema import Environment, IndexFacts
from harness.results.store import check_room
from harness.untrusted import check_names, open_regular, read_whole, reason_of, to_json

log = logging.getLogger(__name__)

_FACTS = TypeAdapter(IndexFacts)
_MOST_LEVELS = 64
_INDEX_OF_CORPUS = 2  # size of an index over its corpus, roughly
_FACTS_FILE = "facts.json"
_MOST_FACT_BYTES = 16 << 20
# Folder in which an adapter keeps the state of an unfinished build for the next attempt.
_UNFINISHED = ".building"
_CLOCK = "begun"  # holds the start of the first attempt; out of the job's reach


@dataclass(frozen=True)
class Index:
    """A finished index: ``folder`` is what jobs see as ``/index``."""

    folder: Path
    facts: IndexFacts

    def in_use(self) -> contextlib.AbstractContextManager[bool | None]:
        """Keep other runs from building this index again while a job reads it."""
        return _flock(self.folder.parent, shared=True)

    def used_elsewhere(self) -> bool:
        """Return whether a job of another run reads this index now."""
        with _flock(self.folder.parent) as alone:
            return alone is False

    def unchanged(self, until: float) -> bool:
        """Return whether the content is still as it was built."""
        try:
            return content(self.folder, self.facts.index_bytes, until)[1] == self.facts.content_sha256
        except (JobError, OSError):
            return False

    def remove(self) -> None:
        """Remove the index from the cache, unless another run has built it again by now."""
        other = read(self.folder.parent)
        if other is None or other.facts == self.facts:
            filesystem.remove_tree(self.folder.parent)


def expected_bytes(corpus_bytes: int) -> int:
    """Return a rough size of the index of a corpus with this many bytes."""
    return _INDEX_OF_CORPUS * corpus_bytes


def find(cache: Path, key: str) -> Index | None:
    """Return the finished index of that key, if any."""
    return read(folder(cache, key))


def is_interrupted(cache: Path, key: str) -> bool:
    """Return whether a build of that key was interrupted and can go on; another run may be at it now."""
    return (_begun(folder(cache, key)) / "data" / _UNFINISHED).is_dir()


def folder(cache: Path, key: str) -> Path:
    """Return the folder of an index."""
    return cache / "indexes" / key


def read(folder: Path) -> Index | None:
    """Read the finished index of a folder, if any."""
    try:
        facts = _FACTS.validate_json(read_whole(folder / _FACTS_FILE, _MOST_FACT_BYTES))
        check_names(facts)
    except (OSError, ValueError):
        return None
    return Index(folder / "data", facts)


def build(
    launcher: Launcher,
    prepared: Prepared,
    corpus: PreparedCorpus,
    key: str,
    title: str,
    cache: Path,
    *,
    limits: Limits,
    envelope: Envelope | None = None,
    environment: Environment | None = None,
    again: bool = False,
    components: Mapping[str, Index] = MappingProxyType({}),
) -> Index:
    """Run one build job and keep its index.

    Args:
        title: names the index next to its progress bar.
        envelope: by default all CPUs and half of the host's memory.
        environment: this host's, for the facts.
        again: measure the build of an index that exists; it stays until the new one is finished.
        components: finished indexes by folder; they join the index after the job, which could change them.

    Raises:
        JobError: with the build's outcome; only the state of a resumable build is kept.
        StoreError: the cache's disk is full.
    """
    envelope = envelope or Envelope("build", host.cpus(), launcher.room_bytes() // 2**20 * 2**20, pids=2048)
    if reason := launcher.cannot(envelope):
        raise _failed(Outcome.NOT_APPLICABLE, reason)
    target = folder(cache, key)
    check_room(cache)
    with _folder(target, prepared.system.resumable_builds) as (staging, before_s):
        job = _job(launcher, prepared, corpus, staging, envelope, limits)
        facts = _measure(launcher, job, corpus, title, before_s, environment)
        _lend_no_rights(job.index_dir)
        if components:
            # Only a search that cannot write is sure to leave a file alone that two indexes share.
            copies = "root_read_only" not in launcher.isolation.enforced
            facts = _join(job.index_dir, facts, components, time.monotonic() + limits.build_s, copies=copies)
            check_room(cache)
        filesystem.remove_tree(job.folder)
        (staging / _CLOCK).unlink()
        (staging / _FACTS_FILE).write_text(to_json(facts, indent=2), encoding="utf-8")
        return _keep(staging, target, Index(target / "data", facts), again)


def _job(
    launcher: Launcher, prepared: Prepared, corpus: PreparedCorpus, staging: Path, envelope: Envelope, limits: Limits
) -> LaunchRequest:
    folder = staging / "job"
    (folder / "out").mkdir(parents=True)
    spec = JobSpec(
        kind="build",
        system=prepared.system.name,
        params=prepared.system.params,
        envelope=envelope,
        enforced=launcher.isolation.enforced,
        corpus_size=corpus.size,
        service_url=prepared.system.service_url("build"),
    )
    return LaunchRequest(spec, prepared, folder, corpus.folder, staging / "data", limits)


def _measure(
    launcher: Launcher,
    job: LaunchRequest,
    corpus: PreparedCorpus,
    title: str,
    before_s: float,
    environment: Environment | None,
) -> IndexFacts:
    """Run a build job to its end, and join its own measurement with the launcher's observations.

    Args:
        before_s: age of the work of earlier attempts that the job may take over.

    Raises:
        JobError: with the build's outcome, or the image claims more time of earlier attempts than has passed.
        StoreError: the disk is full.
    """
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    with task(f"{job.spec.system}: {title}", line=False) as progress:
        ended = launcher.launch(job, progress)
    collected = collect(job, ended, corpus.unknown)
    check_room(job.folder)  # also after success: an indexer may have lost files that did not fit
    measured = collected.measured
    if collected.outcome is not Outcome.OK or measured is None:
        output = f"{collected.detail} {ended.log.decode('utf-8', 'replace')}"
        check_room(job.folder, output, expected_bytes(corpus.file_bytes))
        raise _failed(collected.outcome, collected.detail)
    size, checksum = content(job.index_dir, most_index_bytes(job), time.monotonic() + job.limits.build_s)
    if (measured.resumed_s or 0) > before_s:
        text = f"the image reported {measured.resumed_s:.1f} s of earlier work, which began {before_s:.1f} s ago"
        raise _failed(Outcome.BAD_OUTPUT, text)
    return IndexFacts(
        build_s=measured.build_s or 0.0,
        index_bytes=size,
        content_sha256=checksum,
        envelope=job.spec.envelope,
        resumed_s=measured.resumed_s,
        isolation=launcher.isolation.name,
        started_at=started_at,
        environment=environment,
        observed=collected.observed,
    )


def _keep(staging: Path, target: Path, built: Index, again: bool) -> Index:
    """Rename a finished index into place, and return the index that is then in the cache.

    An index that was built again with equal content only replaces the facts.
    """
    other = read(target)
    if other is None:
        filesystem.remove_tree(target)  # damaged, else ``find`` had read it
        staging.rename(target)
    elif not again:  # another run was faster; jobs may be reading its index
        return other
    elif other.facts.content_sha256 == built.facts.content_sha256:
        (staging / _FACTS_FILE).replace(target / _FACTS_FILE)
    else:
        old = filesystem.staging_path(target.with_name(f"{target.name}.old"))
        if other.used_elsewhere():
            log.info("  a job of another run reads the old index; waiting for its end")
        with _flock(target, wait=True):
            target.rename(old)
            staging.rename(target)
        filesystem.remove_tree(old)
    return built


@contextlib.contextmanager
def _folder(target: Path, resumable: bool) -> Iterator[tuple[Path, float]]:
    """Provide the folder in which ``target`` is built, and its age; remove it afterwards, unless renamed.

    The state of a resumable build in ``data/.building`` survives every end but one that proves it bad.
    """
    resumed = _begun(target)
    if resumable:
        resumed.mkdir(parents=True, exist_ok=True)
    with _flock(resumed) if resumable else contextlib.nullcontext(False) as locked:
        staging = resumed if locked else filesystem.staging_path(target)
        unfinished, clock = staging / "data" / _UNFINISHED, staging / _CLOCK
        resumes = locked and unfinished.is_dir() and clock.is_file()
        before = _entries(unfinished) if resumes else None
        if not resumes:
            filesystem.remove_tree(staging / "data")
            (staging / "data").mkdir(parents=True)
            clock.write_text(repr(time.time()), encoding="utf-8")
        filesystem.remove_tree(staging / "job")
        staging.chmod(0o755)
        good = True
        try:
            yield staging, time.time() - float(clock.read_text(encoding="utf-8")) if resumes else 0.0
        except JobError as error:
            # Without progress, the state itself may be at fault: the next attempt starts again.
            stuck = error.outcome is Outcome.CRASH and _entries(unfinished) == before
            good = error.outcome is not Outcome.BAD_OUTPUT and not stuck
            raise
        finally:
            filesystem.remove_tree(staging / "job")
            if not (locked and good and unfinished.is_dir()):
                filesystem.remove_tree(staging)


def _begun(target: Path) -> Path:
    """Return the folder that keeps the state of a resumable build of an index."""
    return target.with_name(f"{target.name}.begun")


def _entries(folder: Path) -> list[tuple[str, int]] | None:
    """Return the entries below a folder with their sizes; None if the folder cannot be read."""
    try:
        return sorted((entry.path, entry.stat(follow_symlinks=False).st_size) for entry in filesystem.walk(folder))
    except OSError:
        return None


@contextlib.contextmanager
def _flock(folder: Path, *, shared: bool = False, wait: bool = False) -> Iterator[bool | None]:
    """Lock a folder: ``True``: it is locked; ``False``: another run has it; ``None``: its file system has no locks."""
    lock, locked = contextlib.ExitStack(), None
    with lock:
        try:
            lock.enter_context(filesystem.lock(folder, wait=wait, shared=shared))
            locked = True
        except BlockingIOError:
            locked = False
        except OSError:
            pass
        yield locked


def _join(data: Path, own: IndexFacts, components: Mapping[str, Index], until: float, *, copies: bool) -> IndexFacts:
    """Link the components' indexes into folders of their names; return the joined facts, with added times and sizes.

    Raises:
        JobError: the build wrote there itself, or a component's index is damaged.
        StoreError: the disk is full.
    """
    for name, index in components.items():
        if os.path.lexists(data / name):
            raise _failed(Outcome.BAD_OUTPUT, f"the image wrote {name!r}, the folder of its component's index")
        try:
            with index.in_use():
                filesystem.link_tree(index.folder, data / name, copies=copies)
        except OSError as error:
            check_room(data, str(error), index.facts.index_bytes)
            raise _failed(Outcome.CRASH, f"the index of {name} cannot be read: {reason_of(error)}") from error
    size, checksum = content(data, until=until)
    parts = (own, *(index.facts for index in components.values()))
    return replace(
        own,
        build_s=sum(facts.build_s for facts in parts),
        index_bytes=size,
        content_sha256=checksum,
        resumed_s=sum(facts.resumed_s or 0 for facts in parts) or None,
        components={name: index.facts for name, index in components.items()},
    )


def _failed(outcome: Outcome, reason: str | None) -> JobError:
    return JobError(outcome, f"index build: {reason}")


def content(data: Path, most: int | None = None, until: float | None = None) -> tuple[int, str]:
    """Return size and hash of an index; refuse links and pipes, which could lead out of it.

    Args:
        most: the largest sensible size, including the holes of sparse files, which are read too.
        until: deadline of hashing, on the monotonic clock.

    Raises:
        JobError: it holds something other than files in folders, cannot be read, or is too large to hash.
    """
    size, content = 0, hashlib.sha256()
    try:
        for path in sorted(Path(entry.path) for entry in filesystem.walk(data)):
            name = path.relative_to(data)
            if len(name.parts) > _MOST_LEVELS:
                raise _failed(Outcome.BAD_OUTPUT, f"folders more than {_MOST_LEVELS} levels deep")
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                continue
            if not stat.S_ISREG(mode):
                raise _failed(Outcome.BAD_OUTPUT, f"{str(name)!r} is not a regular file")
            with open_regular(path) as file:
                size += os.fstat(file.fileno()).st_size
                if most is not None and size > most:
                    text = f"the index has {size >> 20} MiB, at most {most >> 20} MiB make sense"
                    raise _failed(Outcome.BAD_OUTPUT, text)
                checksum = filesystem.sha256(file, until)
            content.update(f"{name} {checksum}\n".encode("utf-8", "surrogateescape"))
    except TimeoutError as error:
        raise _failed(Outcome.TIMEOUT, "hashing the index took longer than protocol.build_timeout_s") from error
    except OSError as error:
        raise _failed(Outcome.BAD_OUTPUT, f"the index cannot be read: {reason_of(error)}") from error
    if not size:
        raise _failed(Outcome.BAD_OUTPUT, "the index is empty")
    return size, content.hexdigest()


def _lend_no_rights(data: Path) -> None:
    """Remove setuid and setgid bits from files of an untrusted image."""
    for entry in filesystem.walk(data):
        mode = entry.stat(follow_symlinks=False).st_mode
        if mode & (stat.S_ISUID | stat.S_ISGID):
            Path(entry.path).chmod(stat.S_IMODE(mode) & 0o777)

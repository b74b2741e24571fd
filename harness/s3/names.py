"""Which objects are a store's, and where each lies in the mirror.

Names of objects are whoever's who may write to the bucket: only those that a results folder can have are ever taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from harness import origins, seals, stored_jobs
from harness.aws.objects import Stored
from harness.aws.uri import S3Uri
from harness.errors import UsageError
from harness.result import ANSWER_DEPTHS, JUDGED_HITS

INDEX = ".index.jsonl.gz"
LOCK = ".lock"
INPUTS = ("qrels", "samples")
# What a paper's tables are named by; .csv files beside it are its tables.
_PUBLISHED = "published.toml"
# What `harness viable --fresh` writes beside a subject's jobs.
_MARKS = (origins.FILE, "fresh-since", _PUBLISHED, seals.MANIFEST)
JOB_FILES = (stored_jobs.RESULT, stored_jobs.SAMPLES, stored_jobs.RUN, stored_jobs.LOG, JUDGED_HITS, ANSWER_DEPTHS)
# Suite, system, dataset, scenario, profile, key.
_JOB_DEPTH = 6
_MOST_DEPTH = 24
_MOST_NAME_BYTES = 255
_MIB = 1 << 20
# More than any honest file has.
_MOST_BYTES = {
    stored_jobs.RESULT: 16 * _MIB,
    stored_jobs.LOG: 256 * _MIB,
    **dict.fromkeys(_MARKS, 4 * _MIB),
    seals.MANIFEST: seals.MOST_BYTES,
}
_MOST_OTHER_BYTES = 4096 * _MIB


@dataclass
class Tree:
    """What a listing holds of a store's, by whole keys.

    ``jobs`` are those that have a ``result.json``, which is written last: folder -> name of a file -> object.
    ``refused`` are named as a store's files, in places where no store has any; ``oversize`` are larger than any of a
    store's, each said in a line.
    """

    jobs: dict[str, dict[str, Stored]] = field(default_factory=dict)
    others: dict[str, Stored] = field(default_factory=dict)
    indexes: dict[str, Stored] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    oversize: list[str] = field(default_factory=list)

    def add(self, listed: Iterable[Stored]) -> None:
        """Take what is a store's out of a listing."""
        parts: dict[str, dict[str, Stored]] = {}
        tables: dict[str, Stored] = {}
        for each in listed:
            folder, _, name = each.name.rpartition("/")
            inside = folder.rpartition("/")[2]
            if name == INDEX:
                self._index(each, folder)
            elif name in JOB_FILES and inside not in INPUTS:
                self._take(each, folder, parts.setdefault(folder, {}), name, _JOB_DEPTH)
            elif inside in INPUTS or name in _MARKS:
                self._take(each, folder, self.others, each.name)
            elif name.endswith(".csv"):
                tables[each.name] = each
        self.jobs |= {folder: files for folder, files in parts.items() if stored_jobs.RESULT in files}
        for key, each in tables.items():
            folder = key.rpartition("/")[0]
            if f"{folder}/{_PUBLISHED}" in self.others:
                self._take(each, folder, self.others, key)

    def _index(self, each: Stored, folder: str) -> None:
        if _plain(folder):
            self.indexes[folder] = each

    def _take(self, each: Stored, folder: str, into: dict[str, Stored], name: str, least: int = 0) -> None:
        if any(part.startswith(".") and part not in (".", "..") for part in each.name.split("/")):
            return  # a job in the making, as another tool copied it
        if not _plain(each.name) or len(folder.split("/")) < least:
            self.refused.append(each.name)
            return
        most = _MOST_BYTES.get(each.name.rpartition("/")[2], _MOST_OTHER_BYTES)
        if each.size_bytes > most:
            self.oversize.append(
                f"{each.name}: {each.size_bytes / _MIB:,.0f} MiB, and no such file of a store has more than "
                f"{most / _MIB:,.0f}; it is none of ours, and left out: remove it"
            )
            return
        into[name] = each


def kept(key: str) -> bool:
    """Whether the mirror would hold a file of this key for its name alone."""
    folder, _, name = key.rpartition("/")
    return name in (*JOB_FILES, *_MARKS) or folder.rpartition("/")[2] in INPUTS


def suite_of(job: str) -> str:
    """The key of the suite's folder to which a job's folder belongs."""
    return job.rsplit("/", _JOB_DEPTH - 1)[0]


def home_of(suite: str) -> str:
    """The key of the folder that holds a suite's; empty: the bucket."""
    return suite.rpartition("/")[0]


def _plain(key: str) -> bool:
    """Whether a key is a path below the bucket's folder, and no file of a store is a folder in it."""
    parts = key.split("/")
    return (
        len(parts) <= _MOST_DEPTH
        and all(_is_name(part) for part in parts)
        and not any(part in (*JOB_FILES, *_MARKS) for part in parts[:-1])
    )


def _is_name(part: str) -> bool:
    return (
        part not in ("", ".", "..")
        and part.isprintable()
        and "\\" not in part
        and len(part.encode("utf-8", "surrogateescape")) <= _MOST_NAME_BYTES
    )


@dataclass(frozen=True)
class Place:
    """A place of results in S3, and where the cache mirrors it: ``<cache>/s3/<bucket>/<prefix>``."""

    uri: S3Uri
    cache: Path

    def __post_init__(self) -> None:
        if self.uri.prefix and (
            not _plain(self.uri.prefix) or any(part.startswith(".") for part in self.uri.prefix.split("/"))
        ):
            raise UsageError(f"{self.uri}: no results folder can have such a name; name another place")

    @property
    def bucket_folder(self) -> Path:
        """The mirror of the whole bucket."""
        return self.cache / "s3" / self.uri.bucket

    @property
    def folder(self) -> Path:
        """The mirror of the place."""
        return self.path(self.uri.prefix)

    @property
    def waiting(self) -> Path:
        """Jobs of this bucket that were measured here and are not yet in S3, as in the mirror."""
        return self.cache / "s3" / ".waiting" / self.uri.bucket

    @property
    def prefix(self) -> str:
        """What the keys of all objects of the place begin with."""
        return f"{self.uri.prefix}/" if self.uri.prefix else ""

    def path(self, key: str) -> Path:
        """Where the mirror has an object or folder; the key is one of :class:`Tree`."""
        return self.bucket_folder.joinpath(*filter(None, key.split("/")))

    def key(self, path: Path) -> str:
        """The key of what the mirror has there."""
        return path.relative_to(self.bucket_folder).as_posix().removeprefix(".")

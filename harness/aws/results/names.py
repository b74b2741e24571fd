"""Names of the objects of a results folder, and where the mirror has each.

Everybody who may write to the bucket chooses names: only names that a results folder can have are taken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.aws.clients import S3Uri
from harness.aws.objects import Stored
from harness.errors import UsageError
from harness.results import origins, reader, seals
from harness.results.schema import ANSWER_DEPTHS, JUDGED_HITS

LOCK = ".lock"
INPUTS = ("qrels", "samples")
# A published paper's folder; the .csv files beside it are the paper's tables.
_PUBLISHED = "published.toml"
# `harness viable --fresh` writes fresh-since beside a subject's jobs.
_MARKS = (origins.FILE, "fresh-since", _PUBLISHED, seals.MANIFEST)
JOB_FILES = (reader.RESULT, reader.SAMPLES, reader.RUN, reader.LOG, JUDGED_HITS, ANSWER_DEPTHS)
# Suite, system, dataset, scenario, profile, key.
_JOB_DEPTH = 6
_MAXIMUM_DEPTH = 24
_MAXIMUM_NAME_BYTES = 255
_MIB = 1 << 20
_MAXIMUM_BYTES = {
    reader.RESULT: 16 * _MIB,
    reader.LOG: 256 * _MIB,
    **dict.fromkeys(_MARKS, 4 * _MIB),
    seals.MANIFEST: seals.MOST_BYTES,
}
_MAXIMUM_OTHER_BYTES = 4096 * _MIB
# Objects that a line names.
_SHOWN = 3


class Listing:
    """Files of results folders in a listing of objects, by whole keys.

    ``jobs`` (folder -> file name -> object) have a ``result.json``, which is written last.
    """

    def __init__(self, objects: Iterable[Stored]) -> None:
        self.jobs: dict[str, dict[str, Stored]] = {}
        self.others: dict[str, Stored] = {}
        self.refused: list[str] = []
        self.oversize: list[str] = []
        self.add(objects)

    def add(self, objects: Iterable[Stored]) -> None:
        """Add what another listing shows."""
        jobs: dict[str, dict[str, Stored]] = {}
        tables: list[Stored] = []
        for stored in objects:
            folder, _, name = stored.name.rpartition("/")
            inside = folder.rpartition("/")[2]
            if name in JOB_FILES and inside not in INPUTS:
                if self._accepts(stored, _JOB_DEPTH):
                    jobs.setdefault(folder, {})[name] = stored
            elif inside in INPUTS or name in _MARKS:
                if self._accepts(stored):
                    self.others[stored.name] = stored
            elif name.endswith(".csv"):
                tables.append(stored)
        self.jobs |= {folder: files for folder, files in jobs.items() if reader.RESULT in files}
        for stored in tables:
            if f"{stored.name.rpartition('/')[0]}/{_PUBLISHED}" in self.others and self._accepts(stored):
                self.others[stored.name] = stored

    def _accepts(self, stored: Stored, depth: int = 0) -> bool:
        *folders, name = stored.name.split("/")
        if any(part.startswith(".") and part not in (".", "..") for part in (*folders, name)):
            return False  # a staging folder that another tool copied
        misplaced = not _is_plain(stored.name) or len(folders) < depth
        oversize = stored.size_bytes > _MAXIMUM_BYTES.get(name, _MAXIMUM_OTHER_BYTES)
        if misplaced or oversize:
            (self.refused if misplaced else self.oversize).append(stored.name)
        return not (misplaced or oversize)

    def left_out(self) -> Iterator[str]:
        """Yield lines about refused and oversize objects, the first few by name."""
        misplaced, large = "lie where no results folder has any", "are larger than harness writes any; remove them"
        for names, reason in ((self.refused, misplaced), (self.oversize, large)):
            if names:
                shown = ", ".join(repr(name) for name in names[:_SHOWN])
                yield f"left out {len(names):,} objects that {reason} ({shown})"


def may_be_mirrored(key: str, beside: Collection[str]) -> bool:
    """Return whether a file of the mirror, by names alone, may be an object's."""
    folder, _, name = key.rpartition("/")
    taken = name in (*JOB_FILES, *_MARKS) or folder.rpartition("/")[2] in INPUTS
    return (taken or (name.endswith(".csv") and _PUBLISHED in beside)) and _is_plain(key)


def suite_of(job: str) -> str:
    """Return the key of the suite's folder that holds a job's folder."""
    return job.rsplit("/", _JOB_DEPTH - 1)[0]


def _is_plain(key: str) -> bool:
    """Return whether a key is a path below the bucket in which no file is a folder."""
    parts = key.split("/")
    return (
        len(parts) <= _MAXIMUM_DEPTH
        and key.isprintable()
        and "\\" not in key
        and not any(part in ("", ".", "..") for part in parts)
        and max(len(part.encode("utf-8")) for part in parts) <= _MAXIMUM_NAME_BYTES
        and not any(part in (*JOB_FILES, *_MARKS) for part in parts[:-1])
    )


@dataclass(frozen=True)
class Place:
    """A results folder in S3, and its mirror in the cache: ``<cache>/s3/<bucket>/<prefix>``."""

    uri: S3Uri
    cache: Path

    def __post_init__(self) -> None:
        if self.uri.prefix and (
            not _is_plain(self.uri.prefix) or any(part.startswith(".") for part in self.uri.prefix.split("/"))
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
        """Folder of the bucket's jobs that were measured here and are not in S3 yet."""
        return self.cache / "s3" / ".waiting" / self.uri.bucket

    @property
    def prefix(self) -> str:
        """The beginning of the keys of all objects of the place."""
        return f"{self.uri.prefix}/" if self.uri.prefix else ""

    def below(self, key: str) -> Place:
        """Return the place of a folder in the same bucket."""
        return Place(S3Uri(self.uri.bucket, key), self.cache)

    def path(self, key: str) -> Path:
        """Return where the mirror has an object or a folder; the key is one of :class:`Listing`."""
        return self.bucket_folder.joinpath(*filter(None, key.split("/")))

    def key(self, path: Path) -> str:
        """Return the key of a path in the mirror."""
        return path.relative_to(self.bucket_folder).as_posix().removeprefix(".")

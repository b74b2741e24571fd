"""Readers of what workers leave in S3: records, archives, jobs."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from harness.aws.clients import S3Uri
from harness.aws.objects import Objects
from harness.aws.results import mirror, publish
from harness.containment import is_plain_name
from harness.remote import archive, local_results, records, worker
from harness.remote.claims import Claim
from harness.remote.journal import Journal
from harness.remote.records import (
    Heartbeat,
    Launch,
    PartJob,
    PlannedPart,
    RemoteRun,
    ShippedImage,
    ShippedInput,
    WorkerEnd,
    WorkerPart,
)
from harness.remote.storage import StoredObject
from harness.remote.worker import Assignment, WorkerStatus
from harness.results import reader
from harness.results.schema import Cell
from harness.results.store import Store
from harness.untrusted import one_line, parse_json
from tests.fuzz import result_readers
from tests.fuzz.child import Reader

_CELL = Cell("suite", "bm25", "scifact", "single_stream", "cpu1-mem1")
_JOB = PartJob(_CELL, 0, 1, "0123456789abcdef")
_INPUT = ShippedInput("inputs/images/aa.tar.gz", "bb", 7)
_PART = WorkerPart(
    "0001",
    "c7g.large",
    {"name": "suite", "systems": ["bm25"], "datasets": ["scifact"], "profiles": ["cpu1-mem1"]},
    jobs=(_JOB,),
    images=(ShippedImage("bm25", "sha256:aa", "harness-bm25:aa", _INPUT),),
    datasets={"scifact": _INPUT},
    pins={"systems": {"bm25": {"toy": {"sha256": {"w": "0" * 64}}}}},
)
_PLANNED = PlannedPart("0001", "c7g.large", 0.07, 20, (_JOB,))
_RECORDS: dict[str, Any] = {
    "part": _PART,
    "run": RemoteRun("suite-1", "ec2", "suite", "r", "o", (_PLANNED,), {"region": "us-east-1"}),
    "heartbeat": Heartbeat("measuring", "k", "n"),
    "end": WorkerEnd(False, "x", True),
    "launch": Launch("l", 3600, 1, 1.5, 0.07),
    "input": _INPUT,
    "claim": Claim("host-1-0123"),
    "assignment": Assignment("s3://bucket/work", "AROA:i-1", _PART, "status.json"),
    "status": WorkerStatus("measuring", "k", 1, ("none",)),
}
_MOST_BYTES = 1 << 20


def _make_records(folder: Path) -> None:
    for name, record in _RECORDS.items():
        (folder / f"{name}.json").write_bytes(records.dump(record))


def _content(path: Path, most_bytes: int = records.MOST_BYTES) -> bytes:
    """Return the content of an object of S3, which is no link or pipe."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(most_bytes)


def _read_records(folder: Path, scratch: Path) -> object:
    found = [
        records.read(type(record), name, _content(folder / f"{name}.json"))
        for name, record in _RECORDS.items()
        if name != "assignment"
    ]
    assigned = worker.read_assignment(folder / "assignment.json")
    worker.keep_pins(scratch / "suite", cast(WorkerPart, found[0]))
    return found, worker.suite_of(cast(WorkerPart, found[0]), folder / "suite.toml"), assigned


def _make_archive(folder: Path) -> None:
    entries: list[tuple[str, Path | bytes]] = [("data/", b""), ("data/a", b"x" * 1000), ("data/b/c", b"y" * 2000)]
    target = io.BytesIO()
    archive.write(target, [*entries, ("facts.json", b"{}")])
    (folder / "a.tar").write_bytes(target.getvalue())
    archive.write_gz(folder / "b.tar.gz", [*entries, ("facts.json", b"{}")])


def _read_archive(folder: Path, scratch: Path) -> object:
    for name in ("a", "b"):
        (scratch / name).mkdir()
    content = io.BytesIO(_content(folder / "a.tar"))
    archive.unpack(content, scratch / "a", what="a", most_bytes=_MOST_BYTES)
    content = io.BytesIO(_content(folder / "b.tar.gz"))
    archive.unpack_gz(content, scratch / "b", what="b", most_bytes=_MOST_BYTES)
    inside = [path for path in scratch.rglob("*") if path.is_symlink()]
    assert not inside, inside
    return sorted(str(path.relative_to(scratch)) for path in scratch.rglob("*"))


@dataclass
class _Bucket:
    """A bucket whose objects all have the content of one file."""

    path: Path
    place: S3Uri = field(default_factory=lambda: S3Uri("bucket", "work"))

    def below(self, *_names: str) -> _Bucket:
        return self

    def where(self, name: str = "") -> str:
        return name

    def get(self, _name: str, most_bytes: int) -> bytes:
        return _content(self.path, most_bytes)


def _make_job(folder: Path) -> None:
    job = min(result_readers.stored().glob("*/planted/*/single_stream/*/*"))
    (folder / "job.tar").write_bytes(local_results.pack(job))
    (folder / "expected.json").write_bytes((job / reader.RESULT).read_bytes())


def _read_job(folder: Path, scratch: Path) -> object:
    """Store an uploaded job; it must be readable, whatever its record says."""
    expected = reader.read_result(folder / "expected.json")
    store = Store(scratch / "results", expected.spec.cell.suite)
    bucket = cast(Objects, _Bucket(folder / "job.tar"))
    with store.held():
        local_results.fetch_job(bucket, "worker", expected.key, expected.spec, store)
    (stored,) = reader.read_jobs(scratch / "results")
    return stored.result


@dataclass
class _Listed:
    """A bucket that lists the objects of a file, and whose content is in other files."""

    folder: Path
    place: S3Uri = field(default_factory=lambda: S3Uri("bucket", "work"))

    def below(self, *_names: str) -> _Listed:
        return self

    def where(self, name: str = "") -> str:
        return name

    def list(self) -> Iterator[StoredObject]:
        with suppress(ValueError, TypeError):
            for line in _content(self.folder / "names.jsonl").split(b"\n"):
                name, size = parse_json(line or b"[null,0]")
                if isinstance(name, str) and isinstance(size, int):
                    yield StoredObject(name, size, "e" * 32, datetime.now(UTC))

    def get(self, name: str, most_bytes: int) -> bytes:
        return _content(self.folder / name, most_bytes) if name in (records.HEARTBEAT, records.END) else b""


_NAMES = (
    *(f"s/bm25/scifact/offline/cpu1/0123456789abcdef/{name}" for name in ("result.json", "samples.parquet")),
    *("s/suite.json", "s/qrels/aa.trec.gz", "origin.toml", "paper/published.toml", "paper/table1.csv"),
    *(records.HEARTBEAT, records.END, f"{records.JOBS}/0123456789abcdef.tar", f"{records.INDEXES}/aa.json"),
)


def _make_listing(folder: Path) -> None:
    lines = "".join(json.dumps([name, 10]) + "\n" for name in _NAMES)
    (folder / "names.jsonl").write_text(lines, encoding="utf-8")
    (folder / records.HEARTBEAT).write_bytes(records.dump(_RECORDS["heartbeat"]))
    (folder / records.END).write_bytes(records.dump(_RECORDS["end"]))


def _read_listing(folder: Path, scratch: Path) -> object:
    """Take what a listing names for a mirror and for a worker's journal."""
    bucket, place = _Listed(folder), mirror.MirroredFolder(S3Uri("bucket", ""), scratch)
    listing = mirror.Listing(bucket.list())
    keys = [*listing.others, *(f"{job}/{name}" for job, files in listing.jobs.items() for name in files)]
    for key in keys:
        assert is_plain_name(key) and place.path(key).resolve().is_relative_to(place.bucket_folder), key
    journal = Journal(cast(Objects, bucket), _RECORDS["run"])
    journal.look(["i-1"])
    lines = list(listing.left_out())
    assert all(line == one_line(line) for line in lines), lines
    return keys, lines, journal.workers["i-1"]


@dataclass
class _Locked(_Bucket):
    """A suite's folder in S3 whose lock has the content of a file."""

    def put_if(self, _name: str, _content: bytes, etag: str | None) -> str | None:
        return None if etag is None else "new"

    @contextmanager
    def reading(self, _name: str) -> Iterator[dict[str, Any]]:
        now = datetime.now(UTC)
        yield {"Body": io.BytesIO(_content(self.path)), "ETag": '"e"', "LastModified": now}


def _make_lock(folder: Path) -> None:
    record = {"owner": "them", "holder": "0" * 16, "since": "2026-11-20 00:00 UTC", "released": False, "sign": "1"}
    (folder / "lock.json").write_text(json.dumps(record), encoding="utf-8")


def _read_lock(folder: Path, _scratch: Path) -> None:
    """Take a lock: a good one is another run's, which the error says."""
    publish.SuiteLock(cast(Objects, _Locked(folder / "lock.json")), "us")._acquire()


def _make_record(folder: Path) -> None:
    (folder / "result.json").write_text(json.dumps({"files": {"log.txt.gz": "0" * 64}}), encoding="utf-8")


READERS = (
    Reader("records of workers", _make_records, _read_records, tuple(f"{name}.json" for name in _RECORDS)),
    Reader("archives", _make_archive, _read_archive, ("a.tar", "b.tar.gz")),
    Reader(
        "listings of S3",
        _make_listing,
        _read_listing,
        ("names.jsonl", records.HEARTBEAT, records.END),
        errors=(),
        weight=0.25,
    ),
    Reader(
        "locks of results", _make_lock, _read_lock, ("lock.json",), skips=frozenset({"a link to a secret"}), weight=0.25
    ),
    Reader("uploaded jobs", _make_job, _read_job, ("job.tar",)),
    Reader(
        "files of mirrored records",
        _make_record,
        lambda folder, _: mirror._hashes(_content(folder / "result.json")),
        ("result.json",),
        errors=(),
        skips=frozenset({"a link to a secret"}),
    ),
)

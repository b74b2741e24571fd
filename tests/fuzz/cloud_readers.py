"""Readers of what workers leave in S3: records, archives, jobs."""

from __future__ import annotations

import gzip
import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from harness.aws.clients import S3Uri
from harness.aws.cloud_run import archive, local_results, records, worker
from harness.aws.cloud_run.records import (
    CloudRun,
    Heartbeat,
    Launch,
    PartJob,
    PlannedPart,
    ShippedImage,
    ShippedInput,
    WorkerEnd,
    WorkerPart,
)
from harness.aws.cloud_run.worker import Assignment, WorkerStatus
from harness.aws.objects import Objects
from harness.aws.results import mirror
from harness.results import reader
from harness.results.schema import Cell
from harness.results.store import Store
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
    "run": CloudRun("suite-1", "ec2", "suite", "r", "o", "us-east-1", (_PLANNED,)),
    "heartbeat": Heartbeat("0001", "i-1", "measuring", "k", "n"),
    "end": WorkerEnd("0001", "i-1", False, "x", True),
    "launch": Launch("l", ("0001",), 3600, 1, 1.5, 0.07),
    "input": _INPUT,
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
    with gzip.open(io.BytesIO(_content(folder / "b.tar.gz"))) as source:
        archive.unpack(cast(Any, source), scratch / "b", what="b", most_bytes=_MOST_BYTES)
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


def _make_record(folder: Path) -> None:
    (folder / "result.json").write_text(json.dumps({"files": {"log.txt.gz": "0" * 64}}), encoding="utf-8")


READERS = (
    Reader("records of workers", _make_records, _read_records, tuple(f"{name}.json" for name in _RECORDS)),
    Reader("archives", _make_archive, _read_archive, ("a.tar", "b.tar.gz")),
    Reader("uploaded jobs", _make_job, _read_job, ("job.tar",)),
    Reader(
        "hashes of mirrored records",
        _make_record,
        lambda folder, _: mirror._hashes(_content(folder / "result.json")),
        ("result.json",),
        errors=(),
        skips=frozenset({"a link to a secret"}),
    ),
)

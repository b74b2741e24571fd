"""Readers of what an image leaves behind: measurement, samples, events, index, vectors, replies."""

from __future__ import annotations

import gzip
import io
import json
from dataclasses import replace
from pathlib import Path
from urllib.request import Request

import pytest

from harness.driver.adapter import BadAnswer
from harness.driver.records import Envelope
from harness.driver.serve import EFFECTIVE
from harness.driver.subprocess_adapter import EngineFailed, command
from harness.jobs import encode, environment, indexes, job_updates
from harness.jobs.collect import build_result, collect
from harness.launch import service
from harness.launch.base import LaunchRequest
from harness.launch.watch import JobWatch
from harness.results import updates
from harness.results.reader import read_result
from harness.results.schema import JobProvenance
from harness.results.store import Store
from harness.untrusted import read_whole, to_json
from tests.fuzz.child import Reader
from tests.jobs import test_collect as jobs
from tests.jobs import test_mixed as mixed_jobs
from tests.jobs.test_encode import write_index
from tests.support import job_fixtures, sample_records


def _make_out(folder: Path) -> None:
    left = jobs.Left(folder)
    given = [["d1", 3.0], ["d2", 2.0], ["d3", 1.0]]
    left.wrote(*(jobs.line(trial, query, first_stage=given, counts={"pairs": 3}) for trial, query in jobs.TURNS))
    events = [{"phase": "load", "total": 0, "t_ns": 1}, {"done": 3, "t_ns": 2}, {"pause": 0, "t_ns": 3}]
    events += [
        {"phase": "trial-0", "total": 2, "t_ns": 4},
        {"end": "trial-0", "start_ns": 4, "t_ns": 9, "claimed_ns": 5},
    ]
    (left.job.out / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")


def _request(folder: Path) -> LaunchRequest:
    return LaunchRequest(replace(jobs.SPEC, params={"depth": 3}), job_fixtures.PREPARED, folder, folder, folder)


def _read_out(folder: Path, scratch: Path) -> object:
    """Collect a job and store it; what is stored must be readable."""
    collected = collect(_request(folder), jobs.ENDED, lambda ids: set())
    planned = job_fixtures.planned("bm25")
    result = build_result(planned.spec, sample_records.at(0), collected, sample_records.ENVIRONMENT, JobProvenance())
    store = Store(scratch / "results", "s")
    with store.held():
        stored = store.put(result, collected.table(), collected.run("bm25", {"w0"}), b"log")
    read = read_result(stored.folder / "result.json")
    samples = replace(stored, result=read).samples()
    assert len(samples) == len(collected.samples)
    return to_json(read), collected.detail


def _make_updates(folder: Path) -> None:
    (folder / "out").mkdir()
    text = "".join(json.dumps(each) + "\n" for each in mixed_jobs.good_lines())
    (folder / "out" / "updates.jsonl").write_text(text, encoding="utf-8")


def _read_updates(folder: Path, scratch: Path) -> object:
    """Check updates against their plan, and store them; what is stored must be readable."""
    job = LaunchRequest(mixed_jobs.MIXED_SPEC, job_fixtures.PREPARED, folder, folder, folder)
    made, wrong = job_updates.read_updates(job)
    path = scratch / "updates.tsv.gz"
    path.write_bytes(gzip.compress(updates.render(made)))
    assert updates.read(path) == tuple(made)
    return wrong or job_updates.unplanned(job, made, 60.0)


def _read_events(folder: Path, _scratch: Path) -> object:
    watch = JobWatch(_request(folder))
    return [watch.poll() for _ in range(3)], watch.progress, watch.handed


def _make_effective(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / EFFECTIVE).write_text(to_json(job_fixtures.SEEN), encoding="utf-8")


def _read_effective(folder: Path, scratch: Path) -> object:
    """Collect a service's job with what its server says of its limits; what is stored must be readable."""
    (scratch / "client").mkdir()
    left = jobs.Left(scratch / "client")
    job = replace(left.job, spec=replace(left.job.spec, service_url="http://127.0.0.1:8080"))
    server = service.read_effective(_request(folder))
    collected = collect(job, replace(jobs.ENDED, server=server), lambda ids: set())
    return to_json(collected.measured) if collected.measured else collected.detail


def _make_index(folder: Path) -> None:
    write_index(folder, [f"d{n}" for n in range(20)], [[n, 1.0, 2.0] for n in range(20)])


def _read_vectors(folder: Path, _scratch: Path) -> object:
    return encode.read_flat_index(folder).take(None)[0]


def _make_facts(folder: Path) -> None:
    facts = replace(sample_records.build(), index_bytes=0)
    (folder / "facts.json").write_text(to_json(facts), encoding="utf-8")
    (folder / "data").mkdir()


_ENVELOPE = Envelope("e", 2, 1 << 30)
_REPLY = {"hits": [["d1", 2.5], ["d2", 1]], "stages_s": {"retrieve": 0.001}, "counts": {"pairs": 2}, "scores": [1.0]}
_LOADED = {"device": "cpu", "search_batch": True, "libraries": {"a": "1"}, "threads": {"a": 1}, "resumed_s": 1.5}


def _make_replies(folder: Path) -> None:
    (folder / "search.jsonl").write_text(json.dumps(_REPLY) + "\n", encoding="utf-8")
    (folder / "load.jsonl").write_text(json.dumps(_LOADED) + "\n", encoding="utf-8")


def _read_replies(folder: Path, scratch: Path) -> object:
    """Ask engines that say what is in a file, whatever they are asked."""
    found: list[object] = []
    for name in ("search", "load"):
        engine = command("cat", str(folder / f"{name}.jsonl"))({}, _ENVELOPE, scratch)
        try:
            if name == "search":
                found += [engine.search("where?", 10), engine.stages_s(), engine.counts()]
            else:
                engine.load(scratch)
                found += [engine.device(), engine.shares_batches()]
        finally:
            engine._kill()
    return found


_FACTS = {"instance-id": "i-0123", "instance-type": "c7g.large", "placement/availability-zone": "us-east-1a"}


def _make_metadata(folder: Path) -> None:
    (folder / "notice.json").write_text('{"action": "terminate", "time": "2026-11-20T00:00:00Z"}', encoding="utf-8")
    (folder / "facts.json").write_text(json.dumps(_FACTS), encoding="utf-8")


class _Metadata:
    """A service that answers each request with a file, or with a fact of one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, request: Request, timeout: float) -> io.BytesIO:
        assert timeout
        path = request.full_url.partition("/latest/meta-data/")[2]
        if path == "spot/instance-action":
            return io.BytesIO(read_whole(self._folder / "notice.json", 1 << 30))
        content = read_whole(self._folder / "facts.json", 1 << 30)
        try:
            return io.BytesIO(str(json.loads(content)[path]).encode("utf-8", "surrogatepass"))
        except (ValueError, LookupError, TypeError, RecursionError):
            return io.BytesIO(content or b"token")


def _read_metadata(folder: Path, _scratch: Path) -> object:
    """Ask a metadata service that says what is in files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:9")
        patch.setattr("urllib.request.build_opener", lambda *_: _Metadata(folder))
        instance, notice = environment.machine(), environment.spot_notice()
    assert notice is None or len(notice) <= 100
    return instance, notice


READERS = (
    Reader("effective limits", _make_effective, _read_effective, ("out/effective.json",), errors=()),
    Reader("instance metadata", _make_metadata, _read_metadata, ("notice.json", "facts.json"), errors=(), weight=0.25),
    Reader(
        "a job's output", _make_out, _read_out, ("out/measurement.json", "out/samples.jsonl"), errors=(), weight=0.5
    ),
    Reader("updates of a job", _make_updates, _read_updates, ("out/updates.jsonl",), errors=()),
    Reader("events", _make_out, _read_events, ("out/events.jsonl",), errors=()),
    Reader("flat indexes", _make_index, _read_vectors, ("built-with.json", "ids.npy", "ids.bin", "vectors.f32")),
    Reader("indexes", _make_facts, lambda folder, _: indexes.read(folder), ("facts.json",), errors=()),
    Reader(
        "replies of engines",
        _make_replies,
        _read_replies,
        ("search.jsonl", "load.jsonl"),
        # An engine may say itself that it ran out of memory.
        errors=(BadAnswer, EngineFailed, MemoryError),
        skips=frozenset({"a pipe", "a link to a secret"}),
        weight=0.2,
    ),
)

"""Time reads of 10,000 jobs in S3: the first, and the second with nothing new.

``python -m benchmarks.s3_listing`` starts moto's server on loopback, puts the jobs of ``benchmarks.reprice`` there, and
mirrors them into empty caches and into caches that are up to date.  moto is one Python process, and S3 answers many
requests at once: so moto answers each request once, and its answers are replayed after each of ``--latency-ms``.
"""

from __future__ import annotations

import argparse
import io
import os
import resource
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import botocore.httpsession
from botocore.awsrequest import AWSResponse

from benchmarks import reprice
from harness.aws.clients import Connections, S3Uri
from harness.aws.results import mirror
from harness.aws.results.mirror import FileSelection, MirroredFolder, sync
from harness.results.reader import RESULT
from tests.aws import server

_PLACE = S3Uri("bench-bucket", "results")
_AT_ONCE = 2000


def main() -> None:
    """Fill, and time."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--latency-ms", type=float, nargs="+", default=[50, 200])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, server.running(Path(name, "moto.log")) as endpoint:
        os.environ.update(server.environment(endpoint))
        folder, connections = Path(name), Connections()
        connections.client("s3").create_bucket(Bucket=_PLACE.bucket)
        models = reprice._measured(folder)
        reprice._copy(models[:5], folder / "results", arguments.jobs // 5)
        _fill(endpoint, folder / "results")
        replay = Replay()
        with replay.patched():
            _time(folder, connections, replay, arguments.latency_ms)


def _fill(endpoint: str, results: Path) -> None:
    paths = [path for path in results.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in paths)
    records = sum(path.stat().st_size for path in paths if path.name == RESULT)
    print(f"{len(paths):,} objects of {size / 2**20:,.0f} MiB, records alone {records / 2**20:,.0f} MiB")
    for start in range(0, len(paths), _AT_ONCE):
        some = paths[start : start + _AT_ONCE]
        contents = {_PLACE.key(path.relative_to(results).as_posix()): path.read_bytes() for path in some}
        server.put(endpoint, _PLACE.bucket, contents)


class Replay:
    """Answers of moto to reads, given again after a pause."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.new = 0
        self.latency_s = 0.0
        self._send = botocore.httpsession.URLLib3Session.send
        self._answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self._bodies: dict[bytes, bytes] = {}
        self._lock = threading.Lock()

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Replay while this lasts."""
        with mock.patch.object(botocore.httpsession.URLLib3Session, "send", lambda _, each: self._answer(each)):
            yield

    def _answer(self, request: Any) -> AWSResponse:
        with self._lock:
            self.requests["LIST" if "list-type=" in request.url else request.method] += 1
            answer = self._answers.get(request.url)
        if answer is None:
            answer = self._ask(request)
        else:
            time.sleep(self.latency_s)
        status, headers, body = answer
        return AWSResponse(request.url, status, headers, _Raw(body))

    def _ask(self, request: Any) -> tuple[int, dict[str, str], bytes]:
        # moto is one process: more requests at once make it no faster.
        response = self._send(botocore.httpsession.URLLib3Session(), request)
        body = response.raw.data if request.stream_output else response.content
        with self._lock:
            self.new += 1
            answer = response.status_code, response.headers, self._bodies.setdefault(body, body)
            self._answers[request.url] = answer
        return answer


class _Raw(io.BytesIO):
    """The body of an answer as botocore reads it."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self.read()


def _time(folder: Path, connections: Connections, replay: Replay, latencies_ms: Sequence[float]) -> None:
    def read(cache: str, wants: FileSelection = FileSelection.FIGURES, *, thorough: bool = False) -> None:
        sync(MirroredFolder(_PLACE, folder / cache), connections, wants, thorough=thorough)

    with _timed("moto itself, first read of all that makes tables", replay):
        read("moto")
    with _timed("moto itself, second read", replay):
        read("moto")
    for latency_ms in latencies_ms:
        replay.latency_s = latency_ms / 1000
        print(f"{latency_ms:g} ms for each request:")
        if latency_ms == latencies_ms[0]:
            with _timed("first read of records", replay):
                read("records", FileSelection.RECORDS)
            with _timed("first read of all that makes tables", replay):
                read("tables")
        with _timed("second read", replay):
            read("moto")
        with _one_listing(), _timed("second read, one listing instead of ranges", replay):
            read("moto")
        with _timed("second read, MD5 of every file instead of size and time", replay):
            read("moto", thorough=True)
    print(f"peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def _one_listing() -> Any:
    usual = mirror.list_ranges
    return mock.patch.object(mirror, "list_ranges", lambda objects, prefix, _, pool: usual(objects, prefix, (), pool))


@contextmanager
def _timed(title: str, replay: Replay) -> Iterator[None]:
    replay.requests.clear()
    replay.new = 0
    started, own = time.monotonic(), time.process_time()
    yield
    took, own = time.monotonic() - started, time.process_time() - own
    requests = ", ".join(f"{count:,} {kind}" for kind, count in sorted(replay.requests.items()))
    moto = f" ({replay.new:,} by moto)" if replay.new else ""
    print(f"{title:56} {took:8.2f} s (own CPU {own:.2f} s)   {requests}{moto}", flush=True)


if __name__ == "__main__":
    main()

"""Time reads of 10,000 jobs in S3, with and without the means that make them fast.

``python -m benchmarks.s3_listing`` starts moto's server on loopback, puts the jobs of ``benchmarks.reprice`` there, and
mirrors them into empty caches and into caches that are up to date.  moto is one Python process, and S3 answers many
requests at once: so moto answers each request once, and its answers are replayed after ``--latency-ms``.
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import botocore.httpsession
from botocore.awsrequest import AWSResponse

from benchmarks import reprice
from harness.aws.connections import Connections
from harness.aws.objects import Stored
from harness.aws.uri import S3Uri
from harness.s3 import mirror
from harness.s3.mirror import Wants, make_index, sync
from harness.s3.names import Place, Tree
from harness.s3.seen import Seen, _md5
from harness.stored_jobs import RESULT
from tests.aws import server

_PLACE = S3Uri("bench-bucket", "results")
_AT_ONCE = 2000


def main() -> None:
    """Fill, and time."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--latency-ms", type=float, default=50.0)
    arguments = parser.parse_args()
    mirror._MAKE_INDEX_FROM = arguments.jobs + 1
    with tempfile.TemporaryDirectory() as name, server.running(Path(name, "moto.log")) as endpoint:
        os.environ.update(server.environment(endpoint))
        folder, connections = Path(name), Connections()
        connections.client("s3").create_bucket(Bucket=_PLACE.bucket)
        models = reprice._measured(folder)
        reprice._copy(models[:5], folder / "results", arguments.jobs // 5)
        _fill(endpoint, folder / "results")
        replay = Replay(arguments.latency_ms / 1000)
        with replay.patched():
            _time(folder, connections, replay)


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
    """Answers of moto, given again after a pause; a write forgets the listings."""

    def __init__(self, latency_s: float) -> None:
        self.requests: Counter[str] = Counter()
        self.new = 0
        self._latency_s = latency_s
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
        listing = "list-type=" in request.url
        kind = request.method if request.method != "GET" else "LIST" if listing else "GET"
        with self._lock:
            self.requests[kind] += 1
            answer = self._answers.get(request.url) if request.method == "GET" else None
        if answer is None:
            answer = self._ask(request)
        else:
            time.sleep(self._latency_s)
        status, headers, body = answer
        return AWSResponse(request.url, status, headers, _Raw(body))

    def _ask(self, request: Any) -> tuple[int, dict[str, str], bytes]:
        # moto is one process: more requests at once make it no faster.
        response = self._send(botocore.httpsession.URLLib3Session(), request)
        body = response.raw.data if request.stream_output else response.content
        with self._lock:
            self.new += 1
            answer = response.status_code, response.headers, self._bodies.setdefault(body, body)
            if request.method == "GET":
                self._answers[request.url] = answer
            else:
                self._answers = {url: each for url, each in self._answers.items() if "list-type=" not in url}
        return answer


class _Raw(io.BytesIO):
    """The body of an answer as botocore reads it."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self.read()


def _time(folder: Path, connections: Connections, replay: Replay) -> None:
    def read(cache: str, wants: Wants = Wants.FIGURES) -> Tree:
        return sync(Place(_PLACE, folder / cache), connections, wants).tree

    def reads(title: str, cache: str, wants: Wants = Wants.FIGURES) -> None:
        for number in ("first", "second"):
            with _timed(f"{title}, {number} read", replay):
                read(cache, wants)

    with _timed("moto itself: all that tables are made of, empty cache", replay):
        tree = read("moto")
    with _timed("write the index", replay):
        make_index(Place(_PLACE, folder / "moto"), connections, tree, f"{_PLACE.prefix}/bench")
    with _plain_listing(), _timed("moto itself: plain listing, nothing new", replay):
        read("moto")
    with _timed("moto itself: ranges, nothing new", replay):
        read("moto")
    reads("records: index, versions, ranges", "all-records", Wants.RECORDS)
    with mock.patch.object(mirror, "_ASK_INDEX_FROM", 1 << 30):
        reads("records: no index", "no-index-records", Wants.RECORDS)
    reads("tables: index, versions, ranges", "all")
    with mock.patch.object(mirror, "_ASK_INDEX_FROM", 1 << 30):
        reads("tables: no index", "no-index")
    with _plain_listing():
        reads("tables: no ranges", "no-ranges")
    for title, holds in (("sizes", _by_size), ("MD5 of every file", _by_md5)):
        with (
            mock.patch.object(Seen, "holds", holds),
            mock.patch.object(Seen, "remember", lambda *_: None),
            _timed(f"tables: no versions but {title}, second read", replay),
        ):
            read("all")
    with (
        mock.patch.object(mirror, "_ASK_INDEX_FROM", 1 << 30),
        mock.patch.object(Seen, "holds", _by_size),
        mock.patch.object(Seen, "remember", lambda *_: None),
        _plain_listing(),
    ):
        reads("tables: none of the three", "none")
    print(f"peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def _plain_listing() -> Any:
    return mock.patch.object(mirror, "listed", lambda objects, prefix, _pool: list(objects.list(prefix)))


def _by_size(self: Seen, each: Stored, **_: bool) -> bool:
    try:
        return self._place.path(each.name).stat().st_size == each.size_bytes
    except OSError:
        return False


def _by_md5(self: Seen, each: Stored, **_: bool) -> bool:
    return _by_size(self, each) and _md5(self._place.path(each.name)) == each.etag


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

"""How long it takes to see what is stored in S3: 10,000 jobs of four objects, with and without an index.

``python -m benchmarks.s3_listing`` starts moto's server on loopback, puts the jobs of ``benchmarks.reprice`` there, and
mirrors them into empty caches and into one that is up to date.  moto is one Python process: S3 itself answers many
requests at once, so requests are printed beside seconds.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import reprice
from harness.aws.connections import CONNECTIONS, Connections
from harness.aws.objects import Objects
from harness.aws.uri import S3Uri
from harness.s3 import mirror
from harness.s3.mirror import Wants, make_index, sync
from harness.s3.names import Place
from harness.stored_jobs import RESULT
from tests.aws import server

_PLACE = S3Uri("bench-bucket", "results")


def main() -> None:
    """Fill, and time."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--all", action="store_true", help="also fetch all that tables are made of")
    asked = parser.parse_args()
    mirror._MAKE_INDEX_FROM = asked.jobs + 1  # only when it is asked for
    with tempfile.TemporaryDirectory() as name, server.running(Path(name, "moto.log")) as endpoint:
        os.environ.update(server.environment(endpoint))
        folder, connections = Path(name), Connections()
        connections.client("s3").create_bucket(Bucket=_PLACE.bucket)
        models = reprice._measured(folder)
        reprice._copy(models[:5], folder / "results", asked.jobs // 5)
        with _timed(f"put {asked.jobs:,} jobs"):
            _fill(Objects(connections, _PLACE), folder / "results")
        _time(folder, connections, asked.all)


def _fill(objects: Objects, results: Path) -> None:
    paths = [path for path in results.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in paths if path.name == RESULT)
    print(f"{len(paths):,} objects, results.json together {size / 2**20:.0f} MiB")
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for _ in pool.map(lambda path: objects.put(path.relative_to(results).as_posix(), path.read_bytes()), paths):
            pass


def _time(folder: Path, connections: Connections, everything: bool) -> None:
    def place(cache: str) -> Place:
        return Place(_PLACE, folder / cache)

    with _timed("records, no index, empty cache"):
        tree = sync(place("one"), connections, Wants.RECORDS).tree
    with _timed("records, nothing new"):
        sync(place("one"), connections, Wants.RECORDS)
    with _timed("make the index"):
        make_index(place("one"), connections, tree, f"{_PLACE.prefix}/bench")
    with _timed("records, with index, empty cache"):
        sync(place("two"), connections, Wants.RECORDS)
    if everything:
        with _timed("all that tables are made of, with index, records there"):
            sync(place("two"), connections, Wants.FIGURES)
        with _timed("all, nothing new"):
            sync(place("two"), connections, Wants.FIGURES)
    print(f"peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


@contextmanager
def _timed(what: str) -> Iterator[None]:
    from botocore.client import BaseClient

    usual, asked = BaseClient._make_api_call, Counter[str]()

    def counted(self: Any, operation: str, parameters: Any) -> Any:
        asked[operation] += 1
        return usual(self, operation, parameters)

    BaseClient._make_api_call = counted
    started, own = time.monotonic(), time.process_time()
    try:
        yield
    finally:
        BaseClient._make_api_call = usual
    took, own = time.monotonic() - started, time.process_time() - own
    told = ", ".join(f"{count:,} {name}" for name, count in sorted(asked.items()))
    print(f"{what:56} {took:8.2f} s (own CPU {own:.2f} s)   {told}", flush=True)


if __name__ == "__main__":
    main()

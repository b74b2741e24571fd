"""The index saves requests, and nothing in it is believed."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from harness.s3 import index, listing, mirror
from harness.s3.mirror import Wants
from tests import shelf
from tests.aws import server
from tests.s3.conftest import Bucket, tree
from tests.shelf import Made

INDEX = "results/quick/.index.jsonl.gz"


@pytest.fixture(scope="session")
def _eight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shelf.put(tmp_path_factory.mktemp("eight"), Made("a", 2.0, jobs=5), Made("b", 5.0))


@pytest.fixture
def made(_eight: Path, tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight jobs in S3, which are enough to ask an index for."""
    monkeypatch.setattr(mirror, "_ASK_INDEX_FROM", 2)
    folder = Path(shutil.copytree(_eight, tmp_path / "made"))
    bucket.fill(folder)
    return folder


@pytest.fixture
def indexed(made: Path, bucket: Bucket, harness: Callable[..., Result], tmp_path: Path) -> Path:
    done = harness("s3-index", "s3://bucket/results", "--cache", tmp_path / "maker")
    assert (done.exit_code, done.output) == (0, "s3://bucket/results/quick: 8 results\n")
    return made


def test_an_index_saves_a_request_for_each_result(indexed: Path, bucket: Bucket, requests: list[str]) -> None:
    bucket.sync(wants=Wants.RECORDS)
    assert requests.count("GetObject") == 1 + 3  # the index, judgements, sample and manifest
    records = {name: content for name, content in tree(indexed).items() if name.endswith("result.json")}
    assert records.items() <= tree(bucket.place().folder).items()


def test_a_result_that_is_newer_than_the_index_is_fetched(indexed: Path, bucket: Bucket, requests: list[str]) -> None:
    shelf.put(indexed, Made("c", 1.0, jobs=1))
    bucket.fill(indexed)
    requests.clear()
    bucket.sync()
    assert tree(bucket.place().folder) == tree(indexed)
    assert requests.count("GetObject") == 1 + 3 + 8 * 3 + 4


def lie(bucket: Bucket, change: Callable[[dict[str, str]], object]) -> None:
    content = bucket.objects.get(INDEX, 1 << 30)
    assert content is not None
    entries = [json.loads(line) for line in gzip.decompress(content).splitlines()]
    for entry in entries:
        change(entry)
    bucket.objects.put(INDEX, gzip.compress("".join(json.dumps(each) + "\n" for each in entries).encode()))


_LIES: dict[str, Callable[[dict[str, str]], object]] = {
    "another-text": lambda entry: entry.update(text=entry["text"].replace("ok", "no")),
    "as-long": lambda entry: entry.update(text=entry["text"][::-1]),
    "of-another": lambda entry: entry.update(name=entry["name"].replace("quick/a", "quick/b")),
    "elsewhere": lambda entry: entry.update(name="../../../../" + entry["name"]),
    "of-no-object": lambda entry: entry.update(name=entry["name"].replace("result.json", "run.trec.gz")),
    "no-text": lambda entry: entry.pop("text"),
    "odd-types": lambda entry: entry.update(name=1, text=[]),
    "half-a-letter": lambda entry: entry.update(text="\ud800"),
}


@pytest.mark.parametrize("change", _LIES.values(), ids=_LIES)
def test_a_lying_index_changes_nothing(
    change: Callable[[dict[str, str]], object], indexed: Path, bucket: Bucket
) -> None:
    lie(bucket, change)
    bucket.sync()
    assert tree(bucket.place().folder) == tree(indexed)
    assert {path.name for path in bucket.cache.parent.iterdir()} == {"cache", "made", "maker"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nonsense",
        gzip.compress(b"nonsense"),
        gzip.compress(b"[]\n1\nnull\n"),
        gzip.compress(b"[" * 100_000),
        gzip.compress(b'{"name": "x", "text": "y"}\n')[:-9],
        gzip.compress(b"{}\n") + b"tail",
    ],
    ids=["empty", "no-gzip", "no-json", "no-entries", "deep", "cut", "tail"],
)
def test_a_garbled_index_changes_nothing(content: bytes, made: Path, bucket: Bucket) -> None:
    bucket.objects.put(INDEX, content)
    bucket.sync()
    assert tree(bucket.place().folder) == tree(made)


def test_an_oversized_index_is_not_even_read(
    indexed: Path, bucket: Bucket, requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_MOST_BYTES", 100)
    bucket.sync(wants=Wants.RECORDS)
    assert requests.count("GetObject") == 3 + 8


def test_an_index_where_no_suite_is_wanted_is_not_fetched(indexed: Path, bucket: Bucket, requests: list[str]) -> None:
    bucket.objects.put(f"elsewhere/{INDEX}", b"x")
    requests.clear()
    bucket.sync(wants=Wants.RECORDS)
    assert requests.count("GetObject") == 1 + 3


def test_an_index_that_nobody_would_read_is_not_written_in_silence(
    indexed: Path, monkeypatch: pytest.MonkeyPatch, harness: Callable[..., Result], tmp_path: Path
) -> None:
    monkeypatch.setattr(index, "_MOST_BYTES", 100)
    done = harness("s3-index", "s3://bucket/results/quick", "--cache", tmp_path / "c")
    assert done.exit_code != 0
    assert "none over 0 is read" in done.output


def test_an_index_that_unpacks_without_end_is_left(
    indexed: Path, bucket: Bucket, requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_MOST_UNPACKED_BYTES", 1000)
    bucket.sync(wants=Wants.RECORDS)
    assert requests.count("GetObject") == 1 + 3 + 8


def test_whoever_had_to_fetch_many_leaves_an_index(
    made: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, harness: Callable[..., Result], tmp_path: Path
) -> None:
    monkeypatch.setattr(mirror, "_MAKE_INDEX_FROM", 8)
    assert harness("report", "s3://bucket/results/quick/a", "--cache", tmp_path / "part").exit_code == 0
    assert INDEX not in bucket.names()  # of a part, the whole is not known
    assert harness("report", "s3://bucket/results", "--cache", tmp_path / "one").exit_code == 0
    first = bucket.objects.get(INDEX, 1 << 30)
    assert first is not None
    assert harness("report", "s3://bucket/results", "--cache", tmp_path / "two").exit_code == 0
    assert harness("s3-index", "s3://bucket/results").exit_code == 0
    assert bucket.objects.get(INDEX, 1 << 30) == first


def test_an_index_is_of_whole_suites(made: Path, bucket: Bucket, harness: Callable[..., Result]) -> None:
    done = harness("s3-index", "s3://bucket/results/quick/a")
    assert done.exit_code == 2 and "is a part of a suite" in done.stderr and done.stderr.count("\n") == 1
    done = harness("s3-index", "s3://bucket/elsewhere")
    assert done.exit_code == 2 and "no stored job in it" in done.stderr
    done = harness("s3-index", "results")
    assert done.exit_code == 2 and "is no place in S3" in done.stderr


def test_a_long_listing_is_cut_into_ranges_and_misses_nothing(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, requests: list[str]
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    names = [f"top/s{suite}/x{system}/f{number}" for suite in range(2) for system in range(9) for number in range(3)]
    names += ["top/loose", "top/s0/a", "top/s1/x3", "top/~last", "top/\u00e9t\u00e9/f", "topper/not-this"]
    server.put(bucket.endpoint, "bucket", dict.fromkeys(names, b""))
    monkeypatch.setattr(listing, "_PAGE", 5)
    requests.clear()
    with ThreadPoolExecutor(4) as pool:
        found = [each.name for each in listing.listed(bucket.objects, "top/", pool)]
    assert found == sorted(name for name in names if name.startswith("top/"))
    assert len(requests) > 10

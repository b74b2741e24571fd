"""The mirror is what S3 holds now: whole, verified, nothing more, whoever wrote to the bucket."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import botocore.endpoint
import pytest
from botocore import exceptions
from botocore.awsrequest import AWSResponse
from botocore.client import BaseClient
from botocore.config import Config
from botocore.httpsession import URLLib3Session
from botocore.response import StreamingBody

from harness.aws.results import mirror, open_to_read
from harness.aws.results.mirror import FileSelection, Listing, MirroredFolder
from harness.errors import HarnessError, RemoteError, UsageError
from harness.remote import failures
from harness.remote.storage import StoredObject
from tests.aws import server
from tests.aws.results.conftest import Bucket, tree
from tests.support import publisher
from tests.support.publisher import Made

# Files and folders of a suite beside its systems.
BESIDE = ("manifest.txt", "qrels", "samples", "suite.json")

JOBS = (Made("a", 2.0, jobs=2), Made("b", 5.0, jobs=2))


@pytest.fixture
def made(tmp_path: Path, bucket: Bucket) -> Path:
    """Four jobs, which are also in S3."""
    folder = publisher.put(tmp_path / "made", *JOBS)
    bucket.fill(folder)
    return folder


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits between tries."""
    monkeypatch.setattr(failures, "_PAUSE_S", 0)

    monkeypatch.setattr(botocore.endpoint, "time", SimpleNamespace(**{**vars(time), "sleep": lambda _: None}))


def test_mirror_equals_the_objects(made: Path, bucket: Bucket) -> None:
    bucket.sync()
    assert tree(bucket.place().folder) == tree(made)
    assert not list((bucket.cache / "s3" / ".partial").iterdir())


def test_unchanged_files_are_neither_fetched_nor_hashed(
    made: Path, bucket: Bucket, requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.sync()
    requests.clear()
    monkeypatch.setattr(mirror, "_md5", lambda _: pytest.fail("hashed"))
    bucket.sync()
    assert requests == ["ListObjectsV2"]


def test_only_new_objects_are_fetched(made: Path, bucket: Bucket, requests: list[str]) -> None:
    bucket.sync()
    publisher.put(made, Made("c", 1.0, jobs=1))
    bucket.fill(made)
    requests.clear()
    bucket.sync()
    assert tree(bucket.place().folder) == tree(made)
    assert requests.count("GetObject") == 4 + 1, "the manifest too"


def test_files_of_other_times_and_equal_content_are_not_fetched_again(
    made: Path, bucket: Bucket, requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.sync()
    for path in bucket.place().folder.rglob("*.*"):  # as a copy of the cache, or jobs that were measured here
        os.utime(path)
    requests.clear()
    bucket.sync()
    monkeypatch.setattr(mirror, "_md5", lambda _: pytest.fail("hashed twice"))
    bucket.sync()
    assert "GetObject" not in requests
    assert tree(bucket.place().folder) == tree(made)


def test_a_listing_in_ranges_misses_nothing(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, requests: list[str]
) -> None:
    names = [f"top/s{suite}/x{system}/f{number}" for suite in range(2) for system in range(9) for number in range(3)]
    names += ["top/loose", "top/s0/a", "top/s1/x3", "top/~last", "top/\u00e9t\u00e9/f", "topper/not-this"]
    server.put(bucket.endpoint, "bucket", dict.fromkeys(names, b""))
    monkeypatch.setattr(mirror, "_RANGE", 4)
    known = sorted(["top/gone", "top/s0/x5/gone", "top/s1/x9", *names[:54:2]])
    requests.clear()
    with ThreadPoolExecutor(4) as pool:
        found = [stored.name for stored in mirror.list_ranges(bucket.objects, "top/", known, pool)]
    assert found == sorted(name for name in names if name.startswith("top/"))
    assert requests == ["ListObjectsV2"] * 8


def test_files_of_deleted_objects_are_removed(made: Path, bucket: Bucket) -> None:
    bucket.sync()
    gone = [each.name for each in bucket.objects.list("results/quick/a/")]
    bucket.objects.delete(gone)
    bucket.sync()
    assert {name.split("/")[1] for name in tree(bucket.place().folder)} == {"b", *BESIDE}
    assert not (bucket.place().folder / "quick" / "a").exists()
    bucket.objects.delete(bucket.names())
    bucket.sync()
    assert not bucket.place().folder.exists()


def test_published_table_of_a_deleted_object_is_removed(bucket: Bucket) -> None:
    for name in ("published.toml", "a.csv", "b.csv"):
        bucket.objects.put(f"results/paper/{name}", b"x")
    bucket.sync()
    assert set(tree(bucket.place().folder)) == {"paper/published.toml", "paper/a.csv", "paper/b.csv"}
    bucket.objects.delete(["results/paper/a.csv"])
    bucket.sync()
    assert set(tree(bucket.place().folder)) == {"paper/published.toml", "paper/b.csv"}
    bucket.objects.delete(["results/paper/published.toml"])
    bucket.sync()
    assert not bucket.place().folder.exists()


def test_deleted_job_loses_its_record_first(made: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.sync()
    bucket.objects.delete([each.name for each in bucket.objects.list("results/quick/a/")])
    usual, removed = Path.unlink, []

    def unlink(self: Path, missing_ok: bool = False) -> None:
        if bucket.place().folder in self.parents:
            removed.append(self.name)
        usual(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    bucket.sync()
    assert removed[:2] == ["result.json"] * 2 and len(removed) == 2 * 4


def test_job_without_a_record_is_not_mirrored(made: Path, bucket: Bucket) -> None:
    bucket.sync()
    record = next(name for name in bucket.names() if name.endswith("result.json"))
    bucket.objects.delete([record])
    bucket.sync()
    folder = record.rpartition("/")[0].removeprefix("results/")
    assert not any(name.startswith(folder) for name in tree(bucket.place().folder))
    assert len(list(bucket.place().folder.rglob("result.json"))) == 3


def test_changed_file_or_object_is_fetched_again(made: Path, bucket: Bucket) -> None:
    bucket.sync()
    here = next(bucket.place().folder.rglob("samples.parquet"))
    here.write_bytes(b"changed by somebody")
    there = next(name for name in bucket.names() if name.endswith("run.trec.gz"))
    content = bucket.objects.get(there, 1 << 30)
    assert content is not None
    server.forward(bucket.endpoint, 2)  # S3 lists whole seconds
    bucket.objects.put(there, bytes(reversed(content)))  # as long as before
    bucket.sync()
    assert here.read_bytes() == (made / here.relative_to(bucket.place().folder)).read_bytes()
    assert bucket.place().path(there).read_bytes() == bytes(reversed(content))


def test_part_of_a_suite_is_mirrored_with_its_judgements_and_pins(made: Path, bucket: Bucket) -> None:
    bucket.objects.put("results/origin.toml", b'name = "me"\njobs = 4\nsha256 = "x"\n')
    bucket.objects.put("results/quick/pins.json", b'{"systems": {}}')
    bucket.sync("results/quick/a")
    names = tree(bucket.place().folder)
    assert {name.split("/")[1] for name in names if "/" in name} == {"a", "pins.json", *BESIDE}
    assert "origin.toml" in names


def test_prefix_does_not_match_a_longer_name(made: Path, bucket: Bucket) -> None:
    bucket.fill(made, "results-2")
    bucket.sync("results")
    assert tree(bucket.place().folder) == tree(made)
    assert not bucket.place("results-2").folder.exists()


def test_a_whole_bucket_is_a_results_folder(made: Path, bucket: Bucket) -> None:
    bucket.objects.delete(bucket.names())
    server.put(bucket.endpoint, "bucket", tree(made))
    bucket.sync("")
    assert tree(bucket.place("").folder) == tree(made)


_JOB = "results/quick/a/scifact/single_stream/cpu1-mem1/0123456789abcdef"


@pytest.mark.parametrize(
    "name",
    [
        f"{_JOB}/../../../../../../../../../etc/result.json",
        "results/../../../../../../outside/q/w/e/r/t/result.json",
        "results/quick/../qrels/x.trec.gz",
        f"/{_JOB}/result.json",
        f"results//{_JOB}/result.json",
        f"{_JOB}/./result.json",
        f"{_JOB}/result.json/result.json",
        f"{_JOB}/a\\b/result.json",
        f"{_JOB}/a\nb/result.json",
        f"{_JOB}/\x1b[2J/result.json",
        f"{_JOB}/{'x' * 256}/result.json",
        f"{'d/' * 40}result.json",
        "result.json",
        "results/result.json",
        "results/quick/qrels/..",
        "results/quick/qrels/",
    ],
)
def test_names_outside_the_folder_are_refused(name: str) -> None:
    found = Listing([_listed(name)])
    assert not found.jobs and not found.others
    assert list(found.refused.values()) == [[name], []]


def test_foreign_names_are_ignored() -> None:
    hidden = [f"results/quick/{folder}/a/s/s/c/k/result.json" for folder in (".staging", ".git")]
    beside = [f"{_JOB}/notes.txt", "results/quick/report.html", "results/quick/.lock", "results/numbers.csv"]
    found = Listing([_listed(name) for name in (*hidden, *beside)])
    assert not found.jobs and not found.others and not any(found.refused.values())


def test_refused_object_is_reported_and_the_rest_is_mirrored(made: Path, bucket: Bucket) -> None:
    bucket.objects.put("results/result.json", b"{}")
    bucket.sync()
    assert tree(bucket.place().folder) == tree(made)
    (message,) = bucket.messages
    assert "left out 1 objects" in message and "'results/result.json'" in message


@pytest.mark.parametrize("prefix", ["a/.hidden", "x" * 300, "a/\x07"])
def test_prefix_that_no_folder_can_have_is_refused(prefix: str, bucket: Bucket) -> None:
    with pytest.raises(UsageError, match="a results folder cannot have this name"):
        bucket.place(prefix)


def test_an_oversize_file_is_left_out_with_a_line() -> None:
    """All other files of the place stay readable."""
    other = _JOB[:-1] + "0"
    found = Listing([_listed(f"{_JOB}/result.json", size=1 << 30), _listed(f"{other}/result.json")])
    assert set(found.jobs) == {other}
    (line,) = found.left_out()
    assert (
        line
        == f"left out 1 objects that are larger than any file that harness writes; remove them ('{_JOB}/result.json')"
    )


def _listed(name: str, size: int = 2) -> StoredObject:
    return StoredObject(name, size, "0" * 32, datetime.now(UTC))


def test_busy_answers_are_retried(made: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, requests = URLLib3Session.send, Counter[tuple[str, str]]()

    def send(self: URLLib3Session, request: Any) -> Any:
        requests[request.method, request.url] += 1
        tries = requests[request.method, request.url]
        if tries > 2:
            return usual(self, request)
        status, code = ((503, "SlowDown"), (500, "InternalError"))[tries - 1]

        class Raw:
            def stream(self, **_: Any) -> Any:
                yield f"<Error><Code>{code}</Code><Message>busy</Message></Error>".encode()

        return AWSResponse(request.url, status, {}, Raw())

    monkeypatch.setattr(URLLib3Session, "send", send)
    bucket.sync()
    assert len(requests) == 1 + 4 * 4 + 4 and set(requests.values()) == {3}
    monkeypatch.undo()
    assert tree(bucket.place().folder) == tree(made)


@pytest.mark.parametrize("how", ["cut", "broken-off", "flipped"])
def test_damaged_download_is_retried(how: str, made: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, seen = StreamingBody.read, set[bytes]()

    def read(self: StreamingBody, amt: int | None = None) -> bytes:
        content = usual(self, amt)
        if len(content) < 100 or content in seen:
            return content
        seen.add(content)  # each is damaged once
        if how == "broken-off":
            raise exceptions.ResponseStreamingError(error="connection reset")
        return content[:50] if how == "cut" else content[:50] + b"!" + content[51:]

    monkeypatch.setattr(StreamingBody, "read", read)
    bucket.sync()
    assert len(seen) > 4
    monkeypatch.undo()
    assert tree(bucket.place().folder) == tree(made)


def test_lasting_damage_is_an_error_and_leaves_no_file(
    made: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = StreamingBody.read
    monkeypatch.setattr(StreamingBody, "read", lambda self, amt=None: usual(self, amt).replace(b"PAR1", b"XXXX"))
    with pytest.raises(RemoteError, match=r"samples\.parquet: "):
        bucket.sync()
    assert not list(bucket.place().folder.rglob("samples.parquet"))
    assert not list(bucket.place().folder.rglob("result.json"))  # a job is whole here or not at all


def test_etag_that_is_no_md5_is_not_compared(made: Path, bucket: Bucket) -> None:
    """Objects in parts have other ETags; so have those that KMS encrypts."""
    client = bucket.objects.client
    for number, name in enumerate(bucket.names()):
        content = bucket.objects.get(name, 1 << 30)
        assert content is not None
        if number % 2:
            client.put_object(Bucket="bucket", Key=name, Body=content, ServerSideEncryption="aws:kms")
        else:
            upload = client.create_multipart_upload(Bucket="bucket", Key=name)["UploadId"]
            part = client.upload_part(Bucket="bucket", Key=name, UploadId=upload, PartNumber=1, Body=content)
            client.complete_multipart_upload(
                Bucket="bucket",
                Key=name,
                UploadId=upload,
                MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]},
            )
    assert any("-" in each.etag for each in bucket.objects.list())
    for _ in range(2):
        bucket.sync()
        assert tree(bucket.place().folder) == tree(made)


def test_object_changed_meanwhile_is_listed_again(made: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, changed = mirror.list_ranges, []

    def listed(*arguments: Any) -> Any:
        found = usual(*arguments)
        if len(changed) < 2:
            name = next(name for name in bucket.names() if name.endswith(("result.json", "log.txt.gz")[len(changed)]))
            changed.append(name)
            bucket.objects.delete([name])
        return found

    monkeypatch.setattr(mirror, "list_ranges", listed)
    bucket.sync()
    assert len(changed) == 2
    assert len(list(bucket.place().folder.rglob("result.json"))) == 3


def test_a_file_written_after_its_page_was_listed_is_not_missed(
    made: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = mirror.list_ranges
    monkeypatch.setattr(
        mirror, "list_ranges", lambda *given: [each for each in usual(*given) if not each.name.endswith("log.txt.gz")]
    )
    bucket.sync()
    assert tree(bucket.place().folder) == tree(made)


def test_file_added_by_another_process_is_kept(
    made: Path, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.sync()
    usual = mirror.list_ranges

    def listed(*arguments: Any) -> Any:
        found = usual(*arguments)
        more = tmp_path / "more"
        if not more.exists():  # published, then stored here
            publisher.put(more, Made("z", 1.0, jobs=1))
        bucket.fill(more)
        for name, content in tree(more).items():
            path = bucket.place().folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return found

    monkeypatch.setattr(mirror, "list_ranges", listed)
    bucket.sync()
    assert list(bucket.place().folder.glob("quick/z/**/result.json"))


def denying(monkeypatch: pytest.MonkeyPatch, denied: Callable[[str, dict[str, Any]], bool]) -> None:
    """Let S3 deny some requests."""
    usual = BaseClient._make_api_call

    def call(self: Any, operation: str, parameters: Any) -> Any:
        if denied(operation, parameters):
            raise exceptions.ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, operation)
        return usual(self, operation, parameters)

    monkeypatch.setattr(BaseClient, "_make_api_call", call)


def test_reading_needs_no_right_to_write(made: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    denying(monkeypatch, lambda operation, _: operation not in ("ListObjectsV2", "GetObject"))
    assert tree(open_to_read("s3://bucket/results", bucket.cache, FileSelection.ALL)) == tree(made)


def test_forbidden_files_above_the_prefix_are_left_out(
    made: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    denying(monkeypatch, lambda _, given: not given.get("Prefix", "results/quick/").startswith("results/quick/"))
    bucket.sync("results/quick")
    assert tree(bucket.place().folder) == tree(made)
    assert bucket.messages == [
        "s3://bucket/results/quick: read without s3://bucket/results/origin.toml, which is not permitted"
    ]
    with pytest.raises(RemoteError, match="not permitted"):
        bucket.sync("results")


def test_full_disk_is_one_line(made: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, *_: Any) -> Any:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(HarnessError, match="cannot be written: No space left") as caught:
        bucket.sync()
    assert "\n" not in str(caught.value)


def test_places_of_one_bucket_share_a_mirror(made: Path, bucket: Bucket, requests: list[str]) -> None:
    bucket.sync("results/quick")
    requests.clear()
    bucket.sync("results")
    assert "GetObject" not in requests
    assert MirroredFolder(bucket.place().uri, Path("/c")).folder == Path("/c/s3/bucket/results")


def test_hash_of_the_record_is_compared_without_an_md5(
    made: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An ETag of KMS only looks like an MD5, and S3 keeps no checksum of its own here.
    client = boto3.client("s3", config=Config(request_checksum_calculation="when_required"))
    for path in made.rglob("samples.parquet"):
        key = f"results/{path.relative_to(made).as_posix()}"
        client.put_object(Bucket="bucket", Key=key, Body=path.read_bytes(), ServerSideEncryption="aws:kms")
    usual, damaged = StreamingBody.read, []

    def read(self: StreamingBody, amt: int | None = None) -> bytes:
        content = usual(self, amt)
        if b"PAR1" in content and len(damaged) < 2:
            damaged.append(content)
            return content.replace(b"PAR1", b"XXXX")
        return content

    monkeypatch.setattr(StreamingBody, "read", read)
    monkeypatch.setattr(mirror, "CONNECTIONS", 1)
    bucket.sync()
    assert len(damaged) == 2
    # The first was damaged twice: what S3 holds, as far as anybody can tell, and harness verify says it.
    wrong = [name for name, content in tree(bucket.place().folder).items() if content != tree(made)[name]]
    assert len(wrong) == 1


@pytest.mark.parametrize("record", [b"[" * 200_000, b"null", b'{"files": []}', b'{"files": {"a\xed\xa0\x80": "0"}}'])
def test_a_damaged_record_names_no_hashes(record: bytes) -> None:
    assert mirror._hashes(record) == {}

"""Objects in S3, through a server that speaks its API."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from harness.aws import errors
from harness.aws.clients import Connections, parse_uri
from harness.aws.objects import Objects
from harness.errors import AwsError
from tests.aws import server
from tests.aws.ec2.faults import Injected


@pytest.fixture
def objects(aws: str) -> Objects:
    made = Connections()
    made.client("s3").create_bucket(Bucket="bucket")
    return Objects(made, parse_uri("s3://bucket/some/where"))


def test_object_is_listed_read_and_deleted(objects: Objects) -> None:
    objects.put("a/1", b"one")
    objects.put("a/2", b"two")
    objects.put("b", b"three")
    assert [each.name for each in objects.list()] == ["a/1", "a/2", "b"]
    assert [each.name for each in objects.list("a/", after="a/1")] == ["a/2"]
    assert [each.name for each in objects.below("a").list()] == ["1", "2"]
    assert objects.get("a/2", 100) == b"two"
    assert objects.size("b") == 5
    assert objects.delete(["a/1", "a/2"]) == 2
    assert [each.name for each in objects.list()] == ["b"]


def test_an_etag_is_the_md5_of_the_content(objects: Objects) -> None:
    objects.put("a", b"content")
    assert next(objects.list()).etag == hashlib.md5(b"content", usedforsecurity=False).hexdigest()


def test_a_missing_object_is_none(objects: Objects) -> None:
    assert objects.get("nothing", 100) is None
    assert objects.size("nothing") is None
    assert list(objects.list("nothing")) == []


def test_a_new_object_is_never_written_over(objects: Objects) -> None:
    assert objects.put_new("a", b"first")
    assert not objects.put_new("a", b"second")
    assert objects.get("a", 100) == b"first"


def test_undecided_write_is_retried(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    """409 says nothing about whether there is such an object."""
    monkeypatch.setattr(errors, "_PAUSE_S", 0.0)
    made = Connections()
    twice = Injected(made, "s3.PutObject", lambda number, _: "ConditionalRequestConflict" if number < 2 else None)
    assert Objects(made, objects.place).put_new("a", b"first")
    assert objects.get("a", 100) == b"first" and twice.raised == 2


def test_write_that_stays_undecided_is_busy(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_PAUSE_S", 0.0)
    made = Connections()
    Injected(made, "s3.PutObject", lambda *_: "ConditionalRequestConflict")
    with pytest.raises(AwsError, match="try again") as caught:
        Objects(made, objects.place).put_new("a", b"first")
    assert caught.value.code == "Busy" and "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [5, (8 << 20) + 5])
def test_renewed_object_is_unchanged(objects: Objects, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """The larger one goes in parts."""
    monkeypatch.setattr("harness.aws.objects._COPY_AT_ONCE", 8 << 20)
    objects.put("a", b"x" * size)
    before = objects.client.head_object(Bucket="bucket", Key=objects.place.key("a"))["ETag"]
    objects.renew("a", timedelta(-1))
    assert objects.get("a", 16 << 20) == b"x" * size
    after = objects.client.head_object(Bucket="bucket", Key=objects.place.key("a"))["ETag"]
    assert (before == after) == (size == 5), "it was written again"


def test_the_hash_is_that_of_the_content(objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an object in parts S3 does not know it, nor of one with another checksum: then it is downloaded."""
    # moto does not tell it of itself.
    objects.client.meta.events.register(
        "after-call.s3.HeadObject",
        lambda parsed, **_: parsed.update(ChecksumType="FULL_OBJECT" if parsed["ContentLength"] == 1 else "COMPOSITE"),
    )
    large, read = tmp_path / "large", list[str]()
    large.write_bytes(b"x" * (9 << 20))
    objects.upload("parts", large)
    for name, kind in (("whole", "SHA256"), ("crc", "CRC32")):
        objects.client.put_object(Bucket="bucket", Key=objects.place.key(name), Body=b"x", ChecksumAlgorithm=kind)
    download = Objects.download
    monkeypatch.setattr(Objects, "download", lambda *given: (read.append(given[1]), download(*given))[1])
    for name, content in (("parts", large.read_bytes()), ("whole", b"x"), ("crc", b"x")):
        assert objects.sha256(name) == hashlib.sha256(content).hexdigest()
    assert read == ["parts", "crc"]


def test_one_of_many_concurrent_writers_succeeds(objects: Objects) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda number: objects.put_new("a", b"%d" % number), range(8)))
    assert sum(won) == 1
    assert objects.get("a", 100) == b"%d" % won.index(True)


def test_a_listing_goes_on_past_a_thousand(objects: Objects, aws: str) -> None:
    names = [objects.place.below(f"{number:05}").prefix for number in range(1003)]
    server.put(aws, objects.place.bucket, dict.fromkeys(names, b""))
    assert len(list(objects.list())) == 1003


def test_file_is_uploaded_and_downloaded_whole(objects: Objects, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 50_000)  # more than one part
    objects.upload("file", path)
    assert objects.download("file", tmp_path / "back") == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (tmp_path / "back").read_bytes() == path.read_bytes()


def test_an_upload_that_s3_refuses_keeps_its_code(objects: Objects, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    made = Connections()
    Injected(made, "s3.PutObject", lambda *_: "SlowDown")
    with pytest.raises(AwsError, match="AWS is busy") as caught:
        Objects(made, objects.place).upload("file", tmp_path / "file")
    assert caught.value.code == "Busy"


def test_oversize_object_is_refused(objects: Objects) -> None:
    objects.put("a", b"x" * 100)
    with pytest.raises(AwsError, match="larger than"):
        objects.get("a", 99)


def test_missing_bucket_is_one_line(objects: Objects) -> None:
    missing = Objects(Connections(), parse_uri("s3://no-such-bucket/x"))
    with pytest.raises(AwsError, match=r"no-such-bucket.*\(NoSuchBucket\)") as caught:
        list(missing.list())
    assert "\n" not in str(caught.value)


def test_no_credentials_is_one_line(monkeypatch: pytest.MonkeyPatch, aws: str) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    with pytest.raises(AwsError, match="no AWS credentials") as caught:
        list(Objects(Connections(), parse_uri("s3://bucket")).list())
    assert caught.value.code == "NoCredentials"


def test_no_such_profile_is_one_line(monkeypatch: pytest.MonkeyPatch, aws: str) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(AwsError, match=r"no AWS credentials .*nobody") as caught:
        list(Objects(Connections(), parse_uri("s3://bucket")).list())
    assert caught.value.code == "NoCredentials"


def test_no_region_is_one_line(monkeypatch: pytest.MonkeyPatch, aws: str) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    with pytest.raises(AwsError, match="no AWS region"):
        Connections().client("ec2")


def test_unreachable_endpoint_is_one_line(monkeypatch: pytest.MonkeyPatch, aws: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(AwsError, match="not reached") as caught:
        list(Objects(Connections(), parse_uri("s3://bucket")).list())
    assert not any(secret in str(caught.value) for secret in server.SECRETS)


def test_an_answer_that_breaks_off_is_one_line(
    objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from botocore.exceptions import ResponseStreamingError
    from botocore.response import StreamingBody

    def read(self: StreamingBody, amt: int | None = None) -> bytes:
        raise ResponseStreamingError(error="connection reset")

    objects.put("a", b"x")
    monkeypatch.setattr(StreamingBody, "read", read)
    with pytest.raises(AwsError, match="not reached"):
        objects.get("a", 1000)
    monkeypatch.setattr(errors, "_PAUSE_S", 0.0)
    with pytest.raises(AwsError, match="not reached"):
        objects.download("a", tmp_path / "a")


def test_every_request_names_the_owner_that_is_expected(aws: str, tmp_path: Path) -> None:
    """In all ways that objects are written, read and copied; of other buckets nothing is expected."""
    made = Connections()
    client = made.client("s3")
    client.create_bucket(Bucket="bucket")
    client.create_bucket(Bucket="other")
    made.expect_owner("bucket")
    before = len(server.requests(aws))
    objects = Objects(made, parse_uri("s3://bucket/some/where"))
    large = tmp_path / "large"
    large.write_bytes(b"x" * (9 << 20))  # in parts
    objects.put("a", b"x")
    objects.put_new("b", b"x")
    objects.upload("c", large)
    objects.renew("a", timedelta(-1))
    objects.renew("c", timedelta(-1))
    assert len(list(objects.list())) == 3 and objects.get("a", 10) == b"x"
    objects.download("c", tmp_path / "back")
    objects.delete(["a", "b", "c"])
    client.list_objects_v2(Bucket="other")
    sent = [each for each in server.requests(aws)[before:] if each["service"] == "s3"]
    named = {path: set() for path in ("bucket", "other")}
    for each in sent:
        bucket = each["path"].strip("/").partition("/")[0]
        named[bucket].add(each["headers"].get("x-amz-expected-bucket-owner"))
        if "x-amz-copy-source" in each["headers"]:
            assert each["headers"].get("x-amz-source-expected-bucket-owner") == server.ACCOUNT
    assert named == {"bucket": {server.ACCOUNT}, "other": {None}}
    assert len(sent) > 12

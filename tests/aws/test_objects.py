"""Objects in S3, through a server that speaks its API."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from harness.aws.clients import Connections, parse_uri
from harness.aws.objects import Objects, checksums_of
from harness.errors import RemoteError
from harness.remote import failures
from tests.aws import server
from tests.aws.ec2.faults import Injected


@pytest.fixture
def objects(aws: str) -> Objects:
    made = Connections()
    made.client("s3").create_bucket(Bucket="bucket")
    return Objects(made, parse_uri("s3://bucket/some/where"))


def test_an_etag_is_the_md5_of_the_content(objects: Objects) -> None:
    objects.put("a", b"content")
    assert next(objects.list()).etag == hashlib.md5(b"content", usedforsecurity=False).hexdigest()


def test_undecided_write_is_retried(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    """409 says nothing about whether there is such an object."""
    monkeypatch.setattr(failures, "_PAUSE_S", 0.0)
    made = Connections()
    twice = Injected(made, "s3.PutObject", lambda number, _: "ConditionalRequestConflict" if number < 2 else None)
    assert Objects(made, objects.place).put_new("a", b"first")
    assert objects.get("a", 100) == b"first" and twice.raised == 2


def test_write_that_stays_undecided_is_busy(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "_PAUSE_S", 0.0)
    made = Connections()
    Injected(made, "s3.PutObject", lambda *_: "ConditionalRequestConflict")
    with pytest.raises(RemoteError, match="try again") as caught:
        Objects(made, objects.place).put_new("a", b"first")
    assert caught.value.code == "Busy" and "\n" not in str(caught.value)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts as small as S3 takes them."""
    monkeypatch.setattr("harness.aws.objects._LEAST_PART_BYTES", 5 << 20)
    monkeypatch.setattr("harness.aws.objects.MOST_PART_BYTES", 8 << 20)


SIZES = [0, 5, 5 << 20, (5 << 20) + 1, (10 << 20) + 5]


@pytest.mark.parametrize("size", SIZES)
def test_s3_states_the_checksum_of_an_upload(objects: Objects, tmp_path: Path, small_parts: None, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * size)
    assert objects.state("file") is None
    assert objects.upload_new("file", path)
    state = objects.state("file")
    assert state and (state.size_bytes, state.checksum) == (size, objects.checksum_of(path))
    assert objects.download("file", tmp_path / "back", 1 << 40) == hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_bytes(b"y" * size)
    assert size == 0 or state.checksum != objects.checksum_of(path)


@pytest.mark.parametrize("size", SIZES)
def test_s3_states_the_checksum_of_a_copy_in_one_part(
    objects: Objects, tmp_path: Path, small_parts: None, size: int
) -> None:
    (tmp_path / "file").write_bytes(b"x" * size)
    objects.upload_new("file", tmp_path / "file")
    assert objects.copy_new("file", "copy")
    state, sha256 = objects.state("copy"), hashlib.sha256(b"x" * size).hexdigest()
    assert state and state.size_bytes == size
    assert (state.checksum in checksums_of(sha256)) == (size <= 8 << 20)
    assert objects.download("copy", tmp_path / "back", 1 << 40) == sha256


@pytest.mark.parametrize("size", [5, (5 << 20) + 1])
def test_upload_and_copy_never_replace_an_object(
    objects: Objects, tmp_path: Path, small_parts: None, size: int
) -> None:
    (tmp_path / "file").write_bytes(b"x" * size)
    objects.put("a", b"first")
    objects.put("b", b"second")
    assert not objects.upload_new("a", tmp_path / "file")
    assert not objects.copy_new("b", "a")
    assert objects.get("a", 100) == b"first" and [each.name for each in objects.list()] == ["a", "b"]
    assert not objects.client.list_multipart_uploads(Bucket="bucket").get("Uploads"), "no part is left"


def test_checksum_of_another_algorithm_is_not_taken_for_ours(objects: Objects) -> None:
    objects.client.put_object(Bucket="bucket", Key=objects.place.key("a"), Body=b"x", ChecksumAlgorithm="CRC32")
    state = objects.state("a")
    assert state and state.checksum == ""


def test_a_listing_goes_on_past_a_thousand(objects: Objects, aws: str) -> None:
    names = [objects.place.below(f"{number:05}").prefix for number in range(1003)]
    server.put(aws, objects.place.bucket, dict.fromkeys(names, b""))
    assert len(list(objects.list())) == 1003


def test_an_upload_that_s3_refuses_keeps_its_code(objects: Objects, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    made = Connections()
    Injected(made, "s3.PutObject", lambda *_: "SlowDown")
    with pytest.raises(RemoteError, match="AWS is busy") as caught:
        Objects(made, objects.place).upload_new("file", tmp_path / "file")
    assert caught.value.code == "Busy"


def test_missing_bucket_is_one_line(objects: Objects) -> None:
    missing = Objects(Connections(), parse_uri("s3://no-such-bucket/x"))
    with pytest.raises(RemoteError, match=r"no-such-bucket.*\(NoSuchBucket\)") as caught:
        list(missing.list())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("profile", ["", "nobody"])
def test_no_credentials_is_one_line(monkeypatch: pytest.MonkeyPatch, aws: str, profile: str) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    if profile:
        monkeypatch.setenv("AWS_PROFILE", profile)
    with pytest.raises(RemoteError, match=f"no AWS credentials.*{profile}") as caught:
        list(Objects(Connections(), parse_uri("s3://bucket")).list())
    assert caught.value.code == "NoCredentials"


def test_no_region_is_one_line(monkeypatch: pytest.MonkeyPatch, aws: str) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    with pytest.raises(RemoteError, match="no AWS region"):
        Connections().client("ec2")


def test_unreachable_endpoint_is_one_line(monkeypatch: pytest.MonkeyPatch, aws: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(RemoteError, match="cannot be reached") as caught:
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
    with pytest.raises(RemoteError, match="cannot be reached"):
        objects.get("a", 1000)
    monkeypatch.setattr(failures, "_PAUSE_S", 0.0)
    with pytest.raises(RemoteError, match="cannot be reached"):
        objects.download("a", tmp_path / "a", 1)


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
    large.write_bytes(b"x" * (33 << 20))  # in parts
    objects.put("a", b"x")
    objects.put_new("b", b"x")
    objects.upload_new("c", large)
    objects.copy_new("c", "d")
    assert not objects.upload_new("d", large), "it is there, and its parts are dropped"
    assert objects.state("d") and len(list(objects.list())) == 4 and objects.get("a", 10) == b"x"
    objects.download("c", tmp_path / "back", 1 << 40)
    objects.delete(["a", "b", "c", "d"])
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

"""``s3://bucket/prefix``, and times as clients read them."""

from __future__ import annotations

from pathlib import Path

import pytest
from botocore.utils import parse_timestamp

from harness.aws import clients, is_s3
from harness.aws.clients import Connections, S3Uri, parse_uri
from harness.aws.rental import RentalBackend
from harness.errors import RemoteError, UsageError
from harness.launch.checks import Check, Level


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("s3://my-bucket", S3Uri("my-bucket")),
        ("s3://my-bucket/", S3Uri("my-bucket")),
        ("s3://my.bucket/a/b/", S3Uri("my.bucket", "a/b")),
    ],
)
def test_uri_is_parsed_and_printed_the_same(text: str, place: S3Uri) -> None:
    assert is_s3(text)
    assert parse_uri(text) == place
    assert parse_uri(str(place)) == place


@pytest.mark.parametrize(
    "text", ["results", "s3:/b/x", "s3://", "s3://Upper/x", "s3://a/x", "s3://bbb/a//b", "s3://bbb/../x"]
)
def test_wrong_uri_is_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError, match="s3://BUCKET"):
        parse_uri(text)


def test_keys_are_below_the_prefix() -> None:
    assert parse_uri("s3://bbb").key("x", "y") == "x/y"
    assert parse_uri("s3://bbb/p").below("x").key("y") == "p/x/y"


@pytest.mark.parametrize("text", ["2026-11-22T07:36:46.000Z", "2026-11-22T07:36:46Z", "2026-11-22T07:36:46+00:00"])
def test_times_are_read_as_botocore_reads_them(text: str) -> None:
    assert clients._timestamp(text) == parse_timestamp(text)
    assert clients._timestamp(text).tzinfo is not None
    assert clients._timestamp("Sun, 22 Nov 2026 07:36:46 GMT") == parse_timestamp("Sun, 22 Nov 2026 07:36:46 GMT")
    assert clients._timestamp(1_700_000_000) == parse_timestamp(1_700_000_000)


def test_region_is_the_argument_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert Connections().region == "eu-west-1"
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert Connections().region == "eu-north-1"
    assert Connections("us-west-2").region == "us-west-2"


@pytest.fixture
def no_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No credentials and no region; the path of a configuration that a test may write."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return tmp_path / "config"


def test_credentials_are_found_where_they_are_configured(no_account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RemoteError, match="no AWS credentials; set AWS_PROFILE"):
        Connections().configured()
    no_account.write_text("[profile research]\nsso_session = lab\nregion = eu-west-1\n")
    monkeypatch.setenv("AWS_PROFILE", "research")
    assert Connections().configured() == "the profile research"
    monkeypatch.setenv("AWS_PROFILE", "absent")
    with pytest.raises(RemoteError, match="profile \\(absent\\) could not be found"):
        Connections().configured()
    monkeypatch.delenv("AWS_PROFILE")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    assert Connections().configured() == "the environment"


def test_a_rental_needs_credentials_and_a_region(no_account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (check,) = RentalBackend.examine()
    assert (check.level, check.fact) == (Level.FAIL, "no AWS credentials")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    (check,) = RentalBackend.examine()
    assert (check.level, check.text) == (Level.FAIL, "account: no AWS region; set AWS_REGION or give --region")
    no_account.write_text("[default]\nregion = eu-west-1\n")
    (check,) = RentalBackend.examine()
    assert check == Check(Level.OK, "account", "credentials of the environment, region eu-west-1; AWS was not asked")

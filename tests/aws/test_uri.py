"""``s3://bucket/prefix``."""

from __future__ import annotations

import pytest

from harness.aws.uri import S3Uri, is_s3, parse
from harness.errors import UsageError


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("s3://my-bucket", S3Uri("my-bucket")),
        ("s3://my-bucket/", S3Uri("my-bucket")),
        ("s3://my.bucket/a/b/", S3Uri("my.bucket", "a/b")),
    ],
)
def test_a_place_is_read_and_written_the_same(text: str, place: S3Uri) -> None:
    assert is_s3(text)
    assert parse(text) == place
    assert parse(str(place)) == place


@pytest.mark.parametrize(
    "text", ["results", "s3:/b/x", "s3://", "s3://Upper/x", "s3://a/x", "s3://bbb/a//b", "s3://bbb/../x"]
)
def test_what_is_no_place_is_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError, match="s3://BUCKET"):
        parse(text)


def test_keys_are_below_the_prefix() -> None:
    assert parse("s3://bbb").key("x", "y") == "x/y"
    assert parse("s3://bbb/p").below("x").key("y") == "p/x/y"

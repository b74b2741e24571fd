"""A work place in the tests' S3."""

from __future__ import annotations

import pytest

from harness.aws.clients import Connections, S3Uri
from harness.aws.objects import Objects
from tests.aws.server import REGION

WORK = S3Uri("harness-work", "some/prefix")


@pytest.fixture
def work(aws: str) -> Objects:
    """An empty work place."""
    connections = Connections(REGION)
    connections.client("s3").create_bucket(Bucket=WORK.bucket)
    return Objects(connections, WORK)

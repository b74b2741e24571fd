"""A stack to make, in an AWS on loopback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness import hardware, instances
from harness.aws import uri
from harness.aws.connections import Connections
from harness.batch.kinds import Place
from harness.batch.wanted import Stack, Wanted
from tests.aws import server

AGENT = "python@sha256:" + "a" * 64


@pytest.fixture
def place(aws: str) -> Place:
    return Place(Connections(server.REGION), sleep=lambda _: None)


@pytest.fixture
def stack() -> Callable[..., Stack]:
    """Makes a stack of two images on two types."""
    known = instances.read("aws")

    def make(**changes: Any) -> Stack:
        asked: dict[str, Any] = {
            "suite": "quick",
            "region": server.REGION,
            "work": uri.parse("s3://bucket/work"),
            "wanted": (
                Wanted("bm25", hardware.profile("cpu1-mem1"), known["m6gd.medium"], 7200),
                Wanted("bm25", hardware.profile("cpu2-mem4"), known["c7g.xlarge"], 7200),
                Wanted("null", hardware.profile("cpu2-mem4"), known["c7g.xlarge"], 600),
            ),
            "agent_image": AGENT,
        }
        return Stack(**{**asked, **changes})

    return make

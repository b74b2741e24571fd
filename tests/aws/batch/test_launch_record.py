"""The record of a launch, as the agent of a Batch job reads it."""

from __future__ import annotations

import io

import pytest

from harness.aws.batch.agent import container


def test_agent_reads_its_part_of_a_launch() -> None:
    assert container.part_of(io.BytesIO(b'{"parts": ["0001", "0002"]}'), 1) == "0002"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b'{"parts": ["0001"]}',
        b'{"parts": [1, 2]}',
        b'{"parts": ["", "\\ud800"]}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_agent_ends_with_a_line_where_a_launch_is_damaged(content: bytes) -> None:
    with pytest.raises(SystemExit, match="harness: the record of this launch is damaged; start the run again"):
        container.part_of(io.BytesIO(content), 1)

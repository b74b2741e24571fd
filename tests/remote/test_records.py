"""Records that the orchestrator and its workers exchange."""

from __future__ import annotations

import pytest

from harness.errors import RemoteError
from harness.remote.records import (
    Heartbeat,
    PartJob,
    ShippedImage,
    ShippedInput,
    WorkerEnd,
    WorkerPart,
    dump,
    read,
)
from harness.results.schema import Cell

CELL = Cell("suite", "bm25", "scifact", "single_stream", "cpu1-mem1")
PART = WorkerPart(
    "0001",
    "c7g.large",
    {"name": "suite"},
    jobs=(PartJob(CELL, 0, 1, "0123456789abcdef"),),
    images=(ShippedImage("bm25", "sha256:aa", "harness-bm25:aa", ShippedInput("inputs/images/aa.tar.gz", "bb", 7)),),
    datasets={"scifact": ShippedInput("inputs/datasets/cc.tar.gz", "dd", 8)},
)


@pytest.mark.parametrize("record", [PART, Heartbeat("measuring", "k", "n"), WorkerEnd(False, "x", True)])
def test_a_record_is_read_as_it_was_written(record: object) -> None:
    assert read(type(record), "here", dump(record)) == record


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"part": 1}', b"\xff"])
def test_broken_record_is_one_line(content: bytes) -> None:
    with pytest.raises(RemoteError, match=r"runs/x/heartbeats/1\.json: no record of this harness") as caught:
        read(Heartbeat, "runs/x/heartbeats/1.json", content)
    assert "b'" not in str(caught.value)


def test_record_of_another_version_is_refused() -> None:
    with pytest.raises(RemoteError, match="another version"):
        read(Heartbeat, "x", dump(Heartbeat("p", version=2)))

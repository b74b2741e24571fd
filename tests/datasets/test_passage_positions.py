"""Reading and writing the positions of relevant passages."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from harness.datasets import passage_positions
from harness.datasets.passage_positions import (
    POSITIONS,
    RelevantPosition,
    find_positions,
    positions_content,
    read_positions,
)
from harness.errors import FileError

ONE = RelevantPosition("q1", "d1", 10, 12, 40, 51, 80)
PLACED = RelevantPosition("q2", "d2", 0, 12, 0, 51, 80, depth=0.0, target_length=90)


def test_positions_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert find_positions(tmp_path) is None
    path = tmp_path / POSITIONS
    path.write_bytes(ONE.to_line() + PLACED.to_line())
    assert find_positions(tmp_path) == path and list(read_positions(path)) == [ONE, PLACED]
    assert b"depth" not in ONE.to_line()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (ONE.to_line().replace(b'"length": 80', b'"length": 11'), "the passage ends before it starts, or after the"),
        (ONE.to_line().replace(b'"doc"', b'"document"'), "key 'doc' is missing; add it"),
        (ONE.to_line().replace(b"10", b"-1"), "key 'start_token' is -1; write 0 or more"),
        (ONE.to_line().replace(b"10", b'"10"'), "key 'start_token' is \"10\"; write a whole number"),
        (PLACED.to_line().replace(b"0.0", b"1.5"), "key 'depth' is 1.5; write 1.0 or less"),
    ],
)
def test_wrong_line_is_named(tmp_path: Path, line: bytes, message: str) -> None:
    (tmp_path / POSITIONS).write_bytes(ONE.to_line() + line)
    with pytest.raises(FileError, match="line 2") as caught:
        list(read_positions(tmp_path / POSITIONS))
    assert message in str(caught.value)


def test_positions_that_compression_hides_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passage_positions, "_MOST_BYTES", 1 << 20)
    (tmp_path / f"{POSITIONS}.gz").write_bytes(gzip.compress(ONE.to_line() * 100_000))
    with pytest.raises(FileError, match="has more than 1 MiB; generate a smaller collection"):
        positions_content(tmp_path)

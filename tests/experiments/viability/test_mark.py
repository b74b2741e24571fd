"""The mark of ``harness viable --fresh`` in a results folder, which another person may have written."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from harness.errors import StoreError
from harness.experiments.viability import probe


def test_mark_names_the_time_since_which_jobs_count(tmp_path: Path) -> None:
    path = tmp_path / "fresh-since"
    assert probe.read_mark(path) < datetime(1, 1, 2, tzinfo=UTC)
    path.write_text("2026-11-20T10:00:00.000+00:00\n")
    assert probe.read_mark(path) == datetime(2026, 11, 20, 10, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-20", "2026-11-20T10:00:00"])
def test_mark_without_a_time_and_its_zone_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "fresh-since"
    path.write_text(text)
    with pytest.raises(StoreError, match=r"fresh-since: cannot be read: .*; remove it to use all that is stored"):
        probe.read_mark(path)

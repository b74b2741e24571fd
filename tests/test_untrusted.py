"""Reading what a job wrote never follows, never blocks, never swells."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from harness.records import Query
from harness.untrusted import most_output_bytes, open_regular, read_regular
from tests.jobs import FULL_SPEC


def test_a_regular_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    assert read_regular(tmp_path / "file", 4) == b"0123"
    assert read_regular(tmp_path / "file", 100) == b"0123456789"
    with open_regular(tmp_path / "file") as file:
        assert file.read(2) == b"01"


def plant(path: Path, kind: str) -> None:
    if kind == "a link":
        path.symlink_to("/etc/passwd")
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    elif kind == "a device":
        path.symlink_to("/dev/zero")


@pytest.mark.parametrize("kind", ["nothing", "a link", "a pipe", "a folder", "a socket", "a device"])
def test_anything_else_is_an_error_and_leaves_nothing_open(tmp_path: Path, kind: str) -> None:
    plant(tmp_path / "x", kind)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match=r"."):
        open_regular(tmp_path / "x")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_what_a_job_may_write_grows_with_what_it_is_asked() -> None:
    least = most_output_bytes(FULL_SPEC)
    assert least > 16 << 20
    many = replace(FULL_SPEC, sample=tuple(Query(f"q{n}", "x") for n in range(1000)))
    # The longest honest line: 256 characters an id, each escaped as six bytes.
    assert most_output_bytes(many) - least > 999 * FULL_SPEC.trials * FULL_SPEC.k * (6 * 256 + 30)

"""Reading a job's files follows no link, never blocks and is bounded."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from harness.records import Query
from harness.untrusted import max_output_bytes, open_regular, parse_json, read_start, read_whole, sha256, unpacked
from tests.support.job_fixtures import FULL_SPEC


def test_regular_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    assert read_start(tmp_path / "file", 4) == b"0123"
    assert read_start(tmp_path / "file", 100) == b"0123456789"
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
def test_other_file_types_are_errors_and_leave_nothing_open(tmp_path: Path, kind: str) -> None:
    plant(tmp_path / "x", kind)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match=r"."):
        open_regular(tmp_path / "x")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_too_large_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(1 << 43)
    with pytest.raises(OSError, match=r"has 8,796,093,022,208 bytes, at most 1,048,576 make sense"):
        read_whole(tmp_path / "hole", 1 << 20)
    with pytest.raises(OSError, match="make sense"):
        sha256(tmp_path / "hole")


def test_packed_file_is_read_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "packed").write_bytes(gzip.compress(b"x" * 1000))
    assert sha256(tmp_path / "packed", packed=True) == hashlib.sha256(b"x" * 1000).hexdigest()
    with open_regular(tmp_path / "packed") as file:
        assert unpacked(file, 1000).read() == b"x" * 1000
    with open_regular(tmp_path / "packed") as file, pytest.raises(OSError, match="more than 999 bytes, unpacked"):
        unpacked(file, 999).read()


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        '{"a": [-Infinity]}',
        "1e999",
        "9223372036854775808",
        '"\\ud800"',
        '{"\\udfff": 1}',
        "[" * 65 + "]" * 65,
        "[" * 100_000,
        "",
    ],
)
def test_malformed_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text.encode())


def test_valid_json_is_parsed_as_python_does() -> None:
    sound = {"a": [1, -2.5, None, True, "ü", 9223372036854775807], "b": {"c": []}}
    assert parse_json(json.dumps(sound).encode()) == sound
    assert parse_json(b"[" * 64 + b"]" * 64)


def test_output_limit_grows_with_the_spec() -> None:
    least = max_output_bytes(FULL_SPEC)
    assert least > 16 << 20
    many = replace(FULL_SPEC, sample=tuple(Query(f"q{n}", "x") for n in range(1000)))
    # The longest honest line: 256 characters an id, each escaped as six bytes.
    assert max_output_bytes(many) - least > 999 * FULL_SPEC.trials * FULL_SPEC.k * (6 * 256 + 30)

"""Files and pipes, recognised by their first bytes."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import threading
from pathlib import Path

import pytest

from harness.errors import FileError
from harness.evaluation import trec_lines

TEXT = b"some text\n" * 10_000


def dripping(path: Path, content: bytes) -> None:
    """A pipe from which one read gives no more than a byte, at first."""
    os.mkfifo(path)

    def write() -> None:
        with contextlib.suppress(BrokenPipeError), io.FileIO(path, "w") as pipe:
            for place in range(12):
                pipe.write(content[place : place + 1])
                threading.Event().wait(0.01)
            pipe.write(content[12:])

    threading.Thread(target=write, daemon=True).start()


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [b"", b"a", TEXT, gzip.compress(TEXT, mtime=0), gzip.compress(b"", mtime=0)],
    ids=["nothing", "one byte", "text", "gzip", "gzip of nothing"],
)
def test_slow_pipe_reads_like_a_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    dripping(tmp_path / "pipe", content)
    found = []
    for name in ("file", "pipe"):
        with trec_lines.open_input(tmp_path / name) as (_, stream):
            found.append(stream.read())
    assert found[0] == found[1] == (gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content)


@pytest.mark.slow
def test_a_pipe_is_read_line_by_line(tmp_path: Path) -> None:
    dripping(tmp_path / "pipe", TEXT)
    with trec_lines.open_input(tmp_path / "pipe") as (raw, stream):
        assert next(stream) == b"some text\n" and b"".join(stream) == TEXT[10:]
        assert not raw.seekable()


@pytest.mark.slow
def test_an_archive_in_a_pipe_is_refused(tmp_path: Path) -> None:
    dripping(tmp_path / "pipe", b"BZh91AY&SY and more of it")
    with pytest.raises(FileError, match="a bzip2 archive"), trec_lines.open_input(tmp_path / "pipe"):
        pass


def test_pipes_are_accepted_as_files_and_folders_are_not(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    readable = [trec_lines.is_readable(path) for path in (tmp_path / "pipe", tmp_path, tmp_path / "none")]
    assert readable == [True, False, False]

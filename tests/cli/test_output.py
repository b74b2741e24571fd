"""Results are written to files, pipes and devices."""

from __future__ import annotations

import errno
import os
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from harness import extras
from harness.cli import output
from harness.errors import FileError, StoreError, UsageError
from harness.report import writers
from harness.report.document import Section


def test_output_to_a_pipe_or_device_does_not_replace_it(tmp_path: Path) -> None:
    """A rename onto /dev/null, as root, would leave the machine without one."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        output.write(pipe, "a table\n")
        assert os.read(reader, 100) == b"a table\n"
        assert pipe.is_fifo() and list(tmp_path.iterdir()) == [pipe]
    finally:
        os.close(reader)
    with pytest.raises(FileError, match="is a folder; name a file in it"):
        output.write(tmp_path, "a table\n")


def test_only_pictures_need_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "missing", lambda package: f"no {package}")
    assert output.Destination("tsv", Path("packages")).folder == Path("packages")
    with pytest.raises(UsageError, match="no matplotlib"):
        output.Destination("png", Path("pictures"))


def test_full_disk_is_one_line_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, text: str, encoding: str) -> None:
        path.write_bytes(text[:3].encode(encoding))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(StoreError, match=r"report\.md: cannot be written: No space left on device; make room"):
        output.write(tmp_path / "report.md", "a table\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("plain", [False, True])
def test_first_words_of_checks_are_coloured_unless_no_color_is_set(
    plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if plain:
        monkeypatch.setenv("NO_COLOR", "1")
    file = StringIO()
    screen = Console(file=file, force_terminal=True, color_system="standard", width=80)
    writers.print_answer(
        Section(notes=("fail  engine: none", "warn  load: 3", "ok    swap: none", "7 of 9 ok")), screen
    )
    text = file.getvalue()
    assert ("\x1b[31mfail\x1b[0m  engine: none\n" in text) is not plain
    assert ("\x1b[33mwarn\x1b[0m" in text and "\x1b[32mok\x1b[0m" in text) is not plain
    assert "\n7 of 9 ok\n" in text and ("\x1b[" in text) is not plain

"""Tests of package locks: whatever pip would do beyond installing pinned wheels is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import FileError
from harness.launch.images import locks

HASH = f"--hash=sha256:{'0' * 64}"


def lock(folder: Path, text: str) -> Path:
    (folder / "requirements.lock").write_text(text, encoding="utf-8")
    return folder / "requirements.lock"


def test_pinned_packages_are_read_as_one_line_each(tmp_path: Path) -> None:
    text = f"# written by uv\n\ntoy==1.0+cpu \\\n    {HASH} \\\n    {HASH}\n    # via x\n"
    text += f"b[c,d]==2 ; python_version < '3.12' {HASH}\r\n"
    assert locks.read(lock(tmp_path, text)) == (
        f"toy==1.0+cpu {HASH} {HASH}\nb[c,d]==2 ; python_version < '3.12' {HASH}\n"
    )
    assert locks.read(lock(tmp_path, "# nothing\n\n")) == ""


@pytest.mark.parametrize(
    "line",
    [
        f"toy @ https://host/toy-1.tar.gz {HASH}",
        f"https://host/toy-1.tar.gz {HASH}",
        f"./toy-1.tar.gz {HASH}",
        f"file:///tmp/toy {HASH}",
        f"git+https://host/toy {HASH}",
        "-e .",
        "-r other.txt",
        "-c other.txt",
        "--index-url https://host/simple",
        "--extra-index-url=https://host/simple",
        "--find-links /tmp",
        "--no-binary :all:",
        f"toy==1 {HASH} --config-settings=x=y",
        f"toy==1 --global-option=x {HASH}",
        f"toy==1 ; python_version > '3' --pre {HASH}",
        f"toy==${{HOME}} {HASH}",
        f"toy>=1 {HASH}",
        "toy==1",
        "toy==1 --hash=md5:0",
        f"toy==1 {HASH[:-1]}",
        f"toy==1\\\n--index-url=https://host {HASH}",
        f"t\u043ey==1 {HASH}",
        f"toy==1\u2028-e . {HASH}",
        "toy==1 \\",
    ],
)
def test_anything_else_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(FileError, match=r"requirements\.lock:2: .* is not a pinned package") as caught:
        locks.read(lock(tmp_path, f"good==1 {HASH}\n{line}\n"))
    assert "\n" not in str(caught.value)


def test_unreadable_lock_is_one_line(tmp_path: Path) -> None:
    for content in (b"\xff\xfe", b"x" * (5 << 20)):
        (tmp_path / "requirements.lock").write_bytes(content)
        with pytest.raises(FileError, match=r"requirements\.lock"):
            locks.read(tmp_path / "requirements.lock")


def test_shipped_locks_are_read_whole() -> None:
    paths = sorted(Path("images").rglob("requirements*.lock"))
    assert len(paths) > 20
    for path in paths:
        named = [line for line in path.read_text(encoding="utf-8").split("\n") if "==" in line]
        assert len(locks.read(path).splitlines()) == len(named)

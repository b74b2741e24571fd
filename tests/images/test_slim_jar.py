"""An image keeps only its platform's native libraries of a jar."""

from __future__ import annotations

import importlib.util
import platform
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import IO, Any

import pytest

from harness.launch.images import catalog

NATIVES = {
    "x86_64": ["ai/native/linux-x64/a.so", "linux/amd64/b.so", "lib/linux-x86_64/cpu/c.so", "snappy/Linux/x86_64/d.so"],
    "aarch64": ["ai/native/linux-aarch64/a.so", "linux/aarch64/b.so", "snappy/Linux/aarch64/d.so", "linux-arm64/e.so"],
}
FOREIGN = ["ai/native/osx-aarch64/a.dylib", "win/amd64/b.dll", "linux/arm/b.so", "linux/riscv64/b.so"]
PLAIN = ["META-INF/MANIFEST.MF", "org/Class.class", "linux/readme.txt"]


def _pipe(file: IO[bytes]) -> Any:
    """Return a file that can only be written to."""
    return SimpleNamespace(write=file.write, flush=file.flush)


@pytest.fixture
def slim_jar() -> ModuleType:
    path = catalog.images_dir() / "shared" / "jvm" / "slim_jar.py"
    spec = importlib.util.spec_from_file_location("slim_jar", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("machine", list(NATIVES))
def test_natives_of_the_images_platform_are_kept(
    slim_jar: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    source, target = tmp_path / "old.jar", tmp_path / "new.jar"
    # Written as to a pipe, an entry's sizes come after its data: the copy has them before.
    with source.open("wb") as file, zipfile.ZipFile(_pipe(file), "w", zipfile.ZIP_DEFLATED) as jar:
        for name in (*PLAIN, *FOREIGN, *NATIVES["aarch64"], *NATIVES["x86_64"]):
            jar.writestr(name, name * 9, zipfile.ZIP_STORED if name in NATIVES["x86_64"] else None)
    slim_jar.slim(source, target)
    with zipfile.ZipFile(target) as jar:
        assert jar.namelist() == [*PLAIN, *NATIVES[machine]]
        assert [jar.read(name).decode() for name in jar.namelist()] == [name * 9 for name in jar.namelist()]
        assert not any(entry.flag_bits & 0x08 for entry in jar.infolist()), "no sizes after the data"
    assert target.stat().st_mtime == 315532800, "a class archive records it"

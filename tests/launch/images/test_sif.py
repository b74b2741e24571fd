"""Images for Apptainer in the cache: by the real apptainer where it is installed, else by scripts in its place."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from harness.errors import ImageError, StoreError
from harness.launch.images import driver_code, image_archive, sif
from harness.launch.images.builder import Image
from tests.launch.images.test_image_archive import REFERENCE, docker_20, image, pieces, tar

RECIPE = "0123456789ab" + "0" * 52
# Makes what apptainer would: the file that stands before the archive's.
WORKING = 'for last; do before=$target; target=$last; done; echo run >> "$COUNT"; echo image > "$before"\n'


def toy() -> Image:
    made = image()
    return Image(REFERENCE, RECIPE, made.digest, 1000, driver_code.code_hash())


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    image_archive.write_sent(pieces(tar(docker_20())), image(), tmp_path / "image.tar", tmp_path / "scratch")
    return tmp_path / "image.tar"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def instead(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """Put a script in apptainer's place; return the file in which it counts its runs."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    count = folder / "count"
    (programs / "apptainer").write_text(f"#!/bin/sh\nCOUNT={count}\n{script}", encoding="ascii")
    (programs / "apptainer").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return count


@pytest.mark.tools
def test_apptainer_makes_an_image_as_an_ordinary_user_without_a_home(
    archive: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which("apptainer"):
        pytest.skip("apptainer is not installed")
    monkeypatch.setenv("HOME", "/nonexistent")
    made = sif.make(cache, archive, toy())
    assert made == sif.find(cache, RECIPE) == sif.find_whole(cache, RECIPE)
    assert made.path.read_bytes()[:64].startswith(b"#!/usr/bin/env run-singularity\n")
    assert made.size_bytes == made.path.stat().st_size
    assert sorted(path.name for path in (cache / "sif").iterdir()) == ["toy-0123456789ab.json", "toy-0123456789ab.sif"]


def test_an_image_is_made_once_and_again_after_a_change(
    archive: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = instead(tmp_path, monkeypatch, WORKING)
    assert sif.find(cache, RECIPE) is None
    made = sif.make(cache, archive, toy())
    assert sif.make(cache, archive, toy()) == made == sif.find(cache, RECIPE)
    assert count.read_text() == "run\n"
    made.path.write_bytes(b"evils\n")  # of the same size
    assert sif.find(cache, RECIPE) == made and sif.find_whole(cache, RECIPE) is None, "a quick look hashes nothing"
    assert sif.make(cache, archive, toy()) == made and made.path.read_text() == "image\n"
    assert count.read_text() == "run\nrun\n"
    made.path.write_bytes(b"short")
    assert sif.find(cache, RECIPE) is None


@pytest.mark.parametrize("key", ["recipe", "driver", "size_bytes", "unknown"])
def test_a_record_of_another_image_or_driver_is_not_found(
    key: str, archive: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instead(tmp_path, monkeypatch, WORKING)
    record = sif.make(cache, archive, toy()).path.with_suffix(".json")
    assert sif.find(cache, RECIPE)
    wrong = {"recipe": "0123456789ab" + "1" * 52, "driver": "f" * 64, "size_bytes": 7, "unknown": 1}[key]
    record.write_text(json.dumps({**json.loads(record.read_text()), key: wrong}))
    assert sif.find(cache, RECIPE) is None
    record.write_text("{")
    assert sif.find(cache, RECIPE) is None


def test_failures_are_one_line_with_the_last_words_and_leave_nothing(
    archive: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instead(tmp_path, monkeypatch, "echo first; echo FATAL: no user namespaces >&2; exit 255\n")
    with pytest.raises(ImageError) as failed:
        sif.make(cache, archive, toy())
    assert "system 'toy': its image for Apptainer could not be made: first | FATAL: no user namespaces" in str(
        failed.value
    )
    assert "\n" not in str(failed.value)
    instead(tmp_path, monkeypatch, "echo FATAL: write: No space left on device; exit 255\n")
    with pytest.raises(StoreError, match="the disk is full"):
        sif.make(cache, archive, toy())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageError, match="apptainer does not start"):
        sif.make(cache, archive, toy())
    assert list((cache / "sif").iterdir()) == []


@pytest.mark.slow
def test_what_a_killed_build_left_is_removed(
    archive: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instead(tmp_path, monkeypatch, 'mkdir -p "$APPTAINER_TMPDIR/rootfs"; sleep 0.1; kill -9 "$PPID"\n')
    pid = os.fork()
    if pid == 0:
        try:
            sif.make(cache, archive, toy())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    left = [path.name for path in (cache / "sif").iterdir()]
    assert len(left) == 1 and left[0].endswith(".partial")
    instead(tmp_path, monkeypatch, WORKING)
    made = sif.make(cache, archive, toy())
    assert {path.suffix for path in (cache / "sif").iterdir()} == {".sif", ".json"} and made.path.is_file()

"""scripts/test-tools beside commands that only record their calls: what a mirror gives is checked before it is used."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "test-tools"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root installs tools")

REAL = ["bash", "cat", "grep", "head", "mkdir", "mktemp", "rm", "sha256sum", "sh", "sed", "tail"]
PRESENT = [
    "chromium",
    "crun",
    "kpsewhich",
    "mksquashfs",
    "munged",
    "newuidmap",
    "patchelf",
    "pdflatex",
    "podman",
    "sbatch",
    "shellcheck",
    "slurmctld",
    "slurmd",
    "squashfuse",
]

# It "downloads" what it is asked for: files of the right names that hold something else.
APT_GET = """#!/bin/sh
case "$*" in
*indextargets*) echo http://mirror.invalid/debian ;;
*update*) ;;
*download*)
    if [ -e "$STAGE/gone" ]; then echo "E: Version '1.4.5-2' for 'apptainer' was not found"; exit 100; fi
    sed -n 's/^[0-9a-f]\\{64\\}  //p' "$SCRIPT" | while read -r name; do echo planted >"$name"; done ;;
*) echo "$*" >>"$STAGE/unexpected" ;;
esac
"""


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """A PATH on which Apptainer alone is missing."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in REAL:
        (programs / name).symlink_to(shutil.which(name) or pytest.fail(name))
    calls = {"dpkg": "echo amd64", "apt-get": APT_GET, "dpkg-deb": 'echo "$*" >>"$STAGE/unpacked"'}
    for name, text in {**dict.fromkeys(PRESENT, "exit 0"), **calls}.items():
        (programs / name).write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    return tmp_path


def run(stage: Path) -> subprocess.CompletedProcess[str]:
    (stage / "tmp").mkdir()
    environment = {"PATH": f"{stage}/bin", "STAGE": str(stage), "SCRIPT": str(SCRIPT), "TMPDIR": f"{stage}/tmp"}
    return subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_package_of_another_hash_is_not_unpacked(stage: Path) -> None:
    done = run(stage)
    assert done.returncode == 0, "the other tests can still run"
    assert done.stderr.splitlines()[-1] == (
        "test-tools: Apptainer was not installed (a package of the mirror has another SHA-256 than scripts/test-tools "
        "pins): tests that need it are skipped; install Apptainer 1.4 by hand to run them"
    )
    assert not (stage / "unpacked").exists() and not (stage / "unexpected").exists()
    assert list((stage / "tmp").iterdir()) == []


def test_version_that_left_the_mirror_is_named_in_one_line(stage: Path) -> None:
    (stage / "gone").touch()
    done = run(stage)
    assert done.returncode == 0
    assert "E: Version '1.4.5-2' for 'apptainer' was not found" in done.stderr.splitlines()[-1]
    assert not (stage / "unpacked").exists()

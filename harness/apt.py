"""Installs Debian packages that images are made with, where harness may install any."""

from __future__ import annotations

import os
import shutil
import subprocess


def available() -> bool:
    """Return whether harness may install packages here: as root, where there is apt-get."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(*packages: str) -> str | None:
    """Install packages; return None, or which step failed and its last line."""
    for arguments in (["update", "-qq"], ["install", "-qq", "--no-install-recommends", *packages]):
        done = subprocess.run(
            ["apt-get", *arguments],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        )
        if done.returncode != 0:
            last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
            return f"'apt-get {arguments[0]}' failed: {last}"
    return None

"""Restores recordings of real containers as files."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "data"
V2 = FOLDER / "cgroup-v2"
CLUSTERS = FOLDER / "clusters"
DRIVERS = ("cgroupfs", "systemd")


@dataclass(frozen=True)
class Seen:
    """A moment of a recorded container, as files under ``root``, seen from the host or from inside."""

    root: Path
    membership: str

    @property
    def cgroups(self) -> Path:
        """Return the folder that replaces ``/sys/fs/cgroup``."""
        return self.root / "sys" / "fs" / "cgroup"

    @property
    def proc(self) -> Path:
        """Return the folder that replaces ``/proc``."""
        return self.root / "proc"


def unfold(root: Path, recording: str, folder: Path = V2) -> Seen:
    """Restore the files that ``tail -n +1`` printed, e.g. ``systemd/limited/busy.host``."""
    membership = None
    for name, content in re.findall(
        r"==> /(\S+) <==\n(.*?)(?=\n==> |\Z)", (folder / recording).read_text(encoding="ascii"), re.DOTALL
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="ascii")
        if re.fullmatch(r"proc/(self|\d+)/cgroup", name):
            membership = content
    assert membership is not None, recording
    return Seen(root, membership)


def docker_says(recording: str) -> Any:
    """Return the engine's record of a container (``systemd/limited/container``) or its use (``.../busy``)."""
    return json.loads((V2 / f"{recording}.docker.json").read_text(encoding="utf-8"))

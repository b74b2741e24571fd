"""Where downloads, corpora, indexes and kept rows are, unless somebody says otherwise."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "HARNESS_CACHE"


def usual() -> Path:
    """The place by convention (XDG)."""
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "ir-harness")


def default() -> Path:
    """What the environment names, else the usual place; absolute."""
    return Path(os.environ.get(VARIABLE) or usual()).expanduser().absolute()

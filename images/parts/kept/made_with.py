"""What an index was made with, written beside it: another system's, or an older one, answers nonsense."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.records import Scalar

_FILE = "made-with.json"


def write(index_dir: Path, facts: Mapping[str, Scalar]) -> None:
    """Write the facts down.  It comes last: a folder without them holds no whole index."""
    (index_dir / _FILE).write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def check(index_dir: Path, wanted: Mapping[str, Scalar]) -> dict[str, Any]:
    """Compare what the index was made with to what the system asks for.

    Returns:
        All that was written down.

    Raises:
        ValueError: they differ, or nothing is known of the index.
    """
    try:
        found: dict[str, Any] = json.loads((index_dir / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"the index has no readable {_FILE}: not made by this engine, or damaged; build it anew"
        ) from error
    for name, value in wanted.items():
        if name not in found or found[name] != value:
            raise ValueError(
                f"the index was made with {name} {found.get(name)!r}, the system asks for {value!r}; build it anew"
            )
    return found

"""The facts that an index was built with, so that no other or older index is searched by mistake."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.driver.records import Scalar

_FILE = "built-with.json"


def write(index_dir: Path, facts: Mapping[str, Scalar]) -> None:
    """Write the facts, as the last file: an index without them is incomplete."""
    (index_dir / _FILE).write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def check(index_dir: Path, expected: Mapping[str, Scalar]) -> dict[str, Any]:
    """Compare the facts of an index with those of a system, and return all of the index's.

    Raises:
        ValueError: they differ, or the index has none.
    """
    try:
        facts: dict[str, Any] = json.loads((index_dir / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"the index has no readable {_FILE}: not made by this engine, or damaged; build it again"
        ) from error
    for name, value in expected.items():
        if name not in facts or facts[name] != value:
            raise ValueError(
                f"the index was built with {name} {facts.get(name)!r}, the system asks for {value!r}; build it again"
            )
    return facts

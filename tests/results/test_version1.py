"""Results of version 1: read as if version 2 had written them, verified as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.results import reader, seals
from harness.untrusted import to_json

# Of the demo as version 1 stored it: each system that ended well, one out of memory, and null.
JOBS = Path(__file__).parents[1] / "data" / "version1"


@pytest.mark.parametrize("path", sorted(JOBS.rglob(reader.RESULT)), ids=lambda path: path.parent.name)
def test_each_fact_of_a_shipped_result_is_read(path: Path) -> None:
    raw = json.loads(path.read_text())
    assert raw["schema_version"] == 1 and seals.broken(raw) is None
    result = reader.read_result(path)
    written = json.loads(to_json(result))
    for name, value in raw.items():
        holders = [written, *(written[part] or {} for part in ("measured", "observed", "answers", "provenance"))]
        if name not in ("index", "schema_version", "spec") and value not in (None, [], {}):
            assert any(_holds(holder[name], value) for holder in holders if name in holder), name
    again = reader.parse_result(json.dumps(written).encode())
    assert again == result, "what version 2 writes of it reads back alike"


def _holds(written: Any, value: Any) -> bool:
    """Whether a value was read whole; keys that came later are empty."""
    if isinstance(written, list) and isinstance(value, list) and len(written) == len(value):
        return all(map(_holds, written, value))
    if not (isinstance(written, dict) and isinstance(value, dict)):
        return bool(written == value)
    known = {name: _holds(written.get(name), part) for name, part in value.items()}
    return all(known.values()) and not any(written[name] for name in written.keys() - value.keys())


def test_result_without_a_measurement_has_none() -> None:
    raw = json.loads(next(JOBS.rglob(reader.RESULT)).read_text())
    raw |= dict.fromkeys(("effective", "load_s", "device", "warmup_steady", "compiled_s"), None)
    raw |= {"phases": [], "libraries": {}}
    assert reader.parse_result(json.dumps(raw).encode()).measured is None


@pytest.mark.parametrize("wrong", [7, [], "x", {"components": 7}, {"components": {"part": 7}}])
def test_damaged_index_of_version_1_is_one_clear_line(tmp_path: Path, wrong: object) -> None:
    raw = json.loads(next(JOBS.rglob(reader.RESULT)).read_text()) | {"index": wrong}
    with pytest.raises(ValueError, match="index"):
        reader.parse_result(json.dumps(raw).encode())

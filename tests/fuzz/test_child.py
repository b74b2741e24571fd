"""The sandbox sees each kind of misbehaviour, and puts every file back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz import archive_changes, changes, misdeeds
from tests.fuzz.changes import Change
from tests.fuzz.child import Bounds, Example, Sandbox

pytestmark = pytest.mark.slow
BOUNDS = Bounds(cpu_s=0.2, memory_bytes=20 << 20, asleep_s=0.1)


@pytest.fixture
def sandbox(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    made = Sandbox(misdeeds.READERS[request.param], tmp_path / "base", BOUNDS, misdeeds.__name__)
    yield made
    made.close()


@pytest.mark.parametrize(("sandbox", "name"), [(name, name) for name in misdeeds.MISDEEDS], indirect=["sandbox"])
def test_each_misdeed_is_seen(sandbox: Sandbox, name: str) -> None:
    expected = misdeeds.MISDEEDS[name][1]
    for _ in range(2):  # the second read is a new child's where the first one died
        complaint = sandbox.complaint(None)
        assert complaint is None if expected is None else expected in (complaint or ""), complaint


@pytest.mark.parametrize("sandbox", ["compute", "a good value"], indirect=True)
def test_a_file_is_put_back_after_each_example(sandbox: Sandbox, tmp_path: Path) -> None:
    for example in (Example("file", (Change("flip", 0, 0),)), Example("file", oddity="a folder"), Example("file")):
        sandbox.complaint(example)
        assert (tmp_path / "base" / "inside" / "file").read_text() == "x"
    assert not (tmp_path / "base" / "aside").exists()


@pytest.mark.parametrize("name", changes.EDITS)
def test_every_change_changes_a_file_that_it_fits(name: str) -> None:
    samples = {
        "Parquet": changes.example_parquet(),
        "tar": archive_changes.example_tar(),
        "zip": archive_changes.example_zip(),
        "TOML": b'a = 1\nb = "x"\n[c]\nd = [1, 2]\n',
    }
    content = samples.get(name.split()[0], b'{"a": 1, "b": ["x", null]}\n{"c": 2.5}\n{"d": 3}\n')
    different = {changes.changed(content, (Change(name, at, at * 7 + 1),)) for at in range(40)} - {content}
    assert different


def test_changes_inside_a_compressed_file_keep_its_compression() -> None:
    packed = changes.packed_like(b"\x1f\x8b", b'{"a": 1}\n')
    different = changes.changed(packed, (Change("JSON value", 0, 4, inside=True),))
    assert different != packed and changes.unpack(different).startswith(b'{"a"')

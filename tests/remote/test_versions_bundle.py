"""A version's lock goes to workers with the user's engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.remote import bundle


@pytest.mark.slow
def test_the_lock_of_a_version_is_in_the_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tantivy").mkdir()
    (tmp_path / "tantivy" / "requirements@old.lock").write_text("tantivy==0.25.1\n")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("mine")
    monkeypatch.setenv("HARNESS_IMAGES", str(tmp_path))
    names = [name for name, _ in bundle.bundle_entries() if name.startswith(bundle.OWN_IMAGES)]
    assert names == [f"{bundle.OWN_IMAGES}/tantivy/requirements@old.lock"]

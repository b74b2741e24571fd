"""Tests of the row ids that engines store beside an index."""

from __future__ import annotations

import importlib
import tracemalloc
from pathlib import Path
from types import ModuleType

import pytest

from harness.launch.images import catalog


@pytest.fixture
def doc_ids(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(catalog.images_dir() / "shared"))
    return importlib.import_module("index_files.doc_ids")


def test_ids_are_read_back_unchanged(doc_ids: ModuleType, tmp_path: Path) -> None:
    given = ["a", "an id with spaces", "café \U0001f600", "", "z" * 300]
    doc_ids.write(tmp_path, iter(given))
    kept = doc_ids.Ids(tmp_path)
    assert [kept[row] for row in range(len(kept))] == given


def test_rows_are_found_by_id_even_where_hashes_collide(
    doc_ids: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [f"doc {number}" for number in range(50)] + ["", "café \U0001f600"]
    doc_ids.write(tmp_path, given)
    wanted = [given[51], given[0], given[50], given[7], given[7]]
    assert doc_ids.Ids(tmp_path).rows(wanted).tolist() == [51, 0, 50, 7, 7]
    assert doc_ids.Ids(tmp_path).rows([]).tolist() == []
    with pytest.raises(ValueError, match="the index has no document 'doc 50'"):
        doc_ids.Ids(tmp_path).rows(["doc 5", "doc 50"])
    monkeypatch.setattr(doc_ids, "hash", len, raising=False)
    assert doc_ids.Ids(tmp_path).rows(wanted).tolist() == [51, 0, 50, 7, 7]
    with pytest.raises(ValueError, match="the index has no document 'doc 50'"):
        doc_ids.Ids(tmp_path).rows(["doc 50"])


@pytest.mark.slow
def test_ids_are_streamed_and_held_as_bytes(doc_ids: ModuleType, tmp_path: Path) -> None:
    tracemalloc.start()
    doc_ids.write(tmp_path, (f"{number:01000}" for number in range(20_000)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000 < 20_000_000 == (tmp_path / doc_ids.BYTES).stat().st_size


def test_truncated_ids_are_refused(doc_ids: ModuleType, tmp_path: Path) -> None:
    (tmp_path / doc_ids.BYTES).touch()
    (tmp_path / "ids.npy").touch()
    with pytest.raises(ValueError, match=r"the index is damaged: ids\.bin and ids\.npy cannot be read"):
        doc_ids.Ids(tmp_path)
    doc_ids.write(tmp_path, ["one", "two"])
    (tmp_path / doc_ids.BYTES).write_bytes(b"one")
    with pytest.raises(ValueError, match=r"the index is damaged: ids\.bin has 3 bytes, not 6"):
        doc_ids.Ids(tmp_path)

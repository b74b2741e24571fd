from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.errors import FileError
from harness.evaluation import embeddings
from harness.evaluation.embeddings import Embeddings

FOUND = Embeddings(("a", "é"), np.array([[1, 2, 3], [4, 5, 6]], dtype=np.float32), "minilm", "c" * 64, "document", "s")


def test_written_embeddings_read_back(tmp_path: Path) -> None:
    embeddings.write(tmp_path / "made", FOUND)
    stored = embeddings.read(tmp_path / "made")
    assert replace(stored, vectors=FOUND.vectors) == FOUND
    assert np.array_equal(stored.vectors, FOUND.vectors)
    assert stored.missing(["é", "z", "b"]) == ("b", "z")


@pytest.mark.parametrize(
    "wrong", [replace(FOUND, vectors=np.full((2, 3), np.nan, dtype=np.float32)), replace(FOUND, ids=("a", "a"))]
)
def test_wrong_vectors_are_refused(tmp_path: Path, wrong: Embeddings) -> None:
    embeddings.write(tmp_path / "made", wrong)
    with pytest.raises(FileError, match=r"made: .*; make them again"):
        embeddings.read(tmp_path / "made")


def test_files_without_embeddings_are_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pytest.raises(FileError, match="this file does not exist"):
        embeddings.read(tmp_path / "made")
    (tmp_path / "made").write_text("text")
    with pytest.raises(FileError, match="cannot be read as embeddings"):
        embeddings.read(tmp_path / "made")
    pq.write_table(pa.table({"id": ["a"]}), tmp_path / "other")
    with pytest.raises(FileError, match=r"cannot be read as embeddings \(it does not say what made them\)"):
        embeddings.read(tmp_path / "other")
    (tmp_path / "folder").mkdir()
    embeddings.write(tmp_path / "folder" / "one.parquet", FOUND)
    with pytest.raises(FileError, match=r"folder: cannot be read as embeddings \(is a folder, no regular file\)"):
        embeddings.read(tmp_path / "folder")

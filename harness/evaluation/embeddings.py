"""Read and write vectors of texts by one encoder; keep each set once, named after what made it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness import filesystem
from harness.driver.records import corpus_line
from harness.errors import FileError
from harness.untrusted import open_regular, parquet_file, reason_of

Vectors = NDArray[np.float32]

_KIND = "embeddings of harness"
# Version of the file.  History:
#   1  first version
_VERSION = 1
_FACTS = ("encoder", "checkpoint_sha256", "role", "source", "made_with")
_FOLDER = "embeddings"
_MAX_ID_CHARACTERS = 256
# Vectors hardly compress: beyond these bytes, more than 20 times the file's size is refused.
_FREE_BYTES, _MAX_COMPRESSION = 64 << 20, 20


@dataclass(frozen=True)
class Embeddings:
    """Texts by id, each with its vector: shape (texts, dimensions).

    ``encoder`` is the system, ``checkpoint_sha256`` its weights; ``role``: texts were encoded as ``document`` or
    ``query``; ``source`` is the hash of the corpus.  ``made_with`` names the other settings that decide a vector, such
    as how many tokens are read.
    """

    ids: tuple[str, ...]
    vectors: Vectors
    encoder: str
    checkpoint_sha256: str
    role: str
    source: str
    made_with: str = ""

    @cached_property
    def rows(self) -> dict[str, int]:
        """Row of each id's vector."""
        return {name: row for row, name in enumerate(self.ids)}

    def missing(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Return the ids without a vector, sorted."""
        return tuple(sorted(set(ids) - self.rows.keys()))


def write(path: Path, embeddings: Embeddings) -> None:
    """Write a Parquet file, whole or not at all; raise OSError if it cannot be written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    flat = pa.array(np.ascontiguousarray(embeddings.vectors, dtype=np.float32).reshape(-1))
    vectors = pa.FixedSizeListArray.from_arrays(flat, embeddings.vectors.shape[1])
    facts = {"kind": _KIND, "version": _VERSION}
    facts |= {name: getattr(embeddings, name) for name in _FACTS}
    table = pa.table({"id": pa.array(embeddings.ids, pa.string()), "vector": vectors})
    with filesystem.atomic_write(path) as partial:
        pq.write_table(table.replace_schema_metadata({"harness": json.dumps(facts)}), partial, compression="zstd")


def read(path: Path) -> Embeddings:
    """Read a file of :func:`write`.

    Raises:
        FileError: it is missing, damaged or something else; a vector is not finite, or an id repeats.
    """
    import pyarrow as pa

    try:
        with open_regular(path, links=True) as content, parquet_file(content, read_dictionary=["id"]) as file:
            facts = _facts(file.schema_arrow)
            _check_size(file, os.fstat(content.fileno()).st_size)
            table = file.read()
        names = (name for chunk in table.column("id").chunks for name in chunk.dictionary.to_pylist())
        if any(len(name) > _MAX_ID_CHARACTERS for name in names):
            raise ValueError(f"an id longer than {_MAX_ID_CHARACTERS} characters")
        ids = tuple(table.column("id").cast(pa.string()).to_pylist())
        column = table.column("vector").combine_chunks()
        vectors = np.asarray(column.flatten().to_numpy(zero_copy_only=False), dtype=np.float32)
        vectors = vectors.reshape(len(ids), column.type.list_size)
        embeddings = Embeddings(ids, vectors, *(str(facts[name]) for name in _FACTS))
    except FileNotFoundError:
        raise FileError(f"{path}: this file does not exist; make it with `harness embed`") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
        raise FileError(f"{path}: cannot be read as embeddings ({reason_of(error)}); make them again") from error
    if not np.isfinite(embeddings.vectors).all():
        raise FileError(f"{path}: a vector is not finite; make them again with harness embed")
    if len(embeddings.rows) != len(ids):
        raise FileError(f"{path}: an id appears twice; make them again with harness embed")
    return embeddings


def _check_size(file: Any, size: int) -> None:
    """Check the size that a Parquet file declares before it is read; raise ValueError if it is absurd."""
    import pyarrow as pa

    vector, rows = file.schema_arrow.field("vector").type, file.metadata.num_rows
    if len(file.schema_arrow) != 2 or not pa.types.is_fixed_size_list(vector):
        raise ValueError("other columns than ids and vectors")
    if rows * vector.list_size * 4 > _FREE_BYTES + _MAX_COMPRESSION * size:
        raise ValueError(f"{rows:,} vectors of {vector.list_size:,} in {size:,} bytes make no sense")


def _facts(schema: Any) -> dict[str, Any]:
    metadata = (schema.metadata or {}).get(b"harness")
    if metadata is None:
        raise ValueError("it does not say what made them")
    facts: dict[str, Any] = json.loads(metadata)
    if facts["kind"] != _KIND or facts["version"] != _VERSION:
        raise ValueError(f"{facts['kind']!r} of version {facts['version']!r}")
    return facts


def embeddings_path(results: Path, embeddings: Embeddings) -> Path:
    """Return the path of embeddings in a results folder: one file for each checkpoint, role, source and setting."""
    weights, setting = embeddings.checkpoint_sha256[:16], embeddings.made_with[:8]
    parts = filter(None, (weights, embeddings.role, embeddings.source[:16], setting))
    return results / _FOLDER / f"{'-'.join(parts)}.parquet"


def find_embeddings(results: Path, role: str, source: str) -> tuple[Path, ...]:
    """Return the files in a results folder that hold texts of this role and source; skip other files."""
    import pyarrow as pa

    paths = []
    for path in embedding_files(results):
        try:
            with open_regular(path) as content, parquet_file(content) as file:
                facts = _facts(file.schema_arrow)
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
            continue
        if (facts.get("role"), facts.get("source")) == (role, source):
            paths.append(path)
    return tuple(paths)


def embedding_files(results: Path) -> tuple[Path, ...]:
    """Return all files of embeddings in a results folder and in its parent folder."""
    folders = (results.absolute() / _FOLDER, results.absolute().parent / _FOLDER)
    return tuple(path for folder in folders for path in filesystem.without_litter(sorted(folder.glob("*.parquet"))))


def sha256_of_texts(texts: Mapping[str, str]) -> str:
    """Return the hash of a corpus with these texts, in this order and without titles."""
    content = hashlib.sha256()
    for doc_id, text in texts.items():
        content.update(corpus_line(doc_id, "", text))
    return content.hexdigest()

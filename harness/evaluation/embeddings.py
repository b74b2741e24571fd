"""Vectors of texts, as one encoder gives them: kept once, by what made them."""

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
from harness.errors import FileError
from harness.records import corpus_line
from harness.untrusted import open_regular

Vectors = NDArray[np.float32]

_KIND = "embeddings of harness"
# Version of the file.  History:
#   1  first version
_VERSION = 1
_FACTS = ("encoder", "checkpoint_sha256", "role", "source", "made_with")
_FOLDER = "embeddings"
_LONGEST_ID = 256
_FREE_BYTES, _MOST_SHRUNK = 64 << 20, 20


@dataclass(frozen=True)
class Embeddings:
    """Texts by id, each with its vector: shape (texts, dimensions).

    ``encoder`` names the system, ``checkpoint_sha256`` its weights; ``role`` says as what the texts were encoded,
    ``document`` or ``query``; ``source`` names what holds the texts (the corpus' hash).  ``made_with`` names all else
    that decides a vector, such as how many tokens of a text are read.
    """

    ids: tuple[str, ...]
    vectors: Vectors
    encoder: str
    checkpoint_sha256: str
    role: str
    source: str
    made_with: str = ""

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each id's vector stands."""
        return {name: place for place, name in enumerate(self.ids)}

    def missing(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Those ids that have no vector, sorted."""
        return tuple(sorted(set(ids) - self.places.keys()))


def write(path: Path, found: Embeddings) -> None:
    """Write a Parquet file, whole or absent.

    Raises:
        OSError: it cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    flat = pa.array(np.ascontiguousarray(found.vectors, dtype=np.float32).reshape(-1))
    vectors = pa.FixedSizeListArray.from_arrays(flat, found.vectors.shape[1])
    facts = {"kind": _KIND, "version": _VERSION}
    facts |= {name: getattr(found, name) for name in _FACTS}
    table = pa.table({"id": pa.array(found.ids, pa.string()), "vector": vectors})
    with filesystem.atomic_write(path) as partial:
        pq.write_table(table.replace_schema_metadata({"harness": json.dumps(facts)}), partial, compression="zstd")


def read(path: Path) -> Embeddings:
    """Read what :func:`write` wrote.

    Raises:
        FileError: it is missing, damaged, or something else; a vector is not finite, or an id stands twice.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if path.is_dir():
            raise ValueError("a folder")
        with path.open("rb") as content, pq.ParquetFile(content, read_dictionary=["id"]) as file:
            facts = _facts(file.schema_arrow)
            _check_outline(file, os.fstat(content.fileno()).st_size)
            table = file.read()
        if any(len(text) > _LONGEST_ID for part in table.column("id").chunks for text in part.dictionary.to_pylist()):
            raise ValueError(f"an id longer than {_LONGEST_ID} characters")
        ids = tuple(table.column("id").cast(pa.string()).to_pylist())
        column = table.column("vector").combine_chunks()
        vectors = np.asarray(column.flatten().to_numpy(zero_copy_only=False), dtype=np.float32)
        vectors = vectors.reshape(len(ids), column.type.list_size)
        found = Embeddings(ids, vectors, *(str(facts[name]) for name in _FACTS))
    except FileNotFoundError:
        raise FileError(f"{path}: no such file; make it with harness embed") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
        raise FileError(f"{path}: no embeddings that this harness reads ({error}); make them again") from error
    if not np.isfinite(found.vectors).all():
        raise FileError(f"{path}: a vector is not finite; make them again with harness embed")
    if len(found.places) != len(ids):
        raise FileError(f"{path}: an id stands twice; make them again with harness embed")
    return found


def _check_outline(file: Any, size: int) -> None:
    """Hold what a Parquet file says of itself against its size before it is read: vectors hardly shrink; ValueError."""
    import pyarrow as pa

    vector, rows = file.schema_arrow.field("vector").type, file.metadata.num_rows
    if len(file.schema_arrow) != 2 or not pa.types.is_fixed_size_list(vector):
        raise ValueError("other columns than ids and vectors")
    if rows * vector.list_size * 4 > _FREE_BYTES + _MOST_SHRUNK * size:
        raise ValueError(f"{rows:,} vectors of {vector.list_size:,} in {size:,} bytes make no sense")


def _facts(schema: Any) -> dict[str, Any]:
    told = (schema.metadata or {}).get(b"harness")
    if told is None:
        raise ValueError("nothing in it says what made them")
    facts: dict[str, Any] = json.loads(told)
    if facts["kind"] != _KIND or facts["version"] != _VERSION:
        raise ValueError(f"{facts['kind']!r} of version {facts['version']!r}")
    return facts


def place(results: Path, found: Embeddings) -> Path:
    """Where they are kept beside results: one file for each checkpoint, role and source, and way of reading texts."""
    parts = (found.checkpoint_sha256[:16], found.role, found.source[:16], found.made_with[:8])
    return results / _FOLDER / f"{'-'.join(filter(None, parts))}.parquet"


def kept(results: Path, role: str, source: str) -> tuple[Path, ...]:
    """Files kept beside results, or in the folder that these lie in, with texts of that role and source.

    Whatever else lies there is passed over: nobody has asked for it.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = []
    for path in files(results):
        try:
            with open_regular(path) as content:
                facts = _facts(pq.read_schema(content))
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
            continue
        if (facts.get("role"), facts.get("source")) == (role, source):
            found.append(path)
    return tuple(found)


def files(results: Path) -> tuple[Path, ...]:
    """All files where :func:`kept` looks."""
    folders = (results.absolute() / _FOLDER, results.absolute().parent / _FOLDER)
    return tuple(path for folder in folders for path in sorted(folder.glob("*.parquet")))


def sha256_of_texts(texts: Mapping[str, str]) -> str:
    """The hash that the corpus of these texts, without titles and in this order, has."""
    content = hashlib.sha256()
    for doc_id, text in texts.items():
        content.update(corpus_line(doc_id, "", text))
    return content.hexdigest()

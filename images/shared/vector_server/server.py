"""A server of exact search by faiss: ``python3 -m vector_server.server PORT INDEX_DIR CPUS``.

| request | answer |
|---|---|
| ``POST /documents`` ``{"ids": [...], "vectors": [...]}`` | the documents so far; a vector is float32 in base64 |
| ``POST /finish`` | the number of documents, once they are on the disk |
| ``GET /ready`` | ``documents``, ``libraries`` and ``threads`` |
| ``POST /search`` ``{"vector": ..., "k": 10}`` | ``ids`` and ``scores`` of the nearest, best first |

Documents may come with their ``texts``; a search that asks for ``texts`` then gets those of its first documents.
Vectors lie in one file, which is searched through the memory map by the function behind faiss's own exact index.  Of
equal scores the earlier document is first.
"""

from __future__ import annotations

import base64
import sys
from array import array
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import faiss
import numpy
import ranking
from index_files import built_with, doc_ids
from service_server import BadRequest, read_object, serve

_VECTORS, _TEXTS, _ENDS = "vectors.f32", "texts.bin", "texts-ends.npy"
_FORMAT = {"server": "vectors", "format": 1}


class Texts:
    """The texts of documents by row, mapped from one file."""

    def __init__(self, folder: Path) -> None:
        self._ends = numpy.load(folder / _ENDS)
        size = (folder / _TEXTS).stat().st_size
        if not len(self._ends) or int(self._ends[-1]) != size:
            raise ValueError(f"the index is damaged: {_TEXTS} has {size} bytes")
        self._bytes: Any = numpy.memmap(folder / _TEXTS, mode="r") if size else numpy.zeros(0, dtype=numpy.uint8)

    def __getitem__(self, row: int) -> str:
        start = int(self._ends[row - 1]) if row else 0
        return bytes(self._bytes[start : int(self._ends[row])]).decode("utf-8")


class Documents:
    """The documents of one folder."""

    def __init__(self, folder: Path, cpus: int) -> None:
        faiss.omp_set_num_threads(cpus)
        self._folder = folder
        self._added: list[str] = []
        self._ends = array("q")
        self._dims = 0
        self._ids: doc_ids.Ids | None = None
        self._texts: Texts | None = None
        if any(folder.iterdir()):
            self._open()

    def answer(self, method: str, target: str, body: bytes) -> tuple[int, Any]:
        """See the module.

        Raises:
            BadRequest: the request is wrong.
        """
        if (method, target) == ("POST", "/search"):
            return 200, self._search(read_object(body))
        if (method, target) == ("GET", "/ready"):
            threads = {"faiss_omp": faiss.omp_get_max_threads()}
            libraries = {"faiss-cpu": version("faiss-cpu")}
            return 200, {"documents": len(self._ids or ()), "libraries": libraries, "threads": threads}
        if (method, target) == ("POST", "/documents"):
            return 200, self._add(read_object(body))
        if (method, target) == ("POST", "/finish"):
            return 200, self._finish()
        raise BadRequest(f"there is no {method} {target}", 404)

    def _add(self, asked: dict[str, Any]) -> int:
        ids, texts = asked.get("ids"), asked.get("texts")
        rows = [base64.b64decode(vector, validate=True) for vector in asked.get("vectors") or ()]
        lengths = {len(row) for row in rows} | ({4 * self._dims} if self._dims else set())
        if not isinstance(ids, list) or len(rows) != len(ids) or len(lengths) != 1:
            raise BadRequest("ids and vectors are not as many, or the vectors are of several lengths")
        if texts is not None and len(texts) != len(ids):
            raise BadRequest("texts and ids are not as many")
        self._dims = len(rows[0]) // 4
        with (self._folder / _VECTORS).open("ab") as target:
            target.write(b"".join(rows))
        if texts is not None:
            with (self._folder / _TEXTS).open("ab") as target:
                for text in texts:
                    target.write(text.encode("utf-8", "replace"))
                    self._ends.append(target.tell())
        self._added += ids
        return len(self._added)

    def _finish(self) -> int:
        if self._ends:
            numpy.save(self._folder / _ENDS, numpy.array(self._ends, dtype=numpy.int64))
        doc_ids.write(self._folder, self._added)
        built_with.write(self._folder, {**_FORMAT, "documents": len(self._added), "dimensions": self._dims})
        self._open()
        return len(self._added)

    def _open(self) -> None:
        """Map the files, and read them once, so that no query waits for the disk."""
        made = built_with.check(self._folder, _FORMAT)
        path, dims = self._folder / _VECTORS, int(made["dimensions"])
        ids = doc_ids.Ids(self._folder)
        if path.stat().st_size != 4 * dims * len(ids):
            raise ValueError(f"the index is damaged: {path.name} does not hold {len(ids)} vectors of {dims} dimensions")
        buffer = bytearray(1 << 20)
        for each in (path, self._folder / _TEXTS):
            if each.exists():
                with each.open("rb", buffering=0) as file:
                    while file.readinto(buffer):
                        pass
        self._rows = numpy.memmap(path, dtype="<f4", mode="r").reshape(-1, dims)
        self._texts = Texts(self._folder) if (self._folder / _TEXTS).exists() else None
        self._ids, self._dims = ids, dims

    def _search(self, asked: dict[str, Any]) -> dict[str, Any]:
        query = numpy.frombuffer(base64.b64decode(asked.get("vector", ""), validate=True), dtype="<f4")[None]
        k, texts = asked.get("k"), asked.get("texts", 0)
        if self._ids is None or query.shape[1] != self._dims or not isinstance(k, int) or k < 1:
            raise BadRequest(f"vector must have {self._dims} dimensions, and k must be a whole number, at least 1")
        pairs = ranking.best(partial(self._nearest, query), min(k, len(self._ids)))
        found = {"ids": [self._ids[row] for _, row in pairs], "scores": [score for score, _ in pairs]}
        if not texts:
            return found
        if self._texts is None:
            raise BadRequest("the documents have no texts")
        return {**found, "texts": [self._texts[row] for _, row in pairs[:texts]]}

    def _nearest(self, query: Any, k: int) -> list[tuple[float, int]]:
        found, rows = faiss.knn(query, self._rows, min(k, len(self._rows)), metric=faiss.METRIC_INNER_PRODUCT)
        return list(zip(found[0].tolist(), rows[0].tolist(), strict=True))


if __name__ == "__main__":
    port, place, threads = sys.argv[1:]
    serve(int(port), Documents(Path(place), int(threads)).answer)

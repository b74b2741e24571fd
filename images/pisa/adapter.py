"""BM25: PISA, which skips documents that cannot be among the best, over compressed postings; in C++.

Mallia, Siedlaczek, Mackenzie, Suel, *PISA: Performant Indexes and Search for Academia*, OSIRRC 2019.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from ctypes import CDLL
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy
import parameter_names
import ranking
from analysis import Analyser, check_bm25
from index_files import built_with
from postings import Postings

from harness.driver.adapter import Adapter, Corpus
from harness.driver.records import Envelope, Hit, Scalar

CDLL("/opt/pisa/packages/lib/libtbb.so.2")  # of another package; the extension asks for it by this name
import _pisathon  # noqa: E402
from stopwords import _STOPWORDS  # noqa: E402

_PARAMS = ("k1", "b", "quantise", "algorithm")
_ALGORITHMS = ("maxscore", "wand", "block_max_wand", "block_max_maxscore", "ranked_or")
_ENCODING = "block_simdbp"
# Files that only the build reads.
_MADE_OF = ("fwd.documents", "fwd.terms", "inv.docs", "inv.freqs", "inv.sizes")


class Pisa(Adapter):
    """BM25 over one field that holds title and text; English.

    Parameters: ``k1``, ``b`` and ``quantise`` (scores of 8 bits, computed at build) of the build; ``algorithm``.
    """

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        parameter_names.check(params, _PARAMS, "this engine")
        check_bm25(self.params)
        if not isinstance(self.params["quantise"], bool):
            raise ValueError(f"quantise is {self.params['quantise']!r}, must be true or false")
        self._algorithm = str(self.params["algorithm"])
        if self._algorithm not in _ALGORITHMS:
            raise ValueError(f"algorithm is {self._algorithm!r}, must be one of {', '.join(_ALGORITHMS)}")
        self._tokens = Analyser("porter", _STOPWORDS["lucene"], possessive=True)
        self._stages_s: dict[str, float] = {}

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Tokenise the corpus, write its postings as PISA reads them, and compress them."""
        progress(0)
        postings = Postings(index_dir)
        for number, document in enumerate(corpus, 1):
            text = f"{document.title} {document.text}" if document.title else document.text
            postings.add(document.doc_id, self._tokens(text))
            if number % 1000 == 0:
                progress(number)
        postings.finish()
        for names, mapped in (("fwd.documents", "fwd.doclex"), ("fwd.terms", "fwd.termlex")):
            _pisathon.build_binlex(str(index_dir / names), str(index_dir / mapped))
        with TemporaryDirectory(dir=index_dir) as scratch:
            os.environ["TMPDIR"] = scratch  # PISA writes the whole index there first, and /tmp is small
            self._open(index_dir)
        for name in _MADE_OF:
            (index_dir / name).unlink()
        built_with.write(index_dir, self._facts())
        progress(len(corpus))

    def verify_index(self, corpus: Corpus, index_dir: Path) -> None:
        """Open the index and count its documents."""
        self._open(index_dir)
        with (index_dir / "fwd.doclex").open("rb") as ids:
            found = int.from_bytes(ids.read(8), "little")  # its first number
        if found != len(corpus):
            raise ValueError(f"the index has {found} documents, the corpus {len(corpus)}")

    def load(self, index_dir: Path) -> None:
        """Map the index.

        Raises:
            ValueError: it is of other parameters or another version, or lacks a file.
        """
        built_with.check(index_dir, self._facts())
        # PISA would make what is missing, of files that are no longer there, and end the process.
        found = sorted(each.name for each in index_dir.glob("bm25.*"))
        lacks = len(found) != 2 or found[1] != f"{found[0]}.{_ENCODING}"
        if lacks or not all((index_dir / f"fwd.{name}lex").is_file() for name in ("doc", "term")):
            raise ValueError("the index is damaged: a file of PISA's is missing")
        self._index = self._open(index_dir)

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Rank by BM25, equal scores by id; a word that comes twice in the query counts twice."""
        clock = time.perf_counter
        start = clock()
        counts: dict[str, float] = {}  # PISA reads them as floats, unchecked
        for token in self._tokens(query):
            counts[token] = counts.get(token, 0.0) + 1.0
        tokenised = clock()
        answer = [Hit(doc_id, score) for score, doc_id in ranking.best(partial(self._retrieve, counts), k)]
        self._stages_s = {"tokenise": tokenised - start, "retrieve": clock() - tokenised}
        return answer

    def _retrieve(self, counts: dict[str, float], k: int) -> list[tuple[float, str]]:
        """Return scores and ids of the k best; which of equal scores are in, and their order, is PISA's."""
        ids, scores = numpy.empty(k, dtype=object), numpy.empty(k, dtype=numpy.float32)
        places = numpy.empty(k, dtype=numpy.int32)
        found = _pisathon.retrieve(
            self._index, self._algorithm, [(0, counts)], k=k, threads=1, pretokenised=1, query_weighted=1,
            result_qidxs=places, result_docnos=ids, result_ranks=places, result_scores=scores,
        )  # fmt: skip
        return list(zip(scores[:found].tolist(), ids[:found].tolist(), strict=True))

    def stages_s(self) -> dict[str, float]:
        """Return the seconds of the last search: ``tokenise``, ``retrieve``."""
        return dict(self._stages_s)

    def threads(self) -> dict[str, int]:
        """Return the threads of a search."""
        return {"pisa": 1}

    def libraries(self) -> dict[str, str]:
        """Return the versions of what does the work."""
        return {name: version(name) for name in ("pyterrier-pisa", "PyStemmer")}

    def close(self) -> None:
        """Unmap the index."""
        del self._index

    def _open(self, index_dir: Path) -> Any:
        """Map the index, after making what is missing of it."""
        opened = _pisathon.RetrievalContext()
        k1, b, quantised = float(self.params["k1"]), float(self.params["b"]), int(self.params["quantise"])
        _pisathon.prepare_index(opened, str(index_dir), _ENCODING, "bm25", "", bm25_k1=k1, bm25_b=b, quantize=quantised)
        return opened

    def _facts(self) -> dict[str, Scalar]:
        return {"engine": "pisa", **self.libraries(), **{name: self.params[name] for name in ("k1", "b", "quantise")}}


ENGINE = Pisa

"""BM25: bm25s, which computes every term's score in every document at build and adds them up with NumPy."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import bm25s
import numpy
import parameter_names
from analysis import Analyser, check_bm25
from bm25s import stopwords
from bm25s.tokenization import Tokenized
from index_files import built_with, doc_ids

from harness.driver.adapter import Adapter, Corpus
from harness.driver.records import Envelope, Hit, Scalar

# Language -> name of its stems in Snowball, and its stop words.
LANGUAGES = {
    "en": ("porter", stopwords.STOPWORDS_EN),
    "da": ("danish", stopwords.STOPWORDS_DANISH),
    "de": ("german", stopwords.STOPWORDS_GERMAN),
    "es": ("spanish", stopwords.STOPWORDS_SPANISH),
    "fr": ("french", stopwords.STOPWORDS_FRENCH),
    "it": ("italian", stopwords.STOPWORDS_ITALIAN),
    "nl": ("dutch", stopwords.STOPWORDS_DUTCH),
    "no": ("norwegian", stopwords.STOPWORDS_NORWEGIAN),
    "pt": ("portuguese", stopwords.STOPWORDS_PORTUGUESE),
    "ru": ("russian", stopwords.STOPWORDS_RUSSIAN),
    "sv": ("swedish", stopwords.STOPWORDS_SWEDISH),
}
_PARAMS = ("language", "k1", "b")


class Bm25s(Adapter):
    """BM25 (Lucene's formula, exact document lengths) over one field that holds title and text.

    Parameters, all of the build: ``language`` (``en`` where absent), ``k1``, ``b``.
    """

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        parameter_names.check(params, _PARAMS, "this engine")
        self._language = str(params.get("language", "en"))
        if self._language not in LANGUAGES:
            raise ValueError(f"language is {self._language!r}, must be one of {', '.join(sorted(LANGUAGES))}")
        check_bm25(self.params)
        stems, stops = LANGUAGES[self._language]
        self._tokens = Analyser(stems, stops, possessive=self._language == "en")
        self._stages_s: dict[str, float] = {}

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Tokenise the corpus and compute all scores."""
        progress(0)
        vocabulary: dict[str, int] = {}
        tokens, ids = [], []
        for number, document in enumerate(corpus, 1):
            text = f"{document.title} {document.text}" if document.title else document.text
            tokens.append(array("i", (vocabulary.setdefault(each, len(vocabulary)) for each in self._tokens(text))))
            ids.append(document.doc_id)
            if number % 1000 == 0:
                progress(number)
        index = bm25s.BM25(k1=float(self.params["k1"]), b=float(self.params["b"]), method="lucene")
        index.index(Tokenized(tokens, vocabulary), create_empty_token=False, show_progress=False)
        index.save(index_dir)
        doc_ids.write(index_dir, ids)
        built_with.write(index_dir, self._facts())
        progress(len(corpus))

    def verify_index(self, corpus: Corpus, index_dir: Path) -> None:
        """Open the index and count its documents."""
        found = len(doc_ids.Ids(index_dir)), int(bm25s.BM25.load(index_dir, mmap=True).scores["num_docs"])
        if set(found) != {len(corpus)}:
            raise ValueError(f"the index has {found[0]} ids and {found[1]} documents, the corpus {len(corpus)}")

    def load(self, index_dir: Path) -> None:
        """Map the scores; read the vocabulary and the ids.

        Raises:
            ValueError: the index is of other parameters or another version.
        """
        built_with.check(index_dir, self._facts())
        self._index = bm25s.BM25.load(index_dir, mmap=True)
        self._ids = doc_ids.Ids(index_dir)

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Rank by the sum of the scores of the query's tokens; one that comes twice counts twice."""
        clock = time.perf_counter
        start = clock()
        known = self._index.get_tokens_ids(self._tokens(query))
        tokenised = clock()
        answer = self._ranked(known, k) if known else []
        self._stages_s = {"tokenise": tokenised - start, "retrieve": clock() - tokenised}
        return answer

    def _ranked(self, tokens: list[int], k: int) -> list[Hit]:
        """Return the k highest scores above 0; of equal ones the earlier document is first."""
        # bm25s's own `retrieve` has a progress bar, which costs a tenth of a query, and drops any of equal scores.
        scores = self._index.get_scores_from_ids(tokens)
        # All that equal the k-th score stay, so that the order alone decides between them.
        least = numpy.partition(scores, -k)[-k] if k < len(scores) else 0.0
        (rows,) = numpy.nonzero((scores >= least) & (scores > 0))
        rows = rows[numpy.argsort(-scores[rows], kind="stable")[:k]]
        return [Hit(self._ids[row], score) for row, score in zip(rows.tolist(), scores[rows].tolist(), strict=True)]

    def stages_s(self) -> dict[str, float]:
        """Return the seconds of the last search: ``tokenise``, ``retrieve``."""
        return dict(self._stages_s)

    def threads(self) -> dict[str, int]:
        """Return the threads of a search."""
        return {"numpy": 1}

    def libraries(self) -> dict[str, str]:
        """Return the versions of what does the work."""
        return {name: version(name) for name in ("bm25s", "numpy", "PyStemmer")}

    def close(self) -> None:
        """Unmap the scores."""
        del self._index, self._ids

    def _facts(self) -> dict[str, Scalar]:
        built = {"language": self._language, "k1": self.params["k1"], "b": self.params["b"]}
        return {"engine": "bm25s", **self.libraries(), **built}


ENGINE = Bm25s

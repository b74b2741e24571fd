"""BM25: tantivy."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tantivy
from index_files import built_with
from tantivy import Filter, Occur, Query, Tokenizer

from harness.driver.adapter import Adapter, Corpus, Document
from harness.driver.records import Envelope, Hit, Scalar
from harness.driver.records import Filter as Wanted

LANGUAGES = {
    "en": "english",
    "da": "danish",
    "de": "german",
    "es": "spanish",
    "fi": "finnish",
    "fr": "french",
    "hu": "hungarian",
    "it": "italian",
    "nl": "dutch",
    "no": "norwegian",
    "pt": "portuguese",
    "ru": "russian",
    "sv": "swedish",
}
_PARAMS = ("language", "build_heap_mib")
_LONGEST = 40  # characters of a token, as in tantivy's own analysers
_UPDATE_HEAP_BYTES = 32 << 20


class Tantivy(Adapter):
    """BM25 (k1 1.2, b .75) over one field that holds title and text.

    Tokens are runs of letters and digits in lowercase, stop words left out, stemmed by Snowball.

    Parameters: ``language`` (``en`` where absent), ``build_heap_mib``.
    """

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        if unknown := sorted(params.keys() - set(_PARAMS)):
            raise ValueError(f"unknown parameter {unknown[0]!r}; this engine reads {', '.join(_PARAMS)}")
        self._language = str(params.get("language", "en"))
        if self._language not in LANGUAGES:
            raise ValueError(f"language is {self._language!r}, must be one of {', '.join(sorted(LANGUAGES))}")
        name = LANGUAGES[self._language]
        builder = tantivy.TextAnalyzerBuilder(Tokenizer.simple())
        for each in (Filter.remove_long(_LONGEST), Filter.lowercase(), Filter.stopword(name), Filter.stemmer(name)):
            builder = builder.filter(each)
        self._analyser = builder.build()
        self._stages_s: dict[str, float] = {}
        self._writer: Any = None

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Index the corpus with one thread, so that the same corpus gives the same segments."""
        progress(0)
        fields = tantivy.SchemaBuilder()
        fields.add_text_field("text", tokenizer_name=self._language, index_option="freq")
        fields.add_text_field("id", stored=True, tokenizer_name="raw", index_option="basic")
        fields.add_text_field("facts", tokenizer_name="raw", index_option="basic")
        index = tantivy.Index(fields.build(), path=str(index_dir))
        index.register_tokenizer(self._language, self._analyser)
        writer = index.writer(heap_size=int(self.params["build_heap_mib"]) << 20, num_threads=1)
        for number, document in enumerate(corpus, 1):
            writer.add_document(_document(document))
            if number % 1000 == 0:
                progress(number)
        writer.commit()
        writer.wait_merging_threads()
        built_with.write(index_dir, {**self._facts(), "tantivy": version("tantivy")})
        progress(len(corpus))

    def verify_index(self, corpus: Corpus, index_dir: Path) -> None:
        """Open the index and count its documents."""
        found = tantivy.Index.open(str(index_dir)).searcher().num_docs
        if found != len(corpus):
            raise ValueError(f"the index has {found} documents, the corpus {len(corpus)}")

    def load(self, index_dir: Path) -> None:
        """Map the index.

        Raises:
            ValueError: the index has another language, or a format that this version of tantivy cannot read.
        """
        # tantivy itself refuses another format; versions may share one.
        built_with.check(index_dir, self._facts())
        self._index_dir = index_dir
        # tantivy locks the folder of an index that it opens, and this one is read-only: links to its files are locked.
        self._links = TemporaryDirectory()
        for file in index_dir.iterdir():
            if file.suffix != ".lock":
                (Path(self._links.name) / file.name).symlink_to(file)
        index = tantivy.Index.open(self._links.name)
        index.register_tokenizer(self._language, self._analyser)
        self._schema, self._searcher = index.schema, index.searcher()

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Rank by the sum of the scores of the query's tokens; one that comes twice counts twice."""
        return self._best(query, k, ())

    def search_filtered(self, query: str, k: int, wanted: Wanted) -> Sequence[Hit]:
        """Rank the documents that have these values, with the scores that they have without a filter."""
        return self._best(query, k, wanted)

    def _best(self, query: str, k: int, wanted: Wanted) -> Sequence[Hit]:
        clock = time.perf_counter
        start = clock()
        # Half a surrogate pair is no text for Rust.
        terms = self._analyser.analyze(query.encode("utf-8", "replace").decode("utf-8"))
        tokenised = clock()
        searcher = self._searcher  # an update may replace it
        asked = Query.boolean_query([(Occur.Should, Query.term_query(self._schema, "text", term)) for term in terms])
        if wanted:
            facts = (Query.term_query(self._schema, "facts", _fact(*each)) for each in wanted)
            unscored = [(Occur.Must, Query.const_score_query(fact, 0.0)) for fact in facts]
            asked = Query.boolean_query([(Occur.Must, asked), *unscored])
        hits = searcher.search(asked, k, count=False).hits
        answer = [Hit(searcher.doc(address)["id"][0], score) for score, address in hits]
        self._stages_s = {"tokenise": tokenised - start, "retrieve": clock() - tokenised}
        return answer

    def begin_updates(self) -> None:
        """Open the index where it can be written."""
        self._index = tantivy.Index.open(str(self._index_dir))
        self._index.register_tokenizer(self._language, self._analyser)
        self._writer = self._index.writer(heap_size=_UPDATE_HEAP_BYTES, num_threads=1)

    def insert(self, documents: Sequence[Document]) -> None:
        """Commit the documents and open the index again: the next search finds them, and the disk has them."""
        for document in documents:
            self._writer.delete_documents("id", document.doc_id)
            self._writer.add_document(_document(document))
        self._commit()

    def delete(self, doc_ids: Sequence[str]) -> None:
        """Commit the deletion and open the index again: no later search finds the documents."""
        for doc_id in doc_ids:
            self._writer.delete_documents("id", doc_id)
        self._commit()

    def _commit(self) -> None:
        self._writer.commit()
        self._index.reload()
        self._searcher = self._index.searcher()

    def stages_s(self) -> dict[str, float]:
        """Return the seconds of the last search: ``tokenise``, ``retrieve``."""
        return dict(self._stages_s)

    def threads(self) -> dict[str, int]:
        """Return the threads of a search."""
        return {"tantivy": 1}

    def libraries(self) -> dict[str, str]:
        """Return tantivy's version."""
        return {"tantivy": version("tantivy")}

    def close(self) -> None:
        """Unmap the index."""
        if self._writer is not None:
            self._writer.wait_merging_threads()
        self._writer = None
        del self._schema, self._searcher
        self._links.cleanup()

    def _facts(self) -> dict[str, Scalar]:
        return {"engine": "tantivy", "language": self._language}


def _document(document: Document) -> tantivy.Document:
    text = f"{document.title} {document.text}" if document.title else document.text
    made = tantivy.Document(text=text, id=document.doc_id)
    for name, value in document.metadata.items():
        made.add_text("facts", _fact(name, value))
    return made


def _fact(name: str, value: Scalar) -> str:
    """Return a field and its value as one term; equal numbers of different types are one value."""
    same = value if isinstance(value, str) else int(value) if float(value).is_integer() else float(value)
    return json.dumps([name, same])


ENGINE = Tantivy

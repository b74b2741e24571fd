"""Write the archive of classes that a search loads: ``python3 -m jvm.archive ASSETS``, where an image is made.

Java maps the archive instead of parsing the jar's classes again at each start (JEP 350).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from jvm import indexing, languages, runtime, searching

_HEAP_MIB = 96
_TEXTS = ("Lava and ash leave a mountain that erupts.", "Ice covers the sea in winter.", "Lava under the sea.")


def write(assets: Path) -> None:
    """Index three documents, search them both ways, and leave the archive at the JVM's exit."""
    options = runtime.options(_HEAP_MIB, 1)
    with tempfile.TemporaryDirectory() as folder:
        words, weights = Path(folder) / "words", Path(folder) / "weights"
        texts = [{"id": f"d{number}", "contents": text} for number, text in enumerate(_TEXTS)]
        vectors = [{**each, "vector": {"lava": 2, "sea": number + 1}} for number, each in enumerate(texts)]
        for index, collection, how, documents in (
            (words, "JsonCollection", [], texts),
            (weights, "JsonVectorCollection", ["-impact", "-pretokenized"], vectors),
        ):
            index.mkdir()
            indexing.Indexer(collection, how, True, assets, _HEAP_MIB, 1).build(documents, index)
        runtime.ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
        runtime.start([*options, f"-XX:ArchiveClassesAtExit={runtime.ARCHIVE}"], runtime.jar(assets))
        found = searching.Words(words, 0.9, 0.4, languages.analyzer(languages.ENGLISH)).search("lava and the sea", 3)
        again = searching.Weights(weights).search({"lava": 1, "sea": 2}, 3)
    if len(found) != len(_TEXTS) or len(again) != len(_TEXTS):
        raise RuntimeError(f"found {len(found)} and {len(again)} of {len(_TEXTS)} documents")


def main() -> None:
    """Write the archive; the JVM ends this process."""
    write(Path(sys.argv[1]))
    from jnius import autoclass

    autoclass("java.lang.System").exit(0)


if __name__ == "__main__":
    main()

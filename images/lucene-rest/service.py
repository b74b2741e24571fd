"""How Anserini's HTTP server starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from index_files import built_with
from jvm import languages, runtime
from jvm.bm25 import facts

from harness.driver.records import Envelope, Scalar

PORT = 8080
ENGINE = "lucene-rest"


def command(params: Mapping[str, Scalar], envelope: Envelope, index_dir: Path, assets: Path) -> Sequence[str]:
    """Return the server's command, with the JVM options of a search in the process.

    The server takes an address and a port; each request names the index.

    Raises:
        ValueError: the index is of another engine or version.
    """
    built_with.check(index_dir, facts(ENGINE, assets, languages.ENGLISH))
    return [
        *(str(runtime.java()), "-XX:+ExitOnOutOfMemoryError", "-cp", str(runtime.jar(assets))),
        *runtime.search_options(int(params["heap_mib"]), envelope.cpus),
        *("io.anserini.api.RestServer", "--host", "127.0.0.1", "--port", str(PORT)),
    ]

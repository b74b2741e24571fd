"""Measure time and memory of preparing a large corpus: generated files of MS MARCO's size.

Run by hand: ``python -m benchmarks.corpus [PASSAGES] [FOLDER]``.  FOLDER takes some 7 GB for 8.8 million passages.
"""

from __future__ import annotations

import random
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from harness import datasets
from harness.errors import FileError

PASSAGES = 8_841_823  # as many as MS MARCO has
WORDS = 56  # a passage
_VOCABULARY = 50_000
_BLOCKS = 20_000


def main() -> None:
    """Write the files, read them in a fresh process, and print time and memory."""
    if len(sys.argv) > 3:  # the second process
        _measure(Path(sys.argv[1]), sys.argv[2] == "duplicate")
        return
    count = int(sys.argv[1]) if len(sys.argv) > 1 else PASSAGES
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as name:
        folder = Path(name) / "made-up"
        write(folder, count)
        size = (folder / "collection.tsv").stat().st_size
        print(f"{count:,} passages, {size / 1e9:.2f} GB of TSV", flush=True)
        _apart(folder, "good")
        with (folder / "collection.tsv").open("a") as file:
            file.write("17\tthe same id once more\n")
        shutil.rmtree(folder.parent / "cache")
        _apart(folder, "duplicate")


def write(folder: Path, count: int) -> None:
    """MS MARCO's files with ``count`` passages of random words."""
    folder.mkdir()
    chance = random.Random(2023)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(2, 9))) for _ in range(_VOCABULARY)]
    texts = [" ".join(chance.choices(words, k=WORDS)) for _ in range(_BLOCKS)]
    with (folder / "collection.tsv").open("w") as file:
        for number in range(count):
            file.write(f"{number}\t{number} {texts[number % _BLOCKS]}\n")
    (folder / "queries.dev.small.tsv").write_text("".join(f"q{n}\t{texts[n][:40]}\n" for n in range(1000)))
    (folder / "qrels.dev.small.tsv").write_text("".join(f"q{n}\t0\t{n}\t1\n" for n in range(1000)))


def _apart(folder: Path, kind: str) -> None:
    import subprocess

    subprocess.run([sys.executable, "-m", "benchmarks.corpus", str(folder), kind, "measure"], check=True)


def _measure(folder: Path, duplicate: bool) -> None:
    time.sleep(3)  # a file that was written just now is hashed at each use
    started = time.perf_counter()
    if duplicate:
        try:
            datasets.load(folder, folder.parent / "cache")
        except FileError as error:
            print(f"an id that appears twice: {str(error).removeprefix(str(folder))}; {_taken(started)}", flush=True)
            return
        raise SystemExit("harness missed the id that appears twice")
    dataset = datasets.load(folder, folder.parent / "cache")
    print(f"prepared: {dataset.corpus.size:,} documents; {_taken(started)}", flush=True)
    for what, work in (
        ("known again", lambda: datasets.load(folder, folder.parent / "cache")),
        (
            "1,000 texts by id",
            lambda: list(dataset.corpus.texts(str(n * 997 % dataset.corpus.size) for n in range(1000))),
        ),
        (
            "1,000 ids checked",
            lambda: dataset.corpus.unknown({str(n * 997 % dataset.corpus.size) for n in range(1000)}),
        ),
    ):
        started = time.perf_counter()
        work()
        print(f"{what}: {_taken(started)}", flush=True)


def _taken(started: float) -> str:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f"{time.perf_counter() - started:.2f} s, peak so far {peak:.0f} MiB"


if __name__ == "__main__":
    main()

"""Make runs of different strength on SciFact, for docs/method/frechet.md; ``scripts/frechet`` runs all of it.

``prepare OUT``: a suite of real systems: BM25, BM25 with poor parameters, a bi-encoder, both asked with the first
three words of each query, and BM25 with stop words instead of it.  ``runs OUT``: their run files, and two that no
system made: BM25's rankings dealt to other queries, and documents drawn by chance.  ``figures OUT FILE``: what
``harness frechet`` said of them, in one small file.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from harness.analysis.stored_runs import read_stored_runs
from harness.config import data_root

SEED = 2024
DEPTH = 20  # so that ten are left where judged documents are skipped
# Function words that Anserini's English analyzer does not drop: with those that it drops, BM25 finds nothing at all.
STOP_WORDS = ("from", "has", "have", "had", "which", "more", "than", "between", "during", "after", "does", "can")

_SUITE = """# Made by benchmarks/frechet_scifact.py: systems of different strength.
systems = ["bm25", "bm25-poor", "minilm"]
datasets = ["scifact", "./scifact-three-words", "./scifact-stop-words"]
profiles = ["cpu2-mem4"]
build_profile = "cpu2-mem4"
overhead = false

[protocol]
name = "santhanam2023"
trials = 1
warmup_queries = 10
sample_size = 300
k = {depth}
"""
_POOR = """description = "BM25 with poor parameters: a term counts each time it occurs, and long documents win"
fewer_hits_ok = true

[build_params]
build_heap_mib = 1024
force_merge = true

[search_params]
k1 = 50.0
b = 0.0
heap_mib = 96
"""
# The same weights, read otherwise, are another encoder.
_OTHER_ENCODER = {'pooling = "mean"': 'pooling = "cls"', "_tokens = 256": "_tokens = 32"}
# The run files to take from the results: run -> (system, dataset).
_MEASURED = {
    "bm25": ("bm25", "scifact"),
    "bm25-poor": ("bm25-poor", "scifact"),
    "minilm": ("minilm", "scifact"),
    "bm25-three-words": ("bm25", "scifact-three-words"),
    "bm25-stop-words": ("bm25", "scifact-stop-words"),
    "minilm-three-words": ("minilm", "scifact-three-words"),
}


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("step", choices=("prepare", "runs", "figures"))
    parser.add_argument("out", type=Path)
    parser.add_argument("file", type=Path, nargs="?")
    arguments = parser.parse_args()
    if arguments.step == "figures":
        figures(arguments.out, arguments.file)
    else:
        {"prepare": prepare, "runs": runs}[arguments.step](arguments.out)
    return 0


def prepare(out: Path) -> None:
    """Write the suite, its datasets, and the system with poor parameters."""
    source = data_root() / "datasets" / "scifact"
    changed: dict[str, Callable[[str, str], str]] = {
        "scifact-three-words": lambda _name, text: " ".join(text.split()[:3]),
        "scifact-stop-words": lambda name, _text: " ".join(random.Random(f"{SEED} {name}").sample(STOP_WORDS, 4)),
    }
    for dataset, change in changed.items():
        folder = out / dataset
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("corpus.jsonl.gz", "qrels.trec"):
            shutil.copyfile(source / name, folder / name)
        queries = [json.loads(line) for line in (source / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
        lines = [json.dumps({"_id": each["_id"], "text": change(each["_id"], each["text"])}) for each in queries]
        (folder / "queries.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    systems = out / "images" / "lucene" / "systems"
    systems.mkdir(parents=True, exist_ok=True)
    (systems / "bm25-poor.toml").write_text(_POOR, encoding="utf-8")
    encoders = out / "images" / "dense" / "systems"
    encoders.mkdir(parents=True, exist_ok=True)
    text = (data_root() / "images" / "dense" / "systems" / "minilm.toml").read_text(encoding="utf-8")
    for usual, other in _OTHER_ENCODER.items():
        text = text.replace(usual, other)
    (encoders / "minilm-cls.toml").write_text(text, encoding="utf-8")
    (out / "frechet.toml").write_text(_SUITE.format(depth=DEPTH), encoding="utf-8")
    shutil.copyfile(source / "qrels.trec", out / "qrels.trec")


def runs(out: Path) -> None:
    """Write the run files."""
    folder = out / "runs"
    folder.mkdir(exist_ok=True)
    judged = {runs.dataset: runs for runs in read_stored_runs(out / "results" / "frechet")}
    rankings = {name: judged[dataset].runs[system].rankings for name, (system, dataset) in _MEASURED.items()}
    queries = judged["scifact"].query_ids
    with gzip.open(data_root() / "datasets" / "scifact" / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        documents = [json.loads(line)["_id"] for line in lines]
    chance = random.Random(SEED)
    rankings["random"] = {query: tuple(chance.sample(documents, DEPTH)) for query in queries}
    # Each query gets another's, around one circle of all: none keeps its own.
    circle = chance.sample(queries, len(queries))
    dealt = zip(circle, [*circle[1:], circle[0]], strict=True)
    rankings["bm25-shuffled"] = {query: rankings["bm25"].get(other, ()) for query, other in dealt}
    for name, ranked in rankings.items():
        _write(folder / f"{name}.trec", name, ranked)


def _write(path: Path, name: str, ranked: Mapping[str, tuple[str, ...]]) -> None:
    lines = (
        f"{query} Q0 {document} {rank} {-rank} {name}\n"
        for query, documents in ranked.items()
        for rank, document in enumerate(documents, 1)
    )
    path.write_text("".join(lines), encoding="utf-8")


def figures(out: Path, file: Path) -> None:
    """Write one file of all settings, with the fields that the pictures need."""
    settings = {}
    for most in ("1", "5", "10", "other"):
        (sample,) = json.loads((out / f"at-most-{most}.json").read_text(encoding="utf-8"))["samples"]
        settings[most] = {name: sample[name] for name in ("encoder", "queries", "judged", "systems", "tau")}
    for each in (system for sample in settings.values() for system in sample["systems"]):
        for distance in each["distances"]:  # the last digits differ from machine to machine
            for what in ("figure", "difference"):
                distance[what] = distance[what] and {
                    name: _short(value) for name, value in distance[what].items() if name != "reason"
                }
        each["measures"] = {name: _short(value) for name, value in each["measures"].items()}
    file.write_text(json.dumps(settings) + "\n", encoding="utf-8")


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


if __name__ == "__main__":
    sys.exit(main())

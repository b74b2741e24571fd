"""`harness frechet`, as a person types it: vectors of these very documents, and intervals that are some."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from harness import datasets
from harness.evaluation import embeddings
from harness.evaluation.embeddings import Embeddings
from harness.launch.fake import FakeLauncher
from tests.conftest import Bench, write_dataset
from tests.support.command_line import Call, call

QUERIES = 20


@pytest.fixture
def harness(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command line beside two run files, their judgements, and vectors of their documents."""
    monkeypatch.setenv("HARNESS_CACHE", str(bench.cache))
    monkeypatch.chdir(bench.folder)
    for name, queries in (("many", QUERIES), ("one", 1)):
        lines = [f"q{n} Q0 d{(n + rank) % 30} {rank + 1} {-rank} t\n" for n in range(queries) for rank in range(3)]
        Path(f"{name}.run").write_text("".join(lines))
    Path("qrels.trec").write_text("".join(f"q{n} 0 d{n} 1\n" for n in range(QUERIES)))
    embeddings.write(Path("vectors"), vectors("5" * 64, 30))

    return functools.partial(call, "frechet")


def vectors(source: str, documents: int) -> Embeddings:
    drawn = np.random.default_rng(5).standard_normal((documents, 4)).astype(np.float32)
    return Embeddings(tuple(f"d{n}" for n in range(documents)), drawn, "toy", "c" * 64, "document", source)


def refused(done: Result, message: str) -> None:
    assert (done.exit_code, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done.output
    assert message in done.stderr


FILES = ("many.run", "--qrels", "qrels.trec", "--embeddings", "vectors", "-k", "2")


def test_vectors_of_another_collection_are_refused(harness: Call, bench: Bench) -> None:
    bench.run(FakeLauncher(), bench.suite())
    corpus = datasets.load(Path("tiny"), bench.cache).corpus.sha256
    embeddings.write(Path("other"), vectors("f" * 64, 10))
    embeddings.write(Path("right"), vectors(corpus, 10))
    refused(harness("results", "--embeddings", "other"), "other: vectors of other texts than tiny's documents")
    done = harness("results", "--embeddings", "right", "--format", "json")
    assert done.exit_code == 0, done.output
    (sample,) = json.loads(done.stdout)["samples"]
    assert (sample["source"], sample["source_checked"]) == (corpus, True)
    assert not any("not checked" in note for note in sample["notes"])


def test_each_sample_takes_the_vectors_of_its_own_documents(harness: Call, bench: Bench) -> None:
    write_dataset(bench.folder / "other", queries=3)
    (bench.folder / "other" / "corpus.jsonl").write_text(
        "".join(f'{{"_id": "d{n}", "text": "other {n}"}}\n' for n in range(10))
    )
    bench.run(FakeLauncher(), bench.suite(datasets=["./tiny", "./other"]))
    named = []
    for name in ("tiny", "other"):
        source = datasets.load(Path(name), bench.cache).corpus.sha256
        embeddings.write(Path(f"of-{name}"), vectors(source, 10))
        named += ["--embeddings", f"of-{name}"]
    done = harness("results", *named, "--format", "json")
    assert done.exit_code == 0, done.output
    assert sorted(each["dataset"] for each in json.loads(done.stdout)["samples"]) == ["other", "tiny"]


def test_run_files_note_that_their_collection_is_unknown(harness: Call) -> None:
    done = harness(*FILES, "--bootstraps", "0")
    assert done.exit_code == 0 and "the vectors were made from the texts 5555555555555555; whether" in done.stdout
    refused(harness("many.run", "--qrels", "qrels.trec"), "run files need vectors of their documents; name a file of")


@pytest.mark.parametrize("few", ["1", "2", "99"])
def test_interval_of_few_resamples_is_refused(harness: Call, few: str) -> None:
    refused(harness(*FILES, "--bootstraps", few), f"--bootstraps {few}: an interval of 95 % needs 100 or more; 0")
    done = harness(*FILES, "--bootstraps", "100", "--format", "json")
    (sample,) = json.loads(done.stdout)["samples"]
    figure = sample["systems"][0]["distances"][0]["figure"]
    assert figure["low"] < figure["value"] < figure["high"]


@pytest.mark.slow
def test_disabled_interval_is_noted_once(harness: Call) -> None:
    done = harness("many.run", "one.run", *FILES[1:], "-k", "1", "--bootstraps", "0")
    assert done.stdout.count("interval") == 1 and "no intervals asked for, seed 2024" in done.stdout
    assert "In brackets" not in done.stdout and "URR" not in done.stdout
    assert "In brackets: at least 95 %" in harness(*FILES).stdout


def test_systems_are_compared_on_the_queries_that_all_of_them_answer(harness: Call) -> None:
    """A run with documents for one of 20 queries leaves all systems without a covariance."""
    done = harness("many.run", "one.run", *FILES[1:], "--bootstraps", "0")
    assert "compared on the 1 of 20 queries for which every system has a document" in done.stdout
    assert "one (19, none for 19)" in done.stdout and "a covariance takes two documents" in done.stdout
    assert "compared on" not in harness(*FILES, "--bootstraps", "0").stdout

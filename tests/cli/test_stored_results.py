"""Run files and judgements, as every command reads them."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from harness.evaluation import embeddings
from harness.evaluation.embeddings import Embeddings
from harness.launch.fake import FakeLauncher
from tests.conftest import Bench
from tests.support.command_line import Call, assert_refused


@pytest.fixture
def harness(tiny_runs: Call) -> Call:
    return tiny_runs


def test_pipe_is_refused_for_a_file_that_is_read_twice(harness: Call) -> None:
    os.mkfifo("pipe")
    for arguments in (("add", "pipe", "--to", "tiny/qrels.trec", "-o", "new.trec"), ("show", "pipe")):
        assert_refused(
            harness("qrels", *arguments),
            "pipe: is a pipe, but harness reads it more than once; write it to a file first",
        )
    assert_refused(harness("report", "results", "--qrels", "pipe"), "pipe: is a pipe")
    assert_refused(harness("pool", "one.run", "--no-texts", "--qrels", "pipe"), "pipe: is a pipe")
    assert_refused(harness("qrels", "add", "tiny/qrels.trec", "--to", "pipe", "-o", "new.trec"), "pipe: is a pipe")


@pytest.mark.parametrize(
    "options",
    [
        ("pool", "one.run", "two.run", "--no-texts", "--queries", "queries.tsv"),
        ("compare", "one.run", "two.run", "--qrels", "tiny/qrels.trec", "--format", "csv"),
    ],
)
def test_run_files_may_be_pipes(harness: Call, options: tuple[str, ...]) -> None:
    Path("queries.tsv").write_text("q1\tsome\n")
    done = harness(*options)
    assert done.exit_code == 0, done.output
    for name in options[1:3]:
        content = Path(name).read_bytes()
        Path(name).unlink()
        os.mkfifo(name)
        threading.Thread(target=Path(name).resolve().write_bytes, args=(content,), daemon=True).start()
    piped = harness(*options)
    assert (piped.exit_code, piped.stdout) == (0, done.stdout), piped.output


BELOW = "2 grades are below 0, the first in below.trec:5: no more relevant than 0"


@pytest.mark.parametrize(
    "arguments",
    [
        ("evaluate", "below.trec", "one.run"),
        ("compare", "one.run", "two.run", "--qrels", "below.trec", "--measures", "P@3"),
        ("robustness", "one.run", "two.run", "--qrels", "below.trec", "--measures", "P@3", "--resamples", "100"),
        ("leakage", "training.tsv", "one.run", "--qrels", "below.trec", "--queries", "tiny/queries.jsonl"),
        ("frechet", "one.run", "--qrels", "below.trec", "--embeddings", "vectors", "--bootstraps", "0"),
        ("pool", "one.run", "--qrels", "below.trec", "--no-texts"),
        ("report", "results", "--wide", "--qrels", "below.trec"),
        ("compare", "planted", "planted2", "--qrels", "below.trec"),
        ("pool", "results", "--qrels", "below.trec"),
        ("qrels", "add", "new.trec", "--to", "below.trec", "-o", "more.trec"),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_every_command_names_the_first_line_with_a_negative_grade(
    harness: Call, bench: Bench, arguments: tuple[str, ...]
) -> None:
    below = Path("tiny/qrels.trec").read_text() + "q0 0 d9 -2\nq1 0 d9 -1\n"
    if not {"one.run", "new.trec"}.intersection(arguments):
        bench.plant("planted2")
        bench.run(FakeLauncher(), bench.suite(systems=["planted", "planted2"]))
    Path("below.trec").write_text(below)
    Path("training.tsv").write_text("t0\tnothing of the kind\n")
    Path("new.trec").write_text("q0 0 d8 1\n")
    vectors = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
    ids = tuple(f"d{n}" for n in range(10))
    embeddings.write(Path("vectors"), Embeddings(ids, vectors, "minilm", "c" * 64, "document", "s"))
    done = harness(*arguments)
    assert done.exit_code == 0, done.output
    assert done.output.count(BELOW) >= 1

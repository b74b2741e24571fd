"""Vectors survive an index build unchanged, and files of an image are checked."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from harness import datasets
from harness.cli import main
from harness.cli.launchers import LauncherChoice
from harness.errors import FileError, JobError, UsageError
from harness.evaluation import embeddings
from harness.evaluation.embeddings import Embeddings, sha256_of_texts
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.trec import Run
from harness.jobs import encode
from harness.jobs.encode import TextSet
from harness.launch.base import LaunchEnd, LaunchRequest
from harness.launch.fake import FakeLauncher
from harness.launch.images import catalog
from harness.progress import Progress
from tests.conftest import Bench, write_dataset

SYSTEM = catalog.system("minilm")


def vector(text: str) -> list[float]:
    return [float(len(text)), float(sum(map(ord, text)) % 97), 1.0]


def write_index(folder: Path, ids: list[str], vectors: Any, **facts: object) -> None:
    """Write an index in the format of the engine ``dense``."""
    (folder / "ids.bin").write_bytes("".join(ids).encode())
    np.save(folder / "ids.npy", np.cumsum([len(name.encode()) for name in ids], dtype=np.int64))
    (folder / "vectors.f32").write_bytes(np.asarray(vectors, dtype="<f4").tobytes())
    stored = {"engine": "dense", "index": "flat", "checkpoint_sha256": "c" * 64, "document_tokens": 256}
    stored |= {"documents": len(ids), "dimensions": len(vectors[0]), **facts}
    (folder / "built-with.json").write_text(json.dumps(stored))


class Encoder(FakeLauncher):
    """Builds an index whose vectors encode the length of a text."""

    def launch(self, job: LaunchRequest, progress: Progress) -> LaunchEnd:
        ended = super().launch(job, progress)
        lines = (job.corpus_dir / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
        documents = [json.loads(line) for line in lines]
        tokens = job.spec.params["document_tokens"]
        prefix = str(job.spec.params.get("document_prefix", ""))
        vectors = [vector(prefix + document["text"]) for document in documents]
        write_index(job.index_dir, [document["_id"] for document in documents], vectors, document_tokens=tokens)
        return ended


@pytest.fixture
def launcher() -> Encoder:
    return Encoder()


def texts(bench: Bench, *ids: str) -> TextSet:
    corpus = datasets.load(bench.folder / "tiny", bench.cache).corpus
    return TextSet("tiny", corpus, "document", frozenset(ids) if ids else None)


def test_vectors_are_stored_once_and_extended(bench: Bench, launcher: Encoder) -> None:
    def into(made: Embeddings) -> Path:
        return embeddings.embeddings_path(bench.results, made)

    first = encode.encode(SYSTEM, texts(bench, "d3", "d1"), into, launcher, bench.cache)
    assert (first.added, set(first.content.ids)) == (2, {"d1", "d3"})
    again = encode.encode(SYSTEM, texts(bench, "d3"), into, launcher, bench.cache)
    assert again.added == 0 and set(again.content.ids) == {"d1", "d3"}
    more = encode.encode(SYSTEM, texts(bench, "d3", "d4"), into, launcher, bench.cache)
    assert (more.added, more.path) == (1, first.path)
    assert len(launcher.launched) == 1, "the index is in the cache"
    kept = embeddings.read(more.path)
    assert kept.vectors[kept.rows["d4"]].tolist() == vector("all about the forest")
    every = encode.encode(SYSTEM, texts(bench), into, launcher, bench.cache)
    assert every.added == 7 and every.content.source == texts(bench).corpus.sha256
    assert every.path.name.startswith(f"{'c' * 16}-document-{every.content.source[:16]}-")
    assert embeddings.find_embeddings(bench.results, "document", every.content.source) == (every.path,)
    assert embeddings.find_embeddings(bench.results / "suite", "document", every.content.source) == (every.path,)
    assert embeddings.find_embeddings(bench.results, "query", every.content.source) == ()


def test_id_without_a_text_is_refused(bench: Bench, launcher: Encoder) -> None:
    with pytest.raises(UsageError, match="the runs have 1 id without a text"):
        encode.encode(SYSTEM, texts(bench, "d1", "no"), lambda _: bench.folder / "file", launcher, bench.cache)
    assert not (bench.folder / "file").exists()


def test_other_file_is_not_overwritten(bench: Bench, launcher: Encoder) -> None:
    other = Embeddings(("a",), np.ones((1, 3), dtype=np.float32), "minilm", "d" * 64, "document", "s")
    embeddings.write(bench.folder / "file", other)
    with pytest.raises(FileError, match="holds vectors of checkpoint_sha256"):
        encode.encode(SYSTEM, texts(bench), lambda _: bench.folder / "file", launcher, bench.cache)
    assert embeddings.read(bench.folder / "file").ids == ("a",)


def test_queries_are_encoded_as_queries(bench: Bench, launcher: Encoder) -> None:
    prefixed = SYSTEM.model_copy(update={"search_params": {"query_tokens": 32, "query_prefix": "query: "}})
    corpus = encode.texts_of({"q1": "a", "q2": "a b"}, bench.cache)
    texts, path = TextSet("q", corpus, "query", None), bench.folder / "file"
    made = encode.encode(prefixed, texts, lambda _: path, launcher, bench.cache)
    assert made.content.source == sha256_of_texts({"q1": "a", "q2": "a b"}), "so it is known of which texts vectors are"
    assert made.content.role == "query" and made.content.ids == ("q1", "q2")
    assert made.content.vectors[0].tolist() == vector("query: a")
    params = launcher.launched[0].spec.params
    assert (params["document_tokens"], params["document_prefix"], params["document_head"]) == (32, "query: ", "mean")


@pytest.mark.parametrize(("name", "why"), [("bm25", "the engine 'lucene'"), ("colbertv2-s", "the engine")])
def test_engines_without_an_encoder_are_refused(name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        encode.check_exact_index(catalog.system(name))


def test_lone_surrogate_in_a_text_is_replaced(bench: Bench) -> None:
    odd = {"q1": "half \ud800 é"}
    corpus = encode.texts_of(odd, bench.cache)
    assert dict(corpus.texts(odd)) == {"q1": "half ? é"} and corpus.sha256 == sha256_of_texts(odd)


def test_approximate_index_and_system_without_queries_are_refused() -> None:
    approximate = SYSTEM.model_copy(update={"build_params": {**SYSTEM.build_params, "index": "hnsw"}})
    with pytest.raises(UsageError, match="an index 'hnsw', which changes them"):
        encode.check_exact_index(approximate)
    with pytest.raises(UsageError, match="no query encoder"):
        encode.as_documents(SYSTEM.model_copy(update={"search_params": {}}))


def test_needed_documents_are_top_hits_and_all_judged_documents(tmp_path: Path) -> None:
    corpus = encode.texts_of({"d": "text"}, tmp_path)
    runs = JudgedRuns("d", {"q": ""}, {"q": {"a": 1, "far": 0}, "p": {"x": 1}}, {"s": Run({"q": tuple("abcde")}, ())})
    assert encode.needed([runs], 2, corpus, "c") == {"a", "b", "c", "far"}
    with pytest.raises(UsageError, match="no stored run searches the documents of c"):
        encode.needed([replace(runs, corpus_sha256="other")], 2, corpus, "c")


def _nan(folder: Path) -> None:
    write_index(folder, ["a", "b"], [[1, np.nan], [3, 4]])


@pytest.mark.parametrize(
    ("mischief", "why"),
    [
        (lambda folder: (folder / "vectors.f32").write_bytes(b"1234"), "4 bytes for 2 vectors of 2"),
        (lambda folder: (folder / "built-with.json").write_text("[]"), "vectors of this index cannot be read"),
        (lambda folder: (folder / "ids.npy").write_bytes(b"no array"), "vectors of this index cannot be read"),
        (lambda folder: np.save(folder / "ids.npy", np.array([{}, {}], dtype=object)), "ids.npy is not an array"),
        (lambda folder: np.save(folder / "ids.npy", np.array([1])), "ids for 2 vectors"),
        (lambda folder: write_index(folder, ["a", "b"], [[1, 2], [3, 4]], index="hnsw"), "an index 'hnsw'"),
        (
            lambda folder: write_index(folder, ["a", "b"], [[1, 2], [3, 4]], documents=-2),
            "vectors of this index cannot be read",
        ),
        (_nan, "a vector is not finite"),
        (
            lambda folder: np.save(folder / "ids.npy", np.array([1, 1 << 62])),
            "an id from byte 1 to 4611686018427387904",
        ),
        (lambda folder: np.save(folder / "ids.npy", np.array([3, 1])), "an id from byte 3 to 1"),
        (lambda folder: (folder / "ids.npy").write_bytes(b""), "ids.npy is not an array"),
        (lambda folder: _shape(folder / "ids.npy", 10**9), "1000000000 ids for 2 vectors"),
        (lambda folder: (folder / "built-with.json").write_bytes(b"[" * 200_000), "64 levels deep"),
        (lambda folder: _linked(folder / "vectors.f32"), "vectors of this index cannot be read"),
    ],
)
def test_malformed_index_is_refused(tmp_path: Path, mischief: Callable[[Path], object], why: str) -> None:
    write_index(tmp_path, ["a", "é"], [[1, 2], [3, 4]])
    ids, vectors = encode.read_flat_index(tmp_path).take(None)
    assert ids == ("a", "é") and vectors.tolist() == [[1, 2], [3, 4]]
    mischief(tmp_path)
    with pytest.raises(JobError, match=why):
        encode.read_flat_index(tmp_path).take(None)


def _shape(path: Path, number: int) -> None:
    """Write a list of ids whose header declares another length."""
    content = path.read_bytes()
    path.write_bytes(content.replace(b"(2,), }" + b" " * 9, f"({number},), }}".encode()))


def _linked(path: Path) -> None:
    target = path.with_name("elsewhere")
    path.rename(target)
    path.symlink_to(target)


@pytest.fixture
def harness(bench: Bench, launcher: Encoder, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return the command line, with a launcher that builds such indexes."""
    monkeypatch.chdir(bench.folder)
    monkeypatch.setattr(LauncherChoice, "open", lambda _: closing(launcher))

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(main, [*arguments, "--cache", str(bench.cache)], catch_exceptions=False)

    return call


@pytest.mark.slow
def test_run_is_embedded_and_its_distances_are_printed(bench: Bench, harness: Callable[..., Result]) -> None:
    bench.run(FakeLauncher(), bench.suite())
    before = harness("frechet", "results")
    assert before.exit_code == 2
    assert "run `harness embed minilm tiny --results results`" in before.output.replace("\n", " ")
    made = harness("embed", "minilm", "./tiny")
    assert made.exit_code == 0 and "document vectors of 3 dimensions by minilm" in made.stdout
    assert "0 of them new" in harness("embed", "minilm", "./tiny").stdout
    shown = harness("frechet", "results", "--unlabelled", "-k", "2")
    assert shown.exit_code == 0, shown.output
    assert "FD@2 (URR)" in shown.stdout and "no interval: 4 queries, it takes 11" in shown.stdout
    table = json.loads(harness("frechet", "results", "--format", "json").stdout)
    assert [system["system"] for system in table["samples"][0]["systems"]] == ["planted"]
    (bench.folder / "far.trec").write_text("q0 Q0 d9 1 1.0 far\nq1 Q0 d8 1 1.0 far\n")
    (bench.folder / "more.trec").write_text("q0 0 d9 1\nq1 0 d7 1\n")
    files = ("far.trec", "--qrels", "more.trec", "--embeddings")
    (kept,) = bench.results.glob("embeddings/*.parquet")
    lacking = harness("frechet", *files, str(kept), "-k", "1")
    assert lacking.exit_code == 2 and "no vector of minilm" in lacking.output and "DATASET" in lacking.output
    harness("embed", "minilm", "./tiny", "--all", "-o", "all")
    beside = harness("frechet", *files, "all", "-k", "1", "--measures", "RR@10 R@2kt")
    assert beside.exit_code == 0 and beside.stderr.count("more.trec: R@2kt: needs a dataset with answers") == 1
    other = harness("frechet", "results", "--encoder", "other")
    assert other.exit_code == 2 and "vectors by 'other'" in other.output


@pytest.mark.slow
def test_missing_vectors_of_a_dataset_do_not_hide_other_tables(bench: Bench, harness: Callable[..., Result]) -> None:
    write_dataset(bench.folder / "other", queries=3)
    (bench.folder / "other" / "corpus.jsonl").write_text('{"_id": "d0", "text": "a"}\n' * 1)
    (bench.folder / "other" / "qrels.trec").write_text("q0 0 d0 1\n")
    bench.run(FakeLauncher(), bench.suite(datasets=["./tiny", "./other"]))
    harness("embed", "minilm", "./tiny")
    done = harness("frechet", "results", "-k", "1")
    assert done.exit_code == 1 and "dataset tiny" in done.stdout
    assert "harness: other: no vectors of its documents are stored in" in done.stderr


@pytest.mark.slow
def test_embed_takes_the_queries_of_a_file(bench: Bench, harness: Callable[..., Result]) -> None:
    (bench.folder / "queries.tsv").write_text("q1\ta\nq2\tb\n")
    done = harness("embed", "minilm", "--texts", "queries.tsv", "-o", "made")
    assert done.exit_code == 0 and "2 query vectors" in done.stdout
    assert embeddings.read(bench.folder / "made").role == "query"
    assert "6 query vectors" in harness("embed", "minilm", "./tiny", "--role", "query").stdout


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("minilm",), "name a DATASET or a file with --texts"),
        (("minilm", "./tiny", "--texts", "x"), "one of the two"),
        (("bm25", "./tiny"), "the engine 'lucene'"),
        (("minilm", "./tiny", "--results", "s3://b/p"), "name a file with -o"),
        (("minilm", "./tiny", "--results", "nothing"), "no results here"),
    ],
)
def test_invalid_arguments_are_reported_in_one_line(
    harness: Callable[..., Result], arguments: tuple[str, ...], why: str
) -> None:
    done = harness("embed", *arguments)
    assert done.exit_code == 2 and why in done.output and len(done.output.splitlines()) == 1


def test_index_written_by_the_engine_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the engine's own modules: an exact index needs only numpy."""
    for folder in ("shared", "dense"):
        monkeypatch.syspath_prepend(catalog.images_dir() / folder)
    doc_ids, built_with, faiss_index = map(
        importlib.import_module, ("index_files.doc_ids", "index_files.built_with", "faiss_index")
    )
    shards = [tmp_path / "1", tmp_path / "2"]
    for number, folder in enumerate(shards):
        folder.mkdir()
        np.save(folder / faiss_index.VECTORS, np.full((2, 3), number, dtype=np.float32))
        doc_ids.write(folder, [f"é{number}", f"b{number}"])
    settings = faiss_index.Settings("flat", "ip", *[1] * 9, keep_vectors=False, rescore=0)
    (tmp_path / "index").mkdir()
    faiss_index.build(faiss_index.Shards(shards), tmp_path / "index", settings, lambda _: None)
    doc_ids.join(shards, tmp_path / "index")
    facts = {"engine": "dense", "index": "flat", "checkpoint_sha256": "c", "documents": 4, "dimensions": 3}
    built_with.write(tmp_path / "index", facts)
    ids, vectors = encode.read_flat_index(tmp_path / "index").take({"b1", "é0", "elsewhere"})
    assert ids == ("é0", "b1") and vectors.tolist() == [[0, 0, 0], [1, 1, 1]]

"""Preparing a corpus as a stream, looking up its texts, and caching the hashes of its files."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import filesystem
from harness.datasets import corpus
from harness.datasets.source import DocumentStream, SourceDocument
from harness.errors import FileError


def made(count: int, **changes: str) -> DocumentStream:
    """Return made-up documents; ``changes`` maps an id to another."""

    def read() -> Iterator[SourceDocument]:
        for number in range(count):
            doc_id = f"d{number}"
            yield SourceDocument(f"made: {number}", changes.get(doc_id, doc_id), "", f"the text of {number}")

    return DocumentStream("made", f"{count} {changes}", (), read, lambda: count)


@pytest.fixture(params=[4, 7, 1000])
def alike(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third id has the same hash, and so many documents are sorted at once."""
    monkeypatch.setattr(corpus, "_RUN", request.param)
    right = corpus.id_hash
    monkeypatch.setattr(corpus, "id_hash", lambda doc_id: right(doc_id) if int(doc_id[1:]) % 3 else 7)


@pytest.mark.usefixtures("alike")
def test_ids_of_equal_hash_are_distinguished(tmp_path: Path) -> None:
    prepared = corpus.prepare_corpus(made(30), tmp_path)
    texts = dict(prepared.texts(f"d{number}" for number in range(40)))
    assert texts == {f"d{number}": f"the text of {number}" for number in range(30)}


@pytest.mark.usefixtures("alike")
def test_duplicate_id_is_detected_among_ids_of_one_hash(tmp_path: Path) -> None:
    with pytest.raises(FileError) as caught:
        corpus.prepare_corpus(made(30, d21="d6", d27="d3"), tmp_path)
    assert str(caught.value) == "made: 21: id 'd6' comes twice; rename or remove one"
    assert list((tmp_path / "corpora").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("run", [1, 9, 99])
def test_line_index_is_the_same_however_many_documents_are_sorted_at_once(
    run: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "_RUN", run)
    prepared = corpus.prepare_corpus(made(100), tmp_path)
    assert prepared.id_hashes.tolist() == sorted(corpus.id_hash(f"d{number}") for number in range(100))
    assert dict(prepared.texts(["d0", "d57", "d99"])) == {f"d{n}": f"the text of {n}" for n in (0, 57, 99)}
    assert {path.name for path in prepared.folder.iterdir()} == {
        "corpus.jsonl", "facts.json", "hashes.npy", "ids.txt", "starts.npy",
    }  # fmt: skip


def test_corpus_counts_empty_documents(tmp_path: Path) -> None:
    def read() -> Iterator[SourceDocument]:
        yield SourceDocument("1", "d1", "", "")
        yield SourceDocument("2", "d2", " ", "\n\t")
        yield SourceDocument("3", "d3", "a title", "")

    prepared = corpus.prepare_corpus(DocumentStream("made", "empty", (), read), tmp_path)
    assert (prepared.size, prepared.empty) == (3, 2)
    assert corpus.prepare_corpus(DocumentStream("made", "empty", (), read), tmp_path) == prepared, "made once"
    lines = (prepared.folder / "corpus.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == {"_id": "d1", "title": "", "text": ""}


@pytest.mark.slow
def test_document_of_any_length_takes_little_memory(tmp_path: Path) -> None:
    def peak(count: int) -> int:
        documents = made(count)
        tracemalloc.start()
        try:
            corpus.prepare_corpus(documents, tmp_path)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(100)  # what is loaded at first use
    # 8.8 million passages in under 1 GiB leave 120 bytes each.
    assert (peak(12_000) - peak(4_000)) / 8_000 < 64


def test_a_large_file_is_hashed_once_for_each_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, cache, hashed = tmp_path / "corpus.jsonl", tmp_path / "cache", []
    sha256 = filesystem.sha256

    def count(file: Path) -> str:
        hashed.append(file)
        return sha256(file)

    def write(text: str) -> None:
        before = path.stat().st_ctime_ns if path.exists() else 0
        path.write_text(text)
        while path.stat().st_ctime_ns == before:  # the kernel's clock has ticks
            path.write_text(text)

    monkeypatch.setattr(corpus, "_SETTLED_NS", -1_000_000_000)
    monkeypatch.setattr(filesystem, "sha256", count)
    write("one")
    first = corpus.content_key(["kind"], [path], cache)
    assert corpus.content_key(["kind"], [path], cache) == first
    assert corpus.content_key(["other"], [path], cache) != first
    assert len(hashed) == 1
    # The same size, and the time set back: another content all the same.
    before = path.stat()
    write("two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert corpus.content_key(["kind"], [path], cache) != first and len(hashed) == 2
    for file in (cache / "hashes").iterdir():
        file.write_text("damaged")
    write("one")
    assert corpus.content_key(["kind"], [path], cache) == first and len(hashed) == 3


def test_just_written_file_is_hashed_again(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text("one")
    corpus.content_key(["kind"], [tmp_path / "corpus.jsonl"], tmp_path / "cache")
    assert not (tmp_path / "cache" / "hashes").exists()


def test_hash_of_a_file_that_changes_meanwhile_is_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, sha256 = tmp_path / "corpus.jsonl", filesystem.sha256
    path.write_text("one")

    def change(file: Path) -> str:
        digest = sha256(file)
        path.write_text("more")
        return digest

    monkeypatch.setattr(corpus, "_SETTLED_NS", -1_000_000_000)
    monkeypatch.setattr(filesystem, "sha256", change)
    corpus.content_key(["kind"], [path], tmp_path / "cache")
    assert not (tmp_path / "cache" / "hashes").exists()

"""Datasets of ir_datasets: a real one whose files lie where a download would have put them, and made ones."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ir_datasets
import pytest
from ir_datasets.datasets.base import Dataset as Parts
from ir_datasets.formats import BaseDocs, BaseQrels, BaseQueries, GenericDoc, GenericQuery, TrecQrel, TrecQuery

from harness.datasets import IrDataset, find
from harness.driver.records import Query
from harness.errors import FileError, UsageError
from tests.datasets.conftest import load

SCIFACT = Path(__file__).resolve().parents[2] / "datasets" / "scifact"
# ir_datasets fixes its folder when it is imported.
SCRIPT = """
import json, sys
from pathlib import Path
from harness import datasets
from harness.errors import HarnessError
totals = set()
try:
    place = datasets.find(sys.argv[1], Path())
    found = datasets.load(place, Path(sys.argv[2]), progress=lambda _, total: totals.add(total))
except HarnessError as error:
    print(json.dumps({"error": str(error)}))
else:
    drawn = datasets.draw_sample(found, 1000, 20, 2023)
    print(json.dumps({"name": found.name, "corpus": found.corpus.sha256, "sample": drawn.sample_sha256,
                      "totals": sorted(totals), "queries": len(found.queries),
                      "qrels": sorted(found.qrels.decode().splitlines())}))
"""


def archive(path: Path, corpus: bytes | None = None) -> None:
    """BEIR's own archive of SciFact, made of the shipped files, or with another corpus."""
    path.parent.mkdir(parents=True, exist_ok=True)
    corpus = corpus or gzip.decompress((SCIFACT / "corpus.jsonl.gz").read_bytes())
    qrels = [line.split() for line in (SCIFACT / "qrels.trec").read_text().splitlines()]
    rows = "".join(f"{query}\t{document}\t{grade}\n" for query, _, document, grade in qrels)
    train = '{"_id": "0", "text": "a claim of the training split", "metadata": {}}\n'
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("scifact/corpus.jsonl", corpus)
        packed.writestr("scifact/queries.jsonl", (SCIFACT / "queries.jsonl").read_text() + train)
        packed.writestr("scifact/qrels/test.tsv", "query-id\tcorpus-id\tscore\n" + rows)


def in_a_process(name: str, folder: Path) -> dict[str, Any]:
    # Nothing listens there, so nothing is downloaded.
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
    home = {"IR_DATASETS_HOME": str(folder / "home"), "IR_DATASETS_DL_TRIES": "1"}
    command = [sys.executable, "-c", SCRIPT, name, str(folder / "cache")]
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    done = subprocess.run(command, env={**os.environ, **home, **proxies}, check=True, **options)
    assert "ownload error" not in done.stderr and "ownload failed" not in done.stderr, "it is told once"
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_beir_scifact_equals_the_shipped_one(tmp_path: Path) -> None:
    archive(tmp_path / "home" / "beir" / "scifact" / "source.zip")
    found = in_a_process("beir/scifact/test", tmp_path)
    shipped = load(SCIFACT, tmp_path / "cache")
    assert found["name"] == "beir-scifact-test"
    assert found["corpus"] == shipped.corpus.sha256
    assert found["queries"] == 300, "the claim of the training split is none of the test split's"
    assert found["qrels"] == sorted(shipped.qrels.decode().splitlines())
    assert found["sample"].startswith("290c91e9c465")
    assert found["totals"] == [5183], "a bar that has an end"


@pytest.mark.slow
def test_replaced_files_give_another_corpus(tmp_path: Path) -> None:
    def corpus(text: str) -> bytes:
        lines = [{"_id": f"d{n}", "title": "", "text": f"{text} {n}", "metadata": {}} for n in range(20)]
        return "".join(json.dumps(line) + "\n" for line in lines).encode()

    place = tmp_path / "home" / "beir" / "scifact"
    archive(place / "source.zip", corpus("one"))
    first = in_a_process("beir/scifact/test", tmp_path)["corpus"]
    assert in_a_process("beir/scifact/test", tmp_path)["corpus"] == first
    assert len(list((tmp_path / "cache" / "corpora").iterdir())) == 1, "made ready once"
    shutil.rmtree(place / "docs.pklz4")  # what ir_datasets made of the archive
    archive(place / "source.zip", corpus("two"))
    assert in_a_process("beir/scifact/test", tmp_path)["corpus"] != first


@pytest.mark.slow
def test_failed_download_is_one_line(tmp_path: Path) -> None:
    text = in_a_process("vaswani", tmp_path)["error"]
    assert text.startswith("vaswani: ir_datasets could not get it: ") and "\n" not in text
    assert "connect this machine, or put its files into IR_DATASETS_HOME" in text


class Page(NamedTuple):
    doc_id: str
    url: str
    title: str
    body: str

    def default_text(self) -> str:
        return f"{self.title} {self.body}"


class Post(NamedTuple):
    doc_id: str
    parts: tuple[str, ...]

    def default_text(self) -> str:
        return " ".join(self.parts)


class Titled(NamedTuple):
    doc_id: str
    title: str
    text: str

    def default_text(self) -> str:
        return f"{self.title} {self.text}"


class Docs(BaseDocs):
    def __init__(self, make: Callable[[], Iterator[Any]]) -> None:
        self.make = make

    def docs_iter(self) -> Iterator[Any]:
        return self.make()


class Queries(BaseQueries):
    def __init__(self, *items: Any) -> None:
        self.items = items

    def queries_iter(self) -> Iterator[Any]:
        return iter(self.items)


class Qrels(BaseQrels):
    def __init__(self, *items: Any) -> None:
        self.items = items

    def qrels_iter(self) -> Iterator[Any]:
        return iter(self.items)


Register = Callable[..., IrDataset]


@pytest.fixture
def register() -> Iterator[Register]:
    """Registers a dataset in ir_datasets for one test."""
    names: list[str] = []

    def add(*parts: Any) -> IrDataset:
        names.append(f"made-by-a-test/{len(names)}")
        ir_datasets.registry.register(names[-1], Parts(*parts))
        return IrDataset(names[-1])

    yield add
    for name in names:
        del ir_datasets.registry._registered[name]


ONE = Docs(lambda: iter([GenericDoc("d1", "x")]))
QUERY, QREL = Queries(GenericQuery("q1", "a river")), Qrels(TrecQrel("q1", "d1", 1, "0"))


def test_fields_of_every_kind_become_title_and_text(register: Register, tmp_path: Path) -> None:
    documents = [GenericDoc("d1", "text"), Page("d2", "u", "a title", "a body"), Post("d3", ("one", "two"))]
    documents.append(Titled("d4", "a title", ""))
    dataset = load(register(Docs(lambda: iter(documents)), QUERY, QREL), tmp_path)
    with (dataset.corpus.folder / "corpus.jsonl").open() as lines:
        found = [tuple(json.loads(line).values()) for line in lines]
    assert found == [("d1", "", "text"), ("d2", "a title", "a body"), ("d3", "", "one two"), ("d4", "a title", "")]


def test_query_is_the_title_of_a_topic_or_its_named_field(register: Register, tmp_path: Path) -> None:
    topics = Queries(TrecQuery("q1", "rivers", "about\n rivers", "long"))
    place = register(ONE, topics, QREL)
    assert load(place, tmp_path).queries == (Query("q1", "rivers"),)
    described = find(f"{place.id}#description", tmp_path)
    assert isinstance(described, IrDataset) and described == IrDataset(place.id, "description")
    dataset = load(described, tmp_path)
    assert (dataset.queries, dataset.name) == ((Query("q1", "about rivers"),), "made-by-a-test-0-description")
    assert dataset.corpus.sha256 == load(place, tmp_path).corpus.sha256
    with pytest.raises(UsageError, match=r"no text 'desc'; after '#' write one of title, description, narrative"):
        load(IrDataset(place.id, "desc"), tmp_path)


def test_judgements_of_unknown_queries_stay_and_repeated_ones_count_once(register: Register, tmp_path: Path) -> None:
    """A user cannot edit the files of ir_datasets."""
    unknown, one = TrecQrel("q0", "d1", 1, "0"), TrecQrel("q1", "d1", 2, "0")
    assert load(register(ONE, QUERY, Qrels(unknown, one, one)), tmp_path).qrels == b"q0 0 d1 1\nq1 0 d1 2\n"
    with pytest.raises(FileError, match="has grades 2, 1"):
        load(register(ONE, QUERY, Qrels(one, TrecQrel("q1", "d1", 1, "0"))), tmp_path)


def test_an_id_with_a_blank_is_named(register: Register, tmp_path: Path) -> None:
    place = register(Docs(lambda: iter([GenericDoc("d1", "x"), GenericDoc("d 2", "x")])), QUERY, QREL)
    with pytest.raises(FileError, match="made-by-a-test/0: document 2: id 'd 2' must be"):
        load(place, tmp_path)


def test_interrupted_preparation_leaves_no_file(register: Register, tmp_path: Path) -> None:
    def broken() -> Iterator[GenericDoc]:
        yield GenericDoc("d1", "x")
        raise RuntimeError("the disk\nis on fire")

    with pytest.raises(FileError, match="made-by-a-test/0: ir_datasets could not get it: the disk; connect"):
        load(register(Docs(broken), QUERY, QREL), tmp_path)
    assert not list((tmp_path / "corpora").iterdir())


def test_a_part_without_judgements_is_refused(register: Register, tmp_path: Path) -> None:
    place = register(ONE, QUERY)
    with pytest.raises(UsageError, match="made-by-a-test/0: ir_datasets has no qrels for it"):
        load(place, tmp_path)

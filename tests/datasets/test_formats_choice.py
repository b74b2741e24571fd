"""Which format a folder is in, and what is said where that cannot be told."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import datasets
from harness.datasets import IrDataset, formats
from harness.errors import UnknownName
from harness.records import Query
from tests.datasets import examples
from tests.datasets.conftest import Example, load, said

ALIKE = ("harness", "BEIR", "TREC", "MS MARCO")


@pytest.mark.parametrize("heading", ALIKE)
def test_formats_of_the_same_content_give_the_same_topics_and_judgements(example: Example, heading: str) -> None:
    dataset = load(example(heading))
    assert dataset.name == "data"
    assert dataset.queries == (Query("q1", "where do rivers go"),)
    assert dataset.qrels == b"q1 0 d1 1\n"
    assert dict(dataset.corpus.texts(["d1", "d2"])) == {
        "d1": "Rivers run to the sea.",
        "d2": "Glaciers are slow rivers of ice.",
    }


def test_a_corpus_of_the_same_documents_has_one_hash_in_every_format(tmp_path: Path) -> None:
    own, beir, trec = (load(examples.write(name, tmp_path / name)).corpus for name in ("harness", "BEIR", "TREC"))
    assert own.sha256 == beir.sha256 == trec.sha256


def test_every_format_has_an_example() -> None:
    assert {each.NAME for each in formats.FORMATS} <= set(examples.sections())


@pytest.mark.parametrize("name", [each.NAME for each in formats.FORMATS])
def test_each_example_fits_its_own_format_alone(example: Example, name: str) -> None:
    path = example(name)
    assert [each.NAME for each in formats.FORMATS if not formats._missing(each, path)] == [name]


def test_a_folder_that_fits_two_formats_is_refused(example: Example) -> None:
    example("harness")
    path = example("MS MARCO")
    assert said(path) == f"{path}: its files fit harness and MS MARCO; leave those of one format in it"


def test_unknown_format_lists_the_known_ones(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir()
    (path / "notes.md").write_text("x")
    text = said(path)
    assert text.startswith(f"{path}: not a known dataset format; looked for harness: corpus.jsonl, queries.jsonl")
    assert "passage-collection/passage2id.map.json" in text and "*_w100.tsv" in text


def test_missing_files_are_named_for_the_nearest_formats(example: Example) -> None:
    path = example("harness")
    (path / "qrels.trec").unlink()
    assert said(path).startswith(f"{path}: lacks qrels.trec (harness), or qrels/*.tsv (BEIR); each may be .gz or .zst")


def test_missing_folder_is_named(tmp_path: Path) -> None:
    assert (
        said(tmp_path / "absent") == f"{tmp_path / 'absent'}: no such folder; give one with corpus, queries and qrels"
    )


def test_a_split_is_chosen_by_name(example: Example) -> None:
    path = example("MS MARCO")
    (path / "queries.train.tsv").write_text("t1\twhy ice\n")
    (path / "qrels.train.tsv").write_text("t1\t0\td2\t1\n")
    assert said(path) == f"{path}: has the splits dev.small, train; name one, e.g. data#dev.small"
    assert (
        said(path.with_name("data#trian"))
        == f"{path}: no split 'trian'; did you mean 'train'?; it has dev.small, train"
    )
    dataset = load(path.with_name("data#train"))
    assert (dataset.name, dataset.queries) == ("data-train", (Query("t1", "why ice"),))


def test_a_format_without_splits_takes_none(example: Example) -> None:
    path = example("harness")
    assert said(path.with_name("data#dev")) == f"{path}: the harness format has no splits; leave '#dev' out"


def test_a_folder_may_have_the_mark_in_its_own_name(tmp_path: Path) -> None:
    assert load(examples.write("harness", tmp_path / "c#sharp")).name == "c-sharp"


def test_a_dataset_is_a_path_a_shipped_name_or_an_id(tmp_path: Path) -> None:
    assert datasets.find("./tiny", tmp_path) == tmp_path / "tiny"
    assert datasets.find("/data/tiny", tmp_path) == Path("/data/tiny")
    assert datasets.find("beir/scifact/test", tmp_path) == IrDataset("beir/scifact/test")
    (tmp_path / "mine" / "inner").mkdir(parents=True)
    for name in ("mine", "mine/inner", "mine#dev"):
        assert datasets.find(name, tmp_path) == tmp_path / name
    with pytest.raises(UnknownName, match="unknown dataset 'scifakt'; did you mean 'scifact'"):
        datasets.find("scifakt", tmp_path)
    with pytest.raises(UnknownName, match="unknown dataset 'beir/scifakt/test'; did you mean 'beir/scifact/test'"):
        datasets.find("beir/scifakt/test", tmp_path)


@pytest.mark.parametrize(
    ("name", "size", "judged", "text"),
    [
        ("xquad-zh", 240, 1190, "黑豹队"),
        ("xquad-en", 240, 1190, "Panthers"),
        ("dureader-demo-zh", 7670, 196, "书"),
    ],
)
def test_shipped_collections_are_whole(tmp_path: Path, name: str, size: int, judged: int, text: str) -> None:
    place = datasets.find(name, tmp_path)
    assert isinstance(place, Path)
    dataset = load(place, tmp_path)
    assert (dataset.corpus.size, len(dataset.judged)) == (size, judged)
    found = {line.split()[2] for line in dataset.qrels.decode().splitlines()}
    assert dataset.corpus.unknown(found) == set()
    first = (dataset.corpus.folder / "ids.txt").read_text().split("\n", 1)[0]
    assert text in dict(dataset.corpus.texts([first]))[first]
    readme = (place / "README.md").read_text(encoding="utf-8")
    assert "**Licence.**" in readme and "**Attribution.**" in readme and f"{size:,}" in readme

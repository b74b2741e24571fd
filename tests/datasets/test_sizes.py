"""A dataset at other numbers of documents: nested, with all judged documents and the same judgements."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness import datasets
from harness.datasets import Dataset
from harness.datasets.sizes import SizedDataset
from harness.errors import UsageError

SHIPPED = Path(__file__).resolve().parents[2] / "datasets"
SIZES = (400, 1_000, 1_200, 1_500, 4_000)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def load(name: str, cache: Path) -> Dataset:
    return datasets.load(datasets.find(name, SHIPPED), cache)


@pytest.mark.slow
def test_sizes_are_nested_and_keep_queries_and_judgements(cache: Path) -> None:
    whole = load("scifact-1200", cache)
    judged = {document for _, document, _ in whole.graded()}
    smaller: set[str] = set()
    for size in SIZES:
        found = load(f"scifact-1200@{size}", cache)
        ids = set(found.corpus.ids())
        assert found.name == f"scifact-1200@{size}"
        assert len(ids) == found.corpus.size == size and judged <= ids
        assert smaller <= ids, "each size holds the smaller ones"
        assert (found.queries, found.qrels, found.faults) == (whole.queries, whole.qrels, whole.faults)
        smaller = ids
    assert load("scifact-1200@1200", cache).corpus == whole.corpus


@pytest.mark.slow
def test_a_sample_is_not_by_place_in_the_corpus(cache: Path) -> None:
    whole = load("scifact-1200", cache)
    judged = {document for _, document, _ in whole.graded()}
    others = [document for document in whole.corpus.ids() if document not in judged]
    chosen = set(load("scifact-1200@700", cache).corpus.ids())
    first = sum(document in chosen for document in others[: len(others) // 2])
    second = sum(document in chosen for document in others[len(others) // 2 :])
    assert 0.6 < first / second < 1.6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("scifact-1200@282", "scifact-1200 has 283 judged documents, which stay; name a larger size"),
        ("scifact-1200@900000000", "are too few for 899,998,800 distractors"),
        ("scifact-1200@500@400", "it has two sizes; name one"),
    ],
)
def test_a_size_that_cannot_be_made_is_refused(cache: Path, name: str, fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        load(name, cache)


def test_a_folder_may_have_such_a_name_itself(tmp_path: Path) -> None:
    shutil.copytree(SHIPPED / "scifact-1200", tmp_path / "mine@500")
    assert datasets.find("./mine@500", tmp_path) == tmp_path / "mine@500"
    assert datasets.find("./mine@500@400", tmp_path) == SizedDataset(tmp_path / "mine@500", 400)
    assert datasets.licence(datasets.find("./mine@500@400", tmp_path)) == datasets.licence(tmp_path / "mine@500")
    gone = datasets.missing_folder(datasets.find("./gone@400", tmp_path))
    assert gone is not None and "gone" in str(gone) and not datasets.is_here(SizedDataset(tmp_path / "gone", 400))

"""Reading in a folder of its own, and NLTK's sentence model in its own format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import datasets
from harness.datasets import Dataset, answers
from harness.errors import FileError
from tests.datasets import examples

Example = Callable[[str], Path]


@pytest.fixture
def example(tmp_path: Path) -> Example:
    """Return a function that writes the example of a format."""
    return lambda heading: examples.write(heading, tmp_path / "data")


def load(place: datasets.DatasetLocation, cache: Path | None = None) -> Dataset:
    assert cache or isinstance(place, Path)
    return datasets.load(place, cache or place.parent / "cache")


def load_error(folder: Path) -> str:
    """Return the one-line error of a wrong dataset."""
    with pytest.raises(FileError) as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    assert not list((folder.parent / "cache" / "corpora").glob("*")), "nothing half-read is kept"
    return str(caught.value)


def replace_text(path: Path, old: str, new: str) -> None:
    """Replace a text in a file."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def forget_model() -> None:
    """Clear what NLTK and harness remember of the model."""
    from nltk import tokenize

    tokenize._get_punkt_tokenizer.cache_clear()
    answers.check_tokenizer.cache_clear()
    answers.tokenise.cache_clear()


@pytest.fixture
def no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give NLTK an empty data folder, and return it."""
    import nltk.data

    folder = tmp_path / "nltk_data"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(nltk.data, "path", [str(folder)])
    forget_model()
    yield folder
    forget_model()


@pytest.fixture
def model(no_model: Path) -> Path:
    """Write the sentence model's four files, with three abbreviations."""
    folder = no_model / "tokenizers" / "punkt_tab" / "english"
    folder.mkdir(parents=True)
    (folder / "abbrev_types.txt").write_text("d.c\ndr\ninc\n")
    for name in ("collocations.tab", "sent_starters.txt", "ortho_context.tab"):
        (folder / name).write_text("")
    return no_model

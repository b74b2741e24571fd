"""The index of a fusion names its components, and holds their indexes in folders of their names."""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from harness.driver.adapter import Adapter, Corpus
from harness.driver.records import Envelope
from tests.images.test_rank_fusion import FOLDER, module

ROOT = Path(__file__).parents[2]
DOCUMENTS = 20

Make = Callable[..., Adapter]


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.syspath_prepend(str(FOLDER.parent / "shared"))
    return module("adapter")


@pytest.fixture
def joined(adapter: ModuleType) -> Any:
    """The module of components, which the adapter has on its path."""
    return importlib.import_module("joined.component")


@pytest.fixture
def make(tmp_path: Path, adapter: ModuleType, joined: Any, monkeypatch: pytest.MonkeyPatch) -> Make:
    """A fusion of the toy with itself, whose processes no test here starts."""

    def new(names: tuple[str, str] = ("words", "letters")) -> Adapter:
        facts = [joined.ComponentFacts(name, "toy", "", {}) for name in names]
        monkeypatch.setattr(joined, "read_components", lambda: facts)
        fusion: Adapter = adapter.ENGINE({"method": "rrf", "depth": 5}, Envelope("e", 1, 1 << 30), tmp_path)
        return fusion

    return new


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    path = tmp_path / "corpus.jsonl"
    lines = [json.dumps({"_id": f"d{n}", "title": "", "text": f"text number {n}"}) + "\n" for n in range(DOCUMENTS)]
    path.write_text("".join(lines))
    return Corpus(path, DOCUMENTS)


@pytest.fixture
def index(tmp_path: Path) -> Path:
    (tmp_path / "index").mkdir()
    return tmp_path / "index"


def test_fusion_counts_the_work_of_both_components(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    fusion = make()
    work = ({"flop": 5, "parameters": 22}, {}, {"flop": 2, "candidates": 9})
    with monkeypatch.context() as patched:
        patched.setattr(fusion, "components", [SimpleNamespace(counts=each.copy) for each in work])
        assert fusion.counts() == {"flop": 7, "parameters": 22, "candidates": 9}


def test_index_of_other_components_is_refused(make: Make, corpus: Corpus, index: Path) -> None:
    done: list[int] = []
    make().build(corpus, index, done.append)
    assert [path.name for path in index.iterdir()] == ["fusion.json"] and done == [DOCUMENTS]
    with pytest.raises(
        ValueError, match=r"^the index is of words and letters, not of letters and words; build it again$"
    ):
        make(("letters", "words")).load(index)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "the index has no readable fusion.json: not made by this engine, or damaged; build it again"),
        ('["words", "lett', "the index has no readable fusion.json"),
        ('["words", "letters"]', "the index has no readable fusion.json"),
        ('{"engine": "fusion", "version": 1, "systems": 5}', "the index has no readable fusion.json"),
        (
            '{"engine": "dense", "version": 0, "systems": ["words", "letters"]}',
            "the index is of engine 'dense', version 0; this is 'fusion', version 1: build it again",
        ),
    ],
)
def test_an_index_of_another_engine_or_version_is_refused(
    make: Make, corpus: Corpus, index: Path, content: str | None, message: str
) -> None:
    make().build(corpus, index, lambda _: None)
    (index / "fusion.json").unlink()
    if content is not None:
        (index / "fusion.json").write_text(content)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        make().load(index)


def test_fusion_engine_without_components_is_refused(adapter: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing is joined here; the system's TOML has to name two 'components'"):
        adapter.ENGINE({"method": "rrf", "depth": 5}, Envelope("e", 1, 1 << 30), tmp_path)


def test_each_component_has_its_images_variables_and_the_launchers(
    joined: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = (
        {"PYTHONPATH": "/a", "JAVA_HOME": "/java", "X": "first"},
        {"PYTHONPATH": "/b", "HUB": "off", "X": "last"},
    )
    here = {**last, "PYTHONPATH": "/fusion", "OMP_NUM_THREADS": "2", "HOSTNAME": "h"}
    launched = {"OMP_NUM_THREADS": "2", "HOSTNAME": "h"}
    assert joined.environment(here, first, last) == {**first, **launched}
    assert joined.environment(here, last, last) == {**last, **launched}
    # What the launcher sets wins over an image, as in a job of its own.
    assert joined.environment({**here, "X": "launched"}, first, last)["X"] == "launched"
    facts = [joined.ComponentFacts("e", "e", "", variables) for variables in ({}, {"PATH": "/last"})]
    monkeypatch.setenv("PATH", "/last")
    paths = [
        (joined.Component(each, {}, Envelope("e", 1, 1), Path("/"), last=facts[1]).environment or {})["PATH"]
        for each in facts
    ]
    assert paths == [os.defpath, "/last"], "the last image's is not the other's"


def test_component_names_with_a_common_prefix_are_distinguished(adapter: ModuleType) -> None:
    own, theirs = importlib.import_module("joined.engine")._divided(
        {"depth": 5, "e5.k": 1, "e5.v2.k": 2}, ["e5", "e5.v2"]
    )
    assert own == {"depth": 5} and theirs == {"e5": {"k": 1}, "e5.v2": {"k": 2}}

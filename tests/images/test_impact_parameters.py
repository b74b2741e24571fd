"""Tests of parameters that the learned sparse retrieval engine refuses before loading."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.launch.images import catalog

SPLADE = {"method": "splade", "head": "splade", "document_model": "d", "query_model": "q", "quantisation": 100}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(catalog.images_dir() / "shared"))
    return importlib.import_module


def test_parameter_unused_by_its_method_is_refused(module: Any) -> None:
    methods: ModuleType = module("term_weights.methods")
    methods.check(SPLADE, ())
    with pytest.raises(ValueError, match="unknown parameter 'query_tokns'; did you mean 'query_tokens'"):
        methods.check({**SPLADE, "query_tokns": 3}, ())
    with pytest.raises(ValueError, match="unknown parameter 'expansions'"):
        methods.check({**SPLADE, "expansions": 40}, ())
    with pytest.raises(ValueError, match="query_quantisation is 0, must be a number above 0"):
        methods.check({**SPLADE, "query_quantisation": 0}, ())


def test_methods_that_write_text_are_refused_by_an_engine_of_weights(module: Any) -> None:
    methods: ModuleType = module("term_weights.methods")
    deepct = {"method": "deepct", "head": "term_weight", "document_model": "d", "scale": 100}
    methods.check(deepct, (), texts=True)
    with pytest.raises(ValueError, match="method is 'deepct', must be one of splade, unicoil"):
        methods.check(deepct, ())


@pytest.mark.parametrize("same", [True, False])
def test_encoders_without_common_terms_are_refused(module: Any, tmp_path: Path, same: bool) -> None:
    methods: ModuleType = module("term_weights.methods")
    for folder, words in (("d", ["a", "b"]), ("q", ["a", "b"] if same else ["a", "c"])):
        (tmp_path / folder).mkdir()
        vocabulary = {word: number for number, word in enumerate(words)}
        (tmp_path / folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))
    if same:
        methods.check_vocabularies(tmp_path, SPLADE)
    else:
        with pytest.raises(ValueError, match="d and q: the encoders of documents and of queries have different voc"):
            methods.check_vocabularies(tmp_path, SPLADE)

"""A reranker as a service: the shape of its answers, and its scores behind a first stage that is a service too."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import docker
import pytest

from harness.config import data_root
from harness.launch.images import builder, catalog
from tests.images.conftest import CACHE, DOCUMENTS, IMPORTS, PRELUDE
from tests.images.inside import Warmth
from tests.images.services import SERVICE


class Letters:
    """Counts the letters of the query."""

    name = "letters"

    def score(self, query: str, documents: Sequence[str]) -> tuple[list[float], int]:
        return [float(document.count(query)) for document in documents], 7

    def facts(self) -> dict[str, Any]:
        return {"threads": {"letters": 1}}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(catalog.images_dir() / "shared"))
    monkeypatch.syspath_prepend(str(catalog.images_dir() / "rerank-service"))
    return importlib.import_module("rerank_server")


def test_answers_have_coheres_shape(server: ModuleType) -> None:
    answer = server.Reranking(Letters).answer
    asked = {"query": "a", "documents": ["a", "b", "aa", "a"], "model": "letters"}
    best = [(2, 2.0), (0, 1.0), (3, 1.0), (1, 0.0)]
    for top_n in (None, 1, 3, 9):
        given = asked if top_n is None else {**asked, "top_n": top_n}
        results = [{"index": index, "relevance_score": score} for index, score in best[:top_n]]
        for path in ("/rerank", "/v1/rerank"):
            whole = {"model": "letters", "results": results, "usage": {"flop": 7}}
            assert answer("POST", path, json.dumps(given).encode()) == (200, whole)
    assert answer("GET", "/ready", b"") == (200, {"model": "letters", "threads": {"letters": 1}})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"query": None}, "query must be a text"),
        ({"documents": []}, "documents must be a list of 1 to 4096 texts"),
        ({"documents": [{"text": "a"}]}, "documents has an entry that is not a text"),
        ({"top_n": 0}, "top_n must be a whole number, at least 1"),
        ({"model": "other"}, "model is 'other'; this server has 'letters'"),
    ],
)
def test_wrong_requests_are_refused(server: ModuleType, changes: dict[str, object], said: str) -> None:
    asked = {"query": "a", "documents": ["a"], **changes}
    with pytest.raises(server.BadRequest, match=said):
        server.Reranking(Letters).answer("POST", "/rerank", json.dumps(asked).encode())


def test_what_does_not_load_is_told(server: ModuleType) -> None:
    def load() -> Letters:
        raise ValueError("the weights are damaged")

    with pytest.raises(server.BadRequest, match="the weights are damaged"):
        server.Reranking(load).answer("GET", "/ready", b"")


@pytest.mark.docker
def test_scores_are_the_librarys_and_documents_below_the_depth_stay_below(
    engine: docker.DockerClient, warmth: Warmth, tmp_path: Path
) -> None:
    lines = """
from checkpoints import dense, rerank
import service_prepare
assets = Path("/index/assets")
texts = [f"{each.title} {each.text}" if each.title else each.text for each in corpus]
dense.make(assets / params["model"], "bert", texts=texts, safetensors=True)
rerank.make(assets / params["rerank_model"], "bert", texts=texts)
for place in list(assets.iterdir()):
    shutil.copytree(place, Path("/index/plain") / place.name)
service_prepare.make_ready(assets, params)
say(sorted(each.name for each in (assets / params["rerank_model"]).iterdir()))
engine = lambda **changes: adapter.ENGINE({**params, **changes}, Envelope("test", 1, 1 << 30), assets)
built(corpus)
started()
from transformers import AutoModelForSequenceClassification, AutoTokenizer
import torch
plain = Path("/index/plain") / params["rerank_model"]
model, tokens = AutoModelForSequenceClassification.from_pretrained(plain).eval(), AutoTokenizer.from_pretrained(plain)
ids = [each.doc_id for each in corpus]
for depth in (4, 2):
    own = client(depth=depth)
    own.load(index)
    for query in ("mountains of ice", "coffee " * 600):
        hits = own.search(query, 4)
        read = tokens([query] * 4, texts, padding=True, truncation="longest_first", max_length=512, return_tensors="pt")
        with torch.inference_mode():
            scores = dict(zip(ids, model(**read).logits[:, 0].tolist()))
        first = [hit.doc_id for hit in own.first_stage()]
        say([first, scores, [[hit.doc_id, hit.score] for hit in hits], [hit.doc_id for hit in own.search(query, 2)]])
    alone = set(own.threads().values()) == {1}
    say([sorted(own.stages_s()), alone, own.device(), sorted(own.libraries()), own.counts()])
    own.close()
say(ended())
"""
    system = catalog.system("minilm-rerank-service")
    image = builder.ImageBuilder(engine, CACHE).ensure_engine(system)
    job = tmp_path / "job"
    shutil.copytree(data_root() / "checkpoints", job / "checkpoints", ignore=shutil.ignore_patterns("__pycache__"))
    (job / "probe.py").write_text(PRELUDE + SERVICE.replace('Path("/opt/assets")', 'Path("/index/assets")') + lines)
    (job / "params.json").write_text(json.dumps(system.params))
    (job / "corpus.jsonl").write_text("".join(json.dumps(document) + "\n" for document in DOCUMENTS))
    imports = IMPORTS["rerank"].replace("import adapter, rerank_prepare, document_graph, ", "import adapter, ")
    answers = warmth.of(image.digest, imports).ask(job)
    files, built, *rankings, code = answers
    assert "model.xml" in files and "model.safetensors" not in files and built == [0, 4] and code == 0
    for depth, (*ranked, facts) in ((4, rankings[:3]), (2, rankings[3:])):
        for first, scores, hits, shorter in ranked:
            reranked = sorted(first[:depth], key=lambda doc_id: (-round(scores[doc_id], 5), first.index(doc_id)))
            assert [doc_id for doc_id, _ in hits] == reranked + first[depth:]
            assert [score for _, score in hits[:depth]] == pytest.approx([scores[each] for each in reranked], abs=1e-4)
            assert shorter == [doc_id for doc_id, _ in hits[:2]]
        stages, alone, device, libraries, counts = facts
        assert counts["pairs"] == depth and counts["flop"] > 0 and counts["parameters"] > 0
        assert stages == ["encode", "rerank", "retrieve"] and alone and device == "cpu"
        assert {"faiss-cpu", "onnxruntime", "openvino"} < set(libraries)

"""Chroma and the servers of embeddings and of vectors in their images: the library's vectors, exact neighbours."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest

from harness.launch.images import catalog
from tests.images.conftest import DOCUMENTS, Probe
from tests.images.dense import SCIFACT
from tests.images.services import SERVICE

_TEXTS, _QUERIES = SCIFACT.texts(40, 6)
SYSTEMS = ("chroma", "minilm-service")

# Vectors in place of an encoder's: a corpus of many documents costs no forward passes.
_DRAWN = """
import numpy
from array import array
from harness.driver.adapter import Document
rows = numpy.random.default_rng(7).standard_normal((3000, 32)).astype("f4")
rows /= numpy.linalg.norm(rows, axis=1, keepdims=True)
asked = numpy.random.default_rng(8).standard_normal((50, 32)).astype("f4")
class Drawn:
    def corpus(self, documents):
        return ((each.doc_id, array("f", rows[int(each.text)].tobytes())) for each in documents)
    def documents(self, texts):
        return [array("f", rows[int(text)].tobytes()) for text in texts]
    def query(self, text):
        return array("f", asked[int(text or 0)].tobytes())
    def flop(self):
        return 0
    def close(self):
        pass
class Own(adapter.ENGINE):
    def connect(self, role, timeout_s):
        super().connect(role, timeout_s)
        self.embedder.close()
        self.embedder = Drawn()
adapter.ENGINE = Own
drawn = [Document(f"d{number:04}", "", str(number)) for number in range(len(rows))]
"""


@pytest.fixture
def chroma(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The adapter's module, on the host."""
    folder = catalog.images_dir() / "chroma"
    monkeypatch.syspath_prepend(str(folder.parent / "shared"))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "service", raising=False)
    spec = importlib.util.spec_from_file_location("chroma_adapter", folder / "adapter.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.delitem(sys.modules, "service")
    return module


@pytest.mark.parametrize(
    "documents", [1, 2, 3, 5, 28, 999, 5183, 10_240, 10_241, 57_638, 522_931, 8_841_823, 20_000_003]
)
def test_the_last_batch_has_chroma_write_the_whole_graph(chroma: ModuleType, documents: int) -> None:
    sizes, written_after = chroma.batches(documents)
    since = written = total = 0
    for size in sizes:
        assert 1 <= size <= 1024
        since, total = since + size, total + size
        if since >= written_after:
            since, written = 0, written + 1
    assert total == documents and written_after >= 2
    assert documents == 1 or (since == 0 and (documents < 20 or 10 <= written <= 50))


@pytest.mark.docker
def test_vectors_of_the_server_are_those_of_the_library(probe: Probe) -> None:
    plain = f"""
from encoder.model import Model
from encoder.roles import role
for side, texts in (("document", {_TEXTS!r}), ("query", {_QUERIES!r})):
    asked = role(side, params)
    model = Model.load(Path("/opt/assets") / asked.folder, asked.head, asked.backend, 1, "cpu", asked.params)
    one_by_one = side == "query"
    rows = [model([text], 256)[0] for text in texts] if one_by_one else model.many(texts, 256, params["batch_size"])
    say([row.tolist() for row in rows])
"""
    asking = f"""
from embedding_server.client import Embedder
started()
embedder = Embedder(f"http://127.0.0.1:{{service.EMBEDDINGS_PORT}}")
facts = [embedder.wait(role) for role in ("document", "query")]
say([vector.tolist() for vector in embedder.documents({_TEXTS!r})])
say([embedder.query(text).tolist() for text in {_QUERIES!r}])
say([[each[name] for name in ("model", "dims", "cpus", "threads")] for each in facts])
embedder.close()
say(ended())
"""
    documents, queries, facts, code = probe("minilm-service", SERVICE + asking)
    assert [documents, queries] == probe("minilm", plain), "to the last bit"
    assert [each[:3] for each in facts] == 2 * [["all-minilm-l6-v2", 384, 1]] and code == 0
    assert all(set(each[3].values()) == {1} for each in facts)


@pytest.mark.docker
@pytest.mark.parametrize("name", SYSTEMS)
def test_an_index_is_whole_after_the_build_and_a_search_ranks_as_the_vectors_do(probe: Probe, name: str) -> None:
    lines = """
built(corpus)
before = {each.name: each.stat().st_mtime_ns for each in index.rglob("*")}
started()
own = client()
own.load(index)
say([own.threads(), sorted(own.libraries()), own.streams()])
queries = ["mountains of ice", "throw molten rock", "coffee \\U0001f600", "", " ", "\\ud800 coffee", "coffee " * 3000]
from embedding_server.client import Embedder
embedder = Embedder(f"http://127.0.0.1:{service.EMBEDDINGS_PORT}")
stored = dict(embedder.corpus(corpus))
for query in queries:
    vector = embedder.query(query)
    plain = {name: sum(map(float.__mul__, vector, row)) for name, row in stored.items()}
    say([plain, *([[hit.doc_id, hit.score] for hit in own.search(query, k)] for k in (4, 1, 2, 3, 9))])
say([sorted(own.stages_s()), own.counts()])
own.close()
say([ended(), before == {each.name: each.stat().st_mtime_ns for each in index.rglob("*")}])
"""
    built, facts, *rankings, (stages, counts), (code, unchanged) = probe(name, SERVICE + lines)
    assert built == [0, len(DOCUMENTS)] and code == 0 and stages == ["encode", "retrieve"]
    assert counts["parameters"] == 22_565_376 and counts["flop"] > 1e9, "256 tokens"
    assert unchanged == (not catalog.system(name).service.writes_index), "engine.toml says what a search writes"
    threads, libraries, streams = facts
    assert set(threads.values()) == {1} and {"onnxruntime", "tokenizers"} < set(libraries) and streams == 8
    for plain, ranking, *shorter in rankings:
        order = sorted(plain, key=lambda doc_id: (-round(plain[doc_id], 6), doc_id if name == "chroma" else 0))
        assert [doc_id for doc_id, _ in ranking] == order
        assert [score for _, score in ranking] == pytest.approx([plain[doc_id] for doc_id in order], abs=1e-6)
        assert shorter == [ranking[:1], ranking[:2], ranking[:3], ranking]


@pytest.mark.docker
def test_chroma_finds_the_exact_neighbours_as_ef_search_grows(probe: Probe) -> None:
    lines = """
built(drawn, ef_construction=200, max_neighbors=16)
exact = [{f"d{row:04}" for row in numpy.argsort(-(rows @ query))[:10]} for query in asked]
for ef_search in (10, 400):
    started()
    own = client(ef_search=ef_search)
    own.load(index)
    found = [own.search(str(number), 10) for number in range(len(asked))]
    shares = [len({hit.doc_id for hit in hits} & near) / 10 for hits, near in zip(found, exact)]
    best = float(asked[0] @ rows[int(found[0][0].doc_id[1:])])
    say([sum(shares) / len(shares), abs(found[0][0].score - best)])
    # What the build wrote last is found as well as what it wrote first.
    own.embedder.query = lambda text: array("f", rows[int(text)].tobytes())
    say([own.search(str(number), 1)[0].doc_id for number in (0, 1500, 2999)])
    own.close()
    say(ended())
"""
    built, (low, _), few, code, (high, error), many, again = probe("chroma", SERVICE + _DRAWN + lines)
    assert built == [0, 3000] and code == again == 0
    assert 0.5 < low < high and high >= 0.99 and error < 1e-5
    assert few[0] == "d0000" and many == ["d0000", "d1500", "d2999"]


@pytest.mark.docker
def test_exact_search_finds_the_exact_neighbours(probe: Probe) -> None:
    lines = """
built(drawn)
started()
own = client()
own.load(index)
for number, query in enumerate(asked):
    found = own.search(str(number), 10)
    say([[hit.doc_id for hit in found], [f"d{row:04}" for row in numpy.argsort(-(rows @ query), kind="stable")[:10]]])
say(ended())
"""
    built, *found, code = probe("minilm-service", SERVICE + _DRAWN + lines)
    assert built == [0, 3000] and code == 0 and all(ours == exact for ours, exact in found)


@pytest.mark.docker
@pytest.mark.parametrize("name", SYSTEMS)
def test_equal_scores_are_cut_in_one_order(probe: Probe, name: str) -> None:
    lines = """
rows[:] = rows[0]
rows[2990:] = -rows[0]
asked[:] = rows[0]
built(drawn)
started()
own = client()
own.load(index)
say([[hit.doc_id for hit in own.search("0", k)] for k in (1, 3, 20)])
say(ended())
"""
    *_, depths, code = probe(
        name, SERVICE + _DRAWN.replace("3000", "300").replace("2990", "290") + lines.replace("2990", "290")
    )
    assert code == 0 and depths[0] == depths[1][:1] and depths[1] == depths[2][:3]
    assert depths[2] == [f"d{number:04}" for number in range(20)]


@pytest.mark.docker
@pytest.mark.parametrize("name", SYSTEMS)
def test_wrong_parameters_and_servers_that_have_gone_are_told(probe: Probe, name: str) -> None:
    lines = """
say(refused(lambda: engine(ef_serch=3)))
say(refused(lambda: engine(connections=0)))
started(query_tokens=9999)
own = client(query_tokens=9999)
try:
    own.load(index)
except QueryFailed as error:
    say(str(error))
say(ended())
built(corpus)
started()
own = client()
own.load(index)
ended()
try:
    own.search("ice", 3)
except QueryFailed as error:
    say(str(error))
"""
    unknown, wrong, long, code, _, gone = probe(name, SERVICE + lines)
    assert "unknown parameter 'ef_serch'" in unknown and wrong == "connections is 0, must be a whole number, at least 1"
    assert "9999 tokens are asked for" in long and code == 0
    assert gone.startswith("the connection failed")

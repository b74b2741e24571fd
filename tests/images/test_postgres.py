"""PostgreSQL in its images: full text as SQL by hand finds it, exact neighbours as NumPy's, and a graph's recall."""

from __future__ import annotations

import pytest

from tests.images.conftest import Probe
from tests.images.services import SERVICE

pytestmark = pytest.mark.docker

# Servers and clients speak PostgreSQL's own protocol; `sql` asks as a person would.
GIVEN = (
    SERVICE
    + """
def client(**changes):
    made = engine(**changes)
    made.service_url = f"postgresql://127.0.0.1:{service.PORT}"
    return made
def sql(statement, *values):
    import psycopg
    with psycopg.connect(f"postgresql://postgres@127.0.0.1:{service.PORT}/postgres") as connection:
        return connection.execute(statement, values).fetchall()
"""
)

# Vectors in place of an encoder's: a corpus of many documents costs no forward passes.
DRAWN = """
import numpy
from array import array
from harness.driver.adapter import Document
random = numpy.random.default_rng(7)
rows = random.standard_normal((3000, 32)).astype("f4")
rows[1000] = rows[2000] = rows[5]  # equal scores
rows /= numpy.linalg.norm(rows, axis=1, keepdims=True)
asked = random.standard_normal((40, 32)).astype("f4")
asked[0] = rows[5]
class Drawn:
    def corpus(self, documents):
        return ((each.doc_id, array("f", rows[int(each.text)].tobytes())) for each in documents)
    def query(self, text):
        return array("f", asked[int(text or 0)].tobytes())
    def close(self):
        pass
class Own(adapter.ENGINE):
    def _connect(self, role, timeout_s):
        super()._connect(role, timeout_s)
        self.embedder.close()
        self.embedder, self.encoder["dims"] = Drawn(), 32
adapter.ENGINE = Own
drawn = [Document(f"d{number}", "", str(number)) for number in range(len(rows))]
"""


def test_full_text_finds_what_sql_by_hand_finds(probe: Probe) -> None:
    lines = """
built(corpus)
started()
own = client()
own.load(index)
say([own.threads(), sorted(own.libraries()), own.streams()])
for words, query in (("mountain | ice", "mountains of ice"), ("throw | molten | rock", "throw molten rock"),
                     ("coffe", "coffee"), ("ice", "ice ice")):
    by_hand = sql("SELECT id, ts_rank(words, %s::tsquery, 1)::float8 AS score FROM documents "
                  "WHERE words @@ %s::tsquery ORDER BY score DESC, place", words, words)
    ours = [[[hit.doc_id, hit.score] for hit in own.search(query, k)] for k in (9, 1)]
    say([[list(each) for each in by_hand], *ours])
for query in ("", "the of and", "zzz", "it's", "coffee\\x00", "AND (foo* & 'rock", "\\ud800 coffee",
              "c\\\\a:b rock' | -", "coffee " * 3000, "https://a.b/c?d=e&f | rock"):
    say([hit.doc_id for hit in own.search(query, 2)])
say([list(each) for each in sql("SELECT count(*), min(place), max(place) FROM documents")])
say(refused(lambda: client(language="de").load(index)))
own.close()
say(ended())
started(), client().load(index), say(ended())  # a third start
"""
    built, facts, *rest = probe("postgres-fts", GIVEN + lines)
    assert built == [0, 4] and facts == [{"postgres": 1}, ["postgresql", "psycopg"], 8]
    rankings, rest = rest[:4], rest[4:]
    for by_hand, all_hits, first in rankings:
        assert all_hits == by_hand and first == by_hand[:1]
    assert [len(by_hand) for by_hand, *_ in rankings] == [3, 2, 1, 1]
    assert [doc_id for doc_id, _ in rankings[1][1]] == ["volcano", "twin"], "of equal scores the earlier document"
    cafe = ["caf\u00e9 \U0001f600"]
    rocks = ["volcano", "twin"]
    assert rest[:10] == [[], [], [], [], cafe, rocks, cafe, rocks, cafe, rocks]
    counted, german, *codes = rest[10:]
    assert counted == [[4, 0, 3]] and codes == [0, 0]
    assert german == "the index was built for english, the system asks for german; build it again"


def test_lost_server_fails_the_query_and_the_next_one_connects_again(probe: Probe) -> None:
    lines = """
built(corpus)
started()
own = client()
own.load(index)
def failed():
    try:
        return [hit.doc_id for hit in own.search("ice", 1)]
    except QueryFailed as error:
        return str(error)
say(ended())
say(failed())
say(failed())
started()
client().load(index)
say(failed())
own._full_text = type("Wrong", (), {"search": b"SELECT id, 1/0, %s, %s, %s FROM documents"})()
say(failed())
say(ended())
"""
    _, code, lost, none, found, wrong, again = probe("postgres-fts", GIVEN + lines)
    assert code == again == 0 and lost.startswith(("AdminShutdown: ", "OperationalError: "))
    assert "Connection refused" in none and found == ["glacier"] and wrong == "DivisionByZero: division by zero"


def test_threads_that_come_and_go_share_the_connections(probe: Probe) -> None:
    lines = """
from concurrent.futures import ThreadPoolExecutor
built(corpus)
started()
own = client()
own.load(index)
counts = []
for _ in range(6):  # rounds of new threads, as the probes of the server scenario have
    with ThreadPoolExecutor(own.streams()) as threads:
        found = list(threads.map(lambda _: own.search("mountains of ice", 1)[0].doc_id, range(200)))
    counts.append([len(found), sorted(set(found))])
say(counts)
say(len(own._client._idle) <= own.streams())
own.close()
say(ended())
"""
    _, counts, few, code = probe("postgres-fts", GIVEN + lines)
    assert counts == 6 * [[200, ["glacier"]]] and few and code == 0


def test_exact_neighbours_are_numpys(probe: Probe) -> None:
    lines = """
built(drawn)
started()
own = client()
own.load(index)
scores = (asked.astype("f8") @ rows.astype("f8").T)
for number, plain in enumerate(scores):
    order = numpy.lexsort((numpy.arange(len(plain)), -plain.round(6)))[:20]
    hits = own.search(str(number), 20)
    say([[f"d{place}" for place in order] == [hit.doc_id for hit in hits],
         max(abs(hit.score - plain[place]) for hit, place in zip(hits, order))])
say([[hit.doc_id for hit in own.search("0", k)] for k in (1, 2, 3)])
say(len(own.search("1", 5000)))
own.close()
say(ended())
"""
    built, *rankings, equal, most, code = probe("pgvector-exact", GIVEN + DRAWN + lines)
    assert built == [0, 3000] and code == 0 and most == 3000
    assert all(same and far < 1e-5 for same, far in rankings)
    assert equal == [["d5"], ["d5", "d1000"], ["d5", "d1000", "d2000"]], "of equal scores the earlier document"


def test_graph_is_used_and_finds_most_neighbours(probe: Probe) -> None:
    lines = """
built(drawn)
started()
exact = (-(asked @ rows.T)).argsort(axis=1, kind="stable")
for ef_search in (1, 40, 400):
    own = client(ef_search=ef_search)
    own.load(index)
    hits = [[hit.doc_id for hit in own.search(str(number), 10)] for number in range(40)]
    shared = [len({f"d{place}" for place in best[:10]} & set(found)) for best, found in zip(exact, hits)]
    say([sum(shared) / 400, len(own.search("1", 500))])
    if ef_search == 40:
        values = (vectors.packed(own.embedder.query("1")), 10)
        plan = own._client.ask("EXPLAIN " + vectors.SEARCH_STATEMENT, values)
        say(" ".join(line for line, in plan))
        say([[hit.doc_id for hit in own.search("0", k)] for k in (1, 2, 3)])
    own.close()
say(refused(lambda: client(m=8).load(index)))
say(ended())
"""
    built, low, middle, plan, equal, high, other, code = probe(
        "pgvector-hnsw", GIVEN + DRAWN + "import vectors" + lines
    )
    assert built == [0, 3000] and code == 0
    assert low[0] < middle[0] <= high[0] and middle[0] > 0.7 and high[0] > 0.98
    assert "Index Scan using documents_embedding_idx" in plan
    assert equal == [["d5"], ["d5", "d1000"], ["d5", "d1000", "d2000"]], "of equal scores the earlier document"
    assert low[1] == middle[1] == high[1] == 500, "the graph is searched on for more than ef_search documents"
    assert other.startswith("the index was built as hnsw m=16 ef_construction=64, the system asks for hnsw m=8 ")


@pytest.mark.parametrize("name", ["pgvector-exact", "pgvector-hnsw"])
def test_vectors_are_the_encoders(probe: Probe, name: str) -> None:
    lines = """
built(corpus)
started()
own = client()
own.load(index)
vector = own.embedder.query("mountains of ice").tolist()
stored = {doc_id: row.tolist() for doc_id, row in own.embedder.corpus(corpus)}
say([sum(map(float.__mul__, vector, row)) for row in stored.values()])
say({hit.doc_id: hit.score for hit in own.search("mountains of ice", 4)})
say([own.threads(), sorted(own.libraries()), sorted(own.stages_s()), own.counts(), own.device()])
say([len(own.search(text, 2)) for text in ("", "\\ud800 coffee", "coffee\\x00", "coffee " * 3000)])
own.close()
say(ended())
"""
    built, plain, found, facts, few, code = probe(name, GIVEN + lines)
    assert built == [0, 4] and code == 0 and few == [2] * 4
    assert [found[key] for key in ("glacier", "volcano", "caf\u00e9 \U0001f600", "twin")] == pytest.approx(
        plain, abs=1e-5
    )
    threads, libraries, stages, counts, device = facts
    assert counts["flop"] > 0 and counts["parameters"] > 22e6 and device == "cpu"
    assert set(threads.values()) == {1} and {"pgvector", "postgresql", "psycopg"} < set(libraries)
    assert stages == ["encode", "retrieve"]

"""Engines that know filters rank the documents that fit as a search without a filter ranks them."""

from __future__ import annotations

import pytest

from tests.images.conftest import Probe
from tests.images.services import SERVICE
from tests.images.test_postgres import GIVEN as POSTGRES
from tests.images.test_updates import IN_PROCESS

pytestmark = pytest.mark.docker

_LINES = """
from harness.driver.adapter import Document
words = "river ice mountain lava coffee house wind snow rain cloud".split()
made = [
    Document(f"d{n:03}", "", " ".join(words[(n * step) % 10] for step in range(1, 2 + n % 7)),
             {"of_10": n % 10, "even": n % 2 == 0, "share": n % 4 / 4, "it's": ["red", "blue \\U0001f600"][n % 2]})
    for n in range(200)
]
class Made(list):
    path = None
fields = {each.doc_id: each.metadata for each in made}
built(Made(made))
started()
own = client()
own.load(index)
for query in ("mountain lava", "coffee", "snow rain wind ice"):
    whole = [[hit.doc_id, hit.score] for hit in own.search(query, 200)]
    for wanted in ((("of_10", 3),), (("even", True),), (("even", 1), ("share", 0.5)), (("share", 0),),
                   (("it's", "blue \\U0001f600"), ("of_10", 1)), (("of_10", 77),)):
        fits = [each for each in whole if all(fields[each[0]][name] == value for name, value in wanted)]
        hits = [[hit.doc_id, hit.score] for hit in own.search_filtered(query, 10, wanted)]
        say([len(fits), [score for _, score in fits[:10]], [score for _, score in hits],
             all(fields[doc_id][name] == value for doc_id, _ in hits for name, value in wanted)])
own.close()
say(ended())
"""


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("tantivy", IN_PROCESS),
        ("postgres-fts", POSTGRES),
        ("pgvector-exact", POSTGRES),
        ("pgvector-hnsw", POSTGRES),
        ("chroma", SERVICE),
    ],
)
def test_filtered_search_ranks_as_the_whole_ranking_less_what_does_not_fit(probe: Probe, name: str, given: str) -> None:
    *said, code = probe(name, given + _LINES)
    rankings = [each for each in said if len(each) == 4]
    assert code == 0 and len(rankings) == 18 and any(count >= 10 for count, *_ in rankings)
    for count, expected, scores, fit in rankings:
        assert fit and len(scores) == min(10, count)
        assert scores == pytest.approx(expected, abs=1e-5)

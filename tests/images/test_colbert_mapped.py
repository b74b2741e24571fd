"""A ColBERT index read through the memory map answers bit by bit as one in memory."""

from __future__ import annotations

import pytest

from tests.images.colbert import SIZES, Inside, documents, queries
from tests.support.chance import drawn

pytestmark = pytest.mark.docker


@pytest.mark.parametrize(
    ("method", "changes", "file"),
    drawn(
        "mapped indexes",
        [
            ("plaid", SIZES["m"], "residuals.pt"),
            ("muvera", {"candidates": 60}, "residuals.pt"),
            ("dessert", {}, "hashes.npy"),
        ],
        1,
    ),
)
def test_mapped_index_answers_the_same(colbert: Inside, method: str, changes: dict[str, object], file: str) -> None:
    lines = """
params = {**given[given["method"]], **given["changes"], "chunk_documents": 60}
made = built(params, given["documents"])
def maps():
    return Path("/proc/self/maps").read_text().count(given["file"])
held = loaded(params, made)
say(maps())
ready = loaded({**params, "mmap": True}, made)
say(maps())
for query in given["queries"]:
    mixed = [document["_id"] for document in given["documents"][::-3]]
    answers = [[hits(each.search(query, 50)), each.counts(), each.score(query, mixed)] for each in (held, ready, held)]
    say([answers[0] == answers[1] == answers[2], len(answers[0][0])])
refused(engine({**params, "mmap": True}, gpus=1).load, made)
"""
    before, after, *answers, gpu = colbert(
        lines, method=method, changes=changes, file=file, documents=documents(150), queries=queries(5)
    )
    assert before == 0 and after >= (3 if file == "residuals.pt" else 1), "each chunk's file is mapped"
    assert all(same and found > 5 for same, found in answers)
    assert gpu.startswith("mmap is true")

"""A Python engine behind JSON lines acts as one in the driver's process; packed rankings keep every bit."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import starmap
from pathlib import Path
from typing import Any

import pytest

from harness.driver.adapter import BadAnswer
from harness.driver.component import pack, pack_scores, unpack
from harness.driver.driver import outcome_of
from harness.driver.records import Envelope, Hit, Outcome
from harness.driver.subprocess_adapter import EngineFailed, JsonLines
from tests.driver.test_adapter import BAD

ROOT = Path(__file__).parents[2]

ADAPTER = """
import atexit, gc, os, subprocess, sys
from harness.driver.adapter import Adapter
from harness.driver.adapter import BadAnswer
from harness.driver.records import Hit

class Toy(Adapter):
    def build(self, corpus, index_dir, progress): ...

    def load(self, index_dir):
        self.closed = index_dir / "closed"
        self.made, self.stage_s = (index_dir / "made").read_text(), 0.001
        atexit.register((index_dir / "left").touch)
        print("a line that is no reply", flush=True)
        subprocess.run(["echo", "nor is a child's"])
        assert sys.stdin.read() == "", "the requests are out of reach"

    def search(self, query, k):
        return {BODY}

    def stages_s(self):
        return {"retrieve": self.stage_s}

    def odd(self):
        self.stage_s = 1j

    def threads(self):
        return {"collector": int(gc.isenabled())}

    def libraries(self):
        return {"params": str(self.params), "envelope": str(self.envelope), "assets": str(self.assets)}

    def close(self):
        self.closed.touch()

ENGINE = Toy
"""
BATCHES = """
    def search_batch(self, queries, k):
        return [[Hit(query, 1.0)] for query in queries][:2]
"""


class Near(JsonLines):
    arguments = (sys.executable, "-m", "harness.driver.component")
    adapter_sha256 = ""

    def _surroundings(self, index_dir: Path) -> dict[str, Any]:
        return {**super()._surroundings(index_dir), "adapter_sha256": self.adapter_sha256}

    def search(self, query: str, k: int) -> list[Hit]:
        return list(
            starmap(Hit, zip(*unpack(self._searched({"verb": "search", "query": query, "k": k}, k)), strict=True))
        )

    def search_batch(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        request = {"verb": "search_batch", "queries": queries, "k": k}
        return [list(starmap(Hit, zip(*unpack(each), strict=True))) for each in self._searched(request, k)["answers"]]


Make = Callable[..., Near]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Near] = []

    def new(body: str = "[Hit(f'd{n}', -float(n)) for n in range(k)]", more: str = "") -> Near:
        (tmp_path / "adapter.py").write_text(ADAPTER.replace("{BODY}", body).replace("ENGINE =", f"{more}\nENGINE ="))
        (tmp_path / "made").write_text("d0 d1")
        near = Near({"k1": 0.9}, Envelope("e", 2, 1 << 30, 1), Path("/opt/assets"))
        path = os.pathsep.join([str(ROOT), str(tmp_path)])
        near.environment = {"PYTHONPATH": path, "PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"}
        made.append(near)
        return near

    yield new
    for near in made:
        near._kill()


@pytest.mark.slow
def test_requests_reach_the_adapter_and_replies_return(
    make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    near = make()
    near.load(tmp_path)
    assert near.search("caf\u00e9", 2) == [Hit("d0", 0.0), Hit("d1", -1.0)]
    assert near.stages_s() == {"retrieve": 0.001}
    assert near.libraries() == {
        "params": "{'k1': 0.9}",
        "envelope": str(Envelope("component", 2, 1 << 30, 1)),
        "assets": "/opt/assets",
    }
    assert near.threads() == {"collector": 0}, "it rests while queries run"
    assert near.search_batch(["a", "b"], 1) == [[Hit("d0", 0.0)]] * 2 and not near.shares_batches()
    near.close()
    assert (tmp_path / "closed").exists()
    assert not (tmp_path / "left").exists(), "libraries that are slow to take down are left standing"
    assert capfd.readouterr().err == "a line that is no reply\nnor is a child's\n", "what it prints is the log's"


@pytest.mark.slow
def test_batch_is_one_request_if_the_adapter_shares_work(make: Make, tmp_path: Path) -> None:
    near = make(more=BATCHES)
    near.load(tmp_path)
    assert near.shares_batches() and near.search_batch(["a", "b"], 1) == [[Hit("a", 1.0)], [Hit("b", 1.0)]]
    with pytest.raises(BadAnswer, match="search_batch has no answer for each of 3 queries"):
        near.search_batch(["a", "b", "c"], 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "outcome", "message"),
    [
        ("[][1]", Outcome.CRASH, "the engine says: IndexError: list index out of range"),
        ("sys.exit(0)", Outcome.CRASH, "the engine says: SystemExit: 0"),
        ("os._exit(3)", Outcome.CRASH, "the engine ended with exit code 3 before it replied"),
        ("os.kill(os.getpid(), 9)", Outcome.CRASH, "the engine ended with signal SIGKILL"),
        ("b'x' * (1 << 62)", Outcome.OOM, "the engine says: MemoryError"),
        ("exec('raise RuntimeError(\"CUDA OutOfMemoryError\")')", Outcome.OOM, "CUDA OutOfMemoryError"),
        ("exec('raise BadAnswer(\"odd\")')", Outcome.BAD_OUTPUT, "the engine says: BadAnswer: odd"),
        ("(Hit('d', 1.0) for _ in range(3))", Outcome.BAD_OUTPUT, "search returned generator"),
        ("self.odd() or []", Outcome.BAD_OUTPUT, "a reply holds what JSON cannot"),
    ],
)
def test_failure_keeps_its_outcome(make: Make, tmp_path: Path, body: str, outcome: Outcome, message: str) -> None:
    near = make(body)
    near.load(tmp_path)
    with pytest.raises((EngineFailed, BadAnswer, MemoryError)) as caught:
        near.search("x", 3)
    assert outcome_of(caught.value) is outcome
    assert message in str(caught.value)


@pytest.mark.slow
def test_another_engines_adapter_is_refused(make: Make, tmp_path: Path) -> None:
    near = make()
    near.adapter_sha256 = hashlib.sha256((tmp_path / "adapter.py").read_bytes()).hexdigest()
    near.load(tmp_path)
    other = make()
    other.adapter_sha256 = "0" * 64
    with pytest.raises(EngineFailed, match=r"adapter\.py belongs to another engine"):
        other.load(tmp_path)


@pytest.mark.slow
def test_hung_component_dies_with_its_parent(make: Make, tmp_path: Path) -> None:
    make("time.sleep(600)")
    code = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}]
from pathlib import Path
from tests.driver.test_component import Near
from harness.driver.records import Envelope
near = Near({{}}, Envelope("e", 1, 1), Path("/"))
near.environment = {{"PYTHONPATH": {os.pathsep.join([str(ROOT), str(tmp_path)])!r}}}
near.load(Path({str(tmp_path)!r}))
near._send({{"verb": "search", "query": "", "k": 1}})
print(near._process.pid, flush=True)
import os, time
time.sleep(0.2)
os.kill(os.getpid(), 9)
"""

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    (pid,) = done.stdout.split()
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline, "it lives on"
        time.sleep(0.02)


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_packed_ids_and_scores_keep_every_bit(count: int) -> None:
    rng = random.Random(3)
    odd = [1.7976931348623157e308, 5e-324, 0.1 + 0.2, 0.0, -0.0, -1e-300, -3]
    scores = sorted([*odd, *(rng.gauss(0, 1) * 10 ** rng.randint(-300, 300) for _ in range(count))], reverse=True)[
        :count
    ]
    hits = [Hit(f"caf\u00e9 \U0001f600{n}", score) for n, score in enumerate(scores)]
    ids, found = unpack(json.loads(json.dumps(pack(hits, count))))
    assert ids == [hit.doc_id for hit in hits]
    assert [score.hex() for score in found] == [float(score).hex() for score in scores]


# The driver of the joined system looks at these.
LATER = {"too few", "an empty id", "a long id", "a blank in an id", "a line end in an id", "a lone surrogate"}


@pytest.mark.parametrize("name", sorted(BAD.keys() - LATER))
def test_pack_refuses_hits_with_the_drivers_reason(name: str) -> None:
    hits, message = BAD[name]
    with pytest.raises(BadAnswer) as caught:
        pack(hits, 3)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([1.0], "score returned 1 scores for 2 documents, not a list of one for each"),
        (None, "score returned NoneType for 2 documents"),
        ([1.0, float("nan")], "score 2 of 2 is nan, not a finite plain number"),
        ([float("-inf"), 1.0], "score 1 of 2 is -inf"),
        ([1.0, True], "score 2 of 2 is True"),
        ([1.0, 10**5000], "score 2 of 2 is too large"),
    ],
)
def test_pack_refuses_scores_that_are_not_one_number_for_each_document(scores: Any, message: str) -> None:
    with pytest.raises(BadAnswer) as caught:
        pack_scores(scores, 2)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "reply",
    [
        {},
        {"ids": ["a"], "scores": "?"},
        {"ids": ["a"], "scores": "AAAA"},
        {"ids": "a", "scores": "AAAAAAAAAAA="},
        {"ids": ["a", "b"], "scores": "AAAAAAAAAAA="},
    ],
)
def test_malformed_packed_reply_is_a_bad_answer(reply: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer, match=r"^the engine's reply has "):
        unpack(reply)

"""Engines that are commands: each reply is an answer or a clear failure."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.driver import subprocess_adapter
from harness.driver.adapter import BadAnswer, Corpus
from harness.driver.driver import one_line, outcome_of
from harness.driver.records import Envelope, Hit, Outcome
from harness.driver.subprocess_adapter import EngineFailed, JsonLines, command

# Echoes what it is asked into a diary, and answers each verb as SCRIPT says; what is no text there is dumped.
ENGINE = """
import json, os, sys, time
diary, script = open(sys.argv[1], "a"), json.loads(sys.argv[2])
for line in sys.stdin:
    print(line, end="", file=diary, flush=True)
    answer = script.get(json.loads(line)["verb"], {})
    if isinstance(answer, str) and answer.startswith("!"):
        exec(answer[1:])
    else:
        print(answer if isinstance(answer, str) else json.dumps(answer), flush=True)
"""


class Rig:
    """An engine with a script, and its list of requests."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.made = folder, list[JsonLines]()
        (folder / "engine.py").write_text(ENGINE)

    def __call__(self, **script: Any) -> JsonLines:
        text = json.dumps(script).replace("{", "{{").replace("}", "}}")
        engine = command(sys.executable, self.folder / "engine.py", self.folder / "diary", text)
        self.made.append(engine({"k1": 0.9}, Envelope("e", 2, 1 << 30), Path("/opt/assets")))
        return self.made[-1]

    def asked(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "diary").read_text().splitlines()]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    for engine in made.made:
        engine._kill()


GOOD = {"hits": [["d1", 2.5], ["d2", 1]], "stages_s": {"retrieve": 0.001}}


def test_every_verb_is_one_line_each_way(rig: Rig, tmp_path: Path) -> None:
    engine = rig(
        load={"device": "tpu"}, search=GOOD, threads={"threads": {"pool": 2}}, libraries={"libraries": {"lib": "1"}}
    )
    engine.load(tmp_path / "index")
    assert (engine.device(), engine.threads(), engine.libraries()) == ("tpu", {"pool": 2}, {"lib": "1"})
    assert engine.search("caf\u00e9 \U0001f600\nline", 2) == [Hit("d1", 2.5), Hit("d2", 1)]
    assert engine.stages_s() == {"retrieve": 0.001}
    process = engine._process
    engine.close()
    assert process is not None and process.returncode == 0
    engine.close()  # a second one finds nothing to close
    load, threads, libraries, search, close = rig.asked()
    assert load == {
        "verb": "load",
        "index": str(tmp_path / "index"),
        "params": {"k1": 0.9},
        "assets": "/opt/assets",
        "cpus": 2,
        "memory_bytes": 1 << 30,
        "gpus": 0,
    }
    assert search == {"verb": "search", "query": "caf\u00e9 \U0001f600\nline", "k": 2}
    assert [request["verb"] for request in (threads, libraries, close)] == ["threads", "libraries", "close"]


def test_minimal_engine_is_accepted(rig: Rig, tmp_path: Path) -> None:
    engine = rig(search={"error": None, "hits": []})
    engine.load(tmp_path)
    assert engine.search("x", 1) == [] and engine.stages_s() == engine.threads() == engine.libraries() == {}
    assert engine.device() == "cpu"


def test_a_build_reports_and_ends(rig: Rig, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"_id": "d", "title": "", "text": "x"}\n')
    last = {"libraries": {"lib": "2"}, "device": "cpu"}
    lines = "\n".join(json.dumps(reply) for reply in ({"progress": 1}, {"progress": 2}, last))
    build = f"!print({lines!r}, flush=True)"
    engine, done = rig(build=build), list[int]()
    engine.build(Corpus(corpus, 2), tmp_path / "index", done.append)
    assert done == [1, 2] and engine.libraries() == {"lib": "2"} and engine._process is None
    asked = rig.asked()
    assert [request["verb"] for request in asked] == ["build", "close"]
    assert (asked[0]["corpus"], asked[0]["documents"], asked[0]["index"]) == (str(corpus), 2, str(tmp_path / "index"))


def test_batch_is_one_request_if_the_engine_offers_it(rig: Rig, tmp_path: Path) -> None:
    one = rig(search=GOOD)
    one.load(tmp_path)
    assert one.search_batch(["a", "b"], 2) == [[Hit("d1", 2.5), Hit("d2", 1)]] * 2
    assert [request["verb"] for request in rig.asked()] == ["load", "search", "search"]
    many = rig(load={"search_batch": True}, search_batch={"answers": [[["d1", 1.0]], []]})
    many.load(tmp_path)
    assert many.search_batch(["a", "b"], 2) == [[Hit("d1", 1.0)], []]
    assert rig.asked()[-1] == {"verb": "search_batch", "queries": ["a", "b"], "k": 2}


def test_given_documents_are_scored_in_one_request(rig: Rig, tmp_path: Path) -> None:
    engine = rig(score={"scores": [0.5, 2], "counts": {"pairs": 2}})
    engine.load(tmp_path)
    assert engine.score("q", ["d2", "d1"]) == [0.5, 2] and engine.counts() == {"pairs": 2}
    assert rig.asked()[-1] == {"verb": "score", "query": "q", "doc_ids": ["d2", "d1"]}
    silent = rig(score={})
    silent.load(tmp_path)
    with pytest.raises(BadAnswer, match="no list of scores, but NoneType"):
        silent.score("q", ["d1"])


def test_a_long_reply_comes_in_many_pieces(rig: Rig, tmp_path: Path) -> None:
    hits = [[f"d{n}" + "x" * 200, -float(n)] for n in range(5000)]
    made = "['d%d' % n + 'x' * 200, -float(n)] for n in range(5000)"
    engine = rig(search=f"!print(json.dumps(dict(hits=[{made}])), flush=True)")
    engine.load(tmp_path)
    assert engine.search("q" * 300_000, 5000) == [Hit(doc_id, score) for doc_id, score in hits]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("Exception in thread main", "the engine wrote no JSON: 'Exception in thread main'"),
        ('{"hits": [["d", NaN]]}', "the engine wrote no JSON: "),
        ('{"hits": [["d", 1.0]]', "the engine wrote no JSON: "),
        ("[" * 100_000, "the engine wrote no JSON: "),
        ("!sys.stdout.buffer.write(bytes([255, 10])); sys.stdout.flush()", "the engine wrote no JSON: '\ufffd'"),
        ("", "the engine wrote no JSON: ''"),
        ([1, 2], "the engine's reply is not a JSON object"),
        ({}, "the engine's reply has no list of hits, but NoneType"),
        ({"hits": "all"}, "the engine's reply has no list of hits, but str"),
        ({"hits": [["d"]]}, r"a hit of the engine's reply is not a pair \[id, score\]"),
        ({"hits": [7]}, r"a hit of the engine's reply is not a pair \[id, score\]"),
        ("!print('x' * (3 << 20), flush=True)", r"the engine's reply has more than \d+ bytes in one line"),
    ],
)
def test_a_reply_that_breaks_the_contract_is_a_bad_answer(rig: Rig, tmp_path: Path, answer: Any, message: str) -> None:
    engine = rig(search=answer)
    engine.load(tmp_path)
    with pytest.raises(BadAnswer, match=message) as caught:
        engine.search("x", 10)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_unrequested_line_is_not_the_next_answer(rig: Rig, tmp_path: Path) -> None:
    engine = rig(search=f"!print({json.dumps(GOOD)!r} + chr(10) + {json.dumps(GOOD)!r}, flush=True)")
    engine.load(tmp_path)
    engine.search("x", 2)
    with pytest.raises(BadAnswer, match="wrote a line that nothing had asked for"):
        engine.search("y", 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [("threads", {"pool": "many"}), ("threads", [1]), ("libraries", {"lib": 1}), ("threads", {"pool": True})],
)
def test_malformed_facts_of_an_engine_are_refused(rig: Rig, tmp_path: Path, name: str, value: Any) -> None:
    engine = rig(**{name: {name: value}})
    engine.load(tmp_path)
    with pytest.raises(BadAnswer, match=f"the engine's {name} is not an object whose values are"):
        getattr(engine, name)()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("!sys.exit(3)", "the engine ended with exit code 3 before it replied; its last words are in the job's log"),
        ("!os.kill(os.getpid(), 9)", "the engine ended with signal SIGKILL before it replied"),
        ("!sys.stdout.write('half'); sys.exit(0)", "exit code 0 before it replied, in the middle of the line 'half'"),
        ({"error": "no such\nindex"}, "the engine says: no such index"),
    ],
)
def test_an_engine_that_fails_is_a_crash_in_one_line(rig: Rig, tmp_path: Path, answer: Any, message: str) -> None:
    engine = rig(search=answer)
    engine.load(tmp_path)
    with pytest.raises(EngineFailed, match=message) as caught:
        engine.search("x", 1)
    assert outcome_of(caught.value) is Outcome.CRASH and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 15.77 GiB",
        "AcceleratorError: CUDA error: out of memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory",
    ],
)
def test_refused_memory_is_oom(error: str) -> None:
    kind, _, message = error.partition(": ")
    assert outcome_of(type(kind, (RuntimeError,), {})(message)) is Outcome.OOM
    assert outcome_of(RuntimeError("CUDA error: an illegal memory access was encountered")) is Outcome.CRASH


# As an H100 answered when another process held its memory.
FULL = """CUDA error: out of memory
Search for `cudaErrorMemoryAllocation' in https://docs.nvidia.com/cuda/group__CUDART__TYPES.html for more information.
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""


def test_pytorchs_advice_on_cuda_is_left_out_of_the_line() -> None:
    assert one_line(RuntimeError(FULL)) == "RuntimeError: CUDA error: out of memory"
    advice = " If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF."
    refused = "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 15.77 GiB."
    assert one_line(RuntimeError(refused + advice)) == f"RuntimeError: {refused}"


def test_engine_that_died_between_queries_is_found_at_the_next_query(rig: Rig, tmp_path: Path) -> None:
    engine = rig(search=GOOD)
    engine.load(tmp_path)
    engine._process.kill()
    engine._process.wait()
    with pytest.raises(EngineFailed, match="signal SIGKILL"):
        engine.search("x", 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("/no/such/engine",), "the engine '/no/such/engine' does not start: No such file or directory; check"),
        (("/dev/null",), "the engine '/dev/null' does not start: Permission denied"),
        ((sys.executable, "-c", "raise SystemExit(7)"), "the engine ended with exit code 7 before it replied"),
        (("engine", "--heap={heap_mib}"), "asks for 'heap_mib', which is neither 'cpus' nor a parameter"),
    ],
)
def test_engine_that_does_not_start_has_a_reason(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    engine = command(*arguments)({}, Envelope("e", 1, 1), tmp_path)
    with pytest.raises(EngineFailed, match=message):
        engine.load(tmp_path)


def test_arguments_are_filled_in(tmp_path: Path) -> None:
    code = "import json, sys; input(); print(json.dumps(dict(device=' '.join(sys.argv[1:]))))"
    engine = command(sys.executable, "-c", code, "--threads={cpus}", "{k1}", "{{}}")
    made = engine({"k1": 0.9}, Envelope("e", 3, 1), tmp_path)
    made.load(tmp_path)
    assert made.device() == "--threads=3 0.9 {}"
    made._kill()


@pytest.mark.slow
def test_engine_that_does_not_end_is_killed(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess_adapter, "_END_S", 0.2)
    engine = rig(close="!print('{}', flush=True); time.sleep(600)")
    engine.load(tmp_path)
    process = engine._process
    with pytest.raises(EngineFailed, match=r"did not end within 0\.2 s of its close"):
        engine.close()
    assert process is not None and process.returncode == -9
    assert engine._process is None


def test_engine_exit_code_is_a_crash(rig: Rig, tmp_path: Path) -> None:
    engine = rig(close="!print('{}', flush=True); sys.exit(4)")
    engine.load(tmp_path)
    with pytest.raises(EngineFailed, match="the engine ended with exit code 4 after its close"):
        engine.close()


@pytest.mark.slow
def test_no_descriptor_is_left(rig: Rig, tmp_path: Path) -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = count()
    for _ in range(3):
        engine = rig(search=GOOD)
        engine.load(tmp_path)
        engine.search("x", 2)
        engine.close()
    assert count() == before


def test_standard_error_goes_to_the_log(rig: Rig, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    engine = rig(load="!print('warming up', file=sys.stderr, flush=True); print('{}', flush=True)")
    engine.load(tmp_path)
    engine.close()
    assert capfd.readouterr().err == "warming up\n"

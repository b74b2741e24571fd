"""Answers of an API model: recorded from a server of a chat API, replayed by the engine."""

from __future__ import annotations

import gzip
import importlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from harness.driver.adapter import Corpus
from harness.driver.records import Envelope
from tests.images.test_llm_listwise import engine_on_path

KEY = "sk-only-in-the-environment"
DOCUMENTS = [{"_id": f"d{number}", "title": f"title {number}", "text": f"word {number}"} for number in range(5)]

__all__ = ["engine_on_path"]


class ChatApi(ThreadingHTTPServer):
    """Ranks backward, and refuses the first request and a wrong key."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.bodies: list[dict[str, Any]] = []
        self.busy = True


class _Answers(BaseHTTPRequestHandler):
    server: ChatApi

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != f"Bearer {KEY}":
            return self._reply(401, {"error": "no such key"})
        if self.server.busy:
            self.server.busy = False
            return self._reply(429, {"error": "later"})
        self.server.bodies.append(body)
        numbers = re.findall(r"^\[(\d+)\]", "\n".join(each["content"] for each in body["messages"]), re.MULTILINE)
        content = " > ".join(f"[{number}]" for number in reversed(numbers))
        usage = {"prompt_tokens": 100 + len(numbers), "completion_tokens": len(numbers)}
        return self._reply(200, {"choices": [{"message": {"content": content}}], "usage": usage})

    def _reply(self, code: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def api() -> Iterator[ChatApi]:
    with ChatApi() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def record(tmp_path: Path, api: ChatApi, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Record two queries over a run of five and three documents, windows of three by two."""
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(each) + "\n" for each in DOCUMENTS), encoding="utf-8")
    queries = [{"_id": "q1", "text": "first"}, {"_id": "q2", "text": "second"}]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(each) + "\n" for each in queries), encoding="utf-8")
    ranked = [("q1", range(5)), ("q2", (4, 1, 0))]
    lines = [f"{query} Q0 d{n} {rank} {-rank} x\n" for query, order in ranked for rank, n in enumerate(order, 1)]
    (tmp_path / "run.gz").write_bytes(gzip.compress("".join(lines[::-1]).encode()))
    made = importlib.import_module("llm.record")
    monkeypatch.setattr(made.time, "sleep", lambda _: None)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def run(*more: str) -> int:
        names = {
            "--run": "run.gz",
            "--corpus": "corpus.jsonl",
            "--queries": "queries.jsonl",
            "-o": "recorded/answers.jsonl",
        }
        given = [part for option, name in names.items() for part in (option, str(tmp_path / name))]
        sizes = ("--window", "3", "--step", "2", "--passage-words", "none")
        url = f"http://127.0.0.1:{api.server_address[1]}/v1"
        return int(made.main([*given, "--model", "m", "--url", url, *sizes, *more]))

    return run


def test_recorded_answers_are_replayed_and_no_key_is_stored(
    record: Callable[..., int], api: ChatApi, tmp_path: Path
) -> None:
    assert record() == 0
    text = (tmp_path / "recorded" / "answers.jsonl").read_text()
    assert len(text.splitlines()) == len(api.bodies) == 3 and KEY not in text
    assert api.bodies[0].keys() == {"model", "messages", "temperature", "max_tokens"}
    (tmp_path / "index").mkdir()
    params = {"method": "rankgpt", "model": "m", "transport": "replay", "recording": "recorded"}
    sizes = {"window": 3, "step": 2, "passage_words": "none"}
    engine = importlib.import_module("adapter").ENGINE({**params, **sizes}, Envelope("test", 1, 1 << 30), tmp_path)
    engine.build(Corpus(tmp_path / "corpus.jsonl", 5), tmp_path / "index", lambda _: None)
    engine.load(tmp_path / "index")
    # d0 d1 [d2 d3 d4] becomes d0 d1 d4 d3 d2, then [d0 d1 d4] becomes d4 d1 d0.
    assert engine.score("first", ["d0", "d1", "d2", "d3", "d4"]) == [-3.0, -2.0, -5.0, -4.0, -1.0]
    assert engine.counts().items() >= {"calls": 2, "prompt_tokens": 206, "completion_tokens": 6, "pairs": 5}.items()
    assert engine.score("second", ["d4", "d1", "d0"]) == [-3.0, -2.0, -1.0]


def test_second_recording_asks_only_what_is_missing(record: Callable[..., int], api: ChatApi) -> None:
    assert record("--depth", "3") == 0 and len(api.bodies) == 2
    assert record() == 0 and len(api.bodies) == 4
    assert record() == 0 and len(api.bodies) == 4


def test_provider_that_names_keys_otherwise_gets_its_own(record: Callable[..., int], api: ChatApi) -> None:
    assert record("--body", '{"max_tokens": null, "max_completion_tokens": 500, "temperature": null}') == 0
    assert api.bodies[0].keys() == {"model", "messages", "max_completion_tokens"}
    assert record() == 0 and len(api.bodies) == 3, "the recording's key is the engine's request"


def test_refused_key_is_one_line_without_the_key(
    record: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong")
    assert record() == 1
    assert re.fullmatch(r'\S+/v1/chat/completions answers 401: \{"error": "no such key"\}\n', capsys.readouterr().err)
    assert record("--url", "file:///etc") == 1
    assert "must begin with http" in capsys.readouterr().err


def test_image_of_a_replay_is_refused_over_a_malformed_recording(
    record: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert record() == 0
    params = {"transport": "replay", "recording": "recorded", "model": "m"}
    (tmp_path / "system.json").write_text(json.dumps({"build_params": {}, "search_params": params}))
    prepare = importlib.import_module("llm_prepare").main
    assert prepare([str(tmp_path), str(tmp_path / "system.json")]) == 0
    with (tmp_path / "recorded" / "answers.jsonl").open("a") as file:
        file.write("cut sho")
    capsys.readouterr()
    assert prepare([str(tmp_path), str(tmp_path / "system.json")]) == 1
    assert capsys.readouterr().err.startswith("answers.jsonl, line 4: not a recorded answer; it needs request_sha256")

"""The server of embeddings and its client, over an encoder that makes vectors of letters."""

from __future__ import annotations

import importlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy
import pytest

from harness.driver.adapter import QueryFailed
from harness.launch.images import catalog


class Letters:
    """Counts a and b; queries are counted twice."""

    name = "letters"
    dims = 2

    def __init__(self, role: str) -> None:
        self._times = 2 if role == "query" else 1

    def encode(self, texts: Sequence[str]) -> tuple[Any, int, int]:
        if "fail" in texts:
            raise RuntimeError("the encoder failed")
        rows = [[text.count("a") / 3, text.count("b")] for text in texts]
        return self._times * numpy.array(rows, dtype=numpy.float32), sum(map(len, texts)), 9 * len(texts)

    def facts(self) -> dict[str, Any]:
        return {"libraries": {"letters": "1"}, "threads": {"letters": 1}}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    monkeypatch.syspath_prepend(str(catalog.images_dir() / "shared"))
    return importlib.import_module


@pytest.fixture
def url(module: Callable[[str], ModuleType]) -> Iterator[str]:
    def load(role: str) -> Letters:
        return Letters(role)

    answer = module("embedding_server.server").Embeddings(load).answer
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = module("service_server").Server(answer)
        threading.Thread(target=server.run, args=(listening,), daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_the_client_gets_float32_vectors_in_order(module: Callable[[str], ModuleType], url: str) -> None:
    embedder = module("embedding_server.client").Embedder(url)
    facts = {"model": "letters", "dims": 2, "libraries": {"letters": "1"}, "threads": {"letters": 1}}
    assert embedder.wait("query") == facts
    third = float(numpy.float32(1 / 3))
    assert embedder.query("ab").tolist() == [2 * third, 2.0] and embedder.flop() == 9
    assert [each.tolist() for each in embedder.documents(["a", "", "bb"])] == [[third, 0.0], [0.0, 0.0], [0.0, 2.0]]
    assert embedder.query("\ud800 b").tolist() == [0.0, 2.0], "half a surrogate pair is replaced"
    with pytest.raises(QueryFailed, match=r"status 500: .*the encoder failed"):
        embedder.query("fail")
    assert embedder.query("b").tolist() == [0.0, 2.0], "the connection stays good"
    with pytest.raises(QueryFailed, match=r"status 400: .*role is one of query, document"):
        embedder.wait("other")
    embedder.close()


def test_answers_have_openais_shape(module: Callable[[str], ModuleType], url: str) -> None:
    http = module("service_client").HttpClient(url)
    answer = http.post("/v1/embeddings", {"input": ["b", "ab"], "model": "letters", "role": "document"})
    assert answer == {
        "object": "list",
        "model": "letters",
        "data": [
            {"object": "embedding", "index": 0, "embedding": [0.0, 1.0]},
            {"object": "embedding", "index": 1, "embedding": [float(numpy.float32(1 / 3)), 1.0]},
        ],
        "usage": {"prompt_tokens": 3, "total_tokens": 3, "flop": 18},
    }
    assert http.post("/v1/embeddings", {"input": "b"})["data"][0]["embedding"] == [0.0, 2.0]
    http.close()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"input": []}, "400: .*input must be a text or a list of 1 to 4096 texts"),
        ({"input": 3}, "400: .*input must be a text"),
        ({"input": [1]}, "400: .*input has an entry that is not a text"),
        ({}, "400: .*input must be a text"),
        ([], "400: .*the body is not a JSON object"),
        ({"input": "a", "model": "other"}, "404: .*model is 'other'; this server has 'letters'"),
        ({"input": "a", "encoding_format": "int8"}, "400: .*encoding_format is one of float, base64"),
        ({"input": "a", "role": ["query"]}, "400: .*role is one of"),
    ],
)
def test_wrong_requests_are_refused(module: Callable[[str], ModuleType], url: str, asked: object, said: str) -> None:
    http = module("service_client").HttpClient(url)
    with pytest.raises(QueryFailed, match=said):
        http.post("/v1/embeddings", asked)
    with pytest.raises(QueryFailed, match=r"404: .*there is no GET /v1/embeddings"):
        http.get("/v1/embeddings")
    http.close()


def test_an_answer_without_all_vectors_fails(module: Callable[[str], ModuleType]) -> None:
    answers = iter(
        [
            {"usage": {"flop": 1}, "data": []},
            {"data": [{"index": 0}]},
            [],
            {"data": [{"index": 0, "embedding": "?"}]},
            {"data": [{"index": 0, "embedding": "AAAAAA=="}]},
        ]
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = module("service_server").Server(lambda *_: (200, next(answers)))
        threading.Thread(target=server.run, args=(listening,), daemon=True).start()
        embedder = module("embedding_server.client").Embedder(f"http://127.0.0.1:{listening.getsockname()[1]}")
        for said in ("0 embeddings of 1 texts", "KeyError", "TypeError", "Error", "KeyError"):
            with pytest.raises(QueryFailed, match=said):
                embedder.query("a")
        embedder.close()


class TestServiceServer:
    """Requests as bytes."""

    @pytest.fixture
    def connection(self, module: Callable[[str], ModuleType]) -> Iterator[socket.socket]:
        def answer(method: str, target: str, body: bytes) -> tuple[int, Any]:
            return 200, [method, target, body.decode()]

        with socket.create_server(("127.0.0.1", 0)) as listening:
            threading.Thread(target=module("service_server").Server(answer).run, args=(listening,), daemon=True).start()
            with socket.create_connection(listening.getsockname(), timeout=10) as made:
                yield made

    def test_parts_and_requests_behind_each_other(self, connection: socket.socket) -> None:
        whole = b"POST /x?y=1 HTTP/1.1\r\nHost: a\r\ncontent-length:  3\r\n\r\nabc" + b"GET / HTTP/1.1\r\n\r\n"
        for at in range(len(whole)):
            connection.sendall(whole[at : at + 1])
        replies = connection.makefile("rb")
        assert [self._reply(replies) for _ in range(2)] == [["POST", "/x?y=1", "abc"], ["GET", "/", ""]]
        connection.sendall(whole)
        assert [self._reply(replies) for _ in range(2)] == [["POST", "/x?y=1", "abc"], ["GET", "/", ""]]

    @pytest.mark.parametrize(
        ("sent", "status"),
        [
            (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b"413"),
            (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"413"),
            (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", b"200"),
        ],
    )
    def test_connections_that_end(self, connection: socket.socket, sent: bytes, status: bytes) -> None:
        connection.sendall(sent)
        reply = connection.makefile("rb").read()
        assert reply.startswith(b"HTTP/1.1 " + status)

    def test_what_is_no_request(self, connection: socket.socket) -> None:
        connection.sendall(b"hello\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 400")

    def _reply(self, replies: Any) -> Any:
        assert replies.readline() == b"HTTP/1.1 200 OK\r\n"
        length = 0
        while (line := replies.readline()) != b"\r\n":
            name, _, value = line.partition(b": ")
            length = int(value) if name == b"Content-Length" else length
        return json.loads(replies.read(length))

"""The client of services over HTTP, and the adapters of services that nobody has run here, over played answers."""

from __future__ import annotations

import copy
import datetime
import importlib
import ipaddress
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from harness.driver.adapter import Adapter, Corpus, QueryFailed
from harness.driver.records import Envelope, Hit, Scalar
from harness.launch.images import catalog
from tests.support.loopback import serving
from tests.support.played_service import Played, conversation, playing

DOCUMENTS = [
    {"_id": "glacier", "title": "Glaciers", "text": "Rivers of ice that move slowly."},
    {"_id": "café", "title": "", "text": 'Houses where people say "coffee".\nAnd talk.'},
    {"_id": "twin", "title": "", "text": "Rivers of ice that move slowly."},
]
PARAMS: dict[str, dict[str, Scalar]] = {
    "opensearch": {
        **{"analyzer": "english", "k1": 0.9, "b": 0.4, "force_merge": True, "connections": 4},
        **{"index": "documents", "fields": "contents", "tie": "doc_id"},
    },
    "qdrant": {
        **{"distance": "Dot", "m": 16, "ef_construct": 100, "indexing_threshold_kb": 10000},
        **{"hnsw_ef": 128, "exact": False, "connections": 4},
    },
    "vespa": {
        **{"k1": 0.9, "b": 0.4, "language": "en", "feeders": 1, "deploy_port": 0},
        **{"target_hits": 1000, "connections": 4},
    },
}
QUERIES = {"opensearch": 'river "ice" café ?', "qdrant": "slow rivers", "vespa": '+river "ice" -café:?'}
SECRET = "kept-for-nobody"

Make = Callable[..., Any]


class Letters:
    """An embedder without a model: each text has a vector."""

    def query(self, text: str) -> list[float]:
        return [0.0, 9.0] if text else []

    def documents(self, texts: list[str]) -> list[list[float]]:
        return [[2.0, 3.0] if "coffee" in text else [1.0, 2.0] for text in texts]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    monkeypatch.syspath_prepend(str(catalog.images_dir() / "shared"))
    for name in ("TOKEN", "USER", "PASSWORD"):
        monkeypatch.delenv(f"HARNESS_SERVICE_{name}", raising=False)
    return importlib.import_module


@pytest.fixture
def played() -> Iterator[Played]:
    with playing() as service:
        yield service


@pytest.fixture
def make(module: Callable[[str], ModuleType], played: Played) -> Make:
    """Make an adapter that asks the played service."""

    def made(service: str, class_name: str = "", **changes: Scalar) -> Adapter:
        loaded = module(f"http_adapters.{service}")
        kind = getattr(loaded, class_name or {"opensearch": "OpenSearch"}.get(service, service.capitalize()))
        if service == "qdrant":
            kind = type("WithLetters", (kind,), {"embedder": lambda _: Letters()})
        port = int(played.url.rpartition(":")[2])
        params = {**PARAMS[service], **({"deploy_port": port} if service == "vespa" else {}), **changes}
        adapter: Adapter = kind(params, Envelope("test", 1, 1 << 30), Path("/none"))
        adapter.service_url = played.url
        return adapter

    return made


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(document) + "\n" for document in DOCUMENTS), encoding="utf-8")
    return Corpus(path, len(DOCUMENTS))


@pytest.mark.slow
@pytest.mark.parametrize("service", list(PARAMS))
def test_a_build_sends_what_the_documentation_asks_for(
    make: Make, played: Played, corpus: Corpus, service: str, tmp_path: Path
) -> None:
    played.play(conversation(service, "build"))
    adapter, done = make(service), list[int]()
    adapter.build(corpus, tmp_path, done.append)
    adapter.verify_index(corpus, tmp_path)
    adapter.close()
    played.check()
    assert done == ([1, 2, 3] if service == "vespa" else [3])
    assert len(played.connections) <= 3


@pytest.mark.parametrize(
    ("service", "hits", "stages_s", "libraries", "threads"),
    [
        (
            "opensearch",
            [Hit("glacier", 0.55129033), Hit("twin", 0.55129033)],
            {"retrieve": 0.003},
            {"opensearch": "3.1.0", "lucene": "10.2.1"},
            {"allocated_processors": 2},
        ),
        ("qdrant", [Hit("café", 27.0), Hit("glacier", 18.0)], {"retrieve": 0.005}, {"qdrant": "1.15.0"}, {}),
        (
            "vespa",
            [Hit("glacier", 0.20676669550322158), Hit("twin", 0.20676669550322158)],
            {"retrieve": 0.003},
            {"vespa": "8.43.64"},
            {"threads_per_search": 1},
        ),
    ],
)
def test_searches_send_one_request_and_read_ids_scores_and_times(
    make: Make,
    played: Played,
    service: str,
    hits: list[Hit],
    stages_s: dict[str, float],
    libraries: dict[str, str],
    threads: dict[str, int],
) -> None:
    """Qdrant's equal scores come in any order, and perhaps not all: where the cut parts them, more are asked for."""
    played.play(conversation(service, "load"), conversation(service, "search"))
    adapter = make(service)
    adapter.load(Path("/index"))
    assert adapter.search(QUERIES[service], 2) == hits
    measured = adapter.stages_s()
    assert (measured.pop("encode", None) is not None) == (service == "qdrant")
    assert measured == pytest.approx(stages_s)
    assert (adapter.libraries(), adapter.threads(), adapter.streams()) == (libraries, threads, 4)
    adapter.close()
    played.check()
    assert len(played.connections) == 1, "it stays open"


def test_elasticsearch_differs_in_its_name_alone(make: Make, played: Played) -> None:
    turns = conversation("opensearch", "load")
    del turns[2]["answer"]["version"]["distribution"]
    played.play(turns, conversation("opensearch", "search"))
    adapter = make("opensearch", "Elasticsearch")
    adapter.load(Path("/index"))
    assert len(adapter.search(QUERIES["opensearch"], 2)) == 2
    assert adapter.libraries() == {"elasticsearch": "3.1.0", "lucene": "10.2.1"}
    adapter.close()
    played.check()


def test_vespas_application_has_the_parameters(make: Make, played: Played, corpus: Corpus, tmp_path: Path) -> None:
    played.play(conversation("vespa", "build"))
    adapter = make("vespa", k1=1.2, language="de")
    adapter.build(corpus, tmp_path, lambda _: None)
    adapter.close()
    schema = played.files["schemas/doc.sd"]
    assert "bm25(contents).k1: 1.2" in schema and "bm25(contents).b: 0.4" in schema and '"de" | set_language' in schema
    assert '<document type="doc" mode="index" />' in played.files["services.xml"]


def test_vespa_is_not_asked_without_a_word_nor_for_more_than_it_retrieves(make: Make, played: Played) -> None:
    played.play(conversation("vespa", "load"))
    adapter = make("vespa")
    adapter.load(Path("/index"))
    assert adapter.search('"?!" -', 3) == []
    with pytest.raises(ValueError, match="k is 1001, more than target_hits, 1000; set target_hits higher"):
        adapter.search("ice", 1001)
    adapter.close()
    played.check()


def _changed(turns: list[dict[str, Any]], *path: str | int, value: Any) -> list[dict[str, Any]]:
    """Return turns whose first answer has another value at a path; None removes it."""
    turns = copy.deepcopy(turns)
    place = turns[0]["answer"]
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return turns


@pytest.mark.parametrize(
    ("service", "path", "value", "reason"),
    [
        ("opensearch", ("timed_out",), True, "the service answered in part"),
        ("opensearch", ("_shards", "failed"), 1, "the service answered in part"),
        ("opensearch", ("hits", "hits", 0, "sort"), None, "an answer of another form: KeyError: 'sort'"),
        ("opensearch", ("hits", "hits", 0, "sort"), ["NaN", "x"], "TypeError: a score that is 'NaN'"),
        ("opensearch", ("hits",), 7, "an answer of another form: TypeError"),
        ("qdrant", ("status",), {"error": "Wrong input"}, "with the status {'error': 'Wrong input'}"),
        ("qdrant", ("result", "points", 0, "payload"), {}, "an answer of another form: KeyError: 'doc_id'"),
        ("qdrant", ("time",), "soon", "TypeError: a score that is 'soon'"),
        ("vespa", ("root", "errors"), [{"code": 12, "summary": "Timed out"}], "with an error: Timed out"),
        ("vespa", ("root", "coverage", "full"), False, "the service searched 100 % of the documents"),
        ("vespa", ("root", "children", 0, "relevance"), "-Infinity", "a score that is '-Infinity'"),
        ("vespa", ("root",), None, "an answer of another form: KeyError: 'root'"),
    ],
)
def test_partial_and_odd_answers_fail_the_query(
    make: Make, played: Played, service: str, path: tuple[str | int, ...], value: Any, reason: str
) -> None:
    whole = conversation(service, "search")
    played.play(conversation(service, "load"), _changed(whole, *path, value=value), whole)
    adapter = make(service)
    adapter.load(Path("/index"))
    with pytest.raises(QueryFailed) as failed:
        adapter.search(QUERIES[service], 2)
    assert reason in str(failed.value)
    while played.turns and len(played.turns) > len(whole):
        played.turns.pop(0)  # Qdrant's second request
    assert len(adapter.search(QUERIES[service], 2)) == 2, "the next query is answered"
    adapter.close()
    played.check()


@pytest.mark.parametrize(
    ("service", "turn", "path", "value", "reason"),
    [
        (
            *("opensearch", 2, ("items", 1, "index", "error")),
            {"type": "mapper_parsing_exception", "reason": "failed to parse"},
            "a document was not indexed: mapper_parsing_exception: failed to parse",
        ),
        ("opensearch", 2, ("items", 1), None, "2 of 3 documents were indexed"),
        ("opensearch", 3, ("_shards", "failed"), 1, "1 shards failed"),
        ("opensearch", 6, ("count",), 2, "the index holds 2 of 3 documents"),
        ("qdrant", 2, ("result", "status"), "acknowledged", "did not finish an upsert, and said 'acknowledged'"),
        ("qdrant", 3, ("result", "status"), "red", "the service could not index: red"),
        ("qdrant", 3, ("result", "optimizer_status"), {"error": "disk"}, "could not index: yellow, {'error': 'disk'}"),
        ("qdrant", 5, ("result", "count"), 4, "the collection holds 4 of 3 documents"),
        ("vespa", 7, ("root", "fields", "totalCount"), 1, "the service holds 1 of 3 documents"),
    ],
)
def test_a_build_that_loses_documents_fails(
    make: Make,
    played: Played,
    corpus: Corpus,
    tmp_path: Path,
    service: str,
    turn: int,
    path: tuple[str | int, ...],
    value: Any,
    reason: str,
) -> None:
    turns = conversation(service, "build")
    played.play(turns[:turn], _changed(turns[turn:], *path, value=value))
    adapter = make(service)
    with pytest.raises(RuntimeError) as failed:
        adapter.build(corpus, tmp_path, lambda _: None)
        adapter.verify_index(corpus, tmp_path)
    assert reason in str(failed.value)
    adapter.close()
    assert played.differences == []


def test_a_refused_document_ends_the_feeding(make: Make, played: Played, corpus: Corpus, tmp_path: Path) -> None:
    turns = conversation("vespa", "build")
    answer = {"pathId": "/document/v1/harness/doc/docid/1", "message": "no space"}
    played.play(turns[:5], [{**turns[5], "status": 507, "answer": answer}])
    adapter = make("vespa")
    with pytest.raises(QueryFailed, match=r"status 507: .*no space"):
        adapter.build(corpus, tmp_path, lambda _: None)
    adapter.close()
    played.check()


@pytest.mark.parametrize(
    ("service", "class_name", "environment", "header"),
    [
        ("opensearch", "OpenSearch", {"TOKEN": SECRET}, ("Authorization", f"Bearer {SECRET}")),
        ("opensearch", "Elasticsearch", {"TOKEN": SECRET}, ("Authorization", f"ApiKey {SECRET}")),
        (
            "opensearch",
            "OpenSearch",
            {"USER": "admin", "PASSWORD": "pass"},
            ("Authorization", "Basic YWRtaW46cGFzcw=="),
        ),
        ("qdrant", "Qdrant", {"TOKEN": SECRET}, ("api-key", SECRET)),
        ("vespa", "Vespa", {"TOKEN": SECRET}, ("Authorization", f"Bearer {SECRET}")),
        ("vespa", "Vespa", {}, ("Authorization", None)),
    ],
)
def test_credentials_come_from_the_environment(
    make: Make,
    played: Played,
    monkeypatch: pytest.MonkeyPatch,
    service: str,
    class_name: str,
    environment: dict[str, str],
    header: tuple[str, str | None],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(f"HARNESS_SERVICE_{name}", value)
    played.play(conversation(service, "load"))
    adapter = make(service, class_name)
    adapter.load(Path("/index"))
    adapter.close()
    assert {headers.get(header[0]) for headers in played.headers} == {header[1]}


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_end_the_wait(make: Make, played: Played, status: int) -> None:
    turn = conversation("opensearch", "load")[0]
    played.play([{**turn, "status": status, "answer": {"error": "no user has this key"}}])
    adapter = make("opensearch")
    with pytest.raises(
        RuntimeError, match=rf"refuses the credentials of HARNESS_SERVICE_TOKEN, or .*: status {status}"
    ):
        adapter.load(Path("/index"))
    adapter.close()


def test_an_index_that_was_built_in_a_running_service_is_removed(make: Make, played: Played) -> None:
    path = "/harness-0a1b2c3d?ignore_unavailable=true"
    played.play([{"request": {"method": "DELETE", "path": path}, "answer": {"acknowledged": True}}])
    make("opensearch", index="harness-0a1b2c3d").remove()
    played.check()


def test_an_index_of_a_users_own_is_asked_by_its_fields(make: Make, played: Played) -> None:
    hits = [{"_id": "d1", "sort": [2.0, 7]}]
    body = {
        "query": {"multi_match": {"query": "river", "fields": ["title", "body"]}},
        "size": 3,
        "_source": False,
        "track_total_hits": False,
        "sort": [{"_score": "desc"}, "_doc"],
    }
    answer = {"took": 1, "timed_out": False, "_shards": {"failed": 0}, "hits": {"hits": hits}}
    path = "/my%20products/_search?allow_partial_search_results=false"
    played.play([{"request": {"method": "POST", "path": path, "body": body}, "answer": answer}])
    adapter = make("opensearch", index="my products", fields="title, body", tie="")
    adapter.http = adapter.client(adapter.service_url)
    assert adapter.search("river", 3) == [Hit("d1", 2.0)]
    adapter.close()
    played.check()


@pytest.mark.parametrize(("service", "port"), [("opensearch", 9200), ("qdrant", 6333), ("vespa", 8080)])
def test_a_users_folder_makes_an_engine_of_an_adapter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, service: str, port: int
) -> None:
    shared = ["http_adapters", "service_client", "parameter_names", "ranking"]
    (tmp_path / service / "systems").mkdir(parents=True)
    files = {
        "engine.toml": f'description = "not tried here"\nshared = {json.dumps(shared)}\n[service]\nport = {port}\n',
        "adapter.py": f"from http_adapters.{service} import *\n",
        "requirements.lock": "",
        "Dockerfile": "ARG BASE\nFROM ${BASE}\nCOPY shared /opt/shared\n",
        "systems/mine.toml": 'description = "mine"\n[search_params]\n'
        + "".join(f"{name} = {json.dumps(value)}\n" for name, value in PARAMS[service].items()),
    }
    for name, text in files.items():
        (tmp_path / service / name).write_text(text)
    monkeypatch.setenv("HARNESS_IMAGES", str(tmp_path))
    system = catalog.system("mine")
    assert system.service is not None and system.service.url == f"http://127.0.0.1:{port}"
    assert [folder.name for folder in system.shared] == shared
    assert system.params == PARAMS[service]


def test_misspelt_parameters_are_refused(make: Make) -> None:
    with pytest.raises(ValueError, match="unknown parameter 'analyser'; did you mean 'analyzer'"):
        make("opensearch", analyser="english")


def test_batches_are_bounded_in_documents_and_characters(module: Callable[[str], ModuleType], corpus: Corpus) -> None:
    batches = module("http_adapters").batches
    assert [[place for place, _ in batch] for batch in batches(corpus, 2, 10_000)] == [[0, 1], [2]]
    assert [len(batch) for batch in batches(corpus, 100, 40)] == [2, 1]
    empty = corpus.path.with_name("empty.jsonl")
    empty.touch()
    assert list(batches(Corpus(empty, 0), 1, 1)) == []


class Asked:
    """A server's requests: the path, and the port of the connection that each came over."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.ports: set[int] = set()
        self.sent = 0
        self.ended = threading.Event()


def _handler(asked: Asked, answer: Callable[[Any], None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def do_GET(self) -> None:
            asked.paths.append(self.path)
            asked.ports.add(self.client_address[1])
            answer(self)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _reply(handler: Any, text: bytes, status: int = 200) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(text)))
    handler.end_headers()
    handler.wfile.write(text)


def test_a_connection_serves_many_requests_and_each_thread_has_its_own(module: Callable[[str], ModuleType]) -> None:
    asked = Asked()
    with serving(_handler(asked, lambda handler: _reply(handler, b'{"ok": true}'))) as url:
        client = module("service_client").HttpClient(f"{url}/prefix/")
        assert [client.post("/a?b", {"q": "é"}) for _ in range(20)] == [{"ok": True}] * 20
        assert asked.paths == ["/prefix/a?b"] * 20 and len(asked.ports) == 1

        def other() -> None:
            client.get("/c")
            client.get("/d")
            client.close()

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        client.get("/e")
        assert len(asked.ports) == 2
        client.close()
        client.get("/f")
        assert len(asked.ports) == 3
        client.close()


def _close(handler: Any) -> None:
    handler.close_connection = True


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda handler: _reply(handler, b"out\n of  order", 500), "status 500: out of order"),
        (lambda handler: _reply(handler, b"", 503), "status 503: "),
        (lambda handler: _reply(handler, b"<html>hello</html>"), "an answer that is not JSON: <html>hello</html>"),
        (lambda handler: _reply(handler, b"[" * 100_000), "an answer that is not JSON: [[["),
        (lambda handler: _reply(handler, b"\xff\xfe\x00"), "an answer that is not JSON"),
        (_close, "the connection failed: RemoteDisconnected"),
        (lambda handler: handler.wfile.write(b"nonsense\r\n\r\n"), "the connection failed: BadStatusLine"),
        (lambda handler: (time.sleep(1), _close(handler)), "no answer within 0.1 s"),
    ],
    ids=["500", "503", "html", "nested", "binary", "closed", "no HTTP", "late"],
)
def test_a_failed_request_is_sent_once_and_the_next_is_answered(
    module: Callable[[str], ModuleType], answer: Callable[[Any], None], reason: str
) -> None:
    asked = Asked()

    def good_or_bad(handler: Any) -> None:
        if handler.path == "/good":
            _reply(handler, b"1")
        else:
            answer(handler)

    with serving(_handler(asked, good_or_bad)) as url:
        client = module("service_client").HttpClient(url, timeout_s=0.1 if "within" in reason else 60)
        assert client.get("/good") == 1
        with pytest.raises(QueryFailed) as failed:
            client.post("/bad", {})
        assert str(failed.value).startswith(reason)
        assert client.get("/good") == 1
        client.close()
    assert asked.paths == ["/good", "/bad", "/good"], "never sent again"


def test_an_answer_cut_short_fails_the_query(module: Callable[[str], ModuleType]) -> None:
    def cut(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b'{"half":')
        _close(handler)

    asked = Asked()
    with serving(_handler(asked, cut)) as url:
        client = module("service_client").HttpClient(url)
        with pytest.raises(QueryFailed):
            client.get("/")
        client.close()


def test_a_gigabyte_is_refused_after_32_mib(module: Callable[[str], ModuleType]) -> None:
    asked = Asked()

    def flood(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(1 << 30))
        handler.end_headers()
        block = b" " * (1 << 20)
        try:
            for _ in range(1 << 10):
                handler.wfile.write(block)
                asked.sent += len(block)
        except OSError:
            pass
        handler.close_connection = True
        asked.ended.set()

    with serving(_handler(asked, flood)) as url:
        client = module("service_client").HttpClient(url)
        with pytest.raises(QueryFailed, match="an answer of more than 32 MiB"):
            client.get("/")
        assert asked.ended.wait(10)
    assert (32 << 20) <= asked.sent < (64 << 20)


def test_nobody_listening_is_a_failed_query_and_waiting_ends_when_somebody_does(
    module: Callable[[str], ModuleType],
) -> None:
    client_module = module("service_client")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    client = client_module.HttpClient(f"http://127.0.0.1:{port}")
    with pytest.raises(QueryFailed, match="the connection failed: ConnectionRefusedError"):
        client.get("/")
    tried = 0

    def ready() -> bool:
        nonlocal tried
        tried += 1
        if tried < 3:
            raise QueryFailed("not yet")
        return tried > 3

    client_module.wait_until(ready)
    assert tried == 4
    for wrong in ("localhost:9200", "ftp://host/", "http://"):
        with pytest.raises(ValueError, match="is not the address of a service"):
            client_module.HttpClient(wrong)


def _certificate(folder: Path) -> tuple[Path, Path]:
    """Write a certificate of 127.0.0.1 that nobody else has signed, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate_path, key_path = folder / "server.pem", folder / "server.key"
    certificate_path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate_path, key_path


@pytest.mark.parametrize("trusted", [False, True])
def test_a_self_signed_server_is_refused_unless_the_system_trusts_it(
    module: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    certificate_path, key_path = _certificate(tmp_path)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate_path))
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(certificate_path, key_path)
    received: list[bytes] = []

    def serve(listening: socket.socket) -> None:
        plain, _ = listening.accept()
        try:
            with server_side.wrap_socket(plain, server_side=True) as connection:
                received.append(connection.recv(1 << 16))
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1")
        except OSError:
            plain.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        client = module("service_client").HttpClient(f"https://127.0.0.1:{listening.getsockname()[1]}")
        if trusted:
            assert client.get("/") == 1
        else:
            with pytest.raises(QueryFailed, match="CERTIFICATE_VERIFY_FAILED"):
                client.get("/")
        client.close()
        thread.join()
    assert bool(received) == trusted, "a server that is not trusted sees no request"

"""What PostgreSQL's engines decide without a server: settings, the cluster's folder, statements, vectors in binary."""

from __future__ import annotations

import importlib
import stat
import struct
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.driver.records import Envelope
from harness.launch.images import catalog

GIB = 1 << 30


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Import a module of an image on the host, and forget it afterwards."""
    images = catalog.images_dir()
    for folder in ("shared", "postgres", "pgvector"):
        monkeypatch.syspath_prepend(str(images / folder))
    before = set(sys.modules)

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    yield load
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_settings_share_the_envelope(module: Any) -> None:
    postgres = module("postgres")
    small = postgres.settings(Envelope("small", 1, 512 << 20), 5432, 8)
    assert small["shared_buffers"] == small["maintenance_work_mem"] == "128MB" and small["work_mem"] == "4MB"
    assert {small[name] for name in small if "workers" in name} == {"0"} and small["max_connections"] == "13"
    large = postgres.settings(Envelope("large", 8, 32 * GIB), 5432, 4)
    assert (large["shared_buffers"], large["work_mem"]) == ("8192MB", "512MB")
    assert large["max_parallel_workers_per_gather"] == large["max_worker_processes"] == "7"
    beside = postgres.settings(Envelope("small", 1, 512 << 20), 5432, 8, reserved_bytes=256 << 20)
    assert beside["shared_buffers"] == "64MB"
    assert postgres.settings(Envelope("tiny", 1, 1 << 20), 5432, 8)["shared_buffers"] == "16MB", (
        "the least it starts with"
    )
    for name in ("listen_addresses", "unix_socket_directories", "jit"):
        assert small[name] in ("127.0.0.1", "", "off")


def test_a_cluster_is_copied_once_and_made_ready_again(module: Any, tmp_path: Path) -> None:
    postgres = module("postgres")
    empty, data = tmp_path / "empty", tmp_path / "index" / "data"
    for folder in ("base/1", "pg_notify"):
        (empty / folder).mkdir(parents=True)
    (empty / "PG_VERSION").write_text("17\n")
    data.parent.mkdir()
    (data.parent / "data.partial").mkdir()  # of a start that was cut short
    postgres.prepare(empty, data)
    assert [path.name for path in data.parent.iterdir()] == ["data"]
    (data / "base" / "1" / "table").touch(mode=0o644)
    (data / "pg_notify").rmdir()
    data.chmod(0o755)
    postgres.prepare(empty, data)
    assert (data / "pg_notify").is_dir() and (data / "base" / "1" / "table").exists()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (data, *data.rglob("*"))}
    assert modes == {
        **dict.fromkeys(("data", "base", "1", "pg_notify"), 0o700),
        **dict.fromkeys(("PG_VERSION", "table"), 0o600),
    }
    command = postgres.command({"port": "5432", "unix_socket_directories": ""}, data.parent)
    assert command[1:] == ["-D", str(data), "-c", "port=5432", "-c", "unix_socket_directories="]


def test_servers_of_both_engines_listen_where_their_files_say(module: Any) -> None:
    for name in ("postgres-fts", "pgvector-exact", "pgvector-hnsw"):
        system = catalog.system(name)
        assert system.service is not None and system.service.url == "postgresql://127.0.0.1:5432"


def test_full_text_refuses_wrong_parameters(module: Any) -> None:
    full_text = module("full_text")
    params = dict(catalog.system("postgres-fts").params)
    made = full_text.FullText.of(params)
    assert made.configuration == "english" and b"'pg_catalog.english'" in made.insert
    german = full_text.FullText.of({**params, "language": "de", "rank": "ts_rank_cd"})
    assert b"ts_rank_cd(words, any_of(%s), 1)" in german.search and b"pg_catalog.german" in german.tables
    for changed, complaint in (
        ({"language": "zh"}, "language is 'zh', must be one of da, de"),
        ({"rank": "bm25"}, "rank is 'bm25', must be one of ts_rank, ts_rank_cd"),
        ({"normalization": 64}, "normalization is 64, must be a whole number from 0 to 63"),
        ({"normalization": True}, "normalization is True"),
        ({"k1": 0.9}, "unknown parameter 'k1'"),
    ):
        with pytest.raises(ValueError, match=complaint):
            full_text.FullText.of({**params, **changed})
    assert set(full_text.LANGUAGES) == set(catalog.system("postgres-fts").languages)


def test_index_refuses_wrong_parameters(module: Any) -> None:
    vectors = module("vectors")
    exact, hnsw = (dict(catalog.system(f"pgvector-{kind}").params) for kind in ("exact", "hnsw"))
    assert vectors.Index.of(exact).create is None and vectors.Index.of(exact).settings == {}
    made = vectors.Index.of(hnsw)
    assert b"hnsw (embedding vector_ip_ops) WITH (m = 16, ef_construction = 64)" in made.create
    assert made.settings["hnsw.ef_search"] == "40"
    for params, complaint in (
        ({**exact, "index": "ivf"}, "index is 'ivf', must be one of exact, hnsw"),
        ({**exact, "m": 16}, "m is a parameter of index = 'hnsw'; remove it"),
        ({**hnsw, "ef_search": 1001}, "ef_search is 1001, must be a whole number from 1 to 1000"),
        ({**hnsw, "ef_construction": 31}, "ef_construction is 31, must be at least twice m, 32"),
    ):
        with pytest.raises(ValueError, match=complaint):
            vectors.Index.of(params)
    assert b"STORAGE PLAIN" in made.tables(384) and b"STORAGE EXTERNAL" in made.tables(2000)


def test_rows_are_in_the_binary_form_of_copy(module: Any) -> None:
    vectors = module("vectors")
    vector = b"\x00\x02\x00\x00" + struct.pack("!ff", 1.0, -2.5)
    assert vectors.packed(array("f", [1.0, -2.5])) == vector
    row = (
        b"\x00\x04" + b"\x00\x00\x00\x04\x00\x00\x00\x07" + b"\x00\x00\x00\x03\xc3\xa9x" + b"\x00\x00\x00\x0c" + vector
    )
    vector_of = array("f", [1.0, -2.5])
    assert vectors.row(7, "éx", vector_of) == row + b"\x00\x00\x00\x03\x01{}"
    assert vectors.row(7, "éx", vector_of, '{"a": 1}') == row + b'\x00\x00\x00\x09\x01{"a": 1}'

"""Ways to make a results folder hostile, by name."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.evaluation import embeddings
from harness.evaluation.embeddings import Embeddings
from harness.results.reader import LOG, RESULT, RUN, SAMPLES
from harness.results.schema import ANSWER_DEPTHS, JUDGED_HITS
from tests.support import results_folders
from tests.support.results_folders import change, put

SPARSE_BYTES = 1 << 43
HERE = "here"
_BOMB_BYTES, _MEMBER_BYTES = 4 << 30, 16 << 20
_DEEP = 3000


@dataclass(frozen=True)
class Attack:
    """``plant`` changes a results folder; ``named`` is the file at fault, ``unread`` says that no table needs it."""

    plant: Callable[[Path], object]
    named: str
    unread: bool = False
    of_tables: bool = False
    arguments: tuple[str, ...] = ()


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _linked(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's name may have 100 bytes
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    finally:
        os.chdir(here)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(SPARSE_BYTES)


_KINDS: dict[str, Callable[[Path], None]] = {
    "pipe": _fifo,
    "zeros": _linked("/dev/zero"),
    "loop": lambda path: path.symlink_to(path.name),
    "socket": _socket,
    "folder": Path.mkdir,
    "sparse": _sparse,
}


def _of_job(name: str) -> Callable[[Path], Path]:
    return lambda results: results_folders.job(results) / name


def _of_suite(name: str) -> Callable[[Path], Path]:
    return lambda results: next((results / "test-suite" / name).iterdir())


def _origin(results: Path) -> Path:
    return results / "origin.toml"


_PLACES: dict[str, Callable[[Path], Path]] = {
    "record": _of_job(RESULT),
    "samples": _of_job(SAMPLES),
    "run": _of_job(RUN),
    "log": _of_job(LOG),
    "judgements": _of_suite("qrels"),
    "queries": _of_suite("samples"),
    "origin": _origin,
}
_NAMED = {
    "record": RESULT,
    "samples": SAMPLES,
    "run": RUN,
    "log": LOG,
    "judgements": "/qrels/",
    "queries": "/samples/",
    "origin": "origin.toml",
}


def _instead(place: str, kind: str) -> Attack:
    """Return an attack that replaces a file with something else."""

    def plant(results: Path) -> None:
        path = _PLACES[place](results)
        path.unlink(missing_ok=True)
        _KINDS[kind](path)

    return Attack(plant, _NAMED[place], unread=place == "log")


def _file(name: str, content: Callable[[], bytes]) -> Attack:
    """Return an attack that replaces a job's file and updates its checksum."""
    return Attack(lambda results: results_folders.replace(results_folders.job(results), name, content()), name)


def _origin_of(content: Callable[[], bytes]) -> Attack:
    return Attack(lambda results: put(_origin(results), content()), "origin.toml")


def _suite_file(name: str, content: Callable[[], bytes]) -> Attack:
    return Attack(lambda results: put(_of_suite(name)(results), content()), f"/{name}/")


def _record(edit: Callable[[dict[str, Any]], object]) -> Attack:
    return Attack(lambda results: change(results_folders.job(results), edit), RESULT)


def _text(edit: Callable[[str], str]) -> Attack:
    """A record whose text no writer of JSON would give."""

    def plant(results: Path) -> None:
        path = results_folders.job(results) / RESULT
        put(path, edit(path.read_text()).encode("utf-8", "surrogatepass"))

    return Attack(plant, RESULT)


def _raw(edit: Callable[[dict[str, Any]], object], value: str) -> Attack:
    """A record with a value that no writer of JSON would give, in the place of ``HERE``."""

    def spoil(text: str) -> str:
        raw = json.loads(text)
        edit(raw)
        return json.dumps(raw).replace(json.dumps(HERE), value)

    return _text(spoil)


def _zipped(piece: bytes, size: int) -> bytes:
    """Return compressed repeated pieces, without ever holding them unpacked."""
    member = gzip.compress(piece * (_MEMBER_BYTES // len(piece)), mtime=0)
    return member * (size // _MEMBER_BYTES)


def _parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", **options)
    return sink.getvalue()


def _columns(rows: int = 40, **others: Any) -> dict[str, Any]:
    return {
        "query_id": others.pop("query_id", None) or pa.array([f"q{n}" for n in range(rows)], pa.string()),
        "trial": pa.array(np.zeros(rows, np.int32)),
        "warmup": pa.array(np.zeros(rows, bool)),
        "latency_ns": pa.array(np.full(rows, 5, np.int64)),
    } | others


def _samples(**others: Any) -> Callable[[], bytes]:
    return lambda: _parquet(pa.table(_columns(**others)))


def _many_rows() -> bytes:
    """120 million rows in some kilobytes, as runs of one value take no room."""
    rows = 10_000_000
    ids = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["q0"])
    one = pa.table(_columns(rows, query_id=ids))
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, one.schema, compression="zstd", store_schema=False) as writer:
        for _ in range(12):
            writer.write_table(one, row_group_size=rows)
    return sink.getvalue()


def _long_ids() -> bytes:
    """Return a table with one id of a megabyte and 50,000 rows that refer to it."""
    ids = pa.DictionaryArray.from_arrays(np.zeros(50_000, np.int32), ["q" * (1 << 20)])
    columns = _columns(50_000, query_id=ids)
    # Without the Arrow schema a reader is told of strings, not of a dictionary.
    return _parquet(pa.table(columns), store_schema=False)


def _every_trial() -> bytes:
    """A grid of 100,000 queries by 100,000 trials, of which the diagonal is there."""
    return _parquet(pa.table(_columns(100_000, trial=pa.array(np.arange(100_000, dtype=np.int32)))))


def _lying_parquet() -> bytes:
    """A footer that is longer than its file."""
    return b"PAR1" + b"\0" * 100 + struct.pack("<I", 0x7FFFFFFF) + b"PAR1"


def _nested_json(depth: int) -> str:
    return "[" * depth + "]" * depth


def _renamed_hash(field: str, outside: str) -> Attack:
    """Return an attack whose record names an existing file outside the folder."""

    def plant(results: Path) -> None:
        inside = _of_suite({"qrels_sha256": "qrels", "sample_sha256": "samples"}[field])(results)
        put(results.parent / f"OUTSIDE{''.join(inside.suffixes)}", inside.read_bytes())
        # Of one job alone it would be another spec, which no table shows.
        for path in results.rglob(RESULT):
            change(path.parent, lambda raw: raw["spec"].update({field: outside}))

    return Attack(plant, RESULT)


def _cell(name: str, value: str) -> Attack:
    return _record(lambda raw: raw["spec"]["cell"].update({name: value}))


def _deep_folders(results: Path) -> None:
    here = Path.cwd()
    os.chdir(results)
    try:
        for _ in range(_DEEP):
            os.mkdir("d")  # noqa: PTH102 # below the folder that we are in, however deep
            os.chdir("d")
    finally:
        os.chdir(here)


def _odd_names(results: Path) -> None:
    folder = results_folders.job(results)
    for name in (b"\xff\xfe", b"a\nharness: all is well", b"\x1b[2J"):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).touch()


def _published(kind: str) -> Attack:
    """Return an attack that presents the folder as a paper's tables."""

    def plant(results: Path) -> None:
        path = results / "published.toml"
        if kind in _KINDS:
            _KINDS[kind](path)
        else:
            path.write_text(f"x = {_nested_json(_DEEP)}\n")

    return Attack(plant, "published.toml")


def _vectors(kind: str) -> Attack:
    """Something else beside the results where vectors are looked for, or 90 million zeros."""

    def plant(results: Path) -> None:
        folder = results / "embeddings"
        folder.mkdir()
        path = folder / "0000000000000000-document-0000000000000000-00000000.parquet"
        if kind in _KINDS:
            _KINDS[kind](path)
            return
        source = json.loads((results_folders.job(results) / RESULT).read_text())["spec"]["corpus_sha256"]
        embeddings.write(path, Embeddings(("a",), np.zeros((1, 1000), np.float32), "e", "c" * 64, "document", source))
        schema = pq.read_schema(path)
        many = pa.table(
            [pa.array(["a"] * 10_000), pa.FixedSizeListArray.from_arrays(np.zeros(10_000_000, np.float32), 1000)],
            schema=schema,
        )
        with pq.ParquetWriter(path, schema, compression="zstd") as writer:
            for _ in range(9):
                writer.write_table(many)

    return Attack(plant, "vectors of 1,000" if kind == "bomb" else "", of_tables=True, arguments=("--measures", "FD@3"))


def _attacks() -> Iterator[tuple[str, Attack]]:
    for place in _PLACES:
        for kind in _KINDS:
            yield f"{place} is a {kind}", _instead(place, kind)
    line = b"q0 Q0 d1 1 1.0 x\n"
    yield "run of one line", _file(RUN, lambda: _zipped(b"\0", _BOMB_BYTES))
    yield "run of many lines", _file(RUN, lambda: _zipped(line, _BOMB_BYTES))
    yield "run that is cut off", _file(RUN, lambda: gzip.compress(line * 9000)[:-40])
    yield "judgements of one line", _suite_file("qrels", lambda: _zipped(b"\0", _BOMB_BYTES))
    yield "judgements of many lines", _suite_file("qrels", lambda: _zipped(b"q0 0 d1 1\n", _BOMB_BYTES))
    yield "judged hits of many lines", _file(JUDGED_HITS, lambda: _zipped(b"q0 0 d1 1\n", _BOMB_BYTES))
    yield "answer depths of one line", _depths(b"\0")
    yield "answer depths of many lines", _depths(b"q0\t-\t9\n")
    yield "samples of many rows", _file(SAMPLES, _many_rows)
    yield "samples with long ids", _file(SAMPLES, _long_ids)
    yield "samples of a wide grid", _file(SAMPLES, _every_trial)
    yield "samples without a foot", _file(SAMPLES, _lying_parquet)
    yield "samples of lists", _file(SAMPLES, _samples(latency_ns=pa.array([[5]] * 40)))
    yield "samples of records", _file(SAMPLES, _samples(trial=pa.array([{"a": {"b": 1}}] * 40)))
    yield "samples of text", _file(SAMPLES, _samples(trial=pa.array(["0"] * 40)))
    yield "samples that are no number", _file(SAMPLES, _samples(latency_ns=pa.array([float("nan")] * 40)))
    yield "samples with holes", _file(SAMPLES, _samples(trial=pa.array([None] * 40, pa.int32())))
    yield "samples with many columns", _file(SAMPLES, _samples(**{f"stage_s{n}_ns": [1] * 40 for n in range(500)}))
    yield "samples with nested stages", _file(SAMPLES, _samples(stage_a_ns=[[1]] * 40))
    for number in ("NaN", "Infinity", "-1", "1e999", "1" + "0" * 400, "-0.5"):
        yield f"load of {number[:9]} s", _raw(lambda raw: raw["measured"].update(load_s=HERE), number)
    yield "bytes of NaN", _record(lambda raw: raw["observed"]["memory"].update(peak_anon_bytes=float("nan")))
    yield "negative bytes", _record(lambda raw: raw["observed"]["memory"].update(peak_anon_bytes=-5))
    yield "negative CPUs", _record(lambda raw: raw["spec"]["envelope"].update(cpus=-1))
    yield "negative index", _record(lambda raw: raw["index"].update(index_bytes=-(1 << 40)))
    yield "endless jobs", _record(lambda raw: raw["spec"].update(jobs=10**15))
    yield "endless trials", _record(lambda raw: raw["spec"].update(trials=10**12))
    yield "endless hits", _record(lambda raw: raw["spec"].update(k=10**15))
    yield "endless sample", _record(lambda raw: raw["spec"].update(sample_size=10**15))
    yield f"{_DEEP} levels", _text(lambda text: text.replace("{", f'{{"x": {_nested_json(_DEEP)},', 1))
    yield "990 levels", _raw(lambda raw: raw["spec"].update(x=HERE), _nested_json(990))
    yield "levels in a parameter", _raw(lambda raw: raw["spec"]["params"].update(x=HERE), _nested_json(900))
    yield "surrogate in a system", _cell("system", "\ud800")
    yield "surrogate in a detail", _record(lambda raw: raw.update(detail="\udfff"))
    yield "surrogate in a parameter", _record(lambda raw: raw["spec"]["params"].update({"\ud800": 1}))
    yield "surrogate in a library", _record(lambda raw: raw["measured"]["libraries"].update({"a": "\ud800"}))
    yield "system that leads out", _cell("system", "../../../OUTSIDE")
    yield "system of no name", _cell("system", "")
    yield "dataset that leads out", _cell("dataset", "/tmp/OUTSIDE")
    yield "judgements that lie outside", _renamed_hash("qrels_sha256", "../../../OUTSIDE")
    yield "queries that lie outside", _renamed_hash("sample_sha256", "../../../OUTSIDE")
    yield "judgements of no hash", _renamed_hash("qrels_sha256", "0" * 63 + "g")
    yield "record of nothing", _text(lambda _: "")
    yield "record of a list", _text(lambda _: "[1]")
    yield "record of 64 MiB", _text(lambda text: text + " " * (64 << 20))
    yield "queries of 3000 levels", _suite_file("samples", lambda: _nested_json(_DEEP).encode())
    yield "queries with surrogates", _suite_file("samples", lambda: b'[{"query_id": "\\ud800", "text": "\\udfff"}]')
    yield "queries that are numbers", _suite_file("samples", lambda: b"[1, 2]")
    yield "queries of 64 MiB", _suite_file("samples", lambda: b"[" + b"[]," * (21 << 20) + b"[]]")
    yield "origin of 3000 levels", _origin_of(f"x = {_nested_json(_DEEP)}".encode)
    yield "origin of 64 MiB", _origin_of(lambda: b"#" * (64 << 20))
    yield "3000 folders", Attack(_deep_folders, "d/d/d")
    yield "odd names", Attack(_odd_names, RESULT, unread=True)
    outside = {"../../x": hashlib.sha256(b"").hexdigest()}
    yield "file that lies outside", replace(_record(lambda raw: raw["files"].update(outside)), unread=True)
    for kind in ("pipe", "zeros", "sparse", "levels"):
        yield f"published is a {kind}", _published(kind)
    for kind in ("pipe", "zeros", "sparse", "bomb"):
        yield f"vectors are a {kind}", _vectors(kind)


def _depths(piece: bytes) -> Attack:
    """A job whose hits were judged by answers, and a bomb where it says how deep these stand."""

    def plant(results: Path) -> None:
        folder = results_folders.job(results)
        run = gzip.decompress((folder / RUN).read_bytes()).decode()
        hits = "".join(f"{line.split()[0]} 0 {line.split()[2]} 1\n" for line in run.splitlines())
        results_folders.replace(folder, JUDGED_HITS, gzip.compress(hits.encode()))
        results_folders.replace(folder, ANSWER_DEPTHS, _zipped(piece, _BOMB_BYTES))

    return Attack(plant, ANSWER_DEPTHS)


ATTACKS = dict(_attacks())

"""Verified results: each mismatch is named with both values, and the rest is still checked."""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.errors import FileError, UsageError
from harness.report.verify import Mismatch, verify_results
from harness.results import reader, seals
from tests.support.results_folders import change, job, put, replace

SHIPPED = Path(__file__).parents[2] / "results" / "published" / "santhanam2023"


def verify(results: Path) -> tuple[Mismatch, ...]:
    return verify_results(results).mismatches


def test_sound_results_verify(results: Path) -> None:
    verified = verify_results(results)
    assert verified.mismatches == () and verified.looked_at == "12 jobs, 36 files"


def test_what_systems_leave_in_results_is_not_verified(results: Path) -> None:
    folder = job(results)
    for place in (results, folder.parents[4], folder.parents[4] / "qrels", folder):
        for name in (".DS_Store", "._result.json", "Thumbs.db"):
            (place / name).write_bytes(b"\0junk")
    assert verify(results) == ()


def test_results_verify_from_any_folder_within(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (results / "test-suite", job(results).parent, job(results)):
        assert verify(folder) == ()
    monkeypatch.chdir(job(results).parent)
    assert verify(Path()) == ()


def _samples(edit: Callable[[dict[str, list[Any]]], object]) -> Callable[[Path], None]:
    """Other samples, with the checksum that belongs to them."""

    def damage(folder: Path) -> None:
        columns = pq.read_table(folder / reader.SAMPLES).to_pydict()
        edit(columns)
        schema = pq.read_schema(folder / reader.SAMPLES)
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(columns, schema=schema), sink)
        replace(folder, reader.SAMPLES, sink.getvalue().to_pybytes())

    return damage


def _run(edit: Callable[[str], str]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        text = edit(gzip.decompress((folder / reader.RUN).read_bytes()).decode())
        replace(folder, reader.RUN, gzip.compress(text.encode()))

    return damage


def _set(*path: str, **facts: Any) -> Callable[[Path], None]:
    """Set facts of a record, or of the record at ``path`` in it."""
    return lambda folder: change(folder, lambda raw: functools.reduce(dict.__getitem__, path, raw).update(facts))


def _without_last(columns: dict[str, list[Any]]) -> None:
    place = max(place for place, trial in enumerate(columns["trial"]) if trial >= 0)
    for values in columns.values():
        del values[place]


def _first(columns: dict[str, list[Any]], name: str, value: Any) -> None:
    columns[name][columns["trial"].index(0)] = value


# What is damaged in the job, and the mismatch from its place below the job on.
DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "log": (lambda f: put(f / reader.LOG, b"x"), "/log.txt.gz: stored: sha256 "),
    "missing": (lambda f: (f / reader.LOG).unlink(), "/log.txt.gz: stored: cannot be read: No such file"),
    "more": (lambda f: (f / "more").write_text(""), "/more: stored: is there; follows: no such file"),
    "folder": (lambda f: ((f / reader.LOG).unlink(), (f / reader.LOG).mkdir()), "/log.txt.gz: stored: cannot be read"),
    "outside": (_set("files", **{"../x": "0"}), "/result.json: files: stored: ../x; follows: names of files beside it"),
    "record": (lambda f: put(f / reader.RESULT, b'{"x'), "result.json: damaged: wrong from column 2"),
    "version": (_set(schema_version=99), "result.json: schema version 99, this harness reads"),
    "time": (_set(started_at="noon"), "result.json: damaged: key 'started_at': 'noon' is not an ISO time"),
    "no record": (lambda f: (f / reader.RESULT).unlink(), ": stored: files of a job; follows: result.json beside them"),
    "spec": (_set("spec", k=4), ", the hash of its spec"),
    "place": (_set("spec", "cell", profile="cpu9"), ": folder: stored: test-suite"),
    "trials": (_set("answers", trials_finished=7), "trials_finished: stored: 7; follows: 1, by samples"),
    "warm-up": (_set("answers", warmup_done=7), "answers: warmup_done: stored: 7; follows: 2, by samples.parquet"),
    "first query": (_set("answers", first_query_s=0.25), "answers: first_query_s: stored: 0.25; follows: "),
    "resumed": (_set("index", resumed_s=99.0), "index.resumed_s: stored: 99.0; follows: 0 to 2.0"),
    "samples": (lambda f: replace(f, reader.SAMPLES, b"x"), "samples.parquet: cannot be read: the file is damaged"),
    "negative": (_samples(lambda c: _first(c, "latency_ns", -5)), "latency_ns: stored: 1 such as -5; follows: at"),
    "lost sample": (_samples(_without_last), "1 samples missing, e.g. query "),
    "strange sample": (_samples(lambda c: _first(c, "query_id", "q99")), "1 samples too many, e.g. query 'q99'"),
    "strange trial": (_samples(lambda c: _first(c, "trial", 9)), "samples.parquet: trial: stored: 9; follows: 0 to 0"),
    "repeats": (_samples(lambda c: c["trial"].__setitem__(c["trial"].index(-2), -1)), "stored: 3 of 2 queries"),
    "column": (lambda f: replace(f, reader.SAMPLES, _parquet({"trial": [0]})), "key b'query_id' is missing"),
    "run": (lambda f: replace(f, reader.RUN, b"x"), "run.trec.gz: damaged: it is not gzipped"),
    "stranger": (_run(lambda text: text + "q99 Q0 d1 1 1.0 x\n"), "/run.trec.gz: stored: 1 queries such as 'q99'"),
    "deep": (_run(lambda text: text + "q0 Q0 d9 4 0.5 x\n"), "/run.trec.gz: stored: 4 hits for query 'q0'"),
    "order": (_run(lambda text: text + "q0 Q0 d9 4 9.5 x\n"), "follows: what can be read"),
}


def _parquet(columns: dict[str, list[Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize("name", DAMAGE)
def test_each_damage_is_named_with_its_file(results: Path, name: str) -> None:
    damage, expected = DAMAGE[name]
    folder, other = job(results), job(results, "greedy")
    damage(folder)
    put(other / reader.LOG, b"x")  # the rest is still verified
    below, lines = str(folder.relative_to(results)), list(map(str, verify(results)))
    here = [line.removeprefix(below) for line in lines if line.startswith((f"{below}/", f"{below}:"))]
    assert [line for line in lines if not line.startswith(below)] == [
        line for line in lines if line.startswith(f"{other.relative_to(results)}/log.txt.gz: ")
    ]
    assert len(lines) == len(here) + 1 and any(expected in line for line in here), lines
    assert all("\n" not in line for line in lines)


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "half": lambda content: content[: len(content) // 2],
    "flipped": lambda content: content[:-9] + bytes([content[-9] ^ 0xFF]) + content[-8:],
    "null": lambda _: b"null",
    "list": lambda _: b"[]",
    "object": lambda _: b"{}",
    "deep": lambda _: b"[" * 100_000,
    "not text": lambda _: b"\xff\xfe" * 100,
}


@pytest.mark.parametrize("way", SPOILT)
def test_damaged_file_does_not_stop_verification(results: Path, way: str) -> None:
    """Check the content even if the checksum fits."""
    folder = job(results)
    suite = folder.parents[4]
    for path in (*folder.iterdir(), *(suite / "qrels").iterdir(), *(suite / "samples").iterdir()):
        content, record = path.read_bytes(), (folder / reader.RESULT).read_bytes()
        manifest = (suite / seals.MANIFEST).read_bytes()
        spoilt = SPOILT[way](content)
        put(path, spoilt)
        assert verify(folder), f"{path.name} {way}"
        if path.parent == folder and path.name not in (reader.RESULT, reader.LOG):
            replace(folder, path.name, spoilt)
            assert verify(folder), f"{path.name} {way}, with its checksum"
            put(folder / reader.RESULT, record)
            put(suite / seals.MANIFEST, manifest)
        put(path, content)
    assert verify(folder) == ()


def test_probes_are_verified_against_their_samples(results: Path) -> None:
    folder = job(results, scenario="server")
    probe = json.loads((folder / reader.RESULT).read_text())["measured"]["probes"][0]
    change(folder, lambda raw: raw["measured"]["probes"][0].update(late=probe["late"] + 1, latency_s=9.0))
    _set("measured", rate_qps=12345.0)(folder)
    by_place = {mismatch.place.partition("result.json: ")[2]: mismatch for mismatch in verify(results)}
    assert by_place.keys() == {"probe 1: late", "probe 1: latency_s", "measured.rate_qps"}
    assert by_place["measured.rate_qps"].stored == "12345.0" and "passed twice" in by_place["measured.rate_qps"].follows


@pytest.mark.slow
def test_inputs_match_the_hashes_in_their_names(results: Path) -> None:
    (qrels,) = (results / "test-suite" / "qrels").iterdir()
    (sample,) = (results / "test-suite" / "samples").iterdir()
    whole, listed = qrels.read_bytes(), json.loads(sample.read_text())
    put(qrels, gzip.compress(gzip.decompress(whole) + b"q1 0 d2 1\n"))
    (mismatch,) = verify(results)
    assert mismatch.place == f"test-suite/qrels/{qrels.name}" and mismatch.follows.endswith("by its name")
    put(qrels, gzip.compress(gzip.decompress(whole), compresslevel=1))
    assert verify(results) == (), "packed otherwise, it is the same"
    put(sample, json.dumps(listed[:-1]).encode())
    places = [mismatch.place for mismatch in verify(results)]
    assert f"test-suite/samples/{sample.name}" in places
    assert any(place.endswith("result.json: spec.sample_size") for place in places)
    qrels.unlink()
    assert any("run.trec.gz" in mismatch.place and "does not exist" in mismatch.stored for mismatch in verify(results))


def test_empty_folder_has_nothing_to_verify(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no stored job in it"):
        verify(tmp_path)
    with pytest.raises(FileError, match="no results here"):
        verify(tmp_path / "none")


@pytest.mark.slow
def test_published_tables_have_their_errata() -> None:
    mismatches = verify(SHIPPED)
    assert len(mismatches) == 16 and str(mismatches[0]).startswith(
        "Table 3a row 10 (DPR, 16 CPU, 32 GiB): cost: stored: 19 ms"
    )

"""Edits by hand, one at a time, without a new seal: verify names each of them, and no mere reformatting."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.report.verify import verify_results
from harness.results import integrity, origins, reader, seals
from tests.support import sample_records
from tests.support.results_folders import job, put, relist


def verify(results: Path) -> list[str]:
    return [str(mismatch) for mismatch in verify_results(results, cache=results.parent / "cache").mismatches]


def record(edit: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    """Edit ``result.json`` in an editor; its seal stays."""

    def damage(folder: Path) -> None:
        raw = json.loads((folder / reader.RESULT).read_text())
        edit(raw)
        put(folder / reader.RESULT, json.dumps(raw, indent=2).encode())

    return damage


def fields(*path: str | int, to: Any) -> Callable[[Path], object]:
    def edit(raw: dict[str, Any]) -> None:
        inner: Any = raw
        for name in path[:-1]:
            inner = inner[name]
        assert inner[path[-1]] != to
        inner[path[-1]] = to

    return record(edit)


def samples(name: str, value: Any) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        path = folder / reader.SAMPLES
        table = pq.read_table(path)
        columns = table.to_pydict()
        columns[name][-1] = value
        path.unlink()
        pq.write_table(pa.table(columns, schema=table.schema), path)

    return damage


def run(edit: Callable[[str], str]) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        text = gzip.decompress((folder / reader.RUN).read_bytes()).decode()
        assert edit(text) != text
        put(folder / reader.RUN, gzip.compress(edit(text).encode()))

    return damage


def suite_file(name: str, edit: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        (path,) = (folder.parents[4] / name).iterdir()
        put(path, edit(path.read_bytes()))

    return damage


def manifest(edit: Callable[[list[str]], list[str]]) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        path = folder.parents[4] / seals.MANIFEST
        put(path, "".join(edit(path.read_text().splitlines(keepends=True))).encode())

    return damage


def gone(levels: int) -> Callable[[Path], object]:
    return lambda folder: shutil.rmtree((folder, *folder.parents)[levels])


EDITS: dict[str, Callable[[Path], object]] = {
    "outcome": fields("outcome", to="crash"),
    "detail": fields("detail", to="all went well"),
    "exit code": fields("exit_code", to=1),
    "start": fields("started_at", to="2026-01-01T00:00:00.000+00:00"),
    "wall time": fields("wall_s", to=12.5),
    "load time": fields("load_s", to=0.001),
    "first query": fields("first_query_s", to=0.001),
    "warm-up": fields("warmup_done", to=1),
    "steadiness": fields("warmup_steady", to=False),
    "trials": fields("trials_finished", to=2),
    "disagreements": fields("ranking_disagreements", to=3),
    "key": fields("key", to="0" * 16),
    "spec": fields("spec", "k", to=9),
    "envelope": fields("spec", "envelope", "memory_bytes", to=1 << 40),
    "cell": fields("spec", "cell", "system", to="winner"),
    "image": fields("spec", "image_digest", to="sha256:0"),
    "processor": fields("environment", "cpu_model", to="Another CPU"),
    "kernel": fields("environment", "kernel", to="9.9"),
    "commit": fields("environment", "harness_commit", to="0" * 16),
    "limits in force": fields("effective", "memory_bytes", to=1 << 40),
    "user": fields("effective", "uid", to=0),
    "build time": fields("index", "build_s", to=0.5),
    "index size": fields("index", "index_bytes", to=6),
    "index content": fields("index", "content_sha256", to="0" * 64),
    "build envelope": fields("index", "envelope", "cpus", to=64),
    "corpus": fields("corpus_documents", to=7),
    "peak": fields("memory", "peak_anon_bytes", to=1),
    "kernel's peak": fields("memory", "peak_cgroup_bytes", to=2),
    "phase": record(lambda raw: raw["phases"][0].update(end_ns=raw["phases"][0]["end_ns"] + 1)),
    "canary": record(lambda raw: raw.update(canary=[asdict(sample_records.canary())])),
    "counters": fields("counters", "steal_s", to=0.25),
    "throttling": fields("throttled_periods", to=99),
    "kills": fields("oom_kills", to=3),
    "page cache": fields("page_cache", to="kept"),
    "placement": record(lambda raw: raw.update(placement=asdict(sample_records.PLACEMENT))),
    "device": fields("device", to="cuda"),
    "libraries": record(lambda raw: raw["libraries"].update(torch="9")),
    "stand-in": fields("stand_in", to="none"),
    "shared host": fields("shared_host", to=True),
    "schema version": fields("schema_version", to=2),
    "seal": fields("seal", to="0" * 64),
    "no seal": record(lambda raw: raw.pop("seal")),
    "one more key": record(lambda raw: raw.update(note="fine")),
    "key less": record(lambda raw: raw.pop("stand_in")),
    "files' hash": record(lambda raw: raw["files"].update({reader.LOG: "0" * 64})),
    "latency": samples("latency_ns", 5),
    "query": samples("query_id", "q1"),
    "trial": samples("trial", 0),
    "run's score": run(lambda text: text.replace(" 1 ", " 1 9", 1)),
    "run's document": run(lambda text: text.replace("d0", "d1", 1)),
    "run's line": run(lambda text: text.partition("\n")[2]),
    "log": lambda folder: put(folder / reader.LOG, gzip.compress(b"nothing happened")),
    "no samples": lambda folder: (folder / reader.SAMPLES).unlink(),
    "no run": lambda folder: (folder / reader.RUN).unlink(),
    "no record": lambda folder: (folder / reader.RESULT).unlink(),
    "stray file": lambda folder: put(folder / "notes.txt", b"x"),
    "judgements": suite_file("qrels", lambda content: gzip.compress(gzip.decompress(content) + b"q0 0 d2 1\n")),
    "query sample": suite_file("samples", lambda content: content.replace(b"number 1", b"number 11", 1)),
    "no judgements": lambda folder: shutil.rmtree(folder.parents[4] / "qrels"),
    "no query sample": lambda folder: shutil.rmtree(folder.parents[4] / "samples"),
    "job gone": gone(0),
    "cell gone": gone(1),
    "system gone": gone(4),
    "job copied": lambda folder: shutil.copytree(folder, folder.with_name("f" * 16)),
    "job copied to another cell": lambda folder: shutil.copytree(folder, folder.parents[1] / "cpu9-mem1" / folder.name),
    "job moved": lambda folder: folder.rename(folder.with_name("f" * 16)),
    "system copied": lambda folder: shutil.copytree(folder.parents[3], folder.parents[4] / "winner"),
    "suite copied": lambda folder: shutil.copytree(folder.parents[4], folder.parents[5] / "again"),
    "manifest gone": lambda folder: (folder.parents[4] / seals.MANIFEST).unlink(),
    "line of the manifest gone": manifest(lambda lines: lines[1:]),
    "seal in the manifest": manifest(lambda lines: ["0" * 64 + lines[0][64:], *lines[1:]]),
    "words in the manifest": manifest(lambda lines: ["all is well\n", *lines]),
}


@pytest.mark.parametrize("edit", EDITS)
def test_verify_names_each_edit_by_hand(results: Path, edit: str) -> None:
    assert verify(results) == []
    folder = job(results)
    EDITS[edit](folder)
    found = verify(results)
    assert found and all("\n" not in line for line in found)


def leaves(value: Any, *path: str | int) -> Iterator[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    yield from (leaf for name, below in inner for leaf in leaves(below, *path, name))
    if not isinstance(value, dict | list):
        yield path


def test_every_edit_of_a_record_is_detected(results: Path) -> None:
    folder = job(results, scenario="server")
    whole = (folder / reader.RESULT).read_bytes()
    places = list(leaves(json.loads(whole)))
    assert len(places) > 100
    for path in places:
        fields(*path, to="9" * 64 if path == ("seal",) else 987654321)(folder)
        assert integrity.check_job(folder, origins.JobOrigins(), "job").mismatches, path
    put(folder / reader.RESULT, whole)
    assert integrity.check_job(folder, origins.JobOrigins(), "job").mismatches == ()


def test_missing_jobs_are_named(results: Path) -> None:
    folder, other = job(results), job(results, "greedy")
    for each in (folder, other):
        shutil.rmtree(each)
    lost = sorted(str(each.relative_to(results)) for each in (folder, other))
    remedy = "stored: gone; follows: a job, by manifest.txt; bring it back or strike it there"
    assert sorted(verify(results)) == [f"{each}: {remedy}" for each in lost]
    relist(results / "test-suite")
    assert verify(results) == []


def test_suite_without_jobs_has_findings(results: Path) -> None:
    for system in ("planted", "greedy"):
        shutil.rmtree(results / "test-suite" / system)
    assert len(verify(results)) == 12
    assert len(verify(results / "test-suite")) == 12


def test_reformatted_record_is_unchanged(results: Path) -> None:
    path = job(results) / reader.RESULT
    raw = json.loads(path.read_text())
    put(path, json.dumps(dict(reversed(raw.items())), indent=7).encode())
    assert verify(results) == []


def test_contradiction_between_sealed_facts_is_named(results: Path) -> None:
    folder = job(results)
    whole = (folder / reader.RESULT).read_bytes()
    contradictions: dict[str, Callable[[Path], object]] = {
        "effective": fields("effective", "cpus", to=[0, 1, 2, 3, 4, 5, 6, 7]),
        "exit_code": fields("exit_code", to=9),
        "detail": fields("detail", to="killed"),
        "oom_kills": fields("oom_kills", to=1),
        "load_s": fields("load_s", to=1e6),
        "wall_s": fields("wall_s", to=1e-9),
        "memory.peak_anon_bytes": record(
            lambda raw: raw["memory"].update(peak_anon_bytes=1, peak_anon_by_phase_bytes={"load": 2})
        ),
        "sweep.params.depth": fields("sweep", to={"system": "planted", "params": {"depth": 10}}),
        "corpus_documents": fields("corpus_documents", to=1 << 30),
        "index.index_bytes": fields("index", "index_bytes", to=1 << 30),
    }
    for name, edit in contradictions.items():
        edit(folder)
        record(lambda raw: raw.update(seal=seals.of(raw)))(folder)
        relist(folder.parents[4])
        assert any(f"result.json: {name}" in line for line in verify(results)), name
        put(folder / reader.RESULT, whole)
    relist(folder.parents[4])
    assert verify(results) == []

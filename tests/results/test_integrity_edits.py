"""Edits by hand, one at a time, without a new seal: verify names each of them, and no mere reformatting."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.errors import FileError
from harness.report.verify import verify_results
from harness.results import integrity, origins, reader, seals
from harness.results import merge as merge_results
from harness.results.store import Store
from harness.results.suite_record import SuiteRecord
from tests.support.results_folders import job, put, relist


def verify(results: Path) -> list[str]:
    return [str(mismatch) for mismatch in verify_results(results).mismatches]


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


def latency(folder: Path) -> None:
    table = pq.read_table(folder / reader.SAMPLES)
    columns = table.to_pydict()
    columns["latency_ns"][-1] = 5
    (folder / reader.SAMPLES).unlink()
    pq.write_table(pa.table(columns, schema=table.schema), folder / reader.SAMPLES)


def score(folder: Path) -> None:
    text = gzip.decompress((folder / reader.RUN).read_bytes())
    put(folder / reader.RUN, gzip.compress(text.replace(b" 1 ", b" 1 9", 1)))


def manifest(edit: Callable[[list[str]], list[str]]) -> Callable[[Path], object]:
    lines = content(lambda old: "".join(edit(old.decode().splitlines(keepends=True))).encode())
    return lambda folder: lines(folder.parents[4] / seals.MANIFEST)


def gone(levels: int) -> Callable[[Path], object]:
    return lambda folder: shutil.rmtree((folder, *folder.parents)[levels])


def of_suite(name: str, edit: Callable[[Path], object]) -> Callable[[Path], object]:
    """Edit a file of the job's suite; ``..`` is the folder of merged results."""
    return lambda folder: edit(next(iter(folder.parents[4].glob(name)), folder.parents[4] / name))


def parsed(edit: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def damage(path: Path) -> None:
        raw = json.loads(path.read_text())
        edit(raw)
        put(path, json.dumps(raw).encode())

    return damage


def emptied(path: Path) -> None:
    put(path, b"")


def content(edit: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    def damage(path: Path) -> None:
        assert edit(path.read_bytes()) != path.read_bytes()
        put(path, edit(path.read_bytes()))

    return damage


def text(old: str, new: str) -> Callable[[Path], object]:
    return content(lambda whole: whole.replace(old.encode(), new.encode()))


def swapped(folder: Path) -> None:
    """Swap two folders of jobs."""
    other = job(folder.parents[5], "greedy")
    aside = folder.with_name("aside")
    folder.rename(aside)
    other.rename(folder)
    aside.rename(other)


EDITS: dict[str, Callable[[Path], object]] = {
    "no seal": record(lambda raw: raw.pop("seal")),
    "one more key": record(lambda raw: raw.update(note="fine")),
    "key less": record(lambda raw: raw["provenance"].pop("stand_in")),
    "latency": latency,
    "run's score": score,
    "no run": lambda folder: (folder / reader.RUN).unlink(),
    "judgements": of_suite("qrels/*", content(lambda old: gzip.compress(gzip.decompress(old) + b"q0 0 d2 1\n"))),
    "query sample": of_suite("samples/*.json", content(lambda old: old.replace(b"number 1", b"number 11", 1))),
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
    "line of the manifest gone": manifest(lambda lines: [line for line in lines if "greedy" not in line]),
    "seal in the manifest": manifest(
        lambda lines: ["0" * 64 + line[64:] if "greedy" in line else line for line in lines]
    ),
    "words in the manifest": manifest(lambda lines: ["all is well\n", *lines]),
    "manifest emptied": of_suite(seals.MANIFEST, emptied),
    "line of a file gone": manifest(lambda lines: [line for line in lines if "suite.json" not in line]),
    "hash of a file in the manifest": manifest(
        lambda lines: ["0" * 64 + line[64:] if "suite.json" in line else line for line in lines]
    ),
    "file of another name in the manifest": manifest(lambda lines: [*lines, f"{'0' * 64}  samples/{'0' * 64}.json\n"]),
    "jobs swapped": swapped,
    "suite renamed": lambda folder: folder.parents[4].rename(folder.parents[5] / "again"),
    "suite's measures": of_suite("suite.json", parsed(lambda raw: raw.update(measures=["P@1"]))),
    "suite's pairs": of_suite("suite.json", parsed(lambda raw: raw.update(firstp={"planted": "planted"}))),
    "suite's positions": of_suite("suite.json", parsed(lambda raw: raw["positions"].update(large="0" * 64))),
    "suite's record gone": of_suite("suite.json", Path.unlink),
    "suite's record emptied": of_suite("suite.json", emptied),
    "suite's record linked": of_suite("suite.json", lambda path: path.rename("aside") and path.symlink_to("aside")),
    "suite's record beside no job": lambda folder: put(folder.parents[3] / "suite.json", b'{"measures": ["P@1"]}'),
    "positions": of_suite("samples/*.positions.jsonl", text("3", "4")),
    "positions gone": of_suite("samples/*.positions.jsonl", Path.unlink),
    "positions emptied": of_suite("samples/*.positions.jsonl", emptied),
    "one more query sample": of_suite(
        f"samples/{hashlib.sha256(b'[]').hexdigest()}.json", lambda path: put(path, b"[]")
    ),
    "one more file of judgements": of_suite("qrels/notes.txt", lambda path: put(path, b"x")),
    "judgements emptied": of_suite("qrels/*", emptied),
    "query sample emptied": of_suite("samples/*.json", emptied),
    "record emptied": lambda folder: emptied(folder / reader.RESULT),
    "samples emptied": lambda folder: emptied(folder / reader.SAMPLES),
    "run emptied": lambda folder: emptied(folder / reader.RUN),
    "log emptied": lambda folder: emptied(folder / reader.LOG),
    "first stage": lambda folder: put(folder / reader.FIRST_STAGE, gzip.compress(b"q0 Q0 d0 1 1.0 other\n")),
}
MERGED_EDITS: dict[str, Callable[[Path], object]] = {
    "origin's name": of_suite("../origin.toml", text('name = "ours"', 'name = "theirs"')),
    "origin's jobs": of_suite("../origin.toml", text("jobs = 12", "jobs = 11")),
    "origin's hash": of_suite("../origin.toml", text('sha256 = "', 'sha256 = "0')),
    "origin gone": of_suite("../origin.toml", Path.unlink),
    "origin emptied": of_suite("../origin.toml", emptied),
    "merged job": fields("wall_s", to=12.5),
    "merged job gone": gone(0),
    "merged suite's record": of_suite("suite.json", emptied),
    "merged suite's manifest": of_suite(seals.MANIFEST, Path.unlink),
    "suite in another origin": lambda folder: folder.parents[4].rename(folder.parents[5] / "late"),
}


@pytest.fixture
def whole(results: Path) -> Path:
    """A suite with everything that a record of it names."""
    store = Store(results, "test-suite")
    with store.held():
        record = SuiteRecord(measures=("RR@10",), exact={"planted": "greedy"})
        store.keep_suite(record, {"large": b'{"start_token": 3}\n'})
    (results / "test-suite" / ".lock").unlink()
    return results


def test_results_without_an_edit_verify(whole: Path) -> None:
    assert verify(whole) == []
    merge_results.merge(merge_results.parse_sources(["ours=results"]), Path("out"))
    assert verify(Path("out").absolute()) == []


@pytest.mark.parametrize("edit", EDITS)
def test_verify_names_each_edit_by_hand(whole: Path, edit: str) -> None:
    EDITS[edit](job(whole))
    found = verify(whole)
    assert found and all("\n" not in line for line in found)


@pytest.mark.parametrize("edit", MERGED_EDITS)
def test_verify_names_each_edit_of_merged_results(whole: Path, edit: str) -> None:
    merge_results.merge(merge_results.parse_sources(["ours=results"]), Path("out"))
    merged = Path("out").absolute()
    MERGED_EDITS[edit](job(merged))
    found = verify(merged)
    assert found and all("\n" not in line for line in found)


def test_merge_refuses_an_edited_record_of_a_suite(whole: Path) -> None:
    put(whole / "test-suite" / "suite.json", b'{"measures": ["P@1"]}')
    with pytest.raises(FileError, match=r"suite\.json: stored: sha256 .*; nothing was written"):
        merge_results.merge(merge_results.parse_sources(["ours=results"]), Path("out"))


def test_files_that_are_not_checked_are_named(whole: Path) -> None:
    for name in ("report.html", "test-suite/report.md", "test-suite/notes.txt", "test-suite/planted/notes.txt"):
        put(whole / name, b"99 ms")
    verified = verify_results(whole)
    assert verified.mismatches == ()
    assert verified.notes == (
        "not checked: report.html, test-suite/notes.txt, test-suite/planted/notes.txt, test-suite/report.md;"
        " `harness report` makes a report again",
    )


def leaves(value: Any, *path: str | int) -> Iterator[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    yield from (leaf for name, below in inner for leaf in leaves(below, *path, name))
    if not isinstance(value, dict | list):
        yield path


@pytest.mark.slow
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


def test_reformatted_record_is_unchanged(results: Path) -> None:
    path = job(results) / reader.RESULT
    raw = json.loads(path.read_text())
    put(path, json.dumps(dict(reversed(raw.items())), indent=7).encode())
    assert verify(results) == []


@pytest.mark.slow
def test_contradiction_between_sealed_facts_is_named(results: Path) -> None:
    folder = job(results)
    whole = (folder / reader.RESULT).read_bytes()
    contradictions: dict[str, Callable[[Path], object]] = {
        "measured.effective": fields("measured", "effective", "cpus", to=[0, 1, 2, 3, 4, 5, 6, 7]),
        "observed.exit_code": fields("observed", "exit_code", to=9),
        "detail": fields("detail", to="killed"),
        "observed.oom_kills": fields("observed", "oom_kills", to=1),
        "measured.load_s": fields("measured", "load_s", to=1e6),
        "wall_s": fields("wall_s", to=1e-9),
        "observed.memory.peak_anon_bytes": record(
            lambda raw: raw["observed"]["memory"].update(peak_anon_bytes=1, peak_anon_by_phase_bytes={"load": 2})
        ),
        "provenance.sweep.params.depth": fields(
            "provenance", "sweep", to={"system": "planted", "params": {"depth": 10}}
        ),
        "provenance.corpus_documents": fields("provenance", "corpus_documents", to=1 << 30),
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

"""A stored result is whole, is never overwritten, and stays readable."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import gzip
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pytest

from harness.driver.records import (
    Outcome,
    Phase,
    Probe,
    ScenarioParams,
)
from harness.errors import FileError, StoreError, UsageError
from harness.results import seals, suite_record
from harness.results.isolation import CONTAINER
from harness.results.reader import MOST_SAMPLE_BYTES, RESULT, cell_path, read_jobs, read_result
from harness.results.schema import (
    CanaryReading,
    Counters,
    DataFault,
    Environment,
    FaultKind,
    GpuReading,
    GpuUse,
    IndexFacts,
    Memory,
    Observed,
    Placement,
    RentedMachine,
    Result,
    SweepPoint,
    job_key,
)
from harness.results.store import Store
from harness.results.suite_record import SuiteRecord
from harness.untrusted import ForeignText, to_json
from tests.support import sample_records
from tests.support.job_fixtures import SEEN
from tests.support.sample_records import GOLDEN_SPEC

FOLDER = Path(__file__).parents[1] / "golden"
GOLDEN, GOLDEN_1 = FOLDER / "result.v2.json", FOLDER / "result.v1.json"
SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "schema" / "result.v2.schema.json"
HOST = sample_records.as_record(Environment, "a cpu", "x86_64", 2, 1 << 34, "6.18", 1, "20.10.24", "0.1.0", "abc")
TABLE = pa.table({"query_id": ["q0"], "trial": pa.array([0], pa.int32()), "warmup": [False], "latency_ns": [5]})


def result(repetition: int = 0, **change: Any) -> Result:
    spec = replace(GOLDEN_SPEC, repetition=repetition)
    made = Result(job_key(spec), spec, Outcome.OK, None, "2026-11-05T10:00:00.000+00:00", 2.0, HOST)
    return sample_records.nested(made, change)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path, "demo")


def put(store: Store, made: Result) -> Path:
    return store.put(made, TABLE, b"q0 Q0 d0 1 2.0 bm25\n", b"log\n").folder


def test_job_reads_back_as_stored(tmp_path: Path, store: Store) -> None:
    with store.held():
        folder = put(store, result())
    assert folder == tmp_path / "demo" / "bm25" / "tiny" / "single_stream" / "cpu1-mem1" / job_key(GOLDEN_SPEC)
    assert folder == tmp_path / cell_path(GOLDEN_SPEC.cell) / job_key(GOLDEN_SPEC)
    (job,) = read_jobs(tmp_path)
    assert job.folder == folder and job.result.files.keys() == {"log.txt.gz", "run.trec.gz", "samples.parquet"}
    assert replace(job.result, files={}, seal=None) == result()
    assert job.samples().cast(TABLE.schema).equals(TABLE)
    assert job.run_path is not None and gzip.decompress(job.run_path.read_bytes()) == b"q0 Q0 d0 1 2.0 bm25\n"
    assert gzip.decompress((folder / "log.txt.gz").read_bytes()) == b"log\n"
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == [".lock", "bm25", "manifest.txt"]


def test_a_job_that_finished_no_query_has_a_table_without_rows(tmp_path: Path, store: Store) -> None:
    with store.held():
        store.put(result(outcome=Outcome.CRASH), None, None, b"")
    (job,) = read_jobs(tmp_path)
    assert job.samples().cast(TABLE.schema).equals(TABLE.schema.empty_table())
    assert job.run_path is None


def test_stored_results_are_never_overwritten(tmp_path: Path, store: Store) -> None:
    with store.held():
        folder = put(store, result())
        before = (folder / RESULT).read_bytes()
        with pytest.raises(StoreError, match="exists already; nothing is ever overwritten"):
            put(store, result(wall_s=99.0))
        put(store, result(repetition=1))
    assert (folder / RESULT).read_bytes() == before
    assert len(read_jobs(tmp_path)) == 2


def test_manifest_lists_the_job_stored_by_a_killed_run(tmp_path: Path, store: Store) -> None:
    with store.held():
        folders = [put(store, result(repetition)) for repetition in range(3)]
    manifest = tmp_path / "demo" / seals.MANIFEST
    listed = {str(folder.relative_to(tmp_path / "demo")): read_result(folder / RESULT).seal for folder in folders}
    assert seals.read(tmp_path / "demo") == listed
    manifest.write_text("".join(manifest.read_text().splitlines(keepends=True)[:-1]))
    with store.held():
        assert seals.read(tmp_path / "demo") == listed
    manifest.unlink()
    edited = json.loads((folders[1] / RESULT).read_text())
    (folders[1] / RESULT).write_text(json.dumps({**edited, "wall_s": 1.0}))
    with store.held():
        pass
    assert (seals.read(tmp_path / "demo") or {}).keys() == listed.keys() - {
        str(folders[1].relative_to(tmp_path / "demo"))
    }


def test_a_damaged_manifest_stops_a_run_in_one_line(tmp_path: Path, store: Store) -> None:
    with store.held():
        put(store, result())
    with (tmp_path / "demo" / seals.MANIFEST).open("a") as file:
        file.write("0123\n")
    with (
        pytest.raises(StoreError, match=r"manifest\.txt: damaged: line 2 is not a seal and a path; remove"),
        store.held(),
    ):
        pass


def test_sample_that_would_not_read_back_is_not_stored(store: Store) -> None:
    with store.held(), pytest.raises(StoreError, match=r"33 MiB, more than 32; lower protocol.sample"):
        store.keep_inputs(b"", "q", {"s": "x" * (MOST_SAMPLE_BYTES + 1)})


@pytest.mark.parametrize("left", [0, 90, 150])
def test_manifest_truncated_by_a_full_disk_is_rebuilt(tmp_path: Path, store: Store, left: int) -> None:
    """Empty, its only line cut, and its second."""
    with store.held():
        put(store, result())
        put(store, result(1))
    path = tmp_path / "demo" / seals.MANIFEST
    whole = path.read_bytes()
    path.write_bytes(whole[:left])
    with store.held():
        assert sorted(path.read_bytes().splitlines()) == sorted(whole.splitlines())
    path.write_bytes(whole[:left] + "é".encode()[:1])
    seals.append(tmp_path / "demo", "another", "0" * 64)
    assert "another" in (seals.read(tmp_path / "demo") or {})


def test_job_is_stored_completely_or_not_at_all(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(source: Path, target: Path) -> None:
        assert (source / RESULT).exists() and not target.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", die)
    with pytest.raises(KeyboardInterrupt), store.held():
        put(store, result())
    assert read_jobs(tmp_path) == ()


def test_partial_job_of_a_dead_run_is_ignored_and_removed(tmp_path: Path, store: Store) -> None:
    left = store.staging / "put-x"
    left.mkdir(parents=True)
    (left / RESULT).write_text(to_json(result()))
    assert read_jobs(tmp_path) == () == read_jobs(tmp_path / "demo")
    with store.held():
        assert list(store.staging.iterdir()) == []
    assert not store.staging.exists()


@pytest.mark.slow
def test_a_second_run_is_refused_in_one_line(tmp_path: Path, store: Store) -> None:
    code = (
        "from harness.results.store import Store; from pathlib import Path\n"
        f"with Store(Path({str(tmp_path)!r}), 'demo').held(): pass"
    )
    with store.held():
        with pytest.raises(StoreError, match="demo: another run holds it; wait"), store.held():
            pass
        assert store.staging.is_dir(), "the loser took nothing away"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert "another run holds it" in done.stderr
    with store.held():
        pass


def test_unwritable_folder_is_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("a file")
    for root in (tmp_path, Path("/sys")):  # not even root may write there
        with pytest.raises(StoreError, match=r"demo: cannot be written: .*; choose"), Store(root, "demo").held():
            pass


def test_full_disk_is_one_line_and_leaves_no_file(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    with store.held():
        monkeypatch.setattr(Path, "write_bytes", full)
        with pytest.raises(StoreError, match="No space left on device; what was finished is kept"):
            put(store, result())
    assert read_jobs(tmp_path) == ()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "damaged: ends too early; move"),
        (b'{"schema_version": 1', "damaged: ends too early; move"),
        (b"\xff", "damaged: byte 0xff is not UTF-8; move"),
        (b"[]", "damaged: a value has the wrong type; move"),
        (b"[" * 100_000, "damaged: more than 64 levels deep"),
        (b"{}", "schema version None, this harness reads 1 and 2; update harness"),
        (b'{"schema_version": 3}', "schema version 3, this harness reads 1 and 2; update harness"),
        (b'{"schema_version": true}', "schema version True, this harness reads 1 and 2; update harness"),
        (b'{"schema_version": 1}', "damaged: key 'key' is missing; move"),
        (b'{"schema_version": 1, "index": {"components": 7}}', "damaged: key 'key' is missing; move"),
        (b'{"schema_version": 2}', "damaged: key 'key' is missing; move"),
    ],
)
def test_a_damaged_result_is_one_clear_line(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "demo" / RESULT
    path.parent.mkdir()
    path.write_bytes(content)
    jobs = read_jobs(tmp_path)
    (error,) = jobs.unreadable
    assert jobs == () and jobs.taken == {"demo"}
    assert str(error).startswith(f"{path}: {said}") and "\n" not in str(error)
    with pytest.raises(UsageError, match=re.escape(str(error))):
        read_jobs(tmp_path, "no job at all")


def test_a_wrong_value_in_a_result_is_named(tmp_path: Path) -> None:
    raw = json.loads(GOLDEN.read_text())
    raw["spec"]["cell"]["system"] = 7
    (tmp_path / RESULT).write_text(json.dumps(raw))
    with pytest.raises(FileError, match=r"damaged: key 'spec.cell.system' is 7; move its folder away"):
        read_result(tmp_path / RESULT)


def test_folder_without_results_names_the_next_command(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no results here; run a suite first"):
        read_jobs(tmp_path / "none")


def test_judgements_and_sample_are_stored_once_beside_the_runs(tmp_path: Path, store: Store) -> None:
    with store.held():
        store.keep_inputs(b"q0 0 d0 1\n", "a" * 64, {"b" * 64: '[{"query_id": "q0", "text": "x"}]'})
        store.keep_inputs(b"other", "a" * 64, {"b" * 64: "other"})
        put(store, result(spec=replace(GOLDEN_SPEC, qrels_sha256="a" * 64, sample_sha256="b" * 64)))
    (job,) = read_jobs(tmp_path)
    assert gzip.decompress(job.qrels_path().read_bytes()) == b"q0 0 d0 1\n"
    assert job.sample_ids() == ("q0",)
    (tmp_path / "demo" / "samples" / f"{'b' * 64}.json").unlink()
    with pytest.raises(FileError, match=r"b.json: query sample cannot be read"):
        job.sample_ids()


FULL_SPEC = replace(
    GOLDEN_SPEC,
    jobs=5,
    job=2,
    repeats=20,
    result_cache=True,
    scenario_params=ScenarioParams(None, 0.05, 95.0),
    warmup_cap=9,
    instance_type="c7g.large",
    held_out=2,
)
FULL = result(
    spec=FULL_SPEC,
    key=job_key(FULL_SPEC),
    outcome=Outcome.OOM,
    detail=ForeignText("the kernel killed the job at the memory limit of 1024 MiB"),
    effective=replace(SEEN, threads={"torch_intraop": 1}),
    index=IndexFacts(
        2.5,
        1 << 20,
        "1" * 64,
        GOLDEN_SPEC.envelope,
        resumed_s=1.5,
        isolation=CONTAINER.name,
        started_at="2026-11-05T09:00:00.000+00:00",
        environment=result().environment,
        observed=Observed(
            throttled_periods=0,
            memory=Memory(peak_anon_bytes=100 << 20),
            canary=(CanaryReading("after", 20, 0.2, 0.01, 0.02, None),),
            counters=Counters(1.0, 0.75, 0.25, 0.0, 0.125, 0.0, 0, 12),
            gpu=GpuUse(1.0, 75.0, 4, 1965.0, {}, 0, 0),
            placement=Placement((0, 1), (0,), True, (0, 1), False),
            shared_host=True,
        ),
        components={"part": IndexFacts(2.0, 1 << 10, "3" * 64, GOLDEN_SPEC.envelope)},
    ),
    corpus_documents=5183,
    data_faults=(DataFault(FaultKind.BLANK_QUERIES, 1, 300, ForeignText("q9")),),
    memory=Memory(
        peak_anon_bytes=100 << 20,
        peak_mapped_bytes=3 << 20,
        peak_cgroup_bytes=150 << 20,
        peak_gpu_bytes=4 << 20,
        peak_anon_by_phase_bytes={"load": 1 << 20},
        source="cgroup v1",
        samples=77,
        sample_interval_s=0.02,
    ),
    load_s=0.5,
    first_query_s=0.025,
    phases=(Phase("load", 1_000, 2_000),),
    throttled_periods=0,
    oom_kills=1,
    exit_code=137,
    image_digest="sha256:1",
    image_bytes=306_000_000,
    device=ForeignText("cpu"),
    libraries={"faiss": ForeignText("1.15.1")},
    warmup_done=40,
    warmup_steady=True,
    trials_finished=1,
    ranking_disagreements=0,
    canary=(
        CanaryReading(
            "before", 10, 0.2, 0.01, 0.02, 0.003, 0.5, 2400.0, 0.0, GpuReading(345, ("gpu_idle", "sw_power_cap"), 36)
        ),
    ),
    counters=Counters(10.0, 9.5, 0.25, 0.0, 0.125, 0.0, 0, 12),
    gpu=GpuUse(9.5, 712.5, 38, 1965.0, {"gpu_idle": 3, "sw_power_cap": 1}, 1, 5 << 20),
    placement=Placement((2, 3), (0,), True, (0, 1), True),
    page_cache=ForeignText("dropped"),
    probes=(Probe(0, 12.5, 300, 0.04, 2, True, False),),
    rate_qps=12.5,
    stand_in=ForeignText("a small model, trained for a minute"),
    pinned_at_first_use=ForeignText("someone/small at 0123456789ab"),
    sweep=SweepPoint("bm25", {"k1": 0.9}),
    instance=RentedMachine("i-0", "c7g.large", "us-east-1a", "ami-0", "spot", "a-group", "h-0", "Neoverse-V1"),
    shared_host=True,
    compiled_s=0.25,
    files={"log.txt.gz": "2" * 64},
    seal="2" * 64,
)


@pytest.mark.parametrize(("golden", "protocol"), [(GOLDEN, 2), (GOLDEN_1, 1)])
def test_golden_result_of_each_version_is_readable(golden: Path, protocol: int) -> None:
    """Never change the files, which represent all stored results; convert an older version when reading."""
    key = json.loads(golden.read_text())["key"]
    assert read_result(golden) == sample_records.nested(FULL, {"key": key, "protocol_version": protocol})


@pytest.mark.slow
def test_schema_of_version_1_still_describes_its_golden_result() -> None:
    jsonschema.validate(
        json.loads(GOLDEN_1.read_text()), json.loads((SCHEMA.parent / "result.v1.schema.json").read_text())
    )


def test_no_field_is_left_out_of_the_golden_result() -> None:
    raw = json.loads(GOLDEN.read_text())
    checked: set[type] = set()

    def check(record: Any, stored: Any) -> None:
        if isinstance(record, tuple) and record:
            check(record[0], stored[0])
        if dataclasses.is_dataclass(record) and stored is not None:
            fields = dataclasses.fields(record)
            later = {each.name for each in fields if "later" in each.metadata and getattr(record, each.name) is None}
            names = {each.name for each in fields} - later
            assert stored.keys() == names, type(record)
            checked.add(type(record))
            for name in names:
                check(getattr(record, name), stored[name])

    check(FULL, raw)
    assert len(checked) > 20


@pytest.mark.slow
@pytest.mark.parametrize("made", [FULL, result()])
def test_stored_records_follow_the_published_schema(tmp_path: Path, store: Store, made: Result) -> None:
    schema = json.loads(SCHEMA.read_text())
    with store.held():
        stored = json.loads((put(store, replace(made, key="k")) / RESULT).read_text())
    jsonschema.validate(stored, schema)
    jsonschema.validate(json.loads(GOLDEN.read_text()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**stored, "outcome": "blank"}, schema)


def test_file_system_without_locks_is_not_reported_as_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fails)
    with pytest.raises(StoreError, match="cannot be locked: No locks available"), Store(tmp_path, "demo").held():
        pass


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"wall_s": 1e30}, "beyond 64 bits"),
        ({"libraries": {"x": "y" * 2_500_000}}, "the limit is 2,097,152"),
        ({"load_s": -1.0}, "key 'measured.load_s': -1.0 is below 0"),
        ({"detail": "\ud800"}, "half of a surrogate pair"),
        ({"started_at": "noon"}, "is not an ISO time"),
    ],
)
def test_record_that_its_reader_would_refuse_is_not_stored(
    tmp_path: Path, store: Store, change: dict[str, Any], said: str
) -> None:
    with store.held(), pytest.raises(StoreError, match=f"the record would be unreadable: .*{said}"):
        store.put(result(**change), TABLE, b"", b"")
    assert read_jobs(tmp_path) == () and not read_jobs(tmp_path).unreadable


@pytest.mark.slow
def test_suite_record_that_its_reader_would_refuse_is_not_stored(store: Store) -> None:
    record = SuiteRecord(measures=("P@1",), exact={f"system{number}": "x" * 60 for number in range(60_000)})
    with store.held(), pytest.raises(StoreError, match=r"suite\.json: would have .* bytes; the limit is 4,194,304"):
        store.keep_suite(record, {})


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_odd_suite_record_is_replaced(tmp_path: Path, store: Store, kind: str) -> None:
    with store.held():
        path = store.folder / suite_record.FILE
        path.symlink_to("/dev/zero") if kind == "link" else os.mkfifo(path)
        store.keep_suite(SuiteRecord(measures=("P@1",)), {})
    assert suite_record.read_measures(tmp_path) == ("P@1",) and not path.is_symlink()

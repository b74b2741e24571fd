"""A stored job goes through S3 and is stored again, byte for byte; whatever else arrives is not."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.aws.objects import Objects
from harness.driver.records import Outcome
from harness.errors import RemoteError, StoreError
from harness.remote import local_results, records
from harness.remote.local_results import pack
from harness.results import seals
from harness.results.reader import read_jobs
from harness.results.schema import RentedMachine, Result
from harness.results.store import Store
from tests.remote.planning import WORKER_ID, uploaded
from tests.support import sample_records

INSTANCE = RentedMachine("i-0123456789abcdef0", "c7g.large", "us-east-1a", "ami-1", "on-demand")


def result(**spec: object) -> Result:
    made = sample_records.result(Outcome.OK, instance_type="c7g.large", **spec)
    return replace(made, instance=INSTANCE, environment=replace(made.environment, instance_type="c7g.large"))


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A stored job's folder, on the worker."""
    store = Store(tmp_path / "worker", "s")
    with store.held():
        return store.put(result(), sample_records.samples(np.array([[0.1, 0.2]])), b"q0 Q0 d 1 1.0 x\n", b"log").folder


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """The local store."""
    made = Store(tmp_path / "store", "s")
    with made.held():
        yield made


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_fetched_job_equals_the_uploaded_one(job: Path, work: Objects, store: Store) -> None:
    folder, key = work.below(records.worker(WORKER_ID)), job.name
    assert folder.put_new(records.job(key), pack(job))
    assert uploaded(work) == [key]
    brought = local_results.fetch_job(work, WORKER_ID, key, result().spec, store)
    (stored,) = read_jobs(store.folder)
    assert contents(stored.folder) == contents(job) and stored.result == brought
    assert brought.instance == INSTANCE
    assert not list(store.staging.iterdir())
    with pytest.raises(StoreError, match="nothing is ever overwritten"):
        local_results.fetch_job(work, WORKER_ID, key, result().spec, store)
    assert contents(stored.folder) == contents(job)


def test_missing_job_is_one_line(work: Objects) -> None:
    with pytest.raises(RemoteError, match="the job does not exist"):
        local_results.fetch_job(work, WORKER_ID, "0123456789abcdef", result().spec, Store(Path(), "s"))


def retar(content: bytes, change: Callable[[dict[str, bytes]], object]) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        files = {each.name: tar.extractfile(each).read() for each in tar}
    change(files)
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        for name, raw in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(raw)
            tar.addfile(entry, io.BytesIO(raw))
    return target.getvalue()


def edit(**keys: object) -> Callable[[dict[str, bytes]], object]:
    def change(files: dict[str, bytes]) -> None:
        raw = {**json.loads(files["result.json"]), **keys}
        files["result.json"] = json.dumps({**raw, "seal": seals.of(raw), **keys}).encode()

    return change


LIES = {
    "no result": (lambda files: files.pop("result.json"), "cannot be read|No such file"),
    "a changed file": (lambda files: files.update({"run.trec.gz": b"better"}), r"run\.trec\.gz are not as"),
    "a missing file": (lambda files: files.pop("samples.parquet"), r"samples\.parquet are not as"),
    "one more": (lambda files: files.update({"judged-hits.trec.gz": b"x"}), r"judged-hits\.trec\.gz are not as"),
    "another name": (lambda files: files.update({"origin.toml": b"x"}), r"'origin\.toml' does not belong"),
    "a folder's": (lambda files: files.update({"a/result.json": b"x"}), "does not belong"),
    "no JSON": (lambda files: files.update({"result.json": b"{"}), "damaged"),
    "too deep": (lambda files: files.update({"result.json": b"[" * 500_000}), "result.json"),
    "no number": (
        lambda files: files.update({"result.json": files["result.json"][:-2] + b', "a": NaN}'}),
        "result.json",
    ),
    "another key": (edit(key="0" * 16), "does not match its spec"),
    "an edited record": (edit(wall_s=1.0, seal="0" * 64), "not as it was sealed"),
    "no instance": (edit(instance=None), "measured on None"),
}


@pytest.mark.parametrize("lie", LIES)
def test_contradictory_job_is_refused_with_a_reason(job: Path, work: Objects, store: Store, lie: str) -> None:
    change, says = LIES[lie]
    folder = work.below(records.worker(WORKER_ID))
    folder.put(records.job(job.name), retar(pack(job), change))
    with pytest.raises(RemoteError, match=says) as caught:
        local_results.fetch_job(work, WORKER_ID, job.name, result().spec, store)
    assert caught.value.code == "BadJob" and "\n" not in str(caught.value)
    assert f"workers/{WORKER_ID}/jobs/{job.name}.tar" in str(caught.value)
    assert read_jobs(store.folder) == () and not list(store.staging.iterdir())


@pytest.mark.parametrize("renamed", [False, True])
def test_a_job_of_another_plan_is_not_stored(job: Path, work: Objects, store: Store, renamed: bool) -> None:
    other = result(repetition=1)
    key = other.key if renamed else job.name
    work.below(records.worker(WORKER_ID)).put(records.job(key), pack(job))
    with pytest.raises(RemoteError, match=f"holds the job {job.name}") as caught:
        local_results.fetch_job(work, WORKER_ID, key, other.spec, store)
    assert caught.value.code == "BadJob" and read_jobs(store.folder) == ()

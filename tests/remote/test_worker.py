"""The agent of a worker: it fetches, has harness run, tells how it goes, and says in any case how it went."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.aws import worker as agent
from harness.aws.objects import Objects
from harness.errors import RemoteError
from harness.launch.fake import FakeLauncher
from harness.remote import local_results as homes
from harness.remote import records, worker
from harness.remote.records import MOST_BYTES, Heartbeat, ShippedInput, WorkerEnd, WorkerPart, read
from harness.remote.worker import HEARTBEAT_VARIABLE, Worker
from harness.results.store import Store
from tests.aws import policies, rights, server
from tests.aws.ec2 import imds
from tests.conftest import Bench, protocol
from tests.remote.conftest import WORK
from tests.remote.planning import RUN, TYPE, WORKER_ID, Planning, uploaded


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, aws: str) -> Iterator[imds.Metadata]:
    """This machine is one of EC2."""
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv(HEARTBEAT_VARIABLE, "0.2")
    with imds.running(imds.of()) as running:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", running.endpoint)
        yield running


@pytest.fixture
def planning(bench: Bench, work: Objects) -> Planning:
    return Planning(bench, bench.suite(protocol(2), overhead=True), FakeLauncher(), work)


def live(planning: Planning, root: Path, part: str = "0001") -> bool:
    root.mkdir(exist_ok=True)
    return Worker(planning.work, planning.worker_id, RUN, part, root, launcher="fake").live()


def end(planning: Planning) -> WorkerEnd:
    return read(WorkerEnd, "end", planning.folder.get(records.END, MOST_BYTES) or b"")


def heartbeat(planning: Planning) -> Heartbeat:
    return read(Heartbeat, "heartbeat", planning.folder.get(records.HEARTBEAT, MOST_BYTES) or b"")


def log(planning: Planning) -> str:
    return (planning.folder.get(records.LOG, MOST_BYTES) or b"").decode()


def test_worker_does_its_part_and_uploads_its_jobs(planning: Planning, service: imds.Metadata, tmp_path: Path) -> None:
    part = planning.part(builds=True)
    assert len(part.jobs) == 3, "two trials, and what a query costs on the system that does nothing"
    assert live(planning, tmp_path / "worker"), log(planning)
    assert end(planning) == WorkerEnd(True)
    assert uploaded(planning.work) == sorted(planning.specs)
    last = heartbeat(planning)
    assert (last.phase, last.current, last.notice) == ("finishing", None, None)
    store = Store(tmp_path / "here", "test-suite")
    with store.held():
        for key in uploaded(planning.work):
            result = homes.fetch_job(planning.work, WORKER_ID, key, planning.specs[key], store)
            assert result.instance and result.instance.instance_type == TYPE == result.environment.instance_type
            assert result.instance.availability_zone == f"{server.REGION}a" and result.instance.cpu_platform
    text = log(planning)
    assert "fetching the dataset tiny" in text and "worker: end: all is done" in text


def test_a_part_without_work_ends_well(planning: Planning, service: imds.Metadata, tmp_path: Path) -> None:
    """As where AWS Batch tries a part again whose jobs are all fetched."""
    planning.part(jobs=())
    assert live(planning, tmp_path / "worker") and end(planning).ok
    assert not [each.name for each in planning.folder.list(f"{records.JOBS}/")]


def test_worker_uses_exactly_its_rights(planning: Planning, service: imds.Metadata, tmp_path: Path, aws: str) -> None:
    planning.part(builds=True)
    key = server.worker_key(WORKER_ID)
    server.identify(aws, key, WORKER_ID)
    code = "import sys; from harness.remote.worker import Worker\nfrom harness.aws import worker\n"
    code += "Worker.__init__.__defaults__ = ('fake',)\n"
    code += "sys.exit(worker.main(sys.argv[1:]))"
    child = [sys.executable, "-c", code, str(planning.work.place), RUN, "0001"]
    variables = {**os.environ, **server.environment(aws, key), agent.ROOT_VARIABLE: str(tmp_path / "worker")}
    del variables["AWS_EC2_METADATA_DISABLED"]
    assert subprocess.run(child, env=variables, check=False).returncode == 0, log(planning)
    assert end(planning).ok and uploaded(planning.work) == sorted(planning.specs)
    assert rights.differing(server.requests(aws), key, [policies.of_role("worker", WORK)]) == ([], [])


def test_two_attempts_at_a_part_do_not_meet(planning: Planning, service: imds.Metadata, tmp_path: Path) -> None:
    """AWS Batch begins a part again after its host was lost; the new worker has another id."""
    part = planning.part()
    assert live(planning, tmp_path / "first") and len(uploaded(planning.work)) == 3
    planning.part(jobs=part.jobs[:1])
    planning.worker_id = f"{WORKER_ID}-2"
    assert live(planning, tmp_path / "second"), log(planning)
    assert end(planning).ok
    assert uploaded(planning.work, f"{WORKER_ID}-2") == [part.jobs[0].key]
    assert uploaded(planning.work) == sorted(planning.specs)


def test_worker_writes_no_secret(planning: Planning, service: imds.Metadata, tmp_path: Path) -> None:
    planning.part()
    (tmp_path / "worker").mkdir()
    (tmp_path / "worker" / "log.txt").write_text(
        f"log of {server.ACCESS_KEY} of arn:aws:iam::{server.ACCOUNT}:role/x\n"
    )
    assert live(planning, tmp_path / "worker")
    assert "log of <access key> of arn:aws:iam::<account>:role/x" in log(planning)
    for each in planning.work.list():
        content = planning.work.get(each.name, 1 << 30) or b""
        assert not [secret for secret in server.SECRETS if secret.encode() in content], each.name


def wrong(planning: Planning, root: Path) -> str:
    """Return the end's error for a part that cannot be done."""
    assert not live(planning, root)
    found = end(planning)
    assert not found.ok and found.detail and "\n" not in found.detail
    assert f"worker: end: {found.detail}"[:60] in log(planning)
    return found.detail


def test_worker_of_another_type_ends(planning: Planning, service: imds.Metadata, tmp_path: Path) -> None:
    planning.part()
    service.paths["instance-type"] = "t3.micro"
    assert "this machine is t3.micro, but the part 0001 needs c7g.large" in wrong(planning, tmp_path / "worker")


def test_a_worker_that_is_no_ec2_instance_ends(
    planning: Planning, service: imds.Metadata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planning.part()
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert "of an unknown type" in wrong(planning, tmp_path / "worker")


def test_worker_with_a_missing_input_ends(planning: Planning, service: imds.Metadata, tmp_path: Path) -> None:
    planning.part(indexes={"k": ShippedInput("inputs/indexes/k.x.tar.gz", "0" * 64, 7)})
    assert "inputs/indexes/k.x.tar.gz: is missing or cannot be read" in wrong(planning, tmp_path / "worker")


def test_unexpected_error_is_in_the_end_record(
    planning: Planning, service: imds.Metadata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planning.part()
    monkeypatch.setattr(Worker, "_fetch", lambda *_: int("x"))
    with pytest.raises(ValueError, match="invalid literal"):
        live(planning, tmp_path / "worker")
    assert end(planning).detail == "the worker failed: ValueError: invalid literal for int() with base 10: 'x'"


def test_end_record_is_retried(
    planning: Planning, service: imds.Metadata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_WAIT_S", 0.0)
    put_new, refusals = Objects.put_new, [1, 2, 3]

    def put(self: Objects, name: str, content: bytes) -> bool:
        if name == records.END and refusals:
            refusals.pop()
            raise RemoteError("busy", "Busy")
        return put_new(self, name, content)

    monkeypatch.setattr(Objects, "put_new", put)
    assert "the part does not exist" in wrong(planning, tmp_path / "worker") and not refusals


def test_spot_notice_is_in_heartbeat_and_end(
    planning: Planning, service: imds.Metadata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.announce(time="2026-05-05T10:00:00Z")
    seen: list[str | None] = []

    def fetch(self: Worker, part: WorkerPart) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            content = planning.folder.get(records.HEARTBEAT, MOST_BYTES)
            seen.append(read(Heartbeat, "heartbeat", content).notice if content else None)
            if seen[-1]:
                raise RemoteError("enough")

    planning.part()
    monkeypatch.setattr(Worker, "_fetch", fetch)
    assert wrong(planning, tmp_path / "worker") == "enough; EC2 announced: terminate at 2026-05-05T10:00:00Z"
    assert seen[-1] == "terminate at 2026-05-05T10:00:00Z"


def test_sigterm_is_in_the_end_record(planning: Planning, service: imds.Metadata, tmp_path: Path, aws: str) -> None:
    planning.part()
    server.identify(aws, server.ACCESS_KEY, WORKER_ID)
    code = "import sys, time; from harness.aws import worker; worker.Worker._fetch = lambda *_: time.sleep(60)\n"
    code += "sys.exit(worker.main(sys.argv[1:]))"
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(planning.work.place), RUN, "0001"],
        env={**os.environ, agent.ROOT_VARIABLE: str(tmp_path / "worker")},
    )
    deadline = time.monotonic() + 60
    while planning.folder.get(records.HEARTBEAT, MOST_BYTES) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=60) == 1
    assert end(planning).detail == "a signal ended the worker" and end(planning).cut_off


def test_wrong_arguments_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert agent.main(["s3://x"]) == 2
    assert capsys.readouterr().err.startswith("harness: python -m harness.aws.worker")


def test_agent_without_an_identity_ends_with_one_line(
    planning: Planning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """User data tells the end then: the agent knows no folder where it may."""
    before = len(list(planning.work.list()))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv(agent.ROOT_VARIABLE, str(tmp_path / "worker"))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert agent.main([str(planning.work.place), RUN, "0001"]) == agent.NOT_BEGUN == 2
    text = capsys.readouterr().err
    assert text.startswith("harness: asking AWS for this worker's id: no AWS credentials") and text.count("\n") == 1
    assert len(list(planning.work.list())) == before

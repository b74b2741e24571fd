"""The agent of a box: it fetches, has harness run, tells how it goes, and says in any case how it went."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness import suite
from harness.aws.objects import Objects
from harness.errors import AwsError
from harness.launch.fake import FakeLauncher
from harness.remote import arriving, box, layout, toml
from harness.remote.box import Box, suite_of
from harness.remote.pulse import INTERVAL_VARIABLE
from harness.remote.records import MOST_BYTES, Beat, End, Input, Part, read
from harness.store import Store
from tests.aws import server
from tests.conftest import Bench, protocol
from tests.remote import imds
from tests.remote.planning import RUN, TYPE, Planning


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, aws: str) -> Iterator[imds.Metadata]:
    """This machine is one of EC2."""
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv(INTERVAL_VARIABLE, "0.2")
    with imds.running(imds.of()) as running:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", running.endpoint)
        yield running


@pytest.fixture
def planning(bench: Bench, work: Objects) -> Planning:
    return Planning(bench, bench.suite(protocol(2), overhead=True), FakeLauncher(), work)


def live(planning: Planning, home: Path, part: str = "0001") -> bool:
    home.mkdir(exist_ok=True)
    with (home / "log.txt").open("ab") as log:
        return Box(planning.work, RUN, part, home, log, launcher="fake").live()


def end(planning: Planning, part: str = "0001") -> End:
    return read(End, "end", planning.run.get(layout.end(part), MOST_BYTES) or b"")


def beat(planning: Planning, part: str = "0001") -> Beat:
    return read(Beat, "beat", planning.run.get(layout.beat(part), MOST_BYTES) or b"")


def log(planning: Planning, part: str = "0001") -> str:
    return (planning.run.get(layout.log(part), MOST_BYTES) or b"").decode()


def test_a_box_does_its_part_and_its_jobs_come_home(planning: Planning, service: imds.Metadata, tmp_path: Path) -> None:
    part = planning.part(builds=True)
    assert len(part.jobs) == 3, "two trials, and what a query costs on the system that does nothing"
    assert live(planning, tmp_path / "home"), log(planning)
    assert end(planning) == End("0001", "i-0123456789abcdef0", True, "", end(planning).handed_over)
    assert sorted(end(planning).handed_over) == sorted(planning.specs)
    last = beat(planning)
    assert (last.instance_id, last.part, last.done, last.total) == ("i-0123456789abcdef0", "0001", 3, 3)
    assert (last.phase, last.current, last.notice) == ("finishing", None, None)
    store = Store(tmp_path / "here", "test-suite")
    with store.held():
        for key in arriving.waiting(planning.run, ()):
            result = arriving.bring(planning.run, key, planning.specs[key], store)
            assert result.instance and result.instance.instance_type == TYPE == result.environment.instance_type
            assert result.instance.availability_zone == f"{server.REGION}a" and result.instance.cpu_platform
    said = log(planning)
    assert "fetching the dataset tiny" in said and "box: end: all is done" in said


def test_a_part_that_is_begun_again_does_what_is_left(
    planning: Planning, service: imds.Metadata, tmp_path: Path
) -> None:
    """As AWS Batch does when a host is lost: what was handed over is not measured twice."""
    part = planning.part()
    assert live(planning, tmp_path / "first")
    lost = part.jobs[0].key
    before = planning.run.get(layout.job(part.jobs[1].key), MOST_BYTES)
    planning.run.delete([layout.job(lost), layout.end("0001")])
    assert live(planning, tmp_path / "second"), log(planning)
    assert end(planning).handed_over == (lost,)
    assert planning.run.get(layout.job(part.jobs[1].key), MOST_BYTES) == before
    planning.run.delete([layout.end("0001")])
    assert live(planning, tmp_path / "third"), "nothing is left to do"
    assert end(planning).handed_over == ()


def test_each_attempt_of_aws_batch_says_how_it_ended(
    planning: Planning, service: imds.Metadata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no such part: each box fails, and the first one's words do not hide the third's."""
    for attempt in (1, 3):
        monkeypatch.setenv("AWS_BATCH_JOB_ATTEMPT", str(attempt))
        assert not live(planning, tmp_path / str(attempt), "0009")
    names = {each.name for each in planning.run.list("ends/")}
    assert names == {"ends/0009.json", "ends/0009.3.json"} == {layout.end("0009"), layout.end("0009", 3)}


def test_nothing_that_a_box_writes_holds_a_secret(planning: Planning, service: imds.Metadata, tmp_path: Path) -> None:
    planning.part()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "log.txt").write_text(f"said {server.ACCESS_KEY} of arn:aws:iam::{server.ACCOUNT}:role/x\n")
    assert live(planning, tmp_path / "home")
    assert "said <access key> of arn:aws:iam::<account>:role/x" in log(planning)
    for each in planning.work.list():
        content = planning.work.get(each.name, 1 << 30) or b""
        assert not [secret for secret in server.SECRETS if secret.encode() in content], each.name


def wrong(planning: Planning, home: Path) -> str:
    """Return the end's error for a part that cannot be done."""
    assert not live(planning, home)
    found = end(planning)
    assert not found.ok and found.detail and "\n" not in found.detail
    assert f"box: end: {found.detail}"[:60] in log(planning)
    return found.detail


def test_a_box_ends_when_its_part_is_missing(planning: Planning, service: imds.Metadata, tmp_path: Path) -> None:
    assert "there is no such part" in wrong(planning, tmp_path / "home")


def test_another_machine_than_was_planned(planning: Planning, service: imds.Metadata, tmp_path: Path) -> None:
    planning.part()
    service.paths["instance-type"] = "t3.micro"
    assert "this machine is t3.micro, the part 0001 is for c7g.large" in wrong(planning, tmp_path / "home")


def test_a_box_that_is_no_ec2_instance_ends(
    planning: Planning, service: imds.Metadata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planning.part()
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert "of no type that it knows" in wrong(planning, tmp_path / "home")
    assert end(planning).instance_id == "unknown"


def test_an_input_that_is_not_there(planning: Planning, service: imds.Metadata, tmp_path: Path) -> None:
    planning.part(indexes={"k": Input("inputs/indexes/k.x.tar.gz", "0" * 64, 7)})
    assert "inputs/indexes/k.x.tar.gz: is not there" in wrong(planning, tmp_path / "home")


def test_a_job_that_is_another_one_here(planning: Planning, service: imds.Metadata, tmp_path: Path) -> None:
    part = planning.part()
    planning.part(jobs=(replace(part.jobs[0], key="0" * 16),))
    said = wrong(planning, tmp_path / "home")
    assert said.startswith("harness ended with exit code 2: harness: planted tiny") and "another job here" in said


def test_an_error_of_our_own_is_told_as_well(
    planning: Planning, service: imds.Metadata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planning.part()
    monkeypatch.setattr(Box, "_fetch", lambda *_: int("x"))
    with pytest.raises(ValueError, match="invalid literal"):
        live(planning, tmp_path / "home")
    assert end(planning).detail == "the agent failed: ValueError: invalid literal for int() with base 10: 'x'"


def test_s3_that_takes_no_end_is_asked_again(
    planning: Planning, service: imds.Metadata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(box, "_WAIT_S", 0.0)
    put_new, refusals = Objects.put_new, [1, 2, 3]

    def put(self: Objects, name: str, content: bytes) -> bool:
        if name.startswith("ends/") and refusals:
            refusals.pop()
            raise AwsError("busy", "Busy")
        return put_new(self, name, content)

    monkeypatch.setattr(Objects, "put_new", put)
    assert "no such part" in wrong(planning, tmp_path / "home") and not refusals


def test_a_notice_is_told_at_once_and_at_the_end(
    planning: Planning, service: imds.Metadata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.announce(time="2026-05-05T10:00:00Z")
    seen: list[str | None] = []

    def fetch(self: Box, part: Part) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            content = planning.run.get(layout.beat("0001"), MOST_BYTES)
            seen.append(read(Beat, "beat", content).notice if content else None)
            if seen[-1]:
                raise AwsError("enough")

    planning.part()
    monkeypatch.setattr(Box, "_fetch", fetch)
    assert wrong(planning, tmp_path / "home") == "enough; EC2 announced: terminate at 2026-05-05T10:00:00Z"
    assert seen[-1] == "terminate at 2026-05-05T10:00:00Z"


def test_a_box_that_is_told_to_end_says_so(planning: Planning, service: imds.Metadata, tmp_path: Path) -> None:
    planning.part()
    code = "import sys, time; from harness.remote import box; box.Box._fetch = lambda *_: time.sleep(60)\n"
    code += "sys.exit(box.main(sys.argv[1:]))"
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(planning.work.place), RUN, "0001"],
        env={**os.environ, box.HOME_VARIABLE: str(tmp_path / "home")},
    )
    deadline = time.monotonic() + 60
    while planning.run.get(layout.beat("0001"), MOST_BYTES) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=60) == 1
    assert end(planning).detail == "the agent was told to end" and end(planning).cut_off


def test_wrong_arguments_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert box.main(["s3://x"]) == 2
    assert capsys.readouterr().err.startswith("harness: python -m harness.remote.box")


def test_the_suites_file_says_what_the_part_says(tmp_path: Path) -> None:
    raw = {
        "name": "s",
        "systems": ["a", "b"],
        "datasets": ["beir/x/test", "./my data#dev", "/elsewhere/else"],
        "profiles": ["cpu1-mem1"],
        "measures": ["nDCG@10"],
        "protocol": {"name": "santhanam2023", "warmup_queries": 10, "load_timeout_s": 1.5, "warmup_cap": None},
        "restrict": [{"profiles": ["cpu1-mem1"], "systems": ["a", "b"]}],
        "expect": [{"system": "a", "profile": "cpu1-mem1", "outcome": "oom"}],
        "overhead": False,
    }
    sent = Input("x", "0" * 64, 1)
    part = Part("1", "r", TYPE, raw, datasets={"my data-dev": sent, "beir-x-test": sent})
    assert suite_of(part)["datasets"] == ["./beir-x-test", "./my data-dev"]
    (tmp_path / "s.toml").write_text(toml.dumps(suite_of(part)))
    loaded = suite.load(tmp_path / "s.toml")
    (tmp_path / "t.toml").write_text(toml.dumps({**raw, "datasets": ["./beir-x-test", "./my data-dev"]}))
    assert loaded == suite.load(tmp_path / "t.toml")
    assert loaded.protocol.load_timeout_s == 1.5 and loaded.expect[0].outcome.value == "oom" and not loaded.overhead


@pytest.mark.parametrize("text", ['"', "\\", "\n\t\r\b", "\x7f\x1f", "é\u2028𝄞", "'''", "a = 1"])
def test_any_text_is_written_as_toml(text: str) -> None:
    values = {"a b": text, "table": {text or "x": [text, 1, 1.5e300, True, []]}}
    assert tomllib.loads(toml.dumps(values)) == values
    with pytest.raises(TypeError):
        toml.dumps({"x": float("nan")})

"""Runs whose results are in S3: every job whole or absent there, whoever writes and whenever somebody dies."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from harness.aws.clients import S3Uri, parse_uri
from harness.aws.objects import Objects
from harness.aws.results import publish
from harness.aws.results.mirror import MirroredFolder
from harness.aws.results.publish import Publisher, SuiteLock
from harness.errors import RemoteError, StoreError
from harness.jobs import orchestrator, suite
from harness.jobs.inputs import RunOptions, gather
from harness.jobs.orchestrator import RunSummary
from harness.launch.fake import FakeLauncher
from tests.aws import rights, server
from tests.aws.results.conftest import Bucket
from tests.conftest import Bench
from tests.support.chance import chance

Call = Callable[..., Result]
HERE = "s3://bucket/results"


@pytest.fixture
def run(bench: Bench, bucket: Bucket, harness: Call) -> Call:
    """Runs the suite of two jobs into S3; ``cache`` is that of another machine."""
    path = bench.suite(profiles=["cpu1-mem256m", "cpu2-mem4"])

    def call(*arguments: str, cache: Path = bucket.cache, command: str = "run") -> Result:
        words = (command, path, "--results", HERE, "--launcher", "fake", "--cache", cache)
        return harness(*words, *arguments)

    return call


def other(bench: Bench) -> Path:
    """The cache of another machine."""
    cache = bench.folder / "other"
    cache.mkdir(exist_ok=True)
    if not (cache / "process").exists():
        (cache / "process").symlink_to(bench.cache / "process")
    return cache


def records(bucket: Bucket) -> list[str]:
    return [name for name in bucket.names() if name.endswith("/result.json")]


def etags(bucket: Bucket) -> dict[str, str]:
    """ETags by name, of all but reports and locks."""
    listed = [each for each in bucket.objects.list() if "report" not in each.name and ".lock" not in each.name]
    return {each.name: each.etag for each in listed}


def check_whole(bucket: Bucket, harness: Call, jobs: int) -> None:
    """So many jobs are in S3, and no byte of any is amiss, as a third machine sees it."""
    found = bucket.names()
    folders = {name.rpartition("/")[0] for name in found if name.endswith("/result.json")}
    assert len(folders) == jobs
    for name in found:
        if name.endswith((".parquet", "run.trec.gz", "log.txt.gz")):
            assert name.rpartition("/")[0] in folders, name
    fresh = bucket.cache.parent / "third"
    shutil.rmtree(fresh, ignore_errors=True)
    done = harness("verify", HERE, "--cache", fresh)
    assert done.exit_code == 0, done.output
    assert f"{jobs} jobs" in done.stdout


def test_a_run_leaves_the_same_tree_as_on_disk(run: Call, bench: Bench, bucket: Bucket, harness: Call) -> None:
    done = run()
    assert done.exit_code == 0, done.output
    assert f"harness report {HERE}/test-suite --wide" in done.stdout
    check_whole(bucket, harness, 2)
    places = ("--results", bench.results, "--cache", bench.cache)
    local = harness("run", bench.suite(profiles=["cpu1-mem256m", "cpu2-mem4"]), "--launcher", "fake", *places)
    assert local.exit_code == 0
    expected = [f"results/{path.relative_to(bench.results)}" for path in bench.results.rglob("*") if path.is_file()]
    assert bucket.names() == sorted(expected)
    page = bucket.objects.get("results/test-suite/report.html", 1 << 30)
    assert page is not None and b"Results in test-suite" in page


def test_finished_jobs_are_not_repeated_on_another_machine(run: Call, bench: Bench, bucket: Bucket) -> None:
    run()
    before = etags(bucket)
    assert "0 jobs run, 2 done before" in run().output
    assert "0 jobs run, 2 done before" in run(cache=other(bench)).output
    planned = run(command="plan", cache=bench.folder / "third")
    assert "2 of 2 jobs done" in planned.stdout
    assert before == etags(bucket)
    assert "2 jobs run, 0 done before" in run("--fresh", cache=other(bench)).output
    assert len(records(bucket)) == 4


def test_no_secret_is_written_anywhere(run: Call, bench: Bench, bucket: Bucket) -> None:
    done = run()
    written = [path.read_bytes() for path in bucket.cache.rglob("*") if path.is_file()]
    written += [bucket.objects.get(name, 1 << 30) or b"" for name in bucket.names()] + [done.output.encode()]
    for secret in server.SECRETS:
        assert not any(secret.encode() in content for content in written)


class Killed(BaseException):
    """As good as kill -9 to everything that would tidy up."""


def dying(patch: pytest.MonkeyPatch, number: int, kind: BaseException, *, after: bool) -> list[int]:
    """The ``number``-th write of a run fails, before it reaches S3 or after."""
    count = [0]
    usual = Objects.put_if

    def put(*arguments: Any) -> str | None:
        count[0] += 1
        if count[0] > number or (count[0] == number and not after):  # the dead write nothing more
            raise kind
        written = usual(*arguments)
        if count[0] == number:
            raise kind
        return written

    patch.setattr(Objects, "put_if", put)
    return count


def directly(bench: Bench, bucket: Bucket, cache: Path, below: str = "") -> RunSummary:
    """The run alone, without the table after it."""
    path = bench.suite(profiles=["cpu1-mem256m", "cpu2-mem4"])
    place = MirroredFolder(parse_uri(HERE), cache)
    publisher = Publisher(place, bucket.connections)
    options = RunOptions(place.folder / below, cache, path.parent, publisher=publisher)
    return orchestrator.run_suite(gather(suite.load(path), options), options, FakeLauncher())


WRITES = 1 + 2 + 2 * 5 + 1  # the lock, the inputs, each file of each job and the lock, the lock


@pytest.mark.parametrize(
    ("after", "here"), [(False, True), (True, True), (False, False)], ids=["before", "after", "other-machine"]
)
@pytest.mark.parametrize("many", [3, pytest.param(WRITES, marks=pytest.mark.soak)])
def test_next_run_repairs_after_a_kill_at_any_write(
    many: int, after: bool, here: bool, bench: Bench, bucket: Bucket, harness: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = chance(f"killed {after} {here}").sample(range(1, WRITES + 1), many)
    # One more write there is not.
    for number in (*drawn, WRITES + 1):
        bucket.objects.delete(bucket.names())
        for cache in (bucket.cache, other(bench)):
            shutil.rmtree(cache / "s3", ignore_errors=True)
        with monkeypatch.context() as patch:
            dying(patch, number, Killed(), after=after)
            try:
                directly(bench, bucket, bucket.cache)
                assert number > WRITES
                continue
            except Killed:
                assert number <= WRITES
        measured = len(list((bucket.cache / "s3").rglob("result.json")))
        with monkeypatch.context() as patch:
            if not here:  # where nobody knows that the holder is dead, its time must run out
                if number > 1:
                    with pytest.raises(StoreError, match="another run has held the lock since"):
                        directly(bench, bucket, other(bench))
                patch.setattr(publish, "LEASE_S", -1)
            again = directly(bench, bucket, bucket.cache if here else other(bench))
        assert len(records(bucket)) == 2
        if here:  # what was measured is not measured again
            assert again.done_before == measured and len(again.jobs) == 2 - measured
        check_whole(bucket, harness, 2)


def test_suite_may_be_in_a_subfolder(bench: Bench, bucket: Bucket, harness: Call) -> None:
    directly(bench, bucket, bucket.cache, "calibration")
    assert all(name.startswith("results/calibration/test-suite/") for name in bucket.names())
    assert directly(bench, bucket, other(bench), "calibration").done_before == 2
    check_whole(bucket, harness, 2)


def test_next_run_publishes_jobs_of_a_killed_process(run: Call, bench: Bench, bucket: Bucket, harness: Call) -> None:
    path = bench.suite(profiles=["cpu1-mem256m", "cpu2-mem4"])
    code = (
        "import os, signal, sys\nfrom harness.aws.objects import Objects\nfrom harness.cli import main\n"
        "usual, count = Objects.put_if, [0]\n"
        "def put(*a):\n    count[0] += 1\n    if count[0] == 10: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return usual(*a)\n"
        "Objects.put_if = put\nmain(sys.argv[1:])\n"
    )
    words = ["run", str(path), "--results", HERE, "--launcher", "fake", "--cache", str(bucket.cache)]
    dead = subprocess.run([sys.executable, "-c", code, *words], check=False, capture_output=True, env=os.environ)
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    assert len(records(bucket)) == 1
    left_out = harness("report", HERE, "--cache", bucket.cache)
    assert "1 jobs that a run measured here are not in S3 yet" in left_out.stderr
    done = run()
    assert done.exit_code == 0 and "0 jobs run, 2 done before" in done.output
    check_whole(bucket, harness, 2)


def test_job_mirrored_before_its_rename_exists_once(
    run: Call, bucket: Bucket, harness: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:  # the lock, two inputs, the four files of a job and the lock
        dying(patch, 1 + 2 + 5, Killed(), after=True)
        with pytest.raises(Killed):
            run()
    assert len(records(bucket)) == 1
    assert harness("report", HERE, "--cache", bucket.cache).exit_code == 0
    done = run()
    assert done.exit_code == 0 and "1 job run, 1 done before" in done.output
    assert not list((bucket.cache / "s3" / ".waiting").rglob("result.json"))
    check_whole(bucket, harness, 2)


def test_expired_credentials_are_one_line_and_lose_no_job(
    run: Call, bucket: Bucket, harness: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        expired = RemoteError("writing: the AWS credentials have expired; log in again", "ExpiredToken")
        dying(patch, 4, expired, after=False)
        stopped = run()
    assert stopped.exit_code == 1 and "have expired; log in again" in stopped.stderr.splitlines()[-1]
    assert records(bucket) == []
    done = run()
    assert done.exit_code == 0 and "1 job run, 1 done before" in done.output
    assert "published 1 jobs that an earlier run had measured" in done.stderr
    check_whole(bucket, harness, 2)


def test_of_two_jobs_of_one_key_the_first_stays(
    run: Call, bench: Bench, bucket: Bucket, harness: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured here and not yet published, measured elsewhere meanwhile."""
    with monkeypatch.context() as patch:
        dying(patch, 4, Killed(), after=False)
        with pytest.raises(Killed):
            run()
    monkeypatch.setattr(publish, "LEASE_S", -1)
    assert run(cache=other(bench)).exit_code == 0
    before = etags(bucket)
    done = run()
    assert done.exit_code == 0 and "0 jobs run, 2 done before" in done.output
    assert (
        "exists already; nothing is ever overwritten; the job that was measured here under its key is now in"
        in done.stderr
    )
    (aside,) = (bucket.cache / "s3" / ".aside").rglob("result.json")
    assert json.loads(aside.read_text())["outcome"] == "ok"
    assert before == etags(bucket)
    check_whole(bucket, harness, 2)


def test_job_written_meanwhile_under_the_key_is_kept(
    run: Call, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = Objects.put_if
    foreign: list[Objects] = []

    def put(objects: Objects, name: str, content: bytes, over: str | None) -> str | None:
        if name == "result.json" and not foreign:
            foreign.append(objects)
            objects.put(name, b"somebody else's")
        return usual(objects, name, content, over)

    monkeypatch.setattr(Objects, "put_if", put)
    done = run()
    assert done.exit_code == 1
    assert "result.json: exists already; nothing is ever overwritten" in done.stderr.splitlines()[-1]
    assert foreign[0].get("result.json", 100) == b"somebody else's"


def test_foreign_file_is_a_conflict_and_an_own_one_is_not(
    run: Call, bucket: Bucket, harness: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = Objects.put_if
    foreign = b"a stranger's"

    def put(objects: Objects, name: str, content: bytes, over: str | None) -> str | None:
        written = usual(objects, name, foreign if name == "run.trec.gz" and foreign else content, over)
        return written if name == ".lock" else usual(objects, name, content, over)  # botocore's own retry

    with monkeypatch.context() as patch:
        patch.setattr(Objects, "put_if", put)
        refused = run()
        assert refused.exit_code == 1 and "run.trec.gz: another run writes it" in refused.stderr.splitlines()[-1]
        assert records(bucket) == []
        foreign = b""
        assert run().exit_code == 0
    check_whole(bucket, harness, 2)


@pytest.fixture
def folder(bucket: Bucket) -> Objects:
    return bucket.objects.below("suite")


def test_second_writer_is_refused(run: Call, bench: Bench, bucket: Bucket) -> None:
    suite = Objects(bucket.connections, S3Uri("bucket", "results/test-suite"))
    with SuiteLock(suite, "another").held():
        refused = run()
        assert refused.exit_code == 1 and records(bucket) == []
        line, held = refused.stderr.splitlines()[-1], "another run has held the lock since 20"
        assert line.startswith(f"harness: {HERE}/test-suite: {held}") and "UTC; wait" in line
    assert run().exit_code == 0


def test_machines_that_share_a_cache_are_different_holders(monkeypatch: pytest.MonkeyPatch) -> None:
    first = publish._machine()
    assert first == publish._machine()
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "another machine")
    assert publish._machine() != first


def test_a_clone_of_this_machine_is_another_holder(folder: Objects) -> None:
    """It has our owner's name, and takes the lock for that of its own dead self."""
    mine = SuiteLock(folder, "a")
    with mine.held():
        mine.confirm()
        with SuiteLock(folder, "a").held(), pytest.raises(StoreError, match="another run took the lock over"):
            mine.confirm()


def test_released_lock_is_free_and_a_held_one_is_not(folder: Objects) -> None:
    with SuiteLock(folder, "a").held():
        with pytest.raises(StoreError, match="another run has held the lock"), SuiteLock(folder, "b").held():
            pass
        with SuiteLock(folder, "a").held():  # our own dead self
            pass
    with SuiteLock(folder, "b").held():
        pass


def test_holder_that_lost_its_lock_cannot_confirm(folder: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SuiteLock(folder, "slow")
    with slow.held():
        slow.confirm()
        with monkeypatch.context() as patch:
            patch.setattr(publish, "LEASE_S", -1)
            quick = SuiteLock(folder, "quick")
            with quick.held():
                for _ in range(2):
                    with pytest.raises(StoreError, match="another run took the lock over"):
                        slow.confirm()
                quick.confirm()
    with SuiteLock(folder, "third").held():  # the slow one did not let go of what was not its own
        pass


@pytest.mark.parametrize("left", [None, b"of a dead run"])
def test_holder_that_lost_its_lock_publishes_no_job(
    left: bytes | None, folder: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = folder.below("job")
    (tmp_path / "result.json").write_bytes(b"{}")
    (tmp_path / "log.txt.gz").write_bytes(b"mine")
    if left:
        job.put("log.txt.gz", left)
    slow = SuiteLock(folder, "slow")
    with slow.held():
        monkeypatch.setattr(publish, "LEASE_S", -1)
        with SuiteLock(folder, "quick").held():
            monkeypatch.setattr(publish, "_RENEW_S", -1)  # it is long the last request
            with pytest.raises(StoreError, match="another run took the lock over"):
                publish.publish(tmp_path, job, slow)
    assert job.get("result.json", 10) is None
    assert job.get("log.txt.gz", 100) == (left or b"mine")


def test_renewal_with_a_lost_answer_keeps_the_lock(folder: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, lost = Objects.put_if, []

    def put(*arguments: Any) -> str | None:
        written = usual(*arguments)
        if len(lost) < 2:  # botocore's own retry finds its first write
            lost.append(arguments)
            return usual(*arguments)
        return written

    monkeypatch.setattr(Objects, "put_if", put)
    held = SuiteLock(folder, "a")
    with held.held():
        lost.clear()
        held.confirm()


def test_unreadable_lock_is_respected_until_it_expires(folder: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.put(".lock", b"what is this")
    with pytest.raises(StoreError, match="another run has held the lock"), SuiteLock(folder, "a").held():
        pass
    monkeypatch.setattr(publish, "LEASE_S", -1)
    with SuiteLock(folder, "a").held():
        pass


def test_one_of_many_takes_over_an_expired_lock(folder: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import ThreadPoolExecutor
    from threading import Barrier

    folder.put(".lock", b"of a dead run")
    ready, held = Barrier(6), Barrier(6)
    monkeypatch.setattr(publish, "LEASE_S", -1)

    def take(name: str) -> bool:
        mine = SuiteLock(folder, name)
        found = mine._look()
        assert found is not None
        ready.wait()
        mine._etag = found.etag
        got = mine._write()
        held.wait()
        return got

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(take, "abcdef")) == 1


def test_a_lock_is_renewed_while_it_is_held(folder: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import Event

    monkeypatch.setattr(publish, "_RENEW_S", 0.01)
    usual, renewed = Objects.put_if, Event()

    def put(*arguments: Any) -> str | None:
        written = usual(*arguments)
        if arguments[3] is not None:
            renewed.set()
        return written

    monkeypatch.setattr(Objects, "put_if", put)
    with SuiteLock(folder, "a").held():
        assert renewed.wait(30)


def test_policy_in_the_guide_permits_exactly_the_requests(
    run: Call, bench: Bench, harness: Call, bucket: Bucket, requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "guides" / "s3.md").read_text(encoding="utf-8")
    policy = json.loads(page.partition("```json\n")[2].partition("```")[0])
    permitted = {action for statement in policy["Statement"] for action in rights.as_list(statement["Action"])}
    with monkeypatch.context() as patch:  # a dead run leaves a file that the next one has not
        dying(patch, 5, Killed(), after=False)
        with pytest.raises(Killed):
            run()
    job = next(name for name in bucket.names() if name.endswith("log.txt.gz")).rpartition("/")[0]
    bucket.objects.put(f"{job}/judged-hits.trec.gz", b"of the dead run")
    requests.clear()
    assert run().exit_code == 0
    assert harness("report", HERE, "--cache", other(bench)).exit_code == 0
    needs = {"ListObjectsV2": "s3:ListBucket", "DeleteObjects": "s3:DeleteObject"}
    assert {needs.get(name, f"s3:{name}") for name in requests} == permitted
    check_whole(bucket, harness, 2)

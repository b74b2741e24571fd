"""Suites through a real Slurm, as an ordinary user: kills, cancelled tasks, a full folder, and what Slurm refuses."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.driver.records import Outcome
from harness.results.reader import read_jobs
from tests.conftest import Bench, make_bench, protocol
from tests.remote import cluster
from tests.remote.cluster import Login
from tests.support.cluster import present, restart_slurmd
from tests.support.terminal import Command

pytestmark = pytest.mark.cluster
TWO_PROFILES = ["cpu1-mem1", "cpu1-mem256m"]


@pytest.fixture(scope="session")
def python() -> Iterator[str]:
    """A Python for the user of a Slurm that answers."""
    present()
    folder = Path(tempfile.mkdtemp(prefix="harness-slurm-", dir="/tmp"))
    folder.chmod(0o755)
    found = cluster.interpreter(folder)
    if found is None:
        pytest.skip(f"{cluster.user()} may run no Python with harness's packages")
    yield found
    shutil.rmtree(folder)


@pytest.fixture
def login(python: str) -> Iterator[Login]:
    # pytest's own folders are closed to other users.
    folder = Path(tempfile.mkdtemp(prefix="harness-slurm-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        with cluster.login(make_bench(folder), python) as made:
            yield made
    finally:
        shutil.rmtree(folder)


def outcomes(bench: Bench) -> Counter[tuple[str, int, Outcome]]:
    jobs = [job.result for job in read_jobs(bench.results / "test-suite")]
    return Counter((job.spec.cell.profile, job.spec.job, job.outcome) for job in jobs)


def all_ok(profiles: list[str], trials: int) -> Counter[tuple[str, int, Outcome]]:
    return Counter((profile, job, Outcome.OK) for profile in profiles for job in range(trials))


def test_kills_and_a_cancelled_task_lose_no_job_and_measure_none_twice(login: Login) -> None:
    login.bench.plant("planted", service_s=0.4)
    login.bench.suite(protocol(2), profiles=TWO_PROFILES)
    login.hand_over()
    command = login.start()
    login.wait(lambda: command.poll() is not None or login.measures())
    command.send_signal(signal.SIGKILL)
    command.wait()
    restart_slurmd()
    again = login.start()
    login.wait(lambda: again.poll() is not None or login.measures("cpu1-mem256m"))
    assert login.log().count("Slurm has job") == 2, "what went on was not submitted again"
    assert login.log().rindex("Slurm has job") < login.log().index("measuring"), "both were submitted at once"
    [task] = login.tasks("RUNNING")
    cluster.slurm("scancel", task, user=cluster.user())
    assert again.wait(60) == 1, login.log()
    assert f"the task was cancelled (Slurm's task {task} on " in login.log(), login.log()
    before = outcomes(login.bench)
    done = Counter({key: count for key, count in before.items() if key[2] is Outcome.OK})
    assert done == all_ok(TWO_PROFILES, 2) - Counter([("cpu1-mem256m", 1, Outcome.OK)])
    assert {outcome for _, _, outcome in before} <= {Outcome.OK, Outcome.INTERRUPTED}, "nothing half is believed"
    last = login.start()
    assert last.wait(60) == 0, login.log()
    after = outcomes(login.bench)
    assert Counter({key: count for key, count in after.items() if key[2] is Outcome.OK}) == all_ok(TWO_PROFILES, 2)
    assert not [path.name for path in login.shared.glob("*0003-*.out")], "what the tasks of a done run printed is gone"


def test_ctrl_c_asks_before_it_cancels_and_leaves_the_tasks_by_default(login: Login) -> None:
    login.bench.suite(protocol(1), profiles=["cpu1-mem1"])
    login.hand_over()
    for answer, state in ((b"\n", "PENDING"), (b"y\n", "CANCELLED")):
        person = pwd.getpwnam(cluster.user())
        words = login.command("--sbatch=--begin=now+1hour", launcher="fake")
        words = ["setpriv", f"--reuid={person.pw_uid}", f"--regid={person.pw_gid}", "--clear-groups", *words]
        command = Command(words, login.bench.folder, 200, login.variables())
        seen, pressed, answered = "", False, False
        for new in command.output():
            seen += new
            if not pressed and "waits for Slurm" in seen:
                pressed = True
                command.press_ctrl_c()
            if not answered and "cancel the jobs in Slurm? [y/N]:" in seen:
                answered = True
                os.write(command._terminal, answer)
        assert command.end() == 130, seen
        assert "`scancel " in seen
        login.wait(lambda wanted=state: login.tasks(wanted))
    assert seen.count("Slurm has job") == 0, "the second command found the first one's task"


def test_full_shared_folder_is_named_and_the_same_command_goes_on_with_room(login: Login) -> None:
    login.bench.plant("planted", service_s=0.5)
    login.bench.suite(protocol(2), profiles=["cpu1-mem1"])
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m,mode=0750", "none", str(login.shared)], check=True)
    try:
        login.hand_over()
        own_cache = ("--cache", str(login.bench.cache))
        command = login.start(*own_cache)
        login.wait(lambda: command.poll() is not None or login.measures())
        filler = login.shared / "filler"
        with filler.open("wb") as file, pytest.raises(OSError, match="No space"):
            while True:
                os.write(file.fileno(), b"x" * (1 << 16))
        assert command.wait(60) == 1, login.log()
        [line] = [line for line in login.log().splitlines() if line.startswith("harness: ")]
        assert "No space left on device" in line
        filler.unlink()
        again = login.start(*own_cache)
        assert again.wait(90) == 0, login.log()
        assert outcomes(login.bench) == all_ok(["cpu1-mem1"], 2)
    finally:
        for child in login.children:
            child.kill()
            child.wait()
        subprocess.run(["umount", "--lazy", str(login.shared)], check=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--partition=nowhere"], "Slurm has no partition 'nowhere' for you; choose --partition from: "),
        (["--qos=nothing", "--sbatch=--nodelist=nowhere"], "sbatch: "),
    ],
)
def test_what_slurm_refuses_is_one_line_and_begins_nothing(login: Login, options: list[str], message: str) -> None:
    login.bench.suite(protocol(1), profiles=["cpu1-mem1"])
    login.hand_over()
    assert login.start(*options, launcher="fake").wait(60) == 2
    [line] = login.log().splitlines()
    assert line.startswith(f"harness: {message}")
    assert not list(login.shared.glob("runs/*"))


def test_memory_that_no_node_has_is_one_line(login: Login) -> None:
    login.bench.suite(protocol(1) + '[hardware.huge]\ncpus = 1\nmemory = "921600GiB"\n', profiles=["huge"])
    login.hand_over()
    assert login.start(launcher="fake").wait(60) == 2
    [line] = login.log().splitlines()
    assert "has 1 CPU and 943719424 MiB for huge" in line and "choose another --partition" in line

"""scripts/with-cluster starts a real Slurm, keeps the exit code, and leaves nothing, however it ends."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.integration.proxy import wait_until
from tests.support.cluster import SCRIPT

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

# A job that would run for long, and a line that says where.
LONG_JOB = """
cd $HARNESS_CLUSTER/shared
runuser -u $HARNESS_CLUSTER_USER -- sbatch --quiet --mem=50M --output=/dev/null --wrap 'srun --mem=50M sleep 1000'
until squeue --noheader --steps | grep -q . && [ -n "$(pgrep -u $HARNESS_CLUSTER_USER sleep)" ]; do sleep 0.1; done
echo "$HARNESS_CLUSTER $HARNESS_CLUSTER_USER $$"
"""


@pytest.fixture(autouse=True)
def _needs_slurm() -> None:
    reason = os.environ.get("HARNESS_CLUSTER_MISSING")
    if reason or os.geteuid() != 0 or not os.environ.get("HARNESS_CLUSTER"):
        pytest.skip(reason or "this machine was not asked for a cluster: run pytest below scripts/with-cluster")


def environment() -> Mapping[str, str]:
    """Return the environment of a shell in which no cluster runs yet."""
    return {name: value for name, value in os.environ.items() if not re.match("SLURM|HARNESS_CLUSTER", name)}


def start(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [SCRIPT, *command],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def leftovers(folder: str, user: str, command: str) -> list[str]:
    """List what a cluster left but its command: its folder, its user, its cgroups and its processes."""
    found = [folder] if Path(folder).exists() else []
    with contextlib.suppress(KeyError):
        found.append(f"user {pwd.getpwnam(user)}")
    found += [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/*{user}*")]
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and process.name != command:
            try:
                if f"SLURM_CONF={folder}/".encode() in (process / "environ").read_bytes():
                    found.append(f"process {process.name} {(process / 'comm').read_text()}")
            except OSError:  # it has just ended
                continue
    return found


def test_with_cluster_keeps_the_exit_code_and_leaves_nothing() -> None:
    with start("bash", "-c", f"{LONG_JOB} exit 7") as process:
        printed, said = process.communicate(timeout=60)
    assert process.returncode == 7, said
    assert leftovers(*printed.split()) == []


@pytest.mark.parametrize(
    ("signalled", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_stopped_with_cluster_leaves_nothing(signalled: signal.Signals, code: int) -> None:
    with start("bash", "-c", f"{LONG_JOB} exec sleep 1000") as process:
        assert process.stdout is not None
        place = process.stdout.readline().split()
        assert leftovers(*place) != []
        process.send_signal(signalled)
        assert process.wait(60) == code
        wait_until(lambda: leftovers(*place) == [], "the end of the cluster", limit_s=60)
        if signalled == signal.SIGKILL:  # then its command runs on, without a cluster
            os.kill(int(place[2]), signal.SIGKILL)


def test_clusters_of_one_machine_know_nothing_of_each_other(tmp_path: Path) -> None:
    ask = (
        f"{LONG_JOB} touch {tmp_path}/$HARNESS_CLUSTER_USER; until [ $(ls {tmp_path} | wc -l) = 2 ]; do sleep 0.1; done"
    )
    ask += "; squeue --noheader --format=%u"
    with start("bash", "-c", ask) as one, start("bash", "-c", ask) as other:
        ends = [process.communicate(timeout=60)[0].split() for process in (one, other)]
    assert (one.returncode, other.returncode) == (0, 0)
    for *place, owner in ends:
        assert owner == place[1]
        assert leftovers(*place) == []


def test_closed_fuse_is_opened_for_the_user_and_closed_again(tmp_path: Path) -> None:
    # In a mount namespace of its own: the machine's device and the record of other clusters stay as they are.
    script = f"""
    mkdir -p /run/harness-cluster
    mount -t tmpfs none /run/harness-cluster
    mknod {tmp_path}/fuse c 10 229
    chmod 600 {tmp_path}/fuse
    mount --bind {tmp_path}/fuse /dev/fuse
    {SCRIPT} stat --format %a /dev/fuse
    stat --format %a /dev/fuse
    """
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", script],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["606", "600"]), done.stderr


def test_command_runs_without_a_cluster_for_one_who_may_not_start_one() -> None:
    # From standard input: the user may not see this checkout.
    done = subprocess.run(
        ["runuser", "-u", "nobody", "--", "bash", "-s", "--", "sh", "-c", "echo $HARNESS_CLUSTER_MISSING; exit 3"],
        env=environment(),
        cwd="/",
        input=SCRIPT.read_text(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, "only root may start a Slurm\n")
    assert done.stderr == "with-cluster: no cluster: only root may start a Slurm\n"


def test_restart_needs_a_cluster() -> None:
    done = subprocess.run(
        [SCRIPT, "--restart-slurmd"], env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "with-cluster: no cluster runs: start this command below scripts/with-cluster\n"

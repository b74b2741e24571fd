"""What later tests rely on: a real Slurm pins and limits an ordinary user's jobs, and Apptainer contains them."""

from __future__ import annotations

import pwd
import re

import pytest

from tests.integration.proxy import wait_until
from tests.support.cluster import CONTAINED, Cluster, restart_slurmd

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

MIB = 1 << 20


def test_step_is_pinned_to_one_cpu_and_killed_at_its_memory_limit(cluster: Cluster) -> None:
    take = "python3 -c 'held = bytearray(%d << 20); print(len(held))'"
    job = cluster.sbatch(
        "srun -c1 --mem=300M grep Cpus_allowed_list /proc/self/status\n"
        f"srun -c1 --mem=300M {take % 100}\n"
        f"srun -c1 --mem=300M {take % 400}\n"
        "echo ended with $?\n",
        "-c1",
        "--mem=300M",
    )
    assert cluster.wait(job) == "COMPLETED"
    printed = cluster.output(job)
    assert re.search(r"Cpus_allowed_list:\t\d+\n", printed), printed
    assert f"{100 * MIB}\n" in printed and f"{400 * MIB}\n" not in printed
    assert "oom-kill event" in printed and "ended with 0" not in printed
    # As on clusters without an accounting database: what has ended is known from squeue for some seconds, then not.
    assert cluster.run_as_user(["sacct"], check=False).stderr == "Slurm accounting storage is disabled\n"


def test_job_runs_on_while_the_nodes_daemon_is_killed_and_started(cluster: Cluster) -> None:
    # The job ends only after the restart has left its mark.
    job = cluster.sbatch("until [ -e restarted ]; do sleep 0.1; done\nsrun -c1 --mem=50M echo went on\n", "--mem=50M")
    wait_until(lambda: cluster.state(job) == "RUNNING", "the job's start")
    restart_slurmd()
    cluster.run_as_user(["touch", "restarted"])
    assert cluster.wait(job) == "COMPLETED"
    assert cluster.output(job) == "went on\n"


@pytest.mark.parametrize("option", ["--partition=nowhere", "--constraint=nothing", "--mem=900G"])
def test_request_for_what_does_not_exist_is_refused(cluster: Cluster, option: str) -> None:
    (cluster.folder / "job.sh").write_text("#!/bin/sh\n")
    refused = cluster.run_as_user(["sbatch", option, "job.sh"], check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith("sbatch: error:")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--cpus-per-task=4000"], "PartitionConfig"),
        (["--partition=closed"], "PartitionDown"),
        (["--partition=short", "--time=10"], "PartitionTimeLimit"),
    ],
)
def test_request_that_a_partition_never_grants_waits_with_a_reason(
    cluster: Cluster, options: list[str], reason: str
) -> None:
    job = cluster.sbatch("", *options)
    ask = ["squeue", "--noheader", f"--jobs={job}", "--format=%T %r"]
    wait_until(lambda: cluster.run_as_user(ask).stdout == f"PENDING {reason}\n", f"a job that waits for {reason}")


def test_container_has_no_network_a_read_only_root_and_the_users_uid(cluster: Cluster) -> None:
    image = cluster.sif("sh", "cat", "id", "touch", "grep")
    inside = (
        "id -u; touch /nope 2>&1; grep CapEff /proc/self/status; "
        'while read -r first _; do echo "interface $first"; done </proc/net/dev; touch /job/written'
    )
    contained = " ".join([*CONTAINED, "--bind", f"{cluster.folder}:/job", str(image)])
    job = cluster.sbatch(f"srun -c1 --mem=300M {contained} sh -c '{inside}'\n", "-c1", "--mem=300M")
    assert cluster.wait(job) == "COMPLETED", cluster.output(job)
    printed = cluster.output(job)
    uid = pwd.getpwnam(cluster.user).pw_uid
    assert f"\n{uid}\n" in f"\n{printed}"
    assert "touch: cannot touch '/nope': Read-only file system" in printed
    assert re.search(r"CapEff:\t0{16}\n", printed), printed
    assert re.findall(r"^interface (\w+):", printed, re.MULTILINE) == ["lo"]
    assert (cluster.folder / "written").stat().st_uid == uid
    # The host has what the container lacks.
    outside = cluster.run_as_user(["cat", "/proc/net/dev"]).stdout
    assert len(re.findall(r"^ *(\w+):", outside, re.MULTILINE)) > 1


def test_memory_limit_of_the_step_kills_what_a_container_takes(cluster: Cluster) -> None:
    image = cluster.sif("sh", "head", "tail")
    # tail keeps a line whole: this one has no end.
    take = f"{' '.join([*CONTAINED, str(image)])} sh -c 'head -c %d /dev/zero | tail -n 1 | head -c 1'"
    job = cluster.sbatch(
        f"srun -c1 --mem=200M {take % (50 * MIB)} && echo fits\n"
        f"srun -c1 --mem=200M {take % (900 * MIB)} && echo ends well\n",
        "-c1",
        "--mem=200M",
    )
    cluster.wait(job)
    printed = cluster.output(job)
    assert "fits\n" in printed
    assert "oom-kill event" in printed

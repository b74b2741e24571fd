"""A real Slurm of one node, as an ordinary user sees it; ``scripts/with-cluster`` starts and stops it."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "with-cluster"

# States in which Slurm still has work to do for a job; after any other, it has ended.
UNFINISHED = {"PENDING", "CONFIGURING", "RUNNING", "STOPPED", "SUSPENDED", "COMPLETING", "REQUEUED", "SIGNALING"}

# A container without root or network, as a job of a cluster may have it.
CONTAINED = ("apptainer", "exec", "--userns", "--containall", "--no-home", "--net", "--network", "none")


@dataclass(frozen=True)
class Cluster:
    """A running cluster; ``folder`` is the user's, shared by login node and compute node, and the test's alone."""

    logs: Path
    user: str
    folder: Path
    _jobs: list[str] = field(default_factory=list)

    def run_as_user(
        self,
        command: Sequence[str | Path],
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        check: bool = True,
        timeout_s: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as the user on the login node; it gets nothing of this process's environment but PATH.

        ``check`` fails the test when the command fails, and shows what it printed.
        """
        account = pwd.getpwnam(self.user)
        base = {
            "PATH": os.environ["PATH"],
            "HOME": account.pw_dir,
            "USER": self.user,
            "LOGNAME": self.user,
            "LANG": "C.UTF-8",
            "SLURM_CONF": os.environ["SLURM_CONF"],
        }
        done = subprocess.run(
            list(command),
            cwd=folder or self.folder,
            env={**base, **(environment or {})},
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode:
            pytest.fail(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def sbatch(self, script: str, *options: str) -> str:
        """Submit a shell script; return the job's number.  What it prints goes to ``output``, or ``output-N``."""
        path = self.folder / f"job-{len(self._jobs)}.sh"
        path.write_text(f"#!/bin/sh\n{script}", encoding="utf-8")
        printed = self.folder / "output-%j"
        submitted = self.run_as_user(["sbatch", "--parsable", f"--output={printed}", *options, path])
        job = submitted.stdout.strip()
        self._jobs.append(job)
        return job

    def output(self, job: str) -> str:
        """Return what a job printed so far, its errors included."""
        return (self.folder / f"output-{job}").read_text(encoding="utf-8", errors="replace")

    def state(self, job: str) -> str:
        """Return a job's state, e.g. ``RUNNING`` or ``COMPLETED``; of an array, the states of its tasks, sorted."""
        asked = _said(["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"])
        states = asked.stdout.split()
        if not states:  # Slurm forgets jobs some seconds after their end, and writes them down before
            ended = (self.logs / "ended.txt").read_text(encoding="utf-8")
            states = re.findall(rf"^JobId={job} .*? JobState=(\w+)", ended, re.MULTILINE)[-1:]
        assert states, f"Slurm does not know job {job}: {asked.stderr}"
        unfinished = [state for state in states if state in UNFINISHED]
        return ",".join(sorted(set(unfinished or states)))

    def wait(self, job: str, timeout_s: float = 60) -> str:
        """Wait until a job has ended, and return its last state; fail the test after ``timeout_s`` seconds."""
        end = time.monotonic() + timeout_s
        while UNFINISHED.intersection((state := self.state(job)).split(",")):
            if time.monotonic() > end:
                detail = _said(["scontrol", "show", "job", job]).stdout
                pytest.fail(f"job {job} is {state} after {timeout_s:g} s:\n{detail}{_tail(self.logs)}")
            time.sleep(0.1)
        return state

    def sif(self, *programs: str) -> Path:
        """Make an image of these programs and their libraries; the test is skipped where Apptainer is missing."""
        if shutil.which("apptainer") is None:
            pytest.skip("Apptainer is not installed (scripts/test-tools says why)")
        root, image = self.folder / "rootfs", self.folder / "image.sif"
        for name in ("bin", "etc", "dev", "proc", "sys", "tmp", "job"):
            (root / name).mkdir(parents=True)
        (root / "etc" / "passwd").write_text("root:x:0:0::/:/bin/sh\n")
        (root / "etc" / "group").write_text("root:x:0:\n")
        for program in programs:
            path = Path(shutil.which(program) or pytest.fail(f"this machine has no {program}"))
            shutil.copy(path.resolve(), root / "bin" / program)
            for library in re.findall(r"/\S+", _said(["ldd", path]).stdout):
                target = root / library[1:]
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(library, target)
        _said(["chown", "-R", self.user, root])
        self.run_as_user(["apptainer", "build", image, root])
        return image


def present() -> Path:
    """Return the folder of the cluster that ``scripts/with-cluster`` runs; skip the test where there can be none."""
    logs = os.environ.get("HARNESS_CLUSTER")
    if logs is None:
        reason = os.environ.get("HARNESS_CLUSTER_MISSING")
        if reason is None and os.environ.get("HARNESS_CLUSTER_REQUIRED"):
            pytest.fail("HARNESS_CLUSTER is not set: scripts/with-cluster should have started a cluster")
        pytest.skip(reason or "no cluster runs: run pytest below scripts/with-cluster")
    return Path(logs)


def restart_slurmd() -> None:
    """Kill the node's daemon as a crash would, and start it again; jobs run on meanwhile."""
    subprocess.run([SCRIPT, "--restart-slurmd"], check=True, timeout=60)


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Give the running cluster, and end the test's jobs."""
    logs = present()
    user = os.environ["HARNESS_CLUSTER_USER"]
    folder = Path(tempfile.mkdtemp(dir=logs / "shared"))
    shutil.chown(folder, user)
    found = Cluster(logs, user, folder)
    try:
        yield found
    finally:
        if found._jobs:
            _said(["scancel", "--quiet", *found._jobs])
        shutil.rmtree(folder, ignore_errors=True)


def _said(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(command), capture_output=True, text=True, timeout=60, check=False)


def _tail(logs: Path) -> str:
    names = ("slurmctld", "slurmd")
    return "".join(
        f"\n{name}: {line}" for name in names for line in (logs / f"{name}.log").read_text().splitlines()[-5:]
    )

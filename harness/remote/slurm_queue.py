"""Slurm's commands: which nodes there are, what waits and runs, how tasks ended.  What they print is foreign text."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from harness import child_process
from harness.errors import RemoteError, UsageError, listed
from harness.launch.checks import Check, Level
from harness.remote.backend import ENDED, RUNNING, WAITING
from harness.untrusted import one_line

COMMANDS = ("sbatch", "squeue", "sinfo", "scancel")
# Slurm's own limit of an answer is 10 s for each of its tries.
_ANSWER_S = 60.0
# The cluster that is meant, and the user's defaults for submissions.  No SQUEUE_*, which changes what squeue shows.
_VARIABLES = (*child_process.NETWORK, "HARNESS_*", "HF_*", "PIP_*", "SLURM_CONF", "SBATCH_*")
_PASSING = re.compile(
    "unable to contact|timed out|connection (refused|reset)|standby mode|try again|not responding", re.I
)
_PREFIX = re.compile(r"^\w+: (error: )?|^slurm_load_\w+ error: ", re.MULTILINE)
_MOST_CHARACTERS = 300
# How a task ends without its part being done: in words, and what to do.
_ENDS = {
    "COMPLETED": "",
    "FAILED": "the task failed",
    "CANCELLED": "the task was cancelled",
    "TIMEOUT": "the time limit passed; give a longer --time",
    "DEADLINE": "the deadline passed; give a later one",
    "NODE_FAIL": "the node failed",
    "BOOT_FAIL": "the node did not boot",
    "LAUNCH_FAILED": "the node could not start the task; ask the administrator",
    "RECONFIG_FAIL": "the node could not be set up; ask the administrator",
    "PREEMPTED": "a job of higher priority took the node",
    "OUT_OF_MEMORY": "the task took more memory than it had; choose a profile with more memory",
    "REVOKED": "another cluster took the task",
}
_WAITS = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD", "CONFIGURING"}
# So Slurm shows all tasks of an array that were cancelled before they began.
_REST = ("N/A", "CANCELLED")
# So Slurm says that the tasks which a task waits for did not succeed.
_NEVER = "DependencyNeverSatisfied"


@dataclass(frozen=True)
class ArrayTask:
    """A task of a job array: the array's ``job`` id and ``name``, its own number, and how Slurm shows it."""

    job: str
    index: int
    name: str
    state: str
    node: str = ""
    reason: str = ""

    @property
    def task_id(self) -> str:
        """The id by which Slurm's commands know the task."""
        return f"{self.job}_{self.index}"

    @property
    def phase(self) -> str:
        """The phase of the task; a state that harness does not know is not an end."""
        return ENDED if self.state in _ENDS else WAITING if self.state in _WAITS else RUNNING

    @property
    def cancelled(self) -> bool:
        """True if a person cancelled the task; false if Slurm did, because what it waited for failed."""
        return self.state == "CANCELLED" and self.reason != _NEVER

    @property
    def words(self) -> str:
        """The state in plain words."""
        if self.phase == ENDED:
            how = _ENDS[self.state] or "the task ended"
            if self.state == "CANCELLED" and not self.cancelled:
                how = "the task that builds its index did not succeed"
            return f"{how} (Slurm's task {self.task_id}{f' on {self.node}' if self.node else ''})"
        if self.phase == WAITING:
            return f"waits for Slurm{f' ({self.reason})' if self.reason else ''}"
        return f"{'running' if self.state == 'RUNNING' else self.state.lower()} on {self.node or 'a node'}"


@dataclass(frozen=True)
class NodeKind:
    """Nodes of a partition that are alike; ``cpus`` are cores, because harness uses one thread of each."""

    partition: str
    cpus: int
    memory_mib: int
    default: bool = False


def is_here() -> bool:
    """Return whether this machine can submit jobs."""
    return shutil.which("sbatch") is not None


def call(*command: str, script: str = "") -> str:
    """Run one of Slurm's commands and return its output.

    Raises:
        UsageError: this machine does not have it.
        RemoteError: it failed; code ``Unreached`` may pass.
    """
    try:
        content, variables = script.encode("utf-8", "surrogateescape"), child_process.environment(*_VARIABLES)
        done = subprocess.run(
            command, input=content, capture_output=True, env=variables, timeout=_ANSWER_S, check=False
        )
    except FileNotFoundError:
        raise UsageError(f"cannot find {command[0]}; --on slurm works on a login node of a Slurm cluster") from None
    except subprocess.TimeoutExpired as error:
        raise RemoteError(f"{command[0]} gave no answer in {_ANSWER_S:.0f} s", "Unreached") from error
    if done.returncode:
        text = done.stderr.decode("utf-8", "replace")
        said = "; ".join(dict.fromkeys(line.strip() for line in _PREFIX.sub("", text).splitlines() if line.strip()))
        reason = one_line(said or f"exit code {done.returncode}", _MOST_CHARACTERS)
        raise RemoteError(f"{command[0]}: {reason}", "Unreached" if _PASSING.search(text) else "Refused")
    return done.stdout.decode("utf-8", "replace")


def submit(script: str) -> str:
    """Submit a script; return the id of its job."""
    # A cluster's name may follow.
    job = call("sbatch", "--parsable", script=script).strip().partition(";")[0]
    if not job.isdecimal():
        raise RemoteError(f"sbatch answered {one_line(job, 60)!r} in place of a job's id", "Refused")
    return job


def queued(names: Collection[str]) -> list[ArrayTask]:
    """Return the tasks of the user's arrays with these names, also tasks that ended minutes ago."""
    if not names:
        return []
    form = "--format=%F|%K|%T|%N|%j|%r"
    text = call("squeue", "--me", "--noheader", "--array", "--states=all", f"--name={','.join(names)}", form)
    return [task for task in parse_queue(text) if task.name in names]


def parse_queue(text: str) -> Iterator[ArrayTask]:
    """Yield the tasks of squeue's output; index 0 means all tasks that were cancelled before they began."""
    for job, index, state, node, name, reason in _rows(text, 6):
        if job.isdecimal() and (index.isdecimal() or (index, state) == _REST):
            number = 0 if index == "N/A" else int(index)
            yield ArrayTask(job, number, name, _state(state), node, "" if reason == "None" else reason)


def accounted(jobs: Iterable[str]) -> list[ArrayTask]:
    """Return the tasks of arrays by Slurm's accounting; nothing where it has none."""
    command = ("sacct", "--noheader", "--parsable2", "--allocations", "--format=JobID,State,NodeList,JobName")
    try:
        return list(parse_accounts(call(*command, f"--jobs={','.join(jobs)}")))
    except (UsageError, RemoteError):
        return []


def parse_accounts(text: str) -> Iterator[ArrayTask]:
    """Yield the tasks of sacct's output; leave out tasks that Slurm has not divided yet."""
    for task, state, node, name in _rows(text, 4):
        if place := re.fullmatch(r"(\d+)_(\d+)", task):
            yield ArrayTask(place[1], int(place[2]), name, _state(state), node)


def nodes(partition: str | None) -> list[NodeKind]:
    """Return the kinds of nodes of a partition, or of the default one; nothing where Slurm shows none."""
    kinds = _all_nodes()
    names = partition.split(",") if partition else [kind.partition for kind in kinds if kind.default]
    found = [kind for kind in kinds if kind.partition in names]
    if partition and kinds and not found:
        known = ", ".join(dict.fromkeys(kind.partition for kind in kinds))
        raise UsageError(f"Slurm has no partition {partition!r} for you; choose --partition from: {known}")
    return found


def _all_nodes() -> list[NodeKind]:
    return list(parse_nodes(call("sinfo", "--noheader", "--exact", "--format=%P|%c|%m|%z")))


def parse_nodes(text: str) -> Iterator[NodeKind]:
    """Yield the kinds of nodes of sinfo's output."""
    for name, cpus, memory_mib, layout in _rows(text, 4):
        shown = re.fullmatch(r"(\d+)\+?:(\d+)\+?:\d+\+?", layout)
        sizes = [size.removesuffix("+") for size in (cpus, memory_mib)]
        if all(size.isdecimal() for size in sizes):
            # A site may count a core with two threads as one CPU or as two.
            cores = int(shown[1]) * int(shown[2]) if shown else int(sizes[0])
            yield NodeKind(name.removesuffix("*"), cores, int(sizes[1]), name.endswith("*"))


def examine() -> Iterator[Check]:
    """Check for `harness doctor` that Slurm's commands are here, and list the partitions."""
    what = "--on slurm"
    missing = [name for name in COMMANDS if shutil.which(name) is None]
    if missing:
        yield Check(Level.FAIL, what, f"cannot find {missing[0]}", "use a login node of a cluster")
        return
    try:
        kinds = _all_nodes()
    except RemoteError as error:
        yield Check(Level.FAIL, what, str(error), "ask the administrator whether Slurm runs")
        return
    names = list(dict.fromkeys(kind.partition for kind in kinds))
    yield Check(Level.OK, what, f"job arrays of Slurm; partitions: {listed(names, 3)}" if names else "no partition")


def _state(text: str) -> str:
    """Return the first word of a state: accounting adds who cancelled, and newer versions add flags."""
    return re.split(r"[ +,]", text, maxsplit=1)[0].upper()


def _rows(text: str, count: int) -> Iterator[list[str]]:
    """Yield the fields of each line that has so many, between bars."""
    for line in text.splitlines():
        fields = [one_line(field.strip(), _MOST_CHARACTERS) for field in line.strip().split("|", count - 1)]
        if len(fields) == count:
            yield fields

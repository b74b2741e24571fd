"""Slurm as a backend: the parts of a run become tasks of job arrays, and each task is a worker of the shared folder.

Claims of the folder decide who does a part, so that a task that Slurm requeues, or that is submitted twice, measures
nothing twice.  Slurm only says what waits, where a task runs, and that a task is dead.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from harness.driver.records import Envelope
from harness.errors import RemoteError, UsageError, counted
from harness.jobs.suite import Suite
from harness.launch.allocation import OWN_BYTES
from harness.launch.checks import Check
from harness.remote import claims, records, slurm_queue
from harness.remote.backend import ENDED, RUNNING, WAITING, PartState
from harness.remote.folder_backend import FolderBackend
from harness.remote.options import SlurmOptions
from harness.remote.records import Launch, PlannedPart, dump, fetch
from harness.remote.shared_folder import SharedFolder
from harness.remote.slurm_queue import ArrayTask, NodeKind
from harness.remote.worker import STOPPED, heartbeat_s
from harness.untrusted import one_line

log = logging.getLogger(__name__)

# Memory of a task in addition to the profile's: for the worker, and for the harness that it runs.
OWN_MIB = 2 * OWN_BYTES >> 20
# Slurm's default allows array numbers up to 1,000.
_MOST_TASKS = 1000
# Seconds before a time limit at which the worker is told to write its end.
_NOTICE_S = 60
# One thread of each core; an appended output also shows what came before Slurm requeued the task.
_ALWAYS = f"--nodes=1 --ntasks=1 --hint=nomultithread --requeue --open-mode=append --signal=B:TERM@{_NOTICE_S}".split()
# Slurm is asked three times for each heartbeat: every 10 s by default.
_ASKS_A_HEARTBEAT = 3
_SUBMISSIONS = "slurm"
# Where tasks find harness, its packages and its engines, also if the script is submitted by hand.
_EXPORTED = ("PYTHONPATH", "PYTHONPYCACHEPREFIX", "HARNESS_IMAGES")
_MOST_LOG_BYTES = 1 << 20
_SIGNALLED = "its time limit was near, or Slurm took the node; give a longer --time"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


Names: TypeAlias = tuple[str, ...]
# Of a job array: what each task needs without harness's own, and the parts that it waits for.
ArrayKey: TypeAlias = tuple[Envelope, Names]


@dataclass(frozen=True)
class Submission:
    """A job array: task N does ``parts[N - 1]``, after the tasks ``after`` have succeeded; ``job``: the array's id."""

    parts: Names
    after: Names = ()
    job: str = ""
    version: int = records.VERSION


class SlurmBackend(FolderBackend):
    """The tasks of one user in Slurm, for one command; ``launcher`` is the one with which they measure."""

    keeps_order = True

    def __init__(
        self,
        work: SharedFolder,
        launcher: str,
        suite: Suite,
        cache: Path,
        options: SlurmOptions,
        dry_run: bool = False,
    ) -> None:
        """Take the suite, and the cache that all tasks share.

        Raises:
            UsageError: an option of sbatch is not one.
        """
        super().__init__(work, launcher)
        self._suite, self._envelopes = suite, suite.envelopes()
        self._cache, self._options, self._dry_run = cache, options, dry_run
        self._given = tuple(_option_lines(options))
        self.ending = "Ctrl-C, which asks whether to cancel the jobs"
        self.scripts: list[str] = []
        self._made: dict[int, Submission] = {}
        self._tasks: dict[str, ArrayTask] = {}  # part -> its last task
        self._alive: set[str] = set()  # parts whose task this command saw waiting or running
        self._tries: Counter[str] = Counter()
        self._asked: float | None = None

    @classmethod
    def examine(cls) -> Iterator[Check]:
        """Check that Slurm's commands are here and answer."""
        yield from slurm_queue.examine()

    # ---- before the run

    def check(self, parts: Sequence[PlannedPart]) -> list[str]:
        """Write the scripts that would be submitted, and have Slurm check them; return lines for the quote."""
        self.scripts, here = [], slurm_queue.is_here()
        kinds = slurm_queue.nodes(self._options.partition) if here or not self._dry_run else []
        groups = self._groups(parts, parts)
        for (shape, after), members in groups:
            script = self._script(f"harness-{self._suite.name}", self._suite.name, shape, kinds, members)
            if here:
                try:
                    slurm_queue.call("sbatch", "--test-only", script=script)
                except RemoteError as error:
                    if error.code != "Refused":
                        raise
                    why = f"Slurm refuses the tasks of {_profiles(members)}, and nothing was submitted"
                    raise UsageError(f"{error}; {why}; change the options") from error
            first, rest = script.split("\n", 1)
            wait = f"# Submit it with --dependency=afterok: the tasks of {', '.join(after)}\n" if after else ""
            self.scripts.append(f"{first}\n{wait}{rest}")
        where = self._options.partition or ", ".join(dict.fromkeys(kind.partition for kind in kinds)) or "the default"
        line = f"{counted(len(groups), 'job array')} of Slurm with {counted(len(parts), 'task')}, partition {where}"
        return [line] if here else [line, "cannot find sbatch here, so Slurm did not check the scripts"]

    def _groups(
        self, parts: Sequence[PlannedPart], builders: Sequence[PlannedPart]
    ) -> list[tuple[ArrayKey, list[PlannedPart]]]:
        """Return an array for each shape and each set of builders to wait for; an array comes after those it needs."""
        made_by = {build.key: part.name for part in builders for build in part.builds}
        groups: dict[ArrayKey, list[PlannedPart]] = defaultdict(list)
        for part in parts:
            after = tuple(sorted({made_by[key] for key in part.needs if key in made_by}))
            groups[self._shape(part), after].append(part)
        whole = [
            (key, members[start : start + _MOST_TASKS])
            for key, members in groups.items()
            for start in range(0, len(members), _MOST_TASKS)
        ]
        # A part is planned after the parts that build its indexes.
        places = {part.name: place for place, part in enumerate(parts)}
        return sorted(whole, key=lambda group: max((places.get(name, -1) for name in group[0][1]), default=-1))

    def _shape(self, part: PlannedPart) -> Envelope:
        """Return what a part's jobs and builds need at most."""
        names = {job.cell.profile for job in part.jobs}
        if part.builds and self._suite.build_profile:
            names.add(self._suite.build_profile)
        limits = [self._envelopes[name] for name in names]
        cpus, sizes, gpus = zip(*((limit.cpus, limit.memory_bytes, limit.gpus) for limit in limits), strict=True)
        return Envelope("", max(cpus), max(sizes), max(gpus))

    def _script(
        self,
        name: str,
        run: str,
        shape: Envelope,
        kinds: Sequence[NodeKind],
        parts: Sequence[PlannedPart],
        after: Sequence[str] = (),
    ) -> str:
        """Return the script of a job array whose tasks do these parts of a run."""
        place, memory = self._work.where(), -(-shape.memory_bytes >> 20) + OWN_MIB
        lines = [
            f"--job-name={name}",
            f"--array=1-{len(parts)}",
            *_ALWAYS,
            f"--cpus-per-task={_cpus(shape, memory, kinds, parts)}",
            f"--mem={memory}M",
            *([f"--gres=gpu:{shape.gpus}"] if shape.gpus else []),
            f"--chdir={place}",
            f"--output={place.replace('%', '%%')}/%x-%A_%a.out",
            *([f"--dependency=afterok:{':'.join(after)}", "--kill-on-invalid-dep=yes"] if after else []),
            *self._given,
        ]
        worker = [sys.executable, "-P", "-m", "harness", "worker", place, "--cache", str(self._cache)]
        cases = [f"{number}) part={shlex.quote(f'{run}:{part.name}')} ;;" for number, part in enumerate(parts, 1)]
        script = (
            "#!/bin/sh",
            *(f"#SBATCH {shlex.quote(line)}" for line in lines),
            f"# {_profiles(parts)}: memory is the profile's and {OWN_MIB} MiB for harness",
            *(f"export {name}={shlex.quote(os.environ[name])}" for name in _EXPORTED if name in os.environ),
            'case "$SLURM_ARRAY_TASK_ID" in',
            *cases,
            "esac",
            f'exec {shlex.join(worker)} --part "$part"',
            "",
        )
        return "\n".join(script)

    # ---- the run

    def look(self, launches: Sequence[Launch]) -> dict[str, PartState]:
        """Return the state of each part by its claims and its task; submit the parts that need a task."""
        if not launches:
            return {}
        # Claims first: a worker that had claimed its part before Slurm shows its task as ended is dead.
        found = super().look(launches)
        now = time.monotonic()
        fresh = self._asked is None or now - self._asked >= heartbeat_s() / _ASKS_A_HEARTBEAT
        if fresh:
            self._ask(found)
            self._asked = now
            buried = [self._bury(found[launch.name], self._tasks.get(launch.name)) for launch in launches]
            if any(buried):
                found = super().look(launches)
        states, again = {}, []
        for launch in launches:
            name, task = launch.name, self._tasks.get(launch.name)
            state = states[name] = self._state(name, found[name], task)
            if state.phase == WAITING and fresh and (task is None or task.phase == ENDED):
                again.append(name)
        self._submit(again, states)
        return states

    def _ask(self, found: Mapping[str, PartState]) -> None:
        """Ask Slurm about the last task of each part."""
        folder = self._work.below(records.run(self._run.run_id))
        for stored in folder.list(f"{_SUBMISSIONS}/"):
            place = stored.name.rpartition("/")[2].removesuffix(".json")
            made = fetch(Submission, folder, stored.name) if place.isdecimal() else None
            if made is not None:
                self._made[int(place)] = made
        tasks = slurm_queue.queued([self._job_name(number) for number in self._made])
        # Slurm forgets a task some minutes after its end.
        is_open = {part for part, state in found.items() if state.phase != ENDED}
        unknown = {made.job for made in self._made.values() if not is_open.isdisjoint(made.parts)}
        if gone := unknown - {task.job for task in tasks} - {""}:
            tasks += slurm_queue.accounted(sorted(gone))
        by_place = {(task.name, task.index): task for task in tasks}
        self._tasks = {}
        for number, made in sorted(self._made.items()):
            for index, part in enumerate(made.parts, 1):
                name = self._job_name(number)
                if task := by_place.get((name, index)) or by_place.get((name, 0)):
                    self._tasks[part] = replace(task, index=index)
        self._alive |= {part for part, task in self._tasks.items() if task.phase != ENDED}

    def _bury(self, state: PartState, task: ArrayTask | None) -> bool:
        """Write the end of a worker whose task does not run, unless it wrote that itself; return whether."""
        # A task that waits again was requeued.
        dead = task if state.phase == RUNNING and task and task.phase != RUNNING else None
        if dead is None or not claims.ran_in(state.workers[-1], dead.task_id):
            return False
        claims.bury(self._work, state.workers[-1], dead.words if dead.phase == ENDED else "Slurm requeued the task")
        return True

    def _state(self, name: str, found: PartState, task: ArrayTask | None) -> PartState:
        """Return a part's state by its claims and its task."""
        if found.phase == ENDED or task is None:
            # Slurm says of no signal why it came.
            return replace(found, reason=_SIGNALLED) if task and found.reason == STOPPED else found
        if found.phase == RUNNING:
            return replace(found, place=task.node) if claims.ran_in(found.workers[-1], task.task_id) else found
        if task.phase != ENDED:
            return replace(found, words=task.words, reason="")
        words = task.words
        if task.cancelled and name in self._alive:
            return replace(found, phase=ENDED, words="cancelled", reason=words)
        if task.state == "FAILED" and not any(claims.ran_in(worker, task.task_id) for worker in found.workers):
            return replace(found, phase=ENDED, words="failed", reason=f"{words}: {self._last_line(task)}")
        if self._tries[name] >= claims.ATTEMPTS:
            return replace(found, phase=ENDED, words="ended", reason=f"submitted {self._tries[name]} times; {words}")
        return found

    def _last_line(self, task: ArrayTask) -> str:
        """Return the last line that a task has printed."""
        name, printed = f"{task.name}-{task.task_id}.out", b""
        with suppress(RemoteError):
            printed = self._work.get(name, _MOST_LOG_BYTES) or b""
        lines = printed.decode("utf-8", "replace").strip().splitlines()
        return one_line(lines[-1], 300) if lines else f"see {self._work.where(name)}"

    def _submit(self, names: Sequence[str], states: dict[str, PartState]) -> None:
        """Submit tasks for parts; each waits for the tasks that build its indexes, if they are still to end."""
        parts = [part for part in self._run.parts if part.name in names]
        if not parts:
            return
        kinds = slurm_queue.nodes(self._options.partition)
        folder = self._work.below(records.run(self._run.run_id))
        for (shape, after), members in self._groups(parts, self._run.parts):
            number = max(self._made, default=0) + 1
            # A builder whose task has ended is not waited for.
            waits = tuple(task.task_id for name in after if (task := self._tasks.get(name)) and task.phase != ENDED)
            made = Submission(tuple(part.name for part in members), waits)
            name, record = self._job_name(number), f"{_SUBMISSIONS}/{number:04}.json"
            script = self._script(name, self._run.run_id, shape, kinds, members, waits)
            # Before the request: a later look or command finds the array by its name, though its answer is lost.
            folder.put(record, dump(made))
            self._made[number], self._asked = made, None
            made = self._made[number] = replace(made, job=slurm_queue.submit(script))
            folder.put(record, dump(made))
            for index, part in enumerate(made.parts, 1):
                if states[part].attempts:
                    log.info(f"{part}: submitted again ({states[part].reason})")
                self._tasks[part] = ArrayTask(made.job, index, name, "PENDING")
                self._alive.add(part)
                self._tries[part] += 1
                states[part] = replace(states[part], words=self._tasks[part].words, reason="")
            log.info(f"Slurm has job {made.job}: {counted(len(members), 'task')} for {_profiles(members)}")

    def _job_name(self, number: int) -> str:
        """Return the name of an array of this run."""
        return f"harness-{self._run.run_id}-{number:04}"

    # ---- the end

    def tidy(self) -> None:
        """Delete the records of the run and what its tasks printed."""
        super().tidy()
        for path in Path(self._work.where()).glob(f"harness-{self._run.run_id}-*.out"):
            path.unlink(missing_ok=True)

    def live_jobs(self) -> list[str]:
        """Return the ids of the arrays with tasks that have not ended, as last seen."""
        return sorted({task.job for task in self._tasks.values() if task.phase != ENDED}, key=int)

    def going_on(self, launches: Sequence[Launch]) -> str:
        """Return a line for a user who stops watching."""
        ending = (
            f"`{shlex.join(['scancel', *self.live_jobs()])}` ends them" if self.live_jobs() else "none is in Slurm now"
        )
        return f"Slurm goes on with {counted(len(launches), 'part')}; the same command goes on from here, and {ending}"

    def cancel(self) -> None:
        """Cancel all tasks of the run; the same command submits them again."""
        if self.live_jobs():
            slurm_queue.call("scancel", *self.live_jobs())


def _option_lines(options: SlurmOptions) -> Iterator[str]:
    """Yield the user's options as sbatch takes them.

    Raises:
        UsageError: one has no hyphen in front, or would begin another line of the script.
    """
    named = {name: getattr(options, name) for name in ("partition", "account", "qos", "constraint", "time")}
    given = [f"--{name}={value}" for name, value in named.items() if value is not None]
    given += ["--exclusive"] if options.exclusive else []
    for option in options.sbatch:
        if not option.startswith("-"):
            raise UsageError(f"--sbatch {one_line(option, 60)!r}: an option begins with -; write --sbatch=--name=value")
        given.append(option)
    for option in given:
        if _CONTROL.search(option):
            raise UsageError(f"{one_line(option, 60)!r} holds a control character; leave it out")
        yield option


def _cpus(shape: Envelope, memory_mib: int, kinds: Sequence[NodeKind], members: Sequence[PlannedPart]) -> int:
    """Return the CPUs to ask for: one more than the profile has, where a node has that.

    Raises:
        UsageError: no node has enough.
    """
    enough = [kind.cpus for kind in kinds if kind.cpus >= shape.cpus and kind.memory_mib >= memory_mib]
    if kinds and not enough:
        most = max(kinds, key=lambda kind: (kind.memory_mib, kind.cpus))
        raise UsageError(
            f"no node of the partition {most.partition} has {counted(shape.cpus, 'CPU')} and {memory_mib} MiB for"
            f" {_profiles(members)} (memory of the profile and {OWN_MIB} MiB for harness; the largest has"
            f" {most.cpus} and {most.memory_mib} MiB); choose another --partition, or leave the profile out by --only"
        )
    return shape.cpus + (not enough or max(enough) > shape.cpus)


def _profiles(parts: Sequence[PlannedPart]) -> str:
    """Name the hardware profiles of parts."""
    names = dict.fromkeys(job.cell.profile for part in parts for job in part.jobs)
    return ", ".join(names) or "index builds"

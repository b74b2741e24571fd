"""Jobs as Apptainer containers of an ordinary user, without root and without an engine.

The limits come from the scheduler or the user's systemd (:mod:`harness.launch.allocation`).  Namespaces give the rest:
a read-only root, no network, no capabilities, no home.  Apptainer has no daemon, so images are files
(:mod:`harness.launch.images.sif`).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from harness import child_process, filesystem
from harness.driver import cgroup
from harness.driver.procfs import ReadFile, read_text
from harness.driver.records import Envelope, Outcome
from harness.errors import EngineError, listed
from harness.launch import allocation, connection, cpu_placement, limits
from harness.launch.base import LaunchEnd, Launcher, LaunchRequest, Prepared, StopReason, thread_environment
from harness.launch.checks import Check, Level
from harness.launch.connection import engine_errors
from harness.launch.gate import Gate, GateClosed
from harness.launch.images import platforms, recipes, sif
from harness.launch.images.systems import System
from harness.launch.monitor.canary import Canary
from harness.launch.monitor.sources import CgroupSource, ProcessTree
from harness.launch.observation import observed
from harness.progress import Progress
from harness.results.isolation import APPTAINER
from harness.results.schema import Placement
from harness.untrusted import max_output_bytes, one_line

_PING_S = 10
# The first version that has all options of below.
_OLDEST = (1, 2)
# No init of Apptainer's own inside, which takes 6 MB; no evaluation of the image's words; nothing of the user's.
_ISOLATED = (
    *("--userns", "--containall", "--no-init", "--no-home", "--net", "--network", "none", "--cleanenv", "--no-eval"),
    *("--drop-caps", "ALL", "--no-mount", "tmp,home,cwd,hostfs,bind-paths", "--pwd", "/job/out"),
)


class ApptainerLauncher(Launcher):
    """Launcher of images as Apptainer containers, in a Slurm allocation or a scope of the user's systemd."""

    isolation = APPTAINER

    def __init__(self, cache: Path, models: Path | None = None) -> None:
        super().__init__(cache, models)
        self._canary = Canary()

    @classmethod
    def examine(cls) -> Iterator[Check]:
        """Check Apptainer, and what would limit a job."""
        try:
            holder = _found_holder()
        except EngineError as error:
            fact, _, remedy = str(error).rpartition("; ")
            yield Check(Level.FAIL, "apptainer", fact, remedy)
            return
        room = f"{holder.room_bytes() // allocation.MIB} MiB are left for a job"
        yield Check(Level.OK, "apptainer", f"{_version()}; each job runs in {holder.kind}; {room}")

    def check(self) -> None:
        """Raise EngineError unless jobs can run here, with limits."""
        _ = self._holder

    def check_images(self, missing: Collection[str] = ()) -> None:
        """Raise EngineError if image files are missing and no engine answers that could make them."""
        if not missing:
            return
        try:
            with engine_errors(), closing(connection.connect(_PING_S)) as client:
                client.ping()
        except EngineError as error:
            raise EngineError(
                f"{self.cache / sif.FOLDER} has no image of {listed(sorted(missing))}, and no engine answers here to"
                " make one; run `harness stage SUITE FOLDER` on a machine with Docker or Podman, and copy the folder"
            ) from error

    @cached_property
    def _holder(self) -> allocation.Holder:
        return _found_holder()

    def engine_version(self) -> str | None:
        """Return Apptainer's version."""
        return _version()

    def cannot(self, envelope: Envelope) -> str | None:
        """Return why the allocation lacks the envelope, or None; outside of one, nothing is known of it."""
        try:
            return self._holder.cannot(envelope)
        except EngineError:
            return None

    def room_bytes(self) -> int:
        """Return the memory that the allocation leaves to a job."""
        return self._holder.room_bytes()

    def recipe(self, system: System) -> str:
        """Hash the inputs of the image, as for a Docker image."""
        return recipes.recipe(_here(system))

    def find(self, system: System) -> Prepared | None:
        """Return the system's image file, if the cache has it."""
        system = _here(system)
        found = sif.find(self.cache, recipes.recipe(system))
        return _prepared(system, found) if found else None

    def prepare(self, system: System) -> Prepared:
        """Return the system's image file; make it where a container engine answers."""
        if found := self.find(system):
            return found
        self.check_images((system.image,))
        system = _here(system)
        return _prepared(system, sif.build(self.cache, self.cache, self.models, system))

    def launch(self, job: LaunchRequest, progress: Progress) -> LaunchEnd:
        """Run one job in a container of its own, from start to end."""
        envelope, holder = job.spec.envelope, self._holder
        most_bytes = None if job.spec.kind == "build" else max_output_bytes(job.spec)
        with ExitStack() as stack:
            chosen = stack.enter_context(holder.placed(envelope))
            command = holder.command(envelope, chosen)
            own = child_process.environment(*holder.variables)
            folder = stack.enter_context(filesystem.temporary_folder("gate"))
            gate = Gate(folder, command, self._command(job), own, most_bytes=most_bytes)
            try:
                stack.enter_context(gate)
            except GateClosed as closed:
                said = f"{command[0]} did not start the job: {_last(str(closed))}"
                if holder.too_large.search(str(closed)):
                    return LaunchEnd(stopped=StopReason(Outcome.NOT_APPLICABLE, f"{said}; {holder.remedy}"))
                raise EngineError(f"{said}; see that nothing else runs in the allocation, then run again") from closed
            held, counted = _groups(gate.pid)
            placement = chosen or cpu_placement.place_among(envelope.cpus, gate.cpus, held.cpus() or gate.cpus)
            if placement is None:
                why = f"{command[0]} gave {len(gate.cpus)} CPUs, asked for {envelope.cpus}; {holder.remedy}"
                return LaunchEnd(stopped=StopReason(Outcome.ENVELOPE_MISMATCH, why))
            job.write_spec(placement.cpuset)
            spare = cpu_placement.siblings(placement.cpus)
            if stopped := limits.limit_mismatch(held, envelope, placement.cpuset, spare):
                stopped = replace(stopped, detail=f"{stopped.detail}; {holder.remedy}")
                return LaunchEnd(stopped=stopped, placement=placement)
            seen = stack.enter_context(observed(job, placement, self._canary))
            seen.begin()
            gate.open(placement.cpus)
            with seen.sampling(partial(_source, counted, placement, gate)):
                stopped = seen.follow(gate.ended, progress, lambda: limits.limit_change(held, placement.cpuset, spare))
                if stopped:
                    gate.kill()
                code = gate.result()
                # An image can leave the group and the parent that the gate kills.
                for pid in counted.threads() or ():
                    if pid != gate.pid:
                        with suppress(OSError):
                            os.kill(pid, signal.SIGKILL)
            oom = code is None and bool(holder.out_of_memory.search(gate.words()))
            if code is None and not oom:
                ended = StopReason(Outcome.INTERRUPTED, f"{command[0]} ended the job: {_last(gate.words())}")
                stopped = stopped or ended
            return seen.end(code, gate.log(), stopped, oom_killed=oom)

    def _command(self, job: LaunchRequest) -> list[str]:
        """Return the command of a job's container, with the paths and variables of a Docker container."""
        mounts = (
            _mount(job.folder, "/job"),
            _mount(job.out, "/job/out", writable=True),
            _mount(job.corpus_dir, "/corpus"),
            _mount(job.index_dir, "/index", writable=job.may_write_index),
        )
        binds = [word for mount in mounts for word in ("--mount", mount)]
        variables = thread_environment(job.spec.envelope.cpus)
        settings = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
        nvidia = ("--nv",) if job.spec.envelope.gpus else ()
        return ["apptainer", "--silent", "run", *_ISOLATED, *nvidia, *binds, *settings, job.prepared.reference]


def _mount(source: Path, target: str, *, writable: bool = False) -> str:
    """Return a bind as Apptainer reads it: fields of CSV, so that a path may hold any character."""
    quoted = f"source={source}".replace('"', '""')
    return f'type=bind,"{quoted}",destination={target}' + ("" if writable else ",ro")


def _found_holder() -> allocation.Holder:
    """Return what limits a job here; raise EngineError if Apptainer, an ordinary user or a limit is missing."""
    version = _version()
    if version is None:
        raise EngineError("apptainer is not found; install it or load its module")
    if tuple(map(int, version.split(".")[:2])) < _OLDEST:
        raise EngineError(f"apptainer {version} is too old; install {_OLDEST[0]}.{_OLDEST[1]} or a later version")
    if os.getuid() == 0:
        raise EngineError("apptainer would run jobs as root; start harness as a user")
    return allocation.holder()


def _version() -> str | None:
    """Return Apptainer's version; None where it is not installed."""
    if not shutil.which("apptainer"):
        return None
    found = re.search(r"\d+\.\d+[\w.+~-]*", child_process.run(["apptainer", "--version"]).stdout)
    return found.group() if found else None


def _here(system: System) -> System:
    return system.for_platform(platforms.host())


def _prepared(system: System, image: sif.SifImage) -> Prepared:
    return Prepared(system, image.recipe, image.digest, str(image.path), image.size_bytes)


def _groups(pid: int) -> tuple[cgroup.Cgroup, cgroup.Cgroup]:
    """Return the cgroup that limits a job, and the one whose counters are its own."""
    held = cgroup.of_process(read_text(Path(f"/proc/{pid}/cgroup")) or "")
    ours = cgroup.of_process(read_text(Path("/proc/self/cgroup")) or "")
    if held is None:
        raise EngineError(f"process {pid} shows no cgroup with a memory controller; mount /sys/fs/cgroup")
    return held, allocation.apart(held, ours)


def _source(counted: cgroup.Cgroup, placement: Placement, gate: Gate, read: ReadFile) -> CgroupSource:
    """Return the source of a job's counters: of its own cgroup, and CPU time of its processes without one."""
    return CgroupSource(replace(counted, read=read), placement.cpus, tree=ProcessTree(gate.pid))


def _last(said: str) -> str:
    return one_line(said.splitlines()[-1] if said else "it gave no reason", 300)

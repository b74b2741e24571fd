"""Jobs as plain child processes pinned by CPU affinity: to develop an adapter, and where no engine runs.

Only the affinity is enforced, and a search's index is read-only, as in a container.  The memory limit is not enforced,
the job sees the network and the rest of the disk, and results say so (``isolation: process``).
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from harness import child_process, filesystem
from harness.config import page
from harness.driver.records import Outcome, digest
from harness.errors import ImageError
from harness.launch import cpu_placement
from harness.launch.base import LOG_BYTES, LaunchEnd, Launcher, LaunchRequest, Prepared, StopReason, thread_environment
from harness.launch.checks import Check, warn_if
from harness.launch.images import assets, driver_code, locks, platforms, recipes
from harness.launch.images.systems import WHOLE_ENGINE, System
from harness.launch.monitor.canary import Canary
from harness.launch.monitor.sources import JobSource, ProcessSource
from harness.launch.observation import ObservedJob, observed
from harness.progress import Progress
from harness.results.isolation import PROCESS
from harness.untrusted import MAX_TEXT, one_line

log = logging.getLogger(__name__)

# An interpreter that has the engine's packages already; every system uses it instead of its own packages.
PYTHON_VARIABLE = "HARNESS_PYTHON"
# The engines' locks are for the Python that images have.
_LOCK_PYTHON = (3, 11)
# Pinned before anything is imported, because libraries count CPUs when they load; and set to die with the
# harness, because nothing else would end a hung adapter after a kill -9.
_START = """
import ctypes, os, runpy, signal
os.sched_setaffinity(0, {cpus})
libc = ctypes.CDLL(None)
{read_only}
libc.prctl(1, signal.SIGKILL)
runpy.run_module("harness.driver", run_name="__main__")
"""
# A bind mount that only this child sees: permission bits would not stop root, nor the owner of the files.  Without
# the right to mount, a user namespace gives it; where the kernel refuses that too, only the look afterwards is left.
_READ_ONLY = """
def read_only(folder, uid, gid):
    if libc.unshare(0x20000):  # CLONE_NEWNS
        if libc.unshare(0x10020000):  # and CLONE_NEWUSER
            return
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            open(f"/proc/self/{name}", "w").write(text)
    kept = os.statvfs(folder).f_flag & 0xC0E  # a user namespace may not take these away
    libc.mount(None, b"/", None, 0x44000, None)  # MS_REC | MS_PRIVATE
    libc.mount(folder, folder, None, 0x5000, None)  # MS_BIND | MS_REC
    libc.mount(None, folder, None, 0x1021 | kept, None)  # MS_REMOUNT | MS_BIND | MS_RDONLY
read_only(os.fsencode(os.environ["HARNESS_INDEX"]), os.getuid(), os.getgid())
"""


class ProcessLauncher(Launcher):
    """Launcher of the in-image driver without an engine."""

    isolation = PROCESS

    def __init__(self, cache: Path, models: Path | None = None) -> None:
        super().__init__(cache, models)
        self._python = os.environ.get(PYTHON_VARIABLE)
        self._canary = Canary()

    @classmethod
    def examine(cls) -> Iterator[Check]:
        """Check that this interpreter is one that the engines' packages are for."""
        own, needed = ".".join(map(str, sys.version_info[:2])), ".".join(map(str, _LOCK_PYTHON))
        chosen = os.environ.get(PYTHON_VARIABLE)
        fact = f"{chosen} ({PYTHON_VARIABLE})" if chosen else f"Python {own}"
        remedy = f"engines with packages need Python {needed}; set {PYTHON_VARIABLE} to an interpreter that has them"
        yield warn_if(not chosen and own != needed, "interpreter", fact, remedy)

    def cannot_run(self, system: System) -> str | None:
        """Return why the system cannot run as a process, or None."""
        part = next((part for part in system.parts if part.image_only), None)
        if part is None:
            return super().cannot_run(system)
        return f"not available as a process: engine {part.engine!r} runs in its image alone: {part.image_only}"

    def recipe(self, system: System) -> str:
        """Hash the inputs of the system's environment, and the interpreter."""
        return self._prepared(system).recipe

    def find(self, system: System) -> Prepared | None:
        """Return the system's environment, if it was made from exactly this recipe."""
        prepared = self._prepared(system)
        return prepared if Path(prepared.reference).is_dir() else None

    def prepare(self, system: System) -> Prepared:
        """Install the engine's packages into a folder of the cache, renamed into place when whole."""
        prepared = self._prepared(system)
        system, folder = prepared.system, Path(prepared.reference)
        if folder.is_dir():
            return prepared
        if reason := self.cannot_run(system):
            raise ImageError(f"system {system.name!r}: {reason}; use --launcher docker")
        if system.lacking:
            other = f"take another host or hardware profile ({page('docs/guides/platforms.md')})"
            raise ImageError(f"system {system.name!r}: {system.lacking}; {other}")
        # Before the packages, which take their time: it refuses unpinned files.
        files = assets.fetch(system.name, system.assets, self.cache, self.models)
        partial = filesystem.staging_path(folder)
        partial.mkdir(parents=True)
        joined = [self.prepare(component) for component in system.components]
        for name, content in recipes.code_files(system).items():
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
            (partial / name).write_bytes(content if isinstance(content, bytes) else content.read_bytes())
        lean = system.lean and system.prepare_lean
        needed = recipes.needed(system.shared_locks, system, lean=True) if lean else system.shared_locks
        self._install(system, [*needed.values(), system.lock], partial / "packages")
        shutil.copytree(files, partial / "assets")
        if system.prepare and system.assets and self._make_ready(system, partial, whole=not lean) == WHOLE_ENGINE:
            shutil.rmtree(partial / "assets")  # the first of several checkpoints may be ready
            shutil.copytree(files, partial / "assets")
            others = [lock for name, lock in system.shared_locks.items() if name not in needed]
            self._install(system, others, partial / "packages")
            self._make_ready(system, partial)
        shared = assets.fetch(system.engine, system.engine_assets, self.cache, self.models)
        shutil.copytree(shared, partial / "assets", dirs_exist_ok=True)
        components = recipes.components_json(system, [_engine_environment(Path(part.reference)) for part in joined])
        (partial / "components.json").write_text(components, encoding="utf-8")
        partial.rename(folder)
        return prepared

    def launch(self, job: LaunchRequest, progress: Progress) -> LaunchEnd:
        """Run one child to its end; its whole process group goes with it."""
        with (
            cpu_placement.placed(job.spec.envelope.cpus) as placement,
            (job.folder / "log").open("w+b") as log,
            observed(job, placement, self._canary) as seen,
        ):
            job.write_spec(placement.cpuset)
            before = _entries(job)
            code = start(placement.cpus, read_only=not job.may_write_index)
            with self._running(job, code, log, seen, lambda pid: ProcessSource(pid, placement.cpus)) as (child, ended):
                stopped = seen.follow(ended, progress)
            if changed := _changed(before, _entries(job)):
                stopped = stopped or changed
                # Without facts.json the changed index does not count as built (harness.jobs.indexes).
                (job.index_dir.parent / "facts.json").unlink(missing_ok=True)
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_BYTES))
            return seen.end(child.returncode, log.read(LOG_BYTES), stopped)

    @contextmanager
    def _running(
        self, job: LaunchRequest, code: str, output: IO[bytes], seen: ObservedJob, source: Callable[[int], JobSource]
    ) -> Iterator[tuple[subprocess.Popen[bytes], threading.Event]]:
        """Run code of :func:`start` in a child, observed; yield the child and the event of its end, then kill it.

        Args:
            job: whose files and environment it gets.
            code: of the driver.
            output: takes what it prints.
            seen: samples the source until it is killed.
            source: makes that source, given its process id.
        """
        seen.begin()
        child = subprocess.Popen(
            self.command([self._python or sys.executable, "-c", code]),
            env=self._environment(job),
            cwd=job.out,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        ended = threading.Event()

        def wait() -> None:
            child.wait()
            ended.set()

        threading.Thread(target=wait, daemon=True, name="child-wait").start()
        with seen.sampling(lambda _: source(child.pid)):
            try:
                yield child, ended
            finally:
                child_process.kill_group(child)

    def command(self, driver: list[str]) -> list[str]:
        """Return the command that runs the driver; another launcher may put one in front that keeps its process id."""
        return driver

    def _prepared(self, system: System) -> Prepared:
        """Return the system for this platform, with the path of its environment."""
        system = system.for_platform(platforms.host(), all_packages=True)
        interpreter = self._python or f"{sys.executable} {sys.version}"
        recipe = f"process:{digest([recipes.recipe(system), interpreter])}"
        # It holds the driver's files too, and jobs run this harness's driver.
        made_of = digest([recipe, driver_code.code_hash()])
        folder = (self.cache / "process").resolve() / f"{system.name}-{made_of[:12]}"
        return Prepared(system, recipe, f"process:{made_of}", str(folder))

    def _install(self, system: System, locked: list[Path], target: Path) -> None:
        pinned = {path: locks.read(path) for path in locked}
        if self._python or not any(pinned.values()):
            return
        if sys.version_info[:2] != _LOCK_PYTHON:
            raise ImageError(
                f"system {system.name}: the engines' locks are for Python {_LOCK_PYTHON[0]}.{_LOCK_PYTHON[1]}; run"
                f" harness with it, or set {PYTHON_VARIABLE} to an interpreter that has the engine's packages"
            )
        options = ["--quiet", "--no-index", "--no-deps", "--only-binary=:all:", "--require-hashes"]
        with filesystem.scratch_folder(self.cache / "tmp", "lock") as scratch:
            for number, (lock, requirements) in enumerate(pinned.items()):
                wheels = assets.wheels(lock, system.extra_indexes, self.cache, system.platform)
                (scratch / f"{number}.txt").write_text(requirements, encoding="utf-8")
                options += ["--find-links", str(wheels), "-r", str(scratch / f"{number}.txt")]
            log.info(f"{system.name}: installing the engine's packages")
            failure = assets.run_pip("install", *options, "--target", str(target))
        if failure:
            raise ImageError(f"system {system.name}: its packages could not be installed: {failure}")

    def _make_ready(self, system: System, folder: Path, *, whole: bool = True) -> int:
        """Run the system's ``prepare``; return its exit code, 0 if packages of the ``whole`` engine are there."""
        log.info(f"{system.name}: making its files ready")
        (folder / "system.json").write_text(recipes.prepare_parameters(system), encoding="utf-8")
        command = [self._python or sys.executable, "-m", str(system.prepare), str(folder / "assets")]
        done = subprocess.run(
            [*command, str(folder / "system.json")],
            env={**_bare_environment(folder), **_engine_environment(folder)},
            cwd=folder,  # Python imports from there first
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode and (whole or done.returncode != WHOLE_ENGINE):
            last = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
            raise ImageError(f"system {system.name}: its files could not be made ready: {one_line(last, MAX_TEXT)}")
        return done.returncode

    def _environment(self, job: LaunchRequest) -> dict[str, str]:
        folder = Path(job.prepared.reference)
        gpus = ",".join(str(index) for index in range(job.spec.envelope.gpus))
        return {
            **_bare_environment(job.folder),
            **_engine_environment(folder),
            "HARNESS_JOB": str(job.folder),
            "HARNESS_CORPUS": str(job.corpus_dir),
            "HARNESS_INDEX": str(job.index_dir),
            # NVML's numbers; CUDA's own put the fastest GPU first.
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": gpus,
            **thread_environment(job.spec.envelope.cpus),
        }


def start(cpus: Iterable[int], *, read_only: bool = False) -> str:
    """Return the code that runs the driver on these CPUs, with an index that it cannot change."""
    return _START.format(cpus=set(cpus), read_only=_READ_ONLY if read_only else "")


def _bare_environment(home: Path) -> dict[str, str]:
    """Return a minimal environment: ours may hold tokens and passwords."""
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home), "LANG": "C.UTF-8"}


def _engine_environment(folder: Path) -> dict[str, str]:
    """Return the variables by which an engine's code finds its files, as its Dockerfile sets them."""
    return {
        "PYTHONPATH": os.pathsep.join(str(folder / name) for name in ("driver", "shared", ".", "packages")),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
        "HARNESS_ASSETS": str(folder / "assets"),
    }


def _entries(job: LaunchRequest) -> dict[str, tuple[int, int]]:
    """Return size and time of change of each file and folder of an index that the job may only read."""
    if job.may_write_index:
        return {}
    entries = ((entry.path, entry.stat(follow_symlinks=False)) for entry in filesystem.walk(job.index_dir))
    return {os.path.relpath(path, job.index_dir): (status.st_size, status.st_mtime_ns) for path, status in entries}


def _changed(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> StopReason | None:
    """Return the error where a search wrote into its index."""
    if before == after:
        return None
    name = min(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    what = f"the search wrote into its index ({one_line(name, MAX_TEXT)}), which is read-only in a container"
    return StopReason(Outcome.BAD_OUTPUT, f"{what}; the next run builds it again")

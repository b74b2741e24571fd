"""Run one part on another machine: the agent and ``harness run --part``.

The agent fetches the inputs of its part, runs ``harness run --part`` in a process of its own, and writes to the
worker's folder in the storage: a heartbeat every half minute, and an end record in every case.

The other process measures, and uploads each job and index to the worker's folder once it is stored.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import harness
from harness import child_process, filesystem
from harness.datasets import dataset_name
from harness.errors import HarnessError, JobError, RemoteError, UsageError
from harness.jobs import environment, indexes, orchestrator, suite
from harness.jobs.inputs import AssignedJob, AssignedWork, RunCallbacks, RunOptions, gather
from harness.jobs.suite import Suite
from harness.launch import connection
from harness.launch.base import Launcher
from harness.launch.connection import engine_errors
from harness.remote import records, shipment
from harness.remote.bundle import OWN_IMAGES
from harness.remote.failures import concealed, retry
from harness.remote.local_results import pack
from harness.remote.records import Heartbeat, ShippedInput, WorkerEnd, WorkerPart, dump, fetch, read
from harness.remote.storage import Storage
from harness.results import pin_lock
from harness.results.reader import StoredJob
from harness.results.schema import job_key
from harness.untrusted import foreign, read_whole, reading

log = logging.getLogger(__name__)

HEARTBEAT_VARIABLE = "HARNESS_HEARTBEAT_S"
LOG = "log.txt"
# The end of a worker that was told to stop.
STOPPED = "a signal ended the worker"
_MOST_LOG_BYTES = 256 << 10
# The engine may be silent for as long while it loads an image.
_ENGINE_S = 3600
# So begins harness's message about an engine that it has lost.
_ENGINE_LOST = "the Docker engine "
# Ten minutes without the storage when the agent writes its end.
_END_ATTEMPTS, _WAIT_S = 61, 10.0
# How often the agent looks for a spot interruption, which EC2 announces two minutes before.
_NOTICE_S = 5.0
# The log goes along with every tenth heartbeat.
_LOG_EVERY = 10
_NICE = 10
# The measuring process ends with the agent, even after a kill -9: another worker may go on with the part.
_START = """import ctypes, os, runpy, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != {parent}: sys.exit(1)
sys.argv[0] = "harness"
runpy.run_module("harness", run_name="__main__", alter_sys=True)
"""
# In the worker's root folder, next to the assignment.
_DATASETS = "datasets"
# Four hours without the storage at the end of a part: the jobs are safe on disk until the worker's time limit.
_UPLOAD_ATTEMPTS, _LONGEST_WAIT_S = 245, 60.0


@dataclass(frozen=True)
class Assignment:
    """A part for ``harness run --part``; ``status``: the file for its progress."""

    work: str
    worker_id: str
    part: WorkerPart
    status: str


@dataclass(frozen=True)
class WorkerStatus:
    """A part's progress; ``troubles``: a line for each missing upload."""

    phase: str
    current: str | None = None
    uploaded: int = 0
    troubles: tuple[str, ...] = ()


@contextlib.contextmanager
def _logged_to(path: Path) -> Iterator[None]:
    """Write the messages of harness to the worker's log."""
    logger, handler = logging.getLogger("harness"), logging.FileHandler(path, encoding="utf-8", errors="replace")
    handler.setFormatter(logging.Formatter("worker: %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
        handler.close()


def heartbeat_s() -> float:
    """Return the seconds between two heartbeats."""
    return float(os.environ.get(HEARTBEAT_VARIABLE) or 30.0)


class Worker:
    """One worker, which does one part."""

    def __init__(
        self,
        work: Storage,
        worker_id: str,
        run_id: str,
        part: str,
        root: Path,
        launcher: str = "docker",
        *,
        cache: Path | None = None,
        code: Path | None = None,
        earlier: tuple[str, ...] = (),
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Take what a machine that is not rented for the part has, too.

        ``cache`` is shared with other workers; ``code`` is the unpacked bundle, if this process runs another harness;
        ``earlier`` are the workers that began the part before; ``wanted`` returns whether the worker is to go on.
        """
        self._work, self._worker_id, self._part, self._launcher = work, worker_id, part, launcher
        self._run, self._folder = work.below(records.run(run_id)), work.below(records.worker(worker_id))
        self._root, self._cache = root, cache or root / "cache"
        self._code, self._earlier, self._wanted = code, earlier, wanted
        self._log_file, self._status_file = root / LOG, root / "status.json"
        self._heartbeat = Heartbeat("fetching")
        self._interval_s = heartbeat_s()
        self._child: subprocess.Popen[bytes] | None = None
        self._stop = threading.Event()

    def live(self) -> bool:
        """Do the part, with a log in the root folder; report every failure, return whether all is done."""
        self._root.mkdir(parents=True, exist_ok=True)
        self._status_file.unlink(missing_ok=True)
        detail, stopped = "the worker was ended", False
        heartbeats = threading.Thread(target=self._send_heartbeats, name="heartbeats", daemon=True)
        with _logged_to(self._log_file):
            try:
                heartbeats.start()
                detail = self._do()
            except HarnessError as error:
                detail = str(error)
            except KeyboardInterrupt:
                detail, stopped = STOPPED, True
            except Exception as error:
                detail = f"the worker failed: {type(error).__name__}: {error}"
                raise
            finally:
                self._stop.set()
                if heartbeats.is_alive():
                    heartbeats.join()
                self._write_heartbeat()  # the state at the end
                if detail and self._heartbeat.notice:
                    detail = f"{detail}; EC2 announced: {self._heartbeat.notice}"
                log.info(f"end: {detail or 'all is done'}")
                self._end(detail, cut_off=stopped or self._heartbeat.notice is not None or _ENGINE_LOST in detail)
        return not detail

    def _do(self) -> str:
        """Fetch and run; return the first failure in a line, or nothing."""
        part = fetch(WorkerPart, self._run, records.part(self._part))
        if part is None:
            raise UsageError(f"{self._run.where(records.part(self._part))}: the part does not exist")
        part = self._rest(part)
        machine = environment.machine() if part.instance_type else None
        if part.instance_type != (machine.instance_type if machine else ""):
            own = machine.instance_type if machine else "of an unknown type"
            raise UsageError(f"this machine is {own}, but the part {part.name} needs {part.instance_type}")
        if not part.jobs and not part.builds:
            return ""
        self._fetch(part)
        return self._harness(part)

    def _fetch(self, part: WorkerPart) -> None:
        self._cache.mkdir(parents=True, exist_ok=True)
        fetcher = shipment.Fetcher(self._work, self._cache)
        if part.images:
            with engine_errors(), contextlib.closing(connection.connect(_ENGINE_S)) as engine:
                for image in part.images:
                    fetcher.image(engine, image)
        datasets = self._root / _DATASETS
        filesystem.remove_tree(datasets)
        for name, dataset in part.datasets.items():
            fetcher.dataset(dataset, datasets / name)
        for key, index in part.indexes.items():
            fetcher.index(key, index)
        assignment = Assignment(self._work.where(), self._worker_id, part, str(self._status_file))
        (self._root / "part.json").write_bytes(dump(assignment))

    def _harness(self, part: WorkerPart) -> str:
        """Run harness on the part; return its complaint, or nothing."""
        start = _START.format(parent=os.getpid())
        command = [sys.executable, "-c", start, "run", "--launcher", self._launcher, "--cache", str(self._cache)]
        command += ["--part", str(self._root / "part.json"), "--results", str(self._root / "results")]
        root = self._code or Path(harness.__file__).resolve().parent.parent
        # The packages may be where this process found them, as in a staged folder.
        paths = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
        own = {"PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"}
        variables = child_process.environment(*child_process.HARNESS, **own)
        if (root / OWN_IMAGES).is_dir():
            variables["HARNESS_IMAGES"] = str(root / OWN_IMAGES)
        with self._log_file.open("ab") as output:
            before = output.tell()
            with subprocess.Popen(
                command, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            ) as child:
                self._child = child
                try:
                    code = child.wait()
                except BaseException:
                    child.terminate()
                    raise
        status = self._status()
        if status and status.troubles:
            return "; ".join(status.troubles)
        if code == 0 and status and status.uploaded == len(part.jobs):
            return ""
        lines = [line for line in self._log_tail(before).split("\n") if line.strip()]
        errors = [line for line in lines if line.startswith("harness: ")]
        return f"harness ended with exit code {code}: {(errors or lines or ['no output'])[-1]}"

    def _is_wanted(self) -> bool:
        with contextlib.suppress(RemoteError):
            return self._wanted()
        return True

    def _rest(self, part: WorkerPart) -> WorkerPart:
        """Return the rest of a part: skip the jobs and use the indexes that its earlier workers uploaded."""
        done: set[str] = set()
        built: dict[str, ShippedInput] = {}
        for earlier in self._earlier:
            folder = records.worker(earlier)
            done |= {records.job_of(stored.name) for stored in self._work.below(folder).list(f"{records.JOBS}/")}
            for build in part.builds:
                index = fetch(ShippedInput, self._work, f"{folder}/{records.index(build.key)}.json")
                built |= {build.key: index} if index else {}
        jobs = tuple(job for job in part.jobs if job.key not in done)
        builds = tuple(build for build in part.builds if build.key not in built)
        return replace(part, jobs=jobs, builds=builds, indexes={**built, **part.indexes})

    def _log_tail(self, start: int = 0) -> str:
        with self._log_file.open("rb") as file:
            file.seek(max(start, file.seek(0, os.SEEK_END) - _MOST_LOG_BYTES))
            return file.read(_MOST_LOG_BYTES).decode("utf-8", "replace")

    def _status(self) -> WorkerStatus | None:
        with contextlib.suppress(OSError, RemoteError):
            return read(WorkerStatus, "status", self._status_file.read_bytes())
        return None

    def _send_heartbeats(self) -> None:
        """Write heartbeats, some with the log, until the part is over."""
        with contextlib.suppress(OSError):  # the measured system comes first
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        count, until_next_s = 0, 0.0
        while True:
            if self._child is not None and not self._is_wanted():
                self._child.terminate()
            notice = environment.spot_notice()
            noticed = notice is not None and notice != self._heartbeat.notice
            if noticed or until_next_s <= 0:
                self._heartbeat = replace(self._heartbeat, notice=notice or self._heartbeat.notice)
                self._write_heartbeat()
                if noticed or count % _LOG_EVERY == 0:
                    self._upload_log()
                count, until_next_s = count + 1, self._interval_s
            pause = min(until_next_s, _NOTICE_S)
            if self._stop.wait(pause):
                return
            until_next_s -= pause

    def _write_heartbeat(self) -> None:
        if now := self._status():
            self._heartbeat = replace(self._heartbeat, phase=now.phase, current=now.current)
        with contextlib.suppress(RemoteError):  # the storage gets the next one
            self._folder.put(records.HEARTBEAT, dump(self._heartbeat))

    def _upload_log(self) -> None:
        with contextlib.suppress(RemoteError, OSError):  # a log that cannot be uploaded stops nothing
            self._folder.put(records.LOG, concealed(self._log_tail()).encode())

    def _end(self, detail: str, *, cut_off: bool) -> None:
        """Write the end; give up after ten minutes of a paid machine."""
        line = " ".join(concealed(detail).split())[:1000]
        end = WorkerEnd(not detail, foreign(line or None), bool(detail) and cut_off)

        def report() -> None:
            self._upload_log()
            self._folder.put_new(records.END, dump(end))

        with contextlib.suppress(RemoteError):
            retry(report, None, _END_ATTEMPTS, lambda _failures, _error: time.sleep(_WAIT_S))


def read_assignment(path: Path) -> Assignment:
    """Read the file that ``--part`` names."""
    with reading(path, "only a worker's agent writes it"):
        return read(Assignment, str(path), read_whole(path, records.MOST_BYTES))


def suite_of(part: WorkerPart, file: Path) -> Suite:
    """Return a part's suite, with the datasets in the folder of ``file``."""
    # In their order, because the overhead is measured on the first.
    names = [name for name in map(dataset_name, part.suite.get("datasets", ())) if name in part.datasets]
    beside = [f"./{_DATASETS}/{name}" for name in dict.fromkeys(names)]
    # The whole product holds the cells of all groups; the part names its own.
    return suite.parse({**part.suite, "datasets": beside, "group": []}, file)


def run_part(file: Path, given: RunOptions, launcher: Launcher, work: Callable[[str], Storage]) -> bool:
    """Run the part that the agent wrote to a file; return whether every job is uploaded.

    ``work`` opens the storage of an address.
    """
    assignment = read_assignment(file)
    loaded = suite_of(assignment.part, file)
    uploader = Uploader(assignment, work(assignment.work), given.cache)
    try:
        part_options = options(given, loaded, assignment.part, uploader)
        keep_pins(given.results / loaded.name, assignment.part)
        orchestrator.run_suite(gather(loaded, part_options), part_options, launcher)
    finally:
        uploader.finish()  # after an error too, because measured jobs are worth uploading
    return not uploader.status.troubles


def keep_pins(suite_folder: Path, part: WorkerPart) -> None:
    """Write the run's pins into the worker's results folder, as in the user's."""
    lock = pin_lock.parse(part.pins, suite_folder / pin_lock.FILE)
    suite_folder.mkdir(parents=True, exist_ok=True)
    with filesystem.atomic_write(suite_folder / pin_lock.FILE) as path:
        path.write_bytes(pin_lock.content(lock))


def options(usual: RunOptions, suite: Suite, part: WorkerPart, callbacks: RunCallbacks) -> RunOptions:
    """Return the options of a run that does one part alone."""
    jobs = {(job.cell, job.job): AssignedJob(job.repetition, job.key) for job in part.jobs}
    names = (*suite.profiles, *filter(None, (suite.build_profile,)))
    types = dict.fromkeys(names, part.instance_type or None)
    work = AssignedWork(jobs, part.builds, make_images=not part.images)
    return replace(usual, assigned=work, callbacks=callbacks, instance_types=types, platforms=part.platforms)


class Uploader(RunCallbacks):
    """Uploader of stored jobs and of the part's indexes to the worker's folder.

    A failed upload is tried again after the next job, and up to ``attempts`` times at the end.
    """

    def __init__(self, assignment: Assignment, work: Storage, cache: Path, *, attempts: int = _UPLOAD_ATTEMPTS) -> None:
        self._work, self._worker_id, self._cache = work, assignment.worker_id, cache
        self._folder = work.below(records.worker(assignment.worker_id))
        self._attempts, self._sleep, self._file = attempts, time.sleep, Path(assignment.status)
        self._waiting: list[tuple[str, Callable[[], None]]] = []
        # Index key -> how errors name the index.
        builds = assignment.part.builds
        self._unbuilt = {build.key: f"the index of {build.name} on {build.dataset}" for build in builds}
        self.status = WorkerStatus("fetching")

    def starts(self, key: str) -> None:
        """Note which job runs now."""
        self._note(phase="measuring", current=key)

    def stored(self, job: StoredJob) -> None:
        """Upload a job, and what waits."""
        key = job_key(job.result.spec)
        # Packed when it is tried, so that jobs wait on disk, not in memory.
        self._waiting.append((f"the job {key}", lambda: self._upload_job(key, job.folder)))
        self._note(current=None)
        with contextlib.suppress(RemoteError):
            self._upload_waiting()

    def builds(self) -> None:
        """Note that an index is being built."""
        self._note(phase="building", current=None)

    def built(self, key: str, error: JobError | None) -> None:
        """Upload an index, if the part asks for it."""
        name = self._unbuilt.pop(key, None)
        if name is not None and error is not None:
            self._trouble(f"{name} was not built: {error}")
        elif name is not None:
            self._waiting.append((name, lambda: self._upload_index(key)))
            with contextlib.suppress(RemoteError):
                self._upload_waiting()

    def finish(self) -> None:
        """Upload the rest; after the last attempt raise the storage's error."""
        self._note(phase="finishing")
        for name in self._unbuilt.values():
            self._trouble(f"{name} was not built; see the log")

        def wait(failures: int, _error: RemoteError) -> None:
            self._sleep(min(2.0**failures, _LONGEST_WAIT_S))

        try:
            retry(self._upload_waiting, None, self._attempts, wait)
        except RemoteError as error:
            for name, _ in self._waiting:
                self._trouble(f"{name} could not be uploaded: {error}")
            raise

    def _upload_waiting(self) -> None:
        """Upload all that waits, in order, up to the first error."""
        while self._waiting:
            name, upload = self._waiting[0]
            try:
                upload()
            except RemoteError as error:
                log.info(f"{name} waits for its upload: {error}")
                raise
            del self._waiting[0]

    def _upload_job(self, key: str, folder: Path) -> None:
        # Refused where it is there already: only an earlier try of this worker can have written it.
        self._folder.put_new(records.job(key), pack(folder))
        self._note(uploaded=self.status.uploaded + 1)

    def _upload_index(self, key: str) -> None:
        index = indexes.find(self._cache, key)
        if index is not None:
            shipment.upload_index(self._work, self._worker_id, key, index, self._cache)

    def _trouble(self, text: str) -> None:
        log.info(text)
        self._note(troubles=(*self.status.troubles, text))

    def _note(self, **changes: Any) -> None:
        self.status = replace(self.status, **changes)
        # A status that cannot be written hinders no job.
        with contextlib.suppress(HarnessError), filesystem.atomic_write(self._file) as path:
            path.write_bytes(dump(self.status))

"""Serve a shared folder: take parts of open runs, one after the other, and measure them on this machine."""

from __future__ import annotations

import logging
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from harness import filesystem
from harness.errors import UsageError
from harness.remote import claims, journal, records
from harness.remote.backend import ENDED, RUNNING, WAITING, PartState
from harness.remote.folder_backend import BUNDLE
from harness.remote.records import Launch, RemoteRun, ShippedInput, fetch
from harness.remote.shared_folder import SharedFolder
from harness.remote.shipment import Fetcher
from harness.remote.worker import LOG, Worker, heartbeat_s

log = logging.getLogger(__name__)


def serve(work: SharedFolder, cache: Path, idle_s: float, poll_s: float = 5.0) -> bool:
    """Do free parts until none came for ``idle_s``; return whether all that were begun are done.

    Raises:
        RemoteError: the folder cannot be read or written.
        KeyboardInterrupt: the worker is stopped; another worker goes on with its part.
    """
    fine, last = True, time.monotonic()
    while time.monotonic() - last <= idle_s:
        work.ask_time()
        done = [_do(work, *free, cache) for free in free_parts(work)]
        done = [ended for ended in done if ended is not None]
        fine = fine and all(done)
        if done:
            last = time.monotonic()
        else:
            time.sleep(min(poll_s, idle_s / 2))
    return fine


def serve_part(work: SharedFolder, cache: Path, run: str, part: str, idle_s: float, poll_s: float = 5.0) -> bool:
    """Do one part of a run, or wait until another worker has done it; return whether it is done.

    ``run`` is the id of an open run, or the name of its suite.  A run that is not open has nothing left to do.
    The worker gives up once the part was neither free nor in work for ``idle_s``.

    Raises:
        RemoteError: the folder cannot be read or written.
        KeyboardInterrupt: the worker is stopped; another worker goes on with its part.
    """
    last = time.monotonic()
    while time.monotonic() - last <= idle_s:
        work.ask_time()
        runs = [each for each in journal.open_runs(work) if run in (each.run_id, each.suite)]
        if not runs and journal.is_run_id(run):
            log.info(f"{run}: the run is not open any more")
            return True
        for each in runs:
            launch = fetch(Launch, work.below(records.run(each.run_id)), records.launch(part))
            if launch is None:
                continue
            found = claims.look(work, each.run_id, part)
            if launch.usd is not None or found.phase == ENDED:
                return not found.reason
            task = _task_id()
            if task and found.phase == RUNNING and claims.ran_in(found.workers[-1], task):
                # Slurm runs a task once at a time.
                claims.bury(work, found.workers[-1], "Slurm began the task again")
                continue
            done = _do(work, each, part, found, cache) if found.phase == WAITING else None
            if done is not None:
                return done
            last = time.monotonic()
        time.sleep(min(poll_s, heartbeat_s()))
    log.info(f"{run}: the part {part} was not begun in {idle_s:.0f} s; give the command that began the run again")
    return False


def _task_id() -> str:
    """Return the id of the task of a Slurm array in which this process runs; empty: it runs in none."""
    numbers = [os.environ.get(name, "") for name in ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID")]
    return "_".join(numbers) if all(number.isdecimal() for number in numbers) else ""


def free_parts(work: SharedFolder) -> Iterator[tuple[RemoteRun, str, PartState]]:
    """Yield the parts that are launched, and that no living worker has: run, name, and state with earlier workers."""
    for run in journal.open_runs(work):
        folder = work.below(records.run(run.run_id))
        for stored in folder.list(f"{records.LAUNCHES}/"):
            launch = fetch(Launch, folder, stored.name)
            if launch is None or launch.usd is not None:
                continue
            found = claims.look(work, run.run_id, launch.name)
            if found.phase == WAITING:
                yield run, launch.name, found


def _do(work: SharedFolder, run: RemoteRun, part: str, found: PartState, cache: Path) -> bool | None:
    """Claim a part and do it; return whether all of it is done, ``None``: another worker has it."""
    host = re.sub("[^A-Za-z0-9.-]", "-", platform.node())[:40] or "unknown"
    # Slurm says later whether its task, and with it this worker, still lives.
    worker_id = "-".join(filter(None, (_task_id(), host, str(os.getpid()), secrets.token_hex(4))))
    if not claims.claim(work, run.run_id, part, found, worker_id):
        return None
    log.info(f"{run.run_id}: part {part}")
    root = cache / "workers" / worker_id
    worker = Worker(
        work,
        worker_id,
        run.run_id,
        part,
        root,
        run.launcher,
        cache=cache,
        code=_code(work, run.run_id, cache),
        earlier=found.workers,
        wanted=partial(claims.holds, work, run.run_id, part, worker_id),
    )
    if done := worker.live():
        shutil.rmtree(root, ignore_errors=True)  # all is uploaded
    else:
        log.info(f"{run.run_id}: part {part} is not done; see {root / LOG}")
    return done


def _code(work: SharedFolder, run_id: str, cache: Path) -> Path:
    """Return the folder with the harness that the run's command shipped; unpack it once."""
    run = work.below(records.run(run_id))
    bundle = fetch(ShippedInput, run, BUNDLE)
    if bundle is None or not re.fullmatch("[0-9a-f]{64}", bundle.sha256):
        raise UsageError(
            f"{run.where(BUNDLE)}: does not name the harness to run; repeat the command that began the run"
        )
    target = cache / "bundles" / bundle.sha256
    with filesystem.cache_lock(cache, f"bundle-{bundle.sha256[:16]}"):  # of workers that start side by side
        if target.is_dir():
            return target
        with filesystem.fresh_folder(target) as unpacked:
            Fetcher(work, cache).unpack(bundle, "harness", unpacked)
    return target

"""The agent of a box: ``python -m harness.remote.worker s3://WORK RUN PART``.

Fetches the inputs of its part, runs ``harness run --part`` in a process of its own, and writes to the box's folder in
S3: a beat every half minute, and at the end how it went, whatever happened.  Exit code 0: every job is uploaded; 1: not
all, as its end says; 2: the agent could not begin and has written nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import IO

import docker

import harness
from harness import instance_metadata, leftovers
from harness.aws.client import Connections, parse_uri
from harness.aws.errors import aws_errors, concealed
from harness.aws.objects import Objects
from harness.engine import engine_errors
from harness.errors import AwsError, HarnessError, UsageError
from harness.remote import bundle, layout, receive, upload
from harness.remote.records import MOST_BYTES, Assignment, Beat, End, Part, Status, dump, read

HOME_VARIABLE = "HARNESS_BOX_HOME"
INTERVAL_VARIABLE = "HARNESS_BEAT_S"
NOT_BEGUN = 2
_HOME = "/var/lib/harness"
_MOST_LOG_BYTES = 256 << 10
_UNKNOWN = "unknown"
# The engine may be silent for as long while it loads an image.
_ENGINE_S = 3600
# So begins harness's message about an engine that it has lost.
_ENGINE_LOST = "the Docker engine "
# How long S3 may be out of reach at the end.
_TRIES = 60
_WAIT_S = 10.0
# How often EC2 is asked for a spot interruption, which it announces two minutes before.
_NOTICE_S = 5.0
# The log goes along with every tenth beat.
_LOG_EVERY = 10
_NICE = 10


class Worker:
    """One box, which does one part."""

    def __init__(
        self, work: Objects, box_id: str, run_id: str, part: str, home: Path, log: IO[bytes], launcher: str = "docker"
    ) -> None:
        self._work, self._box_id, self._part, self._launcher = work, box_id, part, launcher
        self._run, self._box = work.below(layout.run(run_id)), work.below(layout.box(box_id))
        self._home, self._log = home, log
        self._log_file, self._status_file, self._cache = home / "log.txt", home / "status.json", home / "cache"
        self._beat = Beat(part, _UNKNOWN, "fetching")
        self._interval_s = float(os.environ.get(INTERVAL_VARIABLE) or 30.0)
        self._stop = threading.Event()

    def live(self) -> bool:
        """Do the part; return whether all of it is done.  Every failure is told."""
        self._status_file.unlink(missing_ok=True)
        found = instance_metadata.instance()
        self._beat = replace(self._beat, instance_id=found.instance_id if found else _UNKNOWN)
        detail, asked = "the agent was ended", False
        pulse = threading.Thread(target=self._beats, name="pulse", daemon=True)
        try:
            pulse.start()
            detail = self._do(found.instance_type if found else None)
        except HarnessError as error:
            detail = str(error)
        except KeyboardInterrupt:
            detail, asked = "the agent was told to end", True
        except Exception as error:
            detail = f"the agent failed: {type(error).__name__}: {error}"
            raise
        finally:
            self._stop.set()
            if pulse.is_alive():
                pulse.join()
            self._write_beat()  # the state at the end
            notice = self._beat.notice
            if detail and notice:
                detail = f"{detail}; EC2 announced: {notice}"
            self._say(f"end: {detail or 'all is done'}")
            self._end(detail, cut_off=asked or notice is not None or _ENGINE_LOST in detail)
        return not detail

    def _do(self, instance_type: str | None) -> str:
        """Fetch and run; return the first failure in a line, or nothing."""
        name = layout.part(self._part)
        place = str(self._run.place.below(name))
        content = self._run.get(name, MOST_BYTES)
        if content is None:
            raise UsageError(f"{place}: there is no such part")
        part = read(Part, place, content)
        if instance_type != part.instance_type:
            raise UsageError(
                f"this machine is {instance_type or 'of no type that it knows'}, the part {part.name} is for"
                f" {part.instance_type}"
            )
        if not part.jobs and not part.builds:
            return ""
        self._fetch(part)
        return self._harness(part)

    def _fetch(self, part: Part) -> None:
        self._cache.mkdir(parents=True, exist_ok=True)
        if part.images:
            with engine_errors(), contextlib.closing(docker.from_env(timeout=_ENGINE_S)) as client:
                for image in part.images:
                    receive.image(self._work, client, image, self._cache, self._say)
        datasets = self._home / upload.DATASETS
        leftovers.remove(datasets)
        for name, each in part.datasets.items():
            receive.dataset(self._work, each, datasets / name, self._cache, self._say)
        for key, each in part.indexes.items():
            receive.index(self._work, key, each, self._cache, self._say)
        assignment = Assignment(str(self._work.place), self._box_id, part, str(self._status_file))
        (self._home / "part.json").write_bytes(dump(assignment))

    def _harness(self, part: Part) -> str:
        """Run harness on the part to its end; return its complaint, or nothing."""
        command = [sys.executable, "-m", "harness", "run", "--launcher", self._launcher]
        command += ["--part", str(self._home / "part.json")]
        command += ["--results", str(self._home / "results"), "--cache", str(self._cache)]
        root = Path(harness.__file__).resolve().parent.parent
        variables = {**os.environ, "PYTHONPATH": str(root), "PYTHONUNBUFFERED": "1"}
        if (root / bundle.OWN_IMAGES).is_dir():
            variables["HARNESS_IMAGES"] = str(root / bundle.OWN_IMAGES)
        before, none = self._log_file.stat().st_size, subprocess.DEVNULL
        with subprocess.Popen(command, env=variables, stdin=none, stdout=self._log, stderr=self._log) as child:
            try:
                code = child.wait()
            except BaseException:
                child.terminate()
                raise
        status = self._status()
        if status and status.troubles:
            return "; ".join(status.troubles)
        if code == 0 and status and len(status.handed_over) == len(part.jobs):
            return ""
        lines = [line for line in self._log_tail(before).split("\n") if line.strip()]
        errors = [line for line in lines if line.startswith("harness: ")]
        return f"harness ended with exit code {code}: {(errors or lines or ['no word'])[-1]}"

    def _log_tail(self, start: int = 0) -> str:
        with self._log_file.open("rb") as file:
            file.seek(max(start, file.seek(0, os.SEEK_END) - _MOST_LOG_BYTES))
            return file.read(_MOST_LOG_BYTES).decode("utf-8", "replace")

    def _status(self) -> Status | None:
        try:
            return read(Status, "status", self._status_file.read_bytes())
        except (OSError, AwsError):
            return None

    def _beats(self) -> None:
        """Write beats, and the log with some of them, until the part is over."""
        with contextlib.suppress(OSError):  # the measured system comes first
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        count, until_beat = 0, 0.0
        while True:
            notice = instance_metadata.spot_notice()
            noticed = notice is not None and notice != self._beat.notice
            if noticed:
                self._beat = replace(self._beat, notice=notice)
            if noticed or until_beat <= 0:
                self._write_beat()
                if count % _LOG_EVERY == 0 or noticed:
                    self._upload_log()
                count, until_beat = count + 1, self._interval_s
            pause = min(until_beat, _NOTICE_S)
            if self._stop.wait(pause):
                return
            until_beat -= pause

    def _write_beat(self) -> None:
        if now := self._status():
            self._beat = replace(self._beat, phase=now.phase, done=now.done, total=now.total, current=now.current)
        with contextlib.suppress(AwsError):  # a beat that S3 does not take is left out
            self._box.put(layout.BEAT, dump(self._beat))

    def _say(self, text: str) -> None:
        self._log.write(f"box: {text}\n".encode("utf-8", "replace"))
        self._log.flush()

    def _upload_log(self) -> None:
        with contextlib.suppress(AwsError, OSError):  # a log that cannot be uploaded stops nothing
            self._box.put(layout.LOG, concealed(self._log_tail()).encode())

    def _end(self, detail: str, *, cut_off: bool) -> None:
        """Write how it ended; give up after ten minutes, because an idle machine costs money."""
        status = self._status()
        line = " ".join(concealed(detail).split())[:1000]
        handed_over = status.handed_over if status else ()
        end = End(self._part, self._beat.instance_id, not detail, line, handed_over, bool(detail) and cut_off)
        for _ in range(_TRIES):
            try:
                self._upload_log()
                self._box.put_new(layout.END, dump(end))
            except AwsError as error:
                self._say(f"the end could not be told: {error}")
                time.sleep(_WAIT_S)
            else:
                return


def box_id(connections: Connections) -> str:
    """Return this box's ``aws:userid``, which names the one folder where IAM lets it write."""
    with aws_errors("asking AWS for this box's id"):
        return str(connections.client("sts").get_caller_identity()["UserId"])


def _terminated(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: list[str]) -> int:
    """Run the agent with ``WORK RUN PART``; return its exit code."""
    if len(arguments) != 3:
        sys.stderr.write("harness: python -m harness.remote.worker s3://WORK RUN PART\n")
        return NOT_BEGUN
    signal.signal(signal.SIGTERM, _terminated)
    home = Path(os.environ.get(HOME_VARIABLE) or _HOME).absolute()
    try:
        home.mkdir(parents=True, exist_ok=True)
        connections = Connections()
        work = Objects(connections, parse_uri(arguments[0]))
        with (home / "log.txt").open("ab") as log:
            worker = Worker(work, box_id(connections), arguments[1], arguments[2], home, log)
            return 0 if worker.live() else 1
    except HarnessError as error:
        sys.stderr.write(f"harness: {error}\n")
        return NOT_BEGUN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

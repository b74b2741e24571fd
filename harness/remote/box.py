"""The agent of a box: ``python -m harness.remote.box s3://WORK RUN PART``.

Fetches what its part needs, has ``harness run`` do it in a process of its own, tells S3 meanwhile that it lives, and
says at the end how it went, whatever happened.  Exit code 0: all was done and handed over.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import IO

import docker

import harness
from harness import leftovers
from harness.aws import metadata, uri
from harness.aws.connections import Connections
from harness.aws.failures import concealed
from harness.aws.objects import Objects
from harness.engine import engine_errors
from harness.errors import AwsError, HarnessError, UsageError
from harness.remote import bundling, fetching, layout, toml
from harness.remote.pulse import Pulse
from harness.remote.records import MOST_BYTES, Assignment, Beat, End, Part, Status, dump, read

HOME_VARIABLE = "HARNESS_BOX_HOME"
# AWS Batch's: how often it has begun this job.
_ATTEMPT_VARIABLE = "AWS_BATCH_JOB_ATTEMPT"
_HOME = "/var/lib/harness"
_MOST_LOG_BYTES = 256 << 10
_UNKNOWN = "unknown"
# The engine may say nothing for as long while it loads an image.
_ENGINE_S = 3600
# So begins what harness says of an engine that it has lost.
_ENGINE_LOST = "the Docker engine "
# How long S3 may be out of reach when the end is to be told.
_TRIES = 60
_WAIT_S = 10.0


@dataclass(frozen=True)
class _Places:
    """Files and folders of a box."""

    home: Path

    @property
    def log(self) -> Path:
        """What the box said; user data writes to it, too."""
        return self.home / "log.txt"

    @property
    def status(self) -> Path:
        """How far the part is."""
        return self.home / "status.json"

    @property
    def cache(self) -> Path:
        """Of harness."""
        return self.home / "cache"

    @property
    def suite(self) -> Path:
        """The suite's folder, with the datasets beside the file."""
        return self.home / "suite"


class Box:
    """One box, which does one part."""

    def __init__(
        self, work: Objects, run_id: str, part: str, home: Path, log: IO[bytes], launcher: str = "docker"
    ) -> None:
        self._work = work
        self._run = work.below(layout.run(run_id))
        self._part = part
        self._places = _Places(home)
        self._log = log
        self._launcher = launcher
        self._instance_id = _UNKNOWN

    def live(self) -> bool:
        """Do the part; whether all of it was done.  Nothing that goes wrong is left untold."""
        self._places.status.unlink(missing_ok=True)
        found = metadata.instance()
        self._instance_id = found.instance_id if found else _UNKNOWN
        detail, told = "the agent was ended", False
        first = Beat(self._part, self._instance_id, "fetching")
        pulse = Pulse(self._run, first, self._look, self._upload_log)
        try:
            with pulse:
                detail = self._do(found.instance_type if found else None)
        except HarnessError as error:
            detail = str(error)
        except KeyboardInterrupt:
            detail, told = "the agent was told to end", True
        except Exception as error:
            detail = f"the agent failed: {type(error).__name__}: {error}"
            raise
        finally:
            if detail and pulse.notice:
                detail = f"{detail}; EC2 announced: {pulse.notice}"
            self._say(f"end: {detail or 'all is done'}")
            self._end(detail, cut_off=told or pulse.notice is not None or _ENGINE_LOST in detail)
        return not detail

    def _do(self, instance_type: str | None) -> str:
        """Fetch, then run; what went wrong, in a line, or nothing."""
        content = self._run.get(layout.part(self._part), MOST_BYTES)
        if content is None:
            raise UsageError(f"{self._run.place.below(layout.part(self._part))}: there is no such part")
        part = read(Part, str(self._run.place.below(layout.part(self._part))), content)
        if instance_type != part.instance_type:
            raise UsageError(
                f"this machine is {instance_type or 'of no type that it knows'}, the part {part.name} is for"
                f" {part.instance_type}"
            )
        # AWS Batch begins a part again whose host was lost.
        there = {each.name for each in self._run.list(f"{layout.JOBS}/")}
        part = replace(part, jobs=tuple(job for job in part.jobs if layout.job(job.key) not in there))
        if not part.jobs and not part.builds:
            return ""
        self._fetch(part)
        return self._harness(part)

    def _fetch(self, part: Part) -> None:
        places = self._places
        places.cache.mkdir(parents=True, exist_ok=True)
        if part.images:
            with engine_errors(), contextlib.closing(docker.from_env(timeout=_ENGINE_S)) as client:
                for shipped in part.images:
                    fetching.image(self._work, client, shipped, places.cache, self._say)
        leftovers.remove(places.suite)
        places.suite.mkdir(parents=True)
        for name, each in part.datasets.items():
            fetching.dataset(self._work, each, places.suite / name, places.cache, self._say)
        for key, each in part.indexes.items():
            fetching.index(self._work, key, each, places.cache, self._say)
        (places.suite / "suite.toml").write_text(toml.dumps(suite_of(part)), encoding="utf-8")
        assignment = Assignment(str(self._work.place), part, str(places.status))
        (places.home / "part.json").write_bytes(dump(assignment))

    def _harness(self, part: Part) -> str:
        """Run harness on the part to its end; what it complains of."""
        places = self._places
        command = [sys.executable, "-m", "harness", "run", str(places.suite / "suite.toml")]
        command += [
            "--launcher",
            self._launcher,
            "--part",
            str(places.home / "part.json"),
            "--results",
            str(places.home / "results"),
        ]
        command += ["--cache", str(places.cache)]
        before = self._places.log.stat().st_size
        with _child(command, environment(os.environ), self._log) as child:
            code = child.wait()
        status = self._status()
        if status and status.troubles:
            return "; ".join(status.troubles)
        if code == 0 and status and len(status.handed_over) == len(part.jobs):
            return ""
        return f"harness ended with exit code {code}: {self._last_line(before)}"

    def _last_line(self, start: int) -> str:
        """What the child said last: its error, in one line."""
        with self._places.log.open("rb") as file:
            file.seek(max(start, file.seek(0, os.SEEK_END) - _MOST_LOG_BYTES))
            lines = file.read().decode("utf-8", "replace").split("\n")
        said = [line for line in lines if line.strip()]
        return next((line for line in reversed(said) if line.startswith("harness: ")), said[-1] if said else "no word")

    def _status(self) -> Status | None:
        try:
            return read(Status, "status", self._places.status.read_bytes())
        except (OSError, AwsError):
            return None

    def _look(self, beat: Beat) -> Beat:
        """The beat of now."""
        status = self._status()
        if status is None:
            return beat
        return replace(beat, phase=status.phase, done=status.done, total=status.total, current=status.current)

    def _say(self, text: str) -> None:
        self._log.write(f"box: {text}\n".encode("utf-8", "replace"))
        self._log.flush()

    def _upload_log(self) -> None:
        """Bring the end of the log to S3; that it cannot be is no reason to stop."""
        with contextlib.suppress(AwsError, OSError), self._places.log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _MOST_LOG_BYTES))
            text = file.read(_MOST_LOG_BYTES).decode("utf-8", "replace")
            self._run.put(layout.log(self._part), concealed(text).encode())

    def _end(self, detail: str, *, cut_off: bool) -> None:
        """Tell how it ended; nobody waits for long for a machine that can tell nobody."""
        status = self._status()
        handed_over = status.handed_over if status else ()
        told = " ".join(concealed(detail).split())[:1000]
        end = End(self._part, self._instance_id, not detail, told, handed_over, bool(detail) and cut_off)
        said = os.environ.get(_ATTEMPT_VARIABLE, "1")
        name = layout.end(self._part, int(said) if said.isdecimal() else 1)
        for _ in range(_TRIES):
            try:
                self._upload_log()
                self._run.put_new(name, dump(end))
            except AwsError as error:
                self._say(f"the end could not be told: {error}")
                time.sleep(_WAIT_S)
            else:
                return


def suite_of(part: Part) -> dict[str, object]:
    """The suite's content with the datasets that were sent along, which lie beside the file."""
    from harness.suite import dataset_name

    # The overhead is measured on the first dataset of all: those that are left stand in their order.
    names = [name for name in map(dataset_name, part.suite.get("datasets", ())) if name in part.datasets]
    return {**part.suite, "datasets": [f"./{name}" for name in dict.fromkeys(names)]}


def environment(usual: Mapping[str, str]) -> dict[str, str]:
    """What the child sees: this very harness, and the engines that came with it."""
    bundle = Path(harness.__file__).resolve().parent.parent
    found = {**usual, "PYTHONPATH": str(bundle), "PYTHONUNBUFFERED": "1"}
    own = bundle / bundling.OWN_IMAGES
    return {**found, "HARNESS_IMAGES": str(own)} if own.is_dir() else found


@contextlib.contextmanager
def _child(command: list[str], variables: dict[str, str], log: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose end is waited for, and which is asked to end where we are."""
    with subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as child:
        try:
            yield child
        except BaseException:
            child.send_signal(signal.SIGTERM)
            raise


def _terminated(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: list[str]) -> int:
    """``WORK RUN PART``; the exit code."""
    if len(arguments) != 3:
        sys.stderr.write("harness: python -m harness.remote.box s3://WORK RUN PART\n")
        return 2
    signal.signal(signal.SIGTERM, _terminated)
    home = Path(os.environ.get(HOME_VARIABLE) or _HOME).absolute()
    try:
        home.mkdir(parents=True, exist_ok=True)
        work = Objects(Connections(), uri.parse(arguments[0]))
        with (home / "log.txt").open("ab") as log:
            return 0 if Box(work, arguments[1], arguments[2], home, log).live() else 1
    except HarnessError as error:
        sys.stderr.write(f"harness: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The gate of a job without an engine: a shell in the job's own cgroup, which starts the job when it is told to.

It tells its process id and CPUs before the job starts, so that the harness can move aside.  It stays until the harness
has read the cgroup's last counters, because the cgroup goes with its last process.  A closed input kills the job, so no
job outlives its harness.  The job ignores SIGINT and SIGQUIT, as shells start all that runs in the background.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from harness import child_process
from harness.driver.procfs import format_list, parse_list
from harness.launch.base import LOG_BYTES

# What a scheduler may take to start a step on a node that is busy with the end of another.
START_S = 120.0
_END_S = 15.0
_KILL_S = 60.0
_CHUNK = 1 << 16
_MOST_WORDS = 64 << 10
# Arguments: the file for the job's output, blocks of its largest file (0: any), and the job.
_SHELL = r"""
log=$1 most=$2; shift 2
exec 3<&0 </dev/null
echo "harness-gate $$ $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "/proc/$$/status")"
read -r cpus <&3 || exit 1
taskset -pc "$cpus" $$ >/dev/null || exit 1
ulimit -c 0
[ "$most" = 0 ] || ulimit -f "$most"
setsid "$@" >"$log" 2>&1 3<&- & job=$!
{ read -r _ <&3; kill -s KILL -- "-$job" "$job"; } >/dev/null 2>&1 & guard=$!
wait "$job"; code=$?
kill "$guard" 2>/dev/null
echo "$code"
read -r _ <&3
"""
_HELLO = "harness-gate "


class GateClosed(Exception):
    """The shell did not start: the words of the command that should have started it."""


class Gate:
    """One job behind its gate, in a ``with`` block.

    Args:
        folder: an empty one on a local disk.
        holder: the command that runs another one inside the limits (``srun ...``); empty: none.
        job: the job's command.
        environment: of both.
        most_bytes: of each file that the job writes; None: any.

    Raises:
        GateClosed: it did not start.
    """

    def __init__(
        self,
        folder: Path,
        holder: Sequence[str],
        job: Sequence[str],
        environment: Mapping[str, str],
        *,
        most_bytes: int | None = None,
    ) -> None:
        self.ended = threading.Event()
        self.code: int | None = None
        self._pipe, self._errors = folder / "log", folder / "errors"
        os.mkfifo(self._pipe, 0o600)
        blocks = -(-(most_bytes or 0) // 512)  # as `ulimit -f` counts
        shell = ("sh", "-c", _SHELL, "gate", str(self._pipe), str(blocks))
        self._command = child_process.ends_with_us([*holder, *shell, *job])
        self._environment = dict(environment)
        self._log = bytearray()
        self._log_thread = threading.Thread(target=self._read_log, name="gate-log", daemon=True)
        self._log_thread.start()
        self._hello, self._words = threading.Event(), ""

    def __enter__(self) -> Self:
        with self._errors.open("wb") as errors:
            self._child = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C at the terminal reaches the harness alone
            )
        assert self._child.stdin and self._child.stdout
        self._input, self._output = self._child.stdin, self._child.stdout
        try:
            threading.Thread(target=self._follow, name="gate", daemon=True).start()
            self._hello.wait(START_S)
            pid, _, cpus = self._words.partition(" ")
            if not pid.isdigit() or not parse_list(cpus):
                raise GateClosed(self.words() or f"it did not start within {START_S:g} s")
            self.pid, self.cpus = int(pid), set(parse_list(cpus))
        except BaseException:
            self.__exit__()
            raise
        return self

    def open(self, cpus: Sequence[int]) -> None:
        """Start the job on these of its CPUs."""
        self._tell(format_list(cpus))

    def kill(self) -> None:
        """Kill the job with all its processes; the gate stays, unless the kernel does not end the job in time."""
        self._tell("end")
        if not self.ended.wait(_KILL_S):
            self._child.terminate()

    def result(self) -> int | None:
        """Wait for the job's end; return its exit code, None if the gate went with it."""
        self.ended.wait()
        return self.code

    def log(self) -> bytes:
        """Return the last output of the job, which has ended."""
        self._log_thread.join(_END_S)
        return bytes(self._log[-LOG_BYTES:])

    def words(self) -> str:
        """Return what the holder has said on its error output."""
        with self._errors.open("rb") as file:
            return file.read(_MOST_WORDS).decode("utf-8", "replace").strip()

    def _tell(self, word: str) -> None:
        with contextlib.suppress(OSError):  # it is gone
            self._input.write(f"{word}\n".encode())
            self._input.flush()

    def _follow(self) -> None:
        """Read the gate's two lines: its id and CPUs, and the exit code of the job."""
        # A site's own programs may print before.
        while (line := _line(self._output)) and not line.startswith(_HELLO):
            pass
        self._words = line.removeprefix(_HELLO)
        if self._words:
            self._hello.set()
        code = _line(self._output)
        self.code = int(code) if code.isdigit() else None
        if self.code is None:  # the gate is gone: its holder knows why, and says it as it ends
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(_END_S)
        self.ended.set()
        self._hello.set()

    def _read_log(self) -> None:
        with contextlib.suppress(OSError), self._pipe.open("rb", buffering=0) as pipe:
            while chunk := pipe.read(_CHUNK):
                self._log += chunk
                if len(self._log) > 2 * LOG_BYTES:  # moved now and then, not at each chunk
                    del self._log[:-LOG_BYTES]

    def __exit__(self, *_raised: object) -> None:
        """End the shell and its holder, which kills a job that still runs."""
        with contextlib.suppress(OSError):
            self._input.close()
        for end in (None, self._child.terminate, self._child.kill):
            if end:
                end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(_END_S)
                break
        self.ended.wait(_END_S)  # its reader sees the end
        self._output.close()
        with contextlib.suppress(OSError):  # a job that never started: its reader still waits for a writer
            os.close(os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK))


def _line(file: IO[bytes]) -> str:
    """Return a line with its end removed; empty: there is none."""
    line = file.readline(_CHUNK).decode("ascii", "replace")
    return line.strip() or " " * bool(line)

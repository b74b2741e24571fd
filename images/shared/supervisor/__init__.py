"""Several servers in one container: the first process starts them, hands on the signal to end, and ends with them."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence

# The host waits longer for a container that it has asked to end (harness/launch/service.py).
_GRACE_S = 100.0
_ASKED = (signal.SIGTERM, signal.SIGINT)
_WATCHED = (*_ASKED, signal.SIGCHLD)
# Of a server that was asked to end: its own, or the signal's.
_ENDED_WELL = (0, 128 + signal.SIGTERM, 128 + signal.SIGINT)


def command(commands: Sequence[Sequence[str]], stops: Mapping[int, str] | None = None) -> list[str]:
    """Return the command that runs some commands side by side, for an engine's ``service.py``; see :func:`run`."""
    words = [sys.executable, "-m", "supervisor", json.dumps([list(map(str, words)) for words in commands])]
    numbers = {place: signal.Signals[name] for place, name in (stops or {}).items()}
    return [*words, json.dumps(numbers)] if numbers else words


def run(commands: Sequence[Sequence[str]], grace_s: float = _GRACE_S, stops: Mapping[int, int] | None = None) -> int:
    """Start commands, wait for all of them, and return an exit code; meant for the first process of a container.

    SIGTERM and SIGINT go on to each command.  When the first command ends, the others get SIGTERM; what is still there
    after ``grace_s`` is killed.  Processes that have lost their parents are reaped.

    Args:
        stops: the signal that ends a command in good order, by the command's place, where that is not SIGTERM.

    Returns:
        The exit code of the first command that ended (128 and the signal, where a signal ended it).  Where all were
        asked to end: 0 or the signal's code, unless one of them failed; then its code.
    """
    # Blocked signals wait for sigtimedwait, even those that a container's first process would never get.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    try:
        return _Group(grace_s, stops or {}).run(commands)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Group:
    """The running commands."""

    def __init__(self, grace_s: float, stops: Mapping[int, int]) -> None:
        self._grace_s = grace_s
        self._stops = stops
        self._running: dict[int, int] = {}  # by process, the signal that ends it
        self._codes: list[int] = []  # in the order of their ends
        self._asked = False

    def run(self, commands: Sequence[Sequence[str]]) -> int:
        """See :func:`run`."""
        for place, words in enumerate(commands):
            try:
                pid = os.posix_spawnp(words[0], words, os.environ, setsigmask=(), setsigdef=_ASKED)
            except OSError as error:
                print(f"{words[0]} does not start: {error.strerror}", file=sys.stderr)
                self._codes.append(127)
                break
            self._running[pid] = self._stops.get(place, signal.SIGTERM)
        if self._codes:
            self._send(signal.SIGTERM)
        while self._running:
            ending = bool(self._codes) or self._asked
            got = signal.sigtimedwait(_WATCHED, self._grace_s if ending else 1e9)
            if got is None:
                self._send(signal.SIGKILL)
            elif got.si_signo in _ASKED:
                self._asked = self._asked or not self._codes
                self._send(got.si_signo)
            else:
                self._reap()
        failed = [code for code in self._codes if code not in _ENDED_WELL]
        return failed[0] if self._asked and failed else self._codes[0]

    def _reap(self) -> None:
        """Take the exit codes of all that has ended; the first end of a command ends the others."""
        first = not self._codes
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            if pid in self._running:  # else an orphan that became this process's child
                del self._running[pid]
                code = os.waitstatus_to_exitcode(status)
                self._codes.append(code if code >= 0 else 128 - code)
        if first and self._codes and not self._asked:
            self._send(signal.SIGTERM)

    def _send(self, number: int) -> None:
        for pid, stop in self._running.items():
            os.kill(
                pid, stop if number == signal.SIGTERM else number
            )  # an ended one is not reaped yet, so its number is still its own

"""Runs in a container: imports an engine once, then runs each script that is asked for in a fork of itself.

``python3 forks.py SOCKET LINES``: ``LINES`` of Python import the engine.  Whoever connects has ``/job/probe.py`` run
with its output, and then a line ``ended CODE``.
Standard library only.
"""

from __future__ import annotations

import contextlib
import gc
import os
import runpy
import shutil
import signal
import socket
import sys
import traceback
from pathlib import Path

SCRIPT = "/job/probe.py"
# What a script may write to; it is emptied after each.
PLACES = ("/index", "/tmp")
LIMIT_S = 900
# Nobody asked for so long: the tests were killed.
IDLE_S = 1200


def main() -> None:
    """Serve requests until none comes for ``IDLE_S``."""
    path, lines = sys.argv[1:]
    exec(lines, {})
    gc.collect()
    gc.freeze()  # the forks' collector leaves these pages shared
    with socket.socket(socket.AF_UNIX) as listening:
        fresh = Path(f"{path}.new")
        listening.bind(str(fresh))
        fresh.chmod(0o777)
        listening.listen()
        fresh.rename(path)  # whoever sees it is answered
        listening.settimeout(IDLE_S)
        while True:
            try:
                asker, _ = listening.accept()
            except TimeoutError:
                return
            with asker:
                asker.settimeout(None)
                serve(asker)


def serve(asker: socket.socket) -> None:
    """Run the script once and kill its leftover processes."""
    child = os.fork()
    if not child:
        run(asker)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    for place in PLACES:
        for left in Path(place).iterdir():
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
    asker.sendall(f"\nended {os.waitstatus_to_exitcode(status)}\n".encode())


def run(asker: socket.socket) -> None:
    """In the fork: the script, with its output going to the asker."""
    os.setsid()
    signal.alarm(LIMIT_S)
    os.dup2(asker.fileno(), 1)
    os.dup2(asker.fileno(), 2)
    code = 1
    try:
        sys.path.insert(0, "/job")
        runpy.run_path(SCRIPT, run_name="__main__")
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it is, the asker reads it
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()

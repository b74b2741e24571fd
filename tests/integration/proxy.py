"""A Unix socket before the engine's own, whose connections a test can cut.

``python proxy.py TARGET PATH`` passes on what is said at ``PATH``; its end cuts all connections at once.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path


class Proxy:
    """Passes on whatever is said, until it is cut."""

    def __init__(self) -> None:
        self._target = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
        # A folder of its own: a socket's path may be 107 bytes long, and pytest's are longer.
        self.path = Path(tempfile.mkdtemp(prefix="proxy-")) / "s"
        self.url = f"unix://{self.path}"  # for ``DOCKER_HOST``
        self.open()

    def open(self) -> None:
        """Take connections."""
        self._process = subprocess.Popen([sys.executable, __file__, self._target, str(self.path)])
        wait_until(self.path.exists, "the proxy takes connections")

    def cut(self) -> None:
        """End all connections at once and refuse new ones."""
        self._process.kill()
        self._process.wait()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Cut, and leave nothing."""
        self.cut()
        shutil.rmtree(self.path.parent)


def _serve(target: str, path: str) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"{path}.new")
    listening.listen()
    Path(f"{path}.new").rename(path)
    while True:
        client, _ = listening.accept()
        engine = socket.socket(socket.AF_UNIX)
        engine.connect(target)
        threading.Thread(target=_pump, args=(client, engine), daemon=True).start()


def _pump(client: socket.socket, engine: socket.socket) -> None:
    """Pass on both ways until one side has said all, or is cut."""
    with client, engine, selectors.DefaultSelector() as ready, contextlib.suppress(OSError):
        ready.register(client, selectors.EVENT_READ, engine)
        ready.register(engine, selectors.EVENT_READ, client)
        while True:
            for key, _ in ready.select():
                source = key.fileobj
                assert isinstance(source, socket.socket)
                said = source.recv(1 << 16)
                if not said:
                    return
                key.data.sendall(said)


def wait_until(happened: object, what: str, *, limit_s: float = 120) -> None:
    """Poll until a condition holds."""
    assert callable(happened)
    deadline = time.monotonic() + limit_s
    while not happened():
        assert time.monotonic() < deadline, f"{what}: not within {limit_s:g} s"
        time.sleep(0.1)  # each look at the engine takes some CPU of its own and of ours


if __name__ == "__main__":
    _serve(*sys.argv[1:])

"""A Unix socket before the engine's own, whose connections a test can cut."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import socket
import tempfile
import threading
import time
from pathlib import Path


class Proxy:
    """Passes on whatever is said, until it is cut."""

    def __init__(self) -> None:
        self._target = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
        # A folder of its own: a socket's path may be 107 bytes long, and pytest's are longer.
        self._folder = Path(tempfile.mkdtemp(prefix="proxy-"))
        self.path = self._folder / "s"
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self.open()

    @property
    def url(self) -> str:
        """For ``DOCKER_HOST``."""
        return f"unix://{self.path}"

    def open(self) -> None:
        """Take connections."""
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(self.path))
        listening.listen()
        with self._lock:
            self._listening: socket.socket | None = listening
        threading.Thread(target=self._accept, args=(listening,), daemon=True).start()

    def cut(self) -> None:
        """End all connections at once and refuse new ones."""
        with self._lock:
            listening, self._listening = self._listening, None
            pairs, self._pairs = self._pairs, []
        if listening is not None:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()
        self.path.unlink(missing_ok=True)
        for each in (end for pair in pairs for end in pair):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Cut, and leave nothing."""
        self.cut()
        shutil.rmtree(self._folder)

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return  # cut
            engine = socket.socket(socket.AF_UNIX)
            engine.connect(self._target)
            with self._lock:
                open_still = self._listening is listening
                if open_still:
                    self._pairs.append((client, engine))
            if not open_still:  # it came in while the others were cut, and would have outlived them
                client.close()
                engine.close()
                return
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
        time.sleep(0.02)

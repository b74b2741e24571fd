"""An engine that attacks whoever measures it.  ``attacks`` names one for each trial, each trial being a fresh process.

An attack runs in the fourth search.  Where it returns None the search goes on as if nothing had happened.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from harness.driver import envelope
from harness.driver.adapter import Adapter, Corpus
from harness.driver.records import Hit, Measurement, Outcome, to_json

JOB, INDEX, CORPUS = Path("/job"), Path("/index"), Path("/corpus")
OUT = JOB / "out"
SAMPLES, EVENTS, MEASUREMENT = OUT / "samples.jsonl", OUT / "events.jsonl", OUT / "measurement.json"
FIRST = 3


class Hostile(Adapter):
    """Answers every query with the same documents, until it strikes."""

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Keep the ids."""
        (index_dir / "ids.json").write_text(json.dumps([document.doc_id for document in corpus]), encoding="utf-8")

    def load(self, index_dir: Path) -> None:
        """Learn which attack is due."""
        self._ids = json.loads((index_dir / "ids.json").read_text(encoding="utf-8"))
        self._searches = 0
        trial = json.loads((JOB / "spec.json").read_text(encoding="utf-8"))["first_trial"]
        self._attack = ATTACKS[str(self.params["attacks"]).split()[trial]]

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """The first k documents."""
        self._searches += 1
        struck = self._attack() if self._searches == FIRST + 1 else None
        return [Hit(doc_id, -float(rank)) for rank, doc_id in enumerate(self._ids[:k])] if struck is None else struck

    def threads(self) -> dict[str, int]:
        """One."""
        return {}

    def libraries(self) -> dict[str, str]:
        """Python is all there is."""
        return {"python": sys.version.split()[0]}


def leave(text: str | None = None, **claims: Any) -> NoReturn:
    """Write a measurement, good but for these claims or with that text, and end well before anyone can look."""
    good = Measurement(Outcome.OK, None, envelope.read(), load_s=0.001)
    made = json.dumps({**json.loads(to_json(good)), **claims}) if text is None else text
    MEASUREMENT.write_text(made, encoding="utf-8")
    os._exit(0)


def instead(path: Path, made: Callable[[Path], object]) -> None:
    """Put something else where a file was."""
    path.unlink(missing_ok=True)
    made(path)


def linked_samples() -> NoReturn:
    """Have the host read a file of its own."""
    instead(SAMPLES, lambda path: path.symlink_to("/etc/passwd"))
    leave()


def linked_events() -> NoReturn:
    """Have the host read without end."""
    instead(EVENTS, lambda path: path.symlink_to("/dev/zero"))
    time.sleep(0.5)
    leave()


def piped_measurement() -> NoReturn:
    """Have the host wait for ever."""
    instead(MEASUREMENT, os.mkfifo)
    os._exit(0)


def linked_measurement() -> NoReturn:
    """Have the host follow a way out of the folder."""
    instead(MEASUREMENT, lambda path: path.symlink_to("../../../../../../../../etc/passwd"))
    os._exit(0)


def odd_names() -> NoReturn:
    """Names that mean something to whoever lists or removes them."""
    (OUT / "result.json").mkdir()
    (OUT / "a\nb\x1b[2J").write_text("x", encoding="utf-8")
    (OUT / "-rf").touch()
    (OUT / "..\n").mkdir()
    Path(os.fsdecode(os.fsencode(OUT) + b"/\xff\xfe")).touch()
    (OUT / "up").symlink_to("../../../../..")
    (OUT / "root").symlink_to("/")
    closed = OUT / "closed" / "inside"
    closed.mkdir(parents=True)
    (closed / "file").touch()
    closed.chmod(0)
    closed.parent.chmod(0)
    leave()


def deep_folders() -> NoReturn:
    """More levels than a recursive walk can take, and than a path can name."""
    os.chdir(OUT)
    for _ in range(2500):
        Path("d").mkdir()
        os.chdir("d")
    time.sleep(5)  # until it is seen, and ended
    os.chdir(OUT)
    leave()


def deep_events() -> None:
    """Nested JSON for whoever follows the job."""
    with EVENTS.open("ab") as file:
        file.write(b"[" * 100_000 + b"\n" + b'{"phase":' * 100_000 + b"\n")


def many_lines() -> NoReturn:
    """Ten million lines of samples."""
    line = b'{"trial":0,"query_id":"q0","latency_ns":5,"stages_ns":{},"hits":[]}\n'
    with SAMPLES.open("ab", buffering=0) as file:
        for _ in range(1000):
            file.write(line * 10_000)
    leave()


def long_line() -> NoReturn:
    """Ten million hits in one line of samples."""
    with SAMPLES.open("ab", buffering=0) as file:
        file.write(b'{"trial":0,"query_id":"q0","latency_ns":5,"stages_ns":{},"hits":[')
        for _ in range(1000):
            file.write(b'["d0",1.0],' * 10_000)
    leave()


def deep_samples() -> NoReturn:
    """Nested JSON where a sample should be."""
    SAMPLES.write_bytes(b"[" * 100_000 + b"\n")
    leave()


def many_pauses() -> None:
    """A million requests to look at the machine."""
    with EVENTS.open("ab", buffering=0) as file:
        for start in range(0, 1_000_000, 100_000):
            file.write(b"".join(b'{"pause":%d}\n' % number for number in range(start, start + 100_000)))


def same_pause() -> None:
    """The same request a million times."""
    with EVENTS.open("ab", buffering=0) as file:
        for _ in range(10):
            file.write(b'{"pause":1}\n' * 100_000)


def flood() -> NoReturn:
    """As much log as goes through."""
    while True:
        os.write(1, b"x" * 65535 + b"\n")


def log(size: int) -> None:
    """So many bytes of log, then on as if nothing had been; the last line says that all of it went through."""
    block, written = b"x" * ((1 << 20) - 1) + b"\n", 0
    while written < size:
        written += os.write(1 + (written >> 20) % 2, block)
    os.write(1, b"logged %d bytes\n" % written)


def deaf() -> NoReturn:
    """Process 1 that hears no plea, and leaves its session and the parent whose end would be its own."""
    with contextlib.suppress(OSError):
        os.setsid()
    ctypes.CDLL(None).prctl(1, 0)  # PR_SET_PDEATHSIG
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(each, signal.SIG_IGN)
    while True:
        time.sleep(1)


def fork_bomb() -> NoReturn:
    """Every child makes children."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        with contextlib.suppress(OSError):
            os.fork()


def memory_bomb() -> NoReturn:
    """All the memory there is."""
    held = []
    while True:
        held.append(bytearray(b"x") * (16 << 20))


def shared_memory_bomb() -> NoReturn:
    """The same through files that are memory."""
    number = 0
    while True:
        Path(f"/dev/shm/{number}").write_bytes(b"x" * (8 << 20))
        number += 1


def network() -> None:
    """Reach anybody: the world, the host, the engine."""
    reached = []
    for address in (("192.0.2.1", 80), ("172.17.0.1", 22), ("8.8.8.8", 53)):
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=1):
            reached.append(str(address))
    reached += [path for path in ("/var/run/docker.sock", "/run/docker.sock") if Path(path).exists()]
    if reached:
        raise RuntimeError(f"reached {reached}")
    raise RuntimeError("reached nobody")


def write_elsewhere() -> None:
    """Write wherever a mount leads, and where the interpreter or the host may read it back."""
    places = [JOB / "spec.json", JOB / "go-1", JOB / "x", INDEX / "ids.json", INDEX / "x", CORPUS / "corpus.jsonl"]
    places += [CORPUS / "x", Path("/opt/adapter/adapter.py"), Path("/opt/harness/x"), Path("/etc/passwd"), Path("/x")]
    places += [OUT / "../x", OUT / "../../x", Path("/proc/sys/kernel/core_pattern"), Path("/sys/fs/cgroup/x")]
    written = []
    for place in places:
        with contextlib.suppress(OSError), place.open("ab") as file:
            file.write(b"x")
            written.append(str(place))
    for act in (lambda: os.chown(OUT, 0, 0), lambda: os.setuid(0), lambda: os.link(CORPUS / "corpus.jsonl", OUT / "l")):
        with contextlib.suppress(OSError):
            act()
            written.append("a deed that needs more rights")
    raise RuntimeError(f"written: {written}")


NUMBERS = {
    "nan": "NaN",
    "infinity": "Infinity",
    "too_large": "1e400",
    "endless": "9" * 100_000,
    "negative": "-1",
}

ATTACKS: dict[str, Callable[[], Sequence[Hit] | None]] = {
    "none": lambda: None,
    "linked_samples": linked_samples,
    "linked_events": linked_events,
    "piped_measurement": piped_measurement,
    "linked_measurement": linked_measurement,
    "odd_names": odd_names,
    "deep_folders": deep_folders,
    "deep_measurement": lambda: leave("[" * 100_000),
    "deep_inside": lambda: leave('{"outcome":' + '{"a":' * 100_000),
    "deep_samples": deep_samples,
    "deep_events": deep_events,
    "many_lines": many_lines,
    "long_line": long_line,
    "many_hits": lambda: [Hit("d0", 1.0)] * 10_000_000,
    "many_pauses": many_pauses,
    "same_pause": same_pause,
    "flood": flood,
    "log_of_50_mib": lambda: log(50 << 20),
    "deaf": deaf,
    "fork_bomb": fork_bomb,
    "memory_bomb": memory_bomb,
    "shared_memory_bomb": shared_memory_bomb,
    "network": network,
    "write_elsewhere": write_elsewhere,
    "escapes": lambda: leave(outcome="crash", detail="\x1b[2J\x1b]0;owned\x07\nharness: all is well\n" * 1000),
    **{
        f"number_{name}": lambda text=text: leave(
            to_json(Measurement(Outcome.OK, None, envelope.read(), load_s=0.5)).replace(
                '"load_s": 0.5', f'"load_s": {text}'
            )
        )
        for name, text in NUMBERS.items()
    },
}

ENGINE = Hostile

"""The system that does what its parameters say: planted times, memory and faults, to hold reports against.

All parameters are optional.

=====================  =============================================================================================
``service_ms``         how long a search takes; with ``sigma`` the median of a lognormal distribution whose quantile
                       number the query text carries (its last word, between 0 and 1)
``how``                ``spin`` (default), ``sleep``, ``child`` (a child process spins, asked over a pipe), or
                       ``threads`` (``workers`` threads at once, of which no one is told), or ``burn`` (each of
                       ``workers`` threads takes ``burn_ms`` of CPU time by its own clock, then all rest ``service_ms``)
``us_per_document``    a search takes that much longer for each document of the index
``slow_first``         that many searches are slower: ``slow_factor`` times at first, falling evenly to once
``drift``              factor from one trial to the next; with ``ranking = "trial"`` the ranking turns with each trial
``lead``, ``sample``   searches before the first trial, and in each: a trial is told by counting
``ranking``            ``trial``, or ``process``: another ranking in each container
``cache``              a query text that was answered before costs nothing
``stall_at``           the search (from 0) that takes ``stall_s`` longer
``batch_ms``           how long a batch takes, whatever its size
``hold_mib``           anonymous memory, touched in ``load``; ``hold_in = "child"``: a child process holds it
``kib_per_document``   anonymous memory for each document, as well
``touch_file``         map the index' file and read each of its pages; false: map it and read none
``touch_per_query``    pages of that file that each search reads first, at random; what that takes comes on top
``leak_kib``           anonymous memory that each search leaves behind
``fault``, ``at``      what goes wrong in which search (from 0): see ``_FAULTS``
``lie``                how the adapter tries to be timed as faster than it is: see ``_LIES``
``threads_said``       what ``threads()`` says
``file_mib``           (build) size of the file in the index
=====================  =============================================================================================
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import math
import mmap
import os
import queue
import random
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter_ns  # by name: a lie replaces the module's own
from typing import Any

from harness.driver.adapter import Adapter, Corpus
from harness.driver.records import Hit

_JOB = Path(os.environ.get("HARNESS_JOB", "/job"))
_FILE = "mapped.bin"
_PAGE = mmap.PAGESIZE
_MIB = 1 << 20
# hashlib lets go of the interpreter's lock for buffers of this size, so that threads really run at once.
_BUFFER = bytes(64 << 10)


class Calibration(Adapter):
    """See the module's text."""

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Keep the ids, and a file to map."""
        ids = [document.doc_id for document in corpus]
        (index_dir / "ids.json").write_text(json.dumps(ids), encoding="utf-8")
        with (index_dir / _FILE).open("wb") as file:
            for _ in range(int(self.params.get("file_mib", 0))):
                file.write(os.urandom(_MIB))  # no file system stores these as a hole
        progress(len(ids))

    def load(self, index_dir: Path) -> None:
        """Take the memory, start the workers."""
        ids = json.loads((index_dir / "ids.json").read_text(encoding="utf-8"))
        if self.params.get("ranking") == "process":
            # Shuffled, and not turned by so many places: two processes would turn alike one time in twenty.
            random.SystemRandom().shuffle(ids)
        self._hits = [Hit(doc_id, float(-rank)) for rank, doc_id in enumerate(ids)]
        self._searches = 0
        self._elapsed_ns = 0
        self._seen: set[str] = set()
        self._leaked: list[bytes] = []
        workers, burn_ns = int(self.params.get("workers", 1)), round(float(self.params.get("burn_ms", 0)) * 1e6)
        self._spend = _spender(str(self.params.get("how", "spin")), workers, burn_ns)
        self._memory = self._take_memory(index_dir)
        if "sigma" in self.params:
            from statistics import NormalDist

            self._quantile = NormalDist().inv_cdf
        if "lie" in self.params:
            _LIES[str(self.params["lie"])](self)

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Take the planted time; the deadline counts from this very line, so that what comes here is part of it."""
        for _ in range(int(self.params.get("touch_per_query", 0))):
            self._mapped[self._chance.randrange(len(self._mapped) // _PAGE) * _PAGE]
        start_ns = perf_counter_ns()
        number, self._searches = self._searches, self._searches + 1
        if self.params.get("leak_kib"):
            self._leaked.append(b"x" * (int(self.params["leak_kib"]) << 10))
        answer = self._answer(number, k)
        if number == self.params.get("at") and "fault" in self.params:
            return _FAULTS[str(self.params["fault"])](answer)
        self._spend(start_ns, start_ns + self._service_ns(query, number))
        self._elapsed_ns = perf_counter_ns() - start_ns
        return answer

    def search_batch(self, queries: Sequence[str], k: int) -> Sequence[Sequence[Hit]]:
        """Take the planted time of a batch."""
        start_ns = perf_counter_ns()
        answers = [self._answer(self._searches, k) for _ in queries]
        self._spend(start_ns, start_ns + round(float(self.params.get("batch_ms", 0)) * 1e6))
        self._elapsed_ns = perf_counter_ns() - start_ns
        return answers

    def stages_s(self) -> dict[str, float]:
        """Return the last search's time by this side's own clock, the true length of a sleep."""
        return {"planted": self._elapsed_ns / 1e9}

    def threads(self) -> dict[str, int]:
        """Return the injected thread counts."""
        return {"python": int(self.params.get("threads_said", 1))}

    def libraries(self) -> dict[str, str]:
        """Python is all there is."""
        return {"python": sys.version.split()[0]}

    def close(self) -> None:
        """Write better samples than were measured, where that is planted."""
        if self.params.get("lie") == "samples":
            path = _JOB / "out" / "samples.jsonl"
            samples = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            better = [json.dumps({**sample, "latency_ns": 1000}) + "\n" for sample in samples]
            path.write_text("".join(better), encoding="utf-8")

    def answer_ahead(self, queries: list[dict[str, str]]) -> None:
        """Compute the answers of these queries now; with ``cache`` they then cost nothing."""
        for query in queries:
            self.search(query["text"], 1)
        self._searches = 0

    def _service_ns(self, query: str, number: int) -> int:
        service_ms = float(self.params.get("service_ms", 0))
        service_ms += float(self.params.get("us_per_document", 0)) * len(self._hits) / 1e3
        if "sigma" in self.params:
            service_ms *= math.exp(float(self.params["sigma"]) * self._quantile(float(query.rpartition(" ")[2])))
        slow_first = int(self.params.get("slow_first", 0))
        if number < slow_first:
            service_ms *= 1 + (float(self.params["slow_factor"]) - 1) * (1 - number / slow_first)
        if "drift" in self.params:
            service_ms *= float(self.params["drift"]) ** self._trial(number)
        if self.params.get("cache"):
            service_ms *= query not in self._seen
            self._seen.add(query)
        if number == self.params.get("stall_at"):
            service_ms += float(self.params["stall_s"]) * 1e3
        return round(service_ms * 1e6)

    def _trial(self, number: int) -> int:
        return max(0, (number - int(self.params["lead"])) // int(self.params["sample"]))

    def _answer(self, number: int, k: int) -> list[Hit]:
        """Return the first documents, rotated by trial if rankings are to change."""
        hits = self._hits
        if self.params.get("ranking") != "trial":
            return hits[:k]
        turn = self._trial(number) % len(hits)
        return [Hit(hit.doc_id, float(-rank)) for rank, hit in enumerate(hits[turn:] + hits[:turn])][:k]

    def _take_memory(self, index_dir: Path) -> list[Any]:
        held: list[Any] = []
        if "touch_file" in self.params:
            with (index_dir / _FILE).open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            held.append(mapped)
            if self.params["touch_file"]:
                held.append(sum(mapped[::_PAGE]))
            if "touch_per_query" in self.params:
                mapped.madvise(mmap.MADV_RANDOM)  # a page that was evicted comes back alone
                self._mapped, self._chance = mapped, random.Random("touch")
        size = int(self.params.get("hold_mib", 0)) * _MIB
        size += int(self.params.get("kib_per_document", 0)) * len(self._hits) << 10
        in_child = self.params.get("hold_in") == "child"
        held.append(_in_child(lambda: _anonymous(size)) if in_child else _anonymous(size))
        return held


def _anonymous(size: int) -> mmap.mmap | None:
    """Private anonymous memory of exactly this size, each page written."""
    if not size:
        return None
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[::_PAGE] = b"\1" * (size // _PAGE)
    return memory


def _spender(how: str, workers: int, burn_ns: int) -> Callable[[int, int], None]:
    """Return a function that passes the time from ``start_ns`` to ``deadline_ns`` (``perf_counter_ns``) in one way."""
    return {
        "spin": lambda: _spin,
        "sleep": lambda: _sleep,
        "child": _child_spins,
        "threads": lambda: _on_threads(workers, _hash),
        "burn": lambda: _burn_and_rest(workers, burn_ns),
    }[how]()


def _spin(_start_ns: int, deadline_ns: int) -> None:
    clock = perf_counter_ns
    while clock() < deadline_ns:
        pass


def _sleep(_start_ns: int, deadline_ns: int) -> None:
    """Sleep to the deadline and not a moment on a CPU: it ends late, by what ``stages_s`` says."""
    while (left_ns := deadline_ns - perf_counter_ns()) > 0:
        time.sleep(left_ns / 1e9)


def _fork(work: Callable[[], object]) -> int:
    """Run ``work`` in a child that never comes back into the driver; return its process id."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


def _child_spins() -> Callable[[int, int], None]:
    """Let a child process answer at the deadline: the clock is the same for all processes."""
    (ask_read, ask_write), (done_read, done_write) = os.pipe(), os.pipe()

    def serve() -> None:
        os.close(ask_write)  # so that reading ends when the parent does
        while question := os.read(ask_read, 8):
            _spin(0, struct.unpack("q", question)[0])
            os.write(done_write, b".")

    def spend(_start_ns: int, deadline_ns: int) -> None:
        os.write(ask_write, struct.pack("q", deadline_ns))
        os.read(done_read, 1)

    _fork(serve)
    os.close(ask_read)
    return spend


def _hash(deadline_ns: int) -> None:
    """Hash until a moment."""
    while perf_counter_ns() < deadline_ns:
        hashlib.sha256(_BUFFER).digest()


def _burn_and_rest(workers: int, burn_ns: int) -> Callable[[int, int], None]:
    """Let threads burn CPU time, each by its own clock, then sleep for as long as was planted."""

    def burn(_deadline_ns: int) -> None:
        end_ns = time.thread_time_ns() + burn_ns
        while time.thread_time_ns() < end_ns:
            hashlib.sha256(_BUFFER[:4096]).digest()

    together = _on_threads(workers, burn)

    def spend(start_ns: int, deadline_ns: int) -> None:
        together(start_ns, deadline_ns)
        time.sleep((deadline_ns - start_ns) / 1e9)

    return spend


def _on_threads(workers: int, work: Callable[[int], None]) -> Callable[[int, int], None]:
    """Let a pool of threads work at once, and so wait for each other's CPU."""

    def serve(asked: queue.SimpleQueue[int], done: queue.SimpleQueue[None]) -> None:
        while True:
            work(asked.get())
            done.put(None)

    pool = [(queue.SimpleQueue[int](), queue.SimpleQueue[None]()) for _ in range(workers - 1)]
    for pair in pool:
        threading.Thread(target=serve, args=pair, daemon=True).start()

    def spend(_start_ns: int, deadline_ns: int) -> None:
        for asked, _ in pool:
            asked.put(deadline_ns)
        work(deadline_ns)
        for _, done in pool:
            done.get()

    return spend


def _in_child(take: Callable[[], object]) -> int:
    """Let a child take something and keep it as long as we live; return a descriptor that its life hangs on."""
    (life_read, life_write), (ready_read, ready_write) = os.pipe(), os.pipe()

    def hold() -> None:
        os.close(life_write)
        held = take()
        os.write(ready_write, b".")
        os.read(life_read, 1)  # returns when the parent ends
        del held

    _fork(hold)
    os.close(life_read)
    os.close(ready_write)
    os.read(ready_read, 1)  # nothing comes from a child that was killed
    return life_write


def _oom(answer: list[Hit]) -> list[Hit]:
    held = [_anonymous(32 * _MIB) for _ in range(1 << 20)]
    return answer if held else []


def _oom_child(answer: list[Hit]) -> list[Hit]:
    """Let the kernel kill a child, the largest process; this one continues."""

    def grow() -> None:
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
        _oom([])

    os.waitpid(_fork(grow), 0)
    return answer


def _hang(_answer: list[Hit]) -> list[Hit]:
    while True:
        time.sleep(3600)


def _raise(_answer: list[Hit]) -> list[Hit]:
    raise RuntimeError("planted")


_FAULTS: dict[str, Callable[[list[Hit]], list[Hit]]] = {
    "oom": _oom,
    "oom_child": _oom_child,
    "hang": _hang,
    "raise": _raise,
    "exit": lambda _answer: os._exit(0),  # as if all were well
    "abort": lambda _answer: os.abort(),
    "segfault": lambda _answer: ctypes.string_at(0),  # type: ignore[dict-item,return-value]
    "wrong_id": lambda answer: [Hit("no-such-document", 1.0), *answer[1:]],
    "duplicate": lambda answer: [answer[0], answer[0], *answer[2:]],
    "nan": lambda answer: [Hit(answer[0].doc_id, math.nan), *answer[1:]],
}


def _ahead(adapter: Calibration) -> None:
    """Answer the timed queries while loading, where the job's description names them."""
    adapter.answer_ahead(json.loads((_JOB / "spec.json").read_text(encoding="utf-8"))["sample"])


def _asks(adapter: Calibration) -> None:
    """Ask the host for the timed queries while loading, as the driver would."""
    with (_JOB / "out" / "events.jsonl").open("a", encoding="utf-8") as events:
        for number in (0, 1):
            print(json.dumps({"pause": number}), file=events, flush=True)
            go = _JOB / f"go-{number}"
            while not go.exists():
                time.sleep(0.001)
    adapter.answer_ahead(json.loads(go.read_text(encoding="utf-8")))


def _slow_clock() -> Callable[[], int]:
    """Return a clock that runs a hundred times too slowly."""
    real, start_ns = time.perf_counter_ns, time.perf_counter_ns()
    return lambda: start_ns + (real() - start_ns) // 100


def _clock(_adapter: Calibration) -> None:
    """Replace the clock, for whoever reads it by its module from now on."""
    time.perf_counter_ns = _slow_clock()


def _driver_clock(_adapter: Calibration) -> None:
    """Replace the clock wherever the driver keeps it."""
    slow = _slow_clock()
    for name, module in sys.modules.items():
        if name.startswith("harness.driver.") and hasattr(module, "perf_counter_ns"):
            setattr(module, "perf_counter_ns", slow)  # noqa: B010


_LIES: dict[str, Callable[[Calibration], None]] = {
    "ahead": _ahead,
    "asks": _asks,
    "clock": _clock,
    "driver_clock": _driver_clock,
    "samples": lambda _adapter: None,  # at close
}

ENGINE = Calibration

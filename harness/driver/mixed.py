"""Scenario ``mixed``: queries at one rate while documents are deleted and inserted at another.

Three passes over the sample: as the index was built, during the updates (open loop), and after them.  Each deleted
document is inserted again, so the index holds the same documents in the end as in the beginning: the first ranking is
the ranking of a rebuilt index.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns  # by name: see output.py
from typing import Any

from harness.driver.adapter import Adapter, Document, QueryFailed, check_hits, document_of
from harness.driver.output import ERROR, TIMED_OUT, UNSENT, Output
from harness.driver.procfs import CompilerClock
from harness.driver.records import JobSpec, Measurement
from harness.driver.scenarios import QueryRunner, QuerySource, pause_collector, run_warmup
from harness.driver.server import Arrivals, streams_of
from harness.driver.update_plan import (
    CHECK,
    DELETE,
    INSERT,
    TRIALS,
    PlannedUpdate,
    planned_updates,
    query_arrivals,
)

# A change that no search shows after this time counts as not seen.
GIVE_UP_NS = 10_000_000_000
# The time between two looks: at least this, and this share of the time since the change was sent.  A slow engine is
# asked some 70 times in 10 s, which is less than the queries are.
_LOOK_NS, _LOOK_SHARE = 10_000_000, 0.1
# Words of a document that find it.
_WORDS = 16
# Inserts that put the index back into its state are tried so often.
_TRIES = 3
# Time for the threads to start before the first arrival.
_LEAD_NS = 2_000_000


def mixed(adapter: Adapter, spec: JobSpec, out: Output, hand: QuerySource, measured: Measurement[str]) -> None:
    """Warm up, pass over the sample, pass over it during updates, wait until these are done, pass over it again."""
    updates = spec.updates
    if updates is None or spec.trials != TRIALS:
        raise ValueError(f"scenario mixed has {TRIALS} trials and updates; the spec has {spec.trials} trials")
    streams = streams_of(adapter)
    adapter.begin_updates()
    documents = [document_of(raw) for raw in updates.documents]
    runner, compiled_ns = QueryRunner(adapter, spec, out), CompilerClock()
    run_warmup(runner.one_by_one, spec, out, compiled_ns, measured)

    compiled_s = 0.0

    def closed_pass(number: int) -> None:
        nonlocal compiled_s
        trial, queries = spec.first_trial + number, hand(number + 1)
        pause_collector()
        before_ns = compiled_ns()
        with out.phase(f"trial-{trial}", len(queries)) as phase:
            phase.claimed_ns = runner.one_by_one(trial, queries)
        compiled_s += (compiled_ns() - before_ns) / 1e9

    closed_pass(0)
    index = _ChangingIndex(adapter, spec.k, documents, out)
    with out.phase("find", len(documents)):
        index.find_all()
    pause_collector()
    trial, queries = spec.first_trial + 1, hand(2)
    places = spec.seed, spec.first_trial, updates, len(queries)
    plan, arrivals = planned_updates(*places), query_arrivals(*places)
    before_ns = compiled_ns()
    with out.phase(f"trial-{trial}", len(queries)) as phase:
        index.begin(plan)
        try:
            served = Arrivals(runner, trial, queries, streams, arrivals, alone=False).serve()
        finally:
            index.stop()
        phase.claimed_ns = sum(query.latency_ns for query in served)
    compiled_s += (compiled_ns() - before_ns) / 1e9
    with out.phase("settle"):
        index.settle()
    closed_pass(2)
    measured.compiled_s = compiled_s if compiled_ns.seen else None


@dataclass
class _Update:
    """A planned update and what came of it; nanoseconds of the process's clock."""

    plan: PlannedUpdate
    sent_ns: int = 0
    end_ns: int = 0
    failed: int | None = None
    watched: bool = False
    seen_ns: int | None = None  # since it was sent


class _ChangingIndex:
    """The updates of one job: a thread that sends them, and one that looks when they can be seen."""

    def __init__(self, adapter: Adapter, k: int, documents: Sequence[Document], out: Output) -> None:
        self._adapter, self._k, self._documents, self._out = adapter, k, documents, out
        self._findable: list[bool] = [False] * len(documents)
        self._updates: list[_Update] = []
        self._sender = threading.Thread(target=self._run, args=(self._send_all,), name="updates")
        self._watcher = threading.Thread(target=self._run, args=(self._watch_all,), name="watch")
        self._turn = threading.Condition()
        self._watching: _Update | None = None
        self._stopped = threading.Event()
        self._sent_all = False
        self._looks = 0
        self._origin = 0
        self._error: BaseException | None = None

    def find_all(self) -> None:
        """Note which documents a search for their own words finds: only these can be seen to come and go."""
        for place in range(len(self._documents)):
            self._findable[place] = bool(self._found(place))
            self._out.progress(place + 1)

    def begin(self, plan: Sequence[PlannedUpdate]) -> None:
        """Start to send the updates on schedule."""
        self._updates = [_Update(planned) for planned in plan]
        self._origin = perf_counter_ns() + _LEAD_NS
        self._watcher.start()
        self._sender.start()

    def stop(self) -> None:
        """Send no further update: the last query has its answer."""
        self._stopped.set()

    def settle(self) -> None:
        """Wait for the last update; insert what is still deleted, wait until a search finds it, and write all."""
        for thread in (self._sender, self._watcher):
            while thread.is_alive():
                thread.join(1.0)
                self._out.progress(self._looks)  # a watched change may take its time
        if self._error is not None:
            raise self._error
        if missing := self._missing():
            self._restore([self._documents[place] for place in missing])
        lines = [self._line(update) for update in self._updates]
        start = perf_counter_ns()
        for place, document in enumerate(self._documents):
            if self._findable[place]:
                lines.append({"kind": CHECK, "doc_id": document.doc_id, "seen_ns": self._wait_for(place, start)})
                self._out.progress(self._looks)
        self._out.write_updates(lines)
        if failed := sum(update.failed in (ERROR, TIMED_OUT) for update in self._updates):
            print(f"{failed} of {len(lines)} updates failed")

    def _restore(self, documents: Sequence[Document]) -> None:
        """Insert documents outside all clocks; a service that refuses is asked again."""
        for left in reversed(range(_TRIES)):
            try:
                self._adapter.insert(documents)
                return
            except QueryFailed:
                if not left:
                    raise

    def _run(self, work: Any) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 # the main thread raises it
            self._error = self._error or error
            self._stopped.set()
        finally:
            if work == self._send_all:
                with self._turn:
                    self._sent_all = True
                    self._turn.notify()

    def _send_all(self) -> None:
        for update in self._updates:
            self._stopped.wait(max(0, self._origin + update.plan.scheduled_ns - perf_counter_ns()) / 1e9)
            if self._stopped.is_set():
                update.failed, update.end_ns = UNSENT, perf_counter_ns()
                update.sent_ns = update.end_ns
                continue
            self._send(update)
            with self._turn:
                if update.failed is None and self._watching is None and self._findable[update.plan.place]:
                    self._watching, update.watched = update, True
                    self._turn.notify()

    def _send(self, update: _Update) -> None:
        document = self._documents[update.plan.place]
        with self._turn:
            # What is watched changes again: it can no longer be seen.
            if self._watching is not None and self._watching.plan.place == update.plan.place:
                self._watching.watched = False
        update.sent_ns = perf_counter_ns()
        try:
            if update.plan.kind == INSERT:
                self._adapter.insert([document])
            else:
                self._adapter.delete([document.doc_id])
        except QueryFailed as error:
            update.failed = TIMED_OUT if error.timed_out else ERROR
        update.end_ns = perf_counter_ns()

    def _watch_all(self) -> None:
        """Look for one change after the other; the changes that come meanwhile are not watched."""
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._watching is not None or self._sent_all)
                update = self._watching
            if update is None:
                return
            try:
                self._watch(update)
            finally:
                with self._turn:
                    self._watching = None

    def _watch(self, update: _Update) -> None:
        wanted = update.plan.kind == INSERT
        while update.watched and self._error is None:
            found = self._found(update.plan.place)
            waited = perf_counter_ns() - update.sent_ns
            if found is wanted:
                update.seen_ns = waited
            if found is wanted or perf_counter_ns() - update.end_ns > GIVE_UP_NS:
                return
            time.sleep(max(_LOOK_NS, _LOOK_SHARE * waited) / 1e9)

    def _wait_for(self, place: int, start_ns: int) -> int | None:
        """Return after how many nanoseconds a search finds a document; all together wait for a bounded time."""
        while True:
            found, waited = self._found(place), perf_counter_ns() - start_ns
            if found:
                return waited
            if waited > GIVE_UP_NS:
                return None
            time.sleep(max(_LOOK_NS, _LOOK_SHARE * waited) / 1e9)

    def _found(self, place: int) -> bool | None:
        """Return whether a search for a document's first words finds it; ``None``: no answer."""
        document, self._looks = self._documents[place], self._looks + 1
        words = " ".join(f"{document.title} {document.text}".split()[:_WORDS])
        try:
            hits = check_hits(self._adapter.search(words, self._k), self._k, 0)
        except QueryFailed:
            return None
        return any(doc_id == document.doc_id for doc_id, _ in hits)

    def _missing(self) -> list[int]:
        """Return the documents that the index may lack: deleted last, or their last insert failed."""
        last = {update.plan.place: update for update in self._updates if update.failed != UNSENT}
        return [place for place, update in last.items() if update.plan.kind == DELETE or update.failed is not None]

    def _line(self, update: _Update) -> dict[str, Any]:
        line: dict[str, Any] = {
            "kind": update.plan.kind,
            "doc_id": self._documents[update.plan.place].doc_id,
            "scheduled_ns": update.plan.scheduled_ns,
            "latency_ns": max(1, update.end_ns - self._origin - update.plan.scheduled_ns),
            "service_ns": update.end_ns - update.sent_ns,
        }
        if update.watched:
            line |= {"watched": 1, "seen_ns": update.seen_ns}
        return line if update.failed is None else {**line, "failed": update.failed}

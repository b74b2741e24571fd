"""An engine in Python as the far end of JSON lines: ``python3 -m harness.driver.component``.

For engines that are made of others: each of those runs in a process of its own, so that their packages may differ, and
does here what the driver does with an adapter in a job of its own.  The near end is ``jsonlines.py``; a request that
says ``"packed": true`` is answered as ``packed.py`` has it.
"""

from __future__ import annotations

import binascii
import contextlib
import ctypes
import gc
import hashlib
import importlib
import json
import math
import operator
import os
import signal
import sys
import traceback
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from harness.driver.adapter import Adapter, Corpus
from harness.driver.driver import one_line, outcome_of
from harness.driver.hits import BadAnswer, check
from harness.driver.output import throttled
from harness.records import Envelope, Hit

# MERGED harness.driver.component: Ranked lists between two Python processes: the ids as JSON, the scores as the base64
# of what memory holds.


# Ids and scores, best first.
Ranking = tuple[list[str], list[float]]


def pack(hits: Sequence[Hit], k: int) -> dict[str, Any]:
    """Hits as a reply holds them.

    Raises:
        BadAnswer: they are none that the driver would take; says why, as it would.
    """
    try:
        ids, scores = [hit.doc_id for hit in hits], [hit.score for hit in hits]
        # A quick look, under the clock; what it finds odd is looked at again for the reason.
        fine = (
            type(hits) in (list, tuple)
            and len(ids) <= k
            and {*map(type, ids)} <= {str}
            and {*map(type, scores)} <= {float, int}
            and len({*ids}) == len(ids)
            and all(map(math.isfinite, scores))
            and all(map(operator.ge, scores, scores[1:]))
        )
    except (AttributeError, TypeError, OverflowError):
        ids, scores, fine = [], [], False
    if not fine:
        check(hits, k, 0)
    return {"ids": ids, "scores": binascii.b2a_base64(array("d", scores), newline=False).decode("ascii")}


def unpack(reply: dict[str, Any]) -> Ranking:
    """What :func:`pack` made.

    Raises:
        BadAnswer: it is nothing of that kind.
    """
    ids, scores = reply.get("ids"), array("d")
    try:
        scores.frombytes(binascii.a2b_base64(reply["scores"], strict_mode=True))
    except (KeyError, TypeError, ValueError):
        raise BadAnswer("the engine's reply has no packed scores") from None
    if type(ids) is not list or len(ids) != len(scores):
        raise BadAnswer(f"the engine's reply has {len(scores)} scores and not as many ids")
    return ids, scores.tolist()


_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)

Reply = dict[str, Any]


def main() -> int:
    """Serve requests from standard input until ``close``, or until it ends; exit code 0."""
    _die_with_parent()
    requests, replies = _pipes()
    served = Served(lambda reply: _write(replies, reply))
    with os.fdopen(requests, "rb") as lines:
        for line in lines:
            request = json.loads(line)
            try:
                reply = served.answer(request)
            # The adapter is foreign code: anything may come out of it, and all of it is told.
            except BaseException as error:  # noqa: BLE001
                traceback.print_exc()
                reply = {"error": one_line(error), "outcome": outcome_of(error).value}
            _write(replies, reply)
            if request["verb"] == "close":
                _leave()
            # Collected once the answer is out, as the driver does for an adapter in its own process.  Another component
            # may be timed on the same CPU by then; what `load` left is frozen, so that there is little to walk.
            if request["verb"] in ("search", "search_batch"):
                del reply
                gc.collect()
    return 0


class Served:
    """One adapter, asked by verb.

    Args:
        tell: writes a reply at once; for progress, of which there may be many.
    """

    def __init__(self, tell: Callable[[Reply], None]) -> None:
        self._tell = tell
        self._adapter: Adapter | None = None
        self._has_loaded = False

    def answer(self, request: dict[str, Any]) -> Reply:
        """The reply to one request."""
        return cast(Reply, getattr(self, f"_{request['verb']}")(request))

    def _build(self, request: dict[str, Any]) -> Reply:
        adapter = self._made(request)
        corpus = Corpus(Path(request["corpus"]), request["documents"])
        adapter.build(corpus, Path(request["index"]), throttled(lambda done: self._tell({"progress": done})))
        adapter.verify_index(corpus, Path(request["index"]))
        return {"libraries": adapter.libraries(), "device": adapter.device(), "resumed_s": adapter.resumed_s()}

    def _load(self, request: dict[str, Any]) -> Reply:
        adapter = self._made(request)
        adapter.load(Path(request["index"]))
        self._has_loaded = True
        # What load left behind is never garbage; frozen, no collection walks it again.
        gc.collect()
        gc.freeze()
        gc.disable()
        shares_work = type(adapter).search_batch is not Adapter.search_batch
        return {"search_batch": shares_work, "device": adapter.device()}

    def _search(self, request: dict[str, Any]) -> Reply:
        hits = self._loaded.search(request["query"], request["k"])
        return {**_answer(hits, request), "stages_s": self._loaded.stages_s()}

    def _search_batch(self, request: dict[str, Any]) -> Reply:
        answers = self._loaded.search_batch(request["queries"], request["k"])
        if type(answers) not in (list, tuple) or len(answers) != len(request["queries"]):
            raise BadAnswer(f"search_batch has no answer for each of {len(request['queries'])} queries")
        told = [_answer(each, request) for each in answers]
        plain = told if request.get("packed") else [each["hits"] for each in told]
        return {"answers": plain, "stages_s": self._loaded.stages_s()}

    def _threads(self, _: dict[str, Any]) -> Reply:
        return {"threads": self._loaded.threads()}

    def _libraries(self, _: dict[str, Any]) -> Reply:
        return {"libraries": self._loaded.libraries()}

    def _close(self, _: dict[str, Any]) -> Reply:
        # After a build there is nothing that ``load`` took.
        if self._has_loaded:
            self._loaded.close()
        return {}

    @property
    def _loaded(self) -> Adapter:
        assert self._adapter is not None, "the first request is build or load"
        return self._adapter

    def _made(self, request: dict[str, Any]) -> Adapter:
        envelope = Envelope("component", request["cpus"], request["memory_bytes"], request["gpus"])
        module = importlib.import_module("adapter")
        source = Path(str(module.__file__))
        wanted = request.get("adapter_sha256")
        if wanted and hashlib.sha256(source.read_bytes()).hexdigest() != wanted:
            raise ValueError(f"{source} is another engine's: one that is joined keeps its files in /opt/<its name>")
        self._adapter = adapter = cast(Adapter, module.ENGINE(request["params"], envelope, Path(request["assets"])))
        return adapter


def _answer(hits: Sequence[Hit], request: dict[str, Any]) -> Reply:
    """Hits as they were asked for; pairs are checked where they are read."""
    if request.get("packed"):
        return pack(hits, request["k"])
    # A lazy sequence would do its work under no clock of its engine's.
    if type(hits) not in (list, tuple):
        raise BadAnswer(f"search returned {type(hits).__name__}, not a list or tuple of hits")
    try:
        return {"hits": [(hit.doc_id, hit.score) for hit in hits]}
    except AttributeError as error:
        raise BadAnswer(f"search returned what is no Hit: {error}") from None


def _write(replies: int, reply: Reply) -> None:
    try:
        text = json.dumps(reply, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:  # a device's number, or none that JSON has
        text = json.dumps({"error": f"a reply holds what JSON cannot: {error}", "outcome": "bad_output"})
    line = text.encode("ascii") + b"\n"
    sent = 0
    while sent < len(line):
        sent += os.write(replies, line[sent:])


def _leave() -> None:
    """End at once: taking down the interpreter and its libraries can take PyTorch seconds, and nothing waits for it."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)


def _pipes() -> tuple[int, int]:
    """Descriptors of the requests and the replies, out of reach of what the engine or its children read and print."""
    requests, replies = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, replies


def _die_with_parent() -> None:
    """A hung engine would not see its input end; in a container, where the parent is process 1, nothing outlives it."""
    if os.getppid() != 1:
        with contextlib.suppress(OSError, AttributeError):  # not every C library has it
            ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())

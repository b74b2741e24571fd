"""A Python engine behind JSON lines: ``python3 -m harness.driver.component``.

An engine of several components runs each in its own process, so that their packages may differ.  This is the far end
of :mod:`harness.driver.subprocess_adapter`, except that its rankings are packed: the ids as JSON, the scores as the
base64 of an array of doubles.
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from harness.driver.adapter import Adapter, BadAnswer, Parameters, check_hits
from harness.driver.driver import one_line, outcome_of
from harness.driver.records import Envelope, Hit

# Ids and scores, best first.
Ranking = tuple[list[str], list[float]]


def pack(hits: Sequence[Hit], k: int) -> dict[str, Any]:
    """Pack hits for a reply.

    Raises:
        BadAnswer: the driver would refuse them; the reason is the driver's.
    """
    try:
        ids, scores = [hit.doc_id for hit in hits], [hit.score for hit in hits]
        # A quick check, because it runs under the clock; the slow one finds the reason.
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
        check_hits(hits, k, 0)
    return {"ids": ids, "scores": _packed(scores)}


def unpack(reply: dict[str, Any]) -> Ranking:
    """Unpack a reply of :func:`pack`.

    Raises:
        BadAnswer: the reply is malformed.
    """
    ids, scores = reply.get("ids"), unpack_scores(reply)
    if type(ids) is not list or len(ids) != len(scores):
        raise BadAnswer(f"the engine's reply has {len(scores)} scores, but not as many ids")
    return ids, scores


def pack_scores(scores: Sequence[float], documents: int) -> str:
    """Pack the scores of a number of documents for a reply.

    Raises:
        BadAnswer: they are not one plain finite number for each document.
    """
    if type(scores) not in (list, tuple) or len(scores) != documents:
        found = f"{len(scores)} scores" if isinstance(scores, Sequence) else type(scores).__name__
        raise BadAnswer(f"score returned {found} for {documents} documents, not a list of one for each")
    for number, score in enumerate(scores, 1):
        try:
            fine = type(score) in (float, int) and math.isfinite(score)
        except OverflowError:
            raise BadAnswer(f"score {number} of {documents} is too large") from None
        if not fine:
            raise BadAnswer(f"score {number} of {documents} is {str(score)[:40]}, not a finite plain number")
    return _packed(scores)


def unpack_scores(reply: dict[str, Any]) -> list[float]:
    """Unpack the scores of a reply.

    Raises:
        BadAnswer: the reply is malformed.
    """
    scores = array("d")
    try:
        scores.frombytes(binascii.a2b_base64(reply["scores"], strict_mode=True))
    except (KeyError, TypeError, ValueError):
        raise BadAnswer("the engine's reply has no packed scores") from None
    return scores.tolist()


def _packed(scores: Sequence[float]) -> str:
    return binascii.b2a_base64(array("d", scores), newline=False).decode("ascii")


_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)

Reply = dict[str, Any]


def main() -> int:
    """Serve requests from standard input until ``close``, or until it ends; exit code 0."""
    _die_with_parent()
    requests, replies = _pipes()
    served = ComponentServer()
    with os.fdopen(requests, "rb") as lines:
        for line in lines:
            request = json.loads(line)
            try:
                reply = served.answer(request)
            except BaseException as error:  # noqa: BLE001 # the adapter is foreign code, and may raise anything
                traceback.print_exc()
                reply = {"error": one_line(error), "outcome": outcome_of(error).value}
            _write(replies, reply)
            if request["verb"] == "close":
                _leave()
            # Collect after the reply, as the driver does.  Another component may be timed on the same CPU by then;
            # what `load` left is frozen, so that a collection is short.
            if request["verb"] in ("search", "search_batch", "score"):
                del reply
                gc.collect()
    return 0


class ComponentServer:
    """Serves one adapter's verbs, except ``build``: a component's index is built by its own image."""

    def __init__(self) -> None:
        self._adapter: Adapter | None = None  # once it has loaded

    def answer(self, request: dict[str, Any]) -> Reply:
        """Answer one request."""
        return cast(Reply, getattr(self, f"_{request['verb']}")(request))

    def _load(self, request: dict[str, Any]) -> Reply:
        adapter = _start(request)
        adapter.load(Path(request["index"]))
        self._adapter = adapter
        # What load left is never garbage: frozen, no collection walks it again.
        gc.collect()
        gc.freeze()
        gc.disable()
        return {"search_batch": adapter.shares_batches(), "device": adapter.device()}

    def _search(self, request: dict[str, Any]) -> Reply:
        k = request["k"]
        return {**pack(self._loaded.search(request["query"], k), k), **self._work()}

    def _score(self, request: dict[str, Any]) -> Reply:
        """Answer with the packed scores of the given documents, in their order."""
        scores = self._loaded.score(request["query"], request["doc_ids"])
        return {"scores": pack_scores(scores, len(request["doc_ids"])), **self._work()}

    def _search_batch(self, request: dict[str, Any]) -> Reply:
        answers = self._loaded.search_batch(request["queries"], request["k"])
        if type(answers) not in (list, tuple) or len(answers) != len(request["queries"]):
            raise BadAnswer(f"search_batch has no answer for each of {len(request['queries'])} queries")
        return {"answers": [pack(hits, request["k"]) for hits in answers], **self._work()}

    def _threads(self, _: dict[str, Any]) -> Reply:
        return {"threads": self._loaded.threads()}

    def _libraries(self, _: dict[str, Any]) -> Reply:
        return {"libraries": self._loaded.libraries()}

    def _close(self, _: dict[str, Any]) -> Reply:
        self._loaded.close()
        return {}

    def _work(self) -> Reply:
        """Return the stages and counts of the last request."""
        return {"stages_s": self._loaded.stages_s(), "counts": self._loaded.counts()}

    @property
    def _loaded(self) -> Adapter:
        assert self._adapter is not None, "load comes before it"
        return self._adapter


def _start(request: dict[str, Any]) -> Adapter:
    envelope = Envelope("component", request["cpus"], request["memory_bytes"], request["gpus"])
    module = importlib.import_module("adapter")
    source = Path(str(module.__file__))
    expected = request.get("adapter_sha256")
    if expected and hashlib.sha256(source.read_bytes()).hexdigest() != expected:
        raise ValueError(
            f"{source} belongs to another engine; an engine that is joined keeps its files in /opt/<its name>"
        )
    return cast(Adapter, module.ENGINE(Parameters(request["params"]), envelope, Path(request["assets"])))


def _write(replies: int, reply: Reply) -> None:
    try:
        text = json.dumps(reply, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:  # a device's number, or one that JSON lacks
        text = json.dumps({"error": f"a reply holds what JSON cannot: {error}", "outcome": "bad_output"})
    line = text.encode("ascii") + b"\n"
    sent = 0
    while sent < len(line):
        sent += os.write(replies, line[sent:])


def _leave() -> None:
    """End at once, because PyTorch's teardown takes seconds."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)


def _pipes() -> tuple[int, int]:
    """Return descriptors of requests and replies that the engine and its children cannot read or print to."""
    requests, replies = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, replies


def _die_with_parent() -> None:
    """Let the kernel kill this process with its parent: a hung engine would not notice the end of its input."""
    if os.getppid() != 1:
        with contextlib.suppress(OSError, AttributeError):  # some C libraries lack it
            ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())

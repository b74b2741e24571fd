"""Engines in any language: a command that speaks JSON lines on its standard input and output.

One request a line, one reply a line, never more than one request under way.  An image's ``adapter.py`` is then::

    from harness.driver.subprocess_adapter import command
    ENGINE = command("/opt/engine/bin/my-engine", "--threads={cpus}")

docs/reference/container-contract.md has the verbs and their replies.  Writing the request, the engine's work, and
reading and parsing the reply are all under the clock.  The engine's standard error goes to the job's log.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.driver.adapter import Adapter, BadAnswer, Corpus
from harness.driver.records import Envelope, Hit, Scalar

# The longest honest reply: a hit with an id of 256 escaped characters.
_HIT_BYTES = 2048
_REPLY_BYTES = 1 << 20
_CHUNK = 1 << 16
_END_S = 10.0


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


# Created once, because it runs under the clock.  It refuses Python's additions to JSON (NaN, Infinity).
_JSON = json.JSONDecoder(parse_constant=_no_number)


class EngineFailed(RuntimeError):
    """The engine's process ended, or reports a failure."""


# Outcomes that an engine may report; any other error is a crash, or by its text ``oom``.
_FAILURES: dict[str, type[Exception]] = {"oom": MemoryError, "bad_output": BadAnswer}


class JsonLines(Adapter):
    """Drives an engine process; :func:`command` makes the class for one."""

    arguments: tuple[str, ...] = ()
    environment: dict[str, str] | None = None  # None: this process's own

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._stages_s: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._device = "cpu"
        self._batches = False
        self._libraries: dict[str, str] = {}
        self._resumed_s = 0.0

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Let the engine build; it may report progress, and must end by itself with code 0."""
        request = {"verb": "build", **self._surroundings(index_dir), "corpus": str(corpus.path)}
        self._send({**request, "documents": len(corpus)})
        while "progress" in (reply := self._receive(_REPLY_BYTES)):
            done = reply["progress"]
            if type(done) is not int or done < 0:
                raise BadAnswer(f"the engine's progress is {str(done)[:40]!r}, not a number of documents")
            progress(done)
        self._introduce(reply)
        self._resumed_s = _mapping("reply", {"resumed_s": reply.get("resumed_s", 0.0)}, (int, float))["resumed_s"]
        self.close()

    def resumed_s(self) -> float:
        """Return the seconds that the engine reported at the end of its build."""
        return self._resumed_s

    def load(self, index_dir: Path) -> None:
        """Start the engine and let it open the index."""
        self._introduce(self._ask({"verb": "load", **self._surroundings(index_dir)}))

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Send one request and read one reply."""
        return hits_of(self._searched({"verb": "search", "query": query, "k": k}, k).get("hits"))

    def search_batch(self, queries: Sequence[str], k: int) -> Sequence[Sequence[Hit]]:
        """Send one request for all, if the engine's reply to ``load`` offers batches."""
        if not self._batches:
            return super().search_batch(queries, k)
        request = {"verb": "search_batch", "queries": list(queries), "k": k}
        return [
            hits_of(answer) for answer in _listed("answers", self._searched(request, len(queries) * k).get("answers"))
        ]

    def shares_batches(self) -> bool:
        """Return whether the engine offers batches."""
        return self._batches

    def score(self, query: str, doc_ids: Sequence[str]) -> Sequence[float]:
        """Send one request and read one reply, with a score for each document."""
        reply = self._searched({"verb": "score", "query": query, "doc_ids": list(doc_ids)}, len(doc_ids))
        return _listed("scores", reply.get("scores"))

    def stages_s(self) -> dict[str, float]:
        """Return the stages of the last reply."""
        return _mapping("stages_s", self._stages_s, (int, float))

    def counts(self) -> dict[str, int]:
        """Return the counts of the last reply."""
        return _mapping("counts", self._counts, (int,))

    def threads(self) -> dict[str, int]:
        """Ask the engine for its thread counts."""
        return _mapping("threads", self._ask({"verb": "threads"}).get("threads", {}), (int,))

    def libraries(self) -> dict[str, str]:
        """Ask the engine for its libraries; after a build, return the libraries of its last reply."""
        if self._process is not None:
            self._libraries = self._ask({"verb": "libraries"}).get("libraries", {})
        return _mapping("libraries", self._libraries, (str,))

    def device(self) -> str:
        """Return the device of the engine's reply to ``load`` or ``build``."""
        return self._device

    def close(self) -> None:
        """Close the engine and wait for its end; kill it after 10 s.

        Raises:
            EngineFailed: it ended with another code than 0, or had to be killed.
        """
        process = self._process
        if process is None:
            return
        try:
            self._ask({"verb": "close"})
            if process.stdin is not None:
                process.stdin.close()  # an engine that only reads until the end of its input ends here
            code = process.wait(_END_S)
        except subprocess.TimeoutExpired:
            raise EngineFailed(f"the engine did not end within {_END_S:g} s of its close; end it there") from None
        finally:
            self._kill()
        if code:
            raise EngineFailed(f"the engine ended with {_ending(code)} after its close")

    def _surroundings(self, index_dir: Path) -> dict[str, Any]:
        return {
            "index": str(index_dir),
            "params": self.params,
            "assets": str(self.assets),
            "cpus": self.envelope.cpus,
            "memory_bytes": self.envelope.memory_bytes,
            "gpus": self.envelope.gpus,
        }

    def _introduce(self, reply: dict[str, Any]) -> None:
        """Store the facts of the engine's reply to ``load`` or ``build``."""
        self._device = _text("device", reply.get("device", "cpu"))
        self._batches = reply.get("search_batch", False) is True
        self._libraries = reply.get("libraries", {})

    def _start(self) -> subprocess.Popen[bytes]:
        names: dict[str, Any] = {**self.params, "cpus": self.envelope.cpus}
        try:
            arguments = [argument.format_map(names) for argument in self.arguments]
        except (KeyError, ValueError, IndexError) as error:
            raise EngineFailed(
                f"the engine's command {' '.join(self.arguments)!r} asks for {error}, which is neither 'cpus' nor a"
                " parameter of the system"
            ) from None
        try:
            # In this process's group, so that ending the group ends the engine.
            return subprocess.Popen(
                arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=self.environment
            )
        except OSError as error:
            raise EngineFailed(
                f"the engine {arguments[0]!r} does not start: {error.strerror}; check the command in adapter.py"
            ) from None

    def _searched(self, request: dict[str, Any], max_hits: int) -> dict[str, Any]:
        reply = self._ask(request, _REPLY_BYTES + max_hits * _HIT_BYTES)
        self._stages_s, self._counts = reply.get("stages_s", {}), reply.get("counts", {})
        return reply

    def _ask(self, request: dict[str, Any], max_bytes: int = _REPLY_BYTES) -> dict[str, Any]:
        self._send(request)
        return self._receive(max_bytes)

    def _send(self, request: dict[str, Any]) -> None:
        if self._process is None:
            self._process = self._start()
            assert self._process.stdin and self._process.stdout
            self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        if self._rest:
            raise self._broken(f"the engine wrote a line that nothing had asked for: {_quoted(self._rest)}")
        line = json.dumps(request, separators=(",", ":")).encode("ascii") + b"\n"
        try:
            sent = os.write(self._in, line)
            while sent < len(line):
                sent += os.write(self._in, line[sent:])
        except BrokenPipeError:
            raise self._died() from None

    def _receive(self, max_bytes: int) -> dict[str, Any]:
        start, newline, self._rest = self._rest.partition(b"\n")
        line = bytearray(start)
        while not newline:
            if len(line) > max_bytes:
                raise self._broken(f"the engine's reply has more than {max_bytes} bytes in one line")
            chunk = os.read(self._out, _CHUNK)
            if not chunk:
                raise self._died(line)
            head, newline, self._rest = chunk.partition(b"\n")
            line += head
        try:
            reply = _JSON.decode(line.decode("utf-8"))
        except (ValueError, RecursionError):
            raise self._broken(f"the engine wrote no JSON: {_quoted(line)}") from None
        if type(reply) is not dict:
            raise self._broken(f"the engine's reply is not a JSON object: {_quoted(line)}")
        if reply.get("error") is not None:
            failure = _FAILURES.get(str(reply.get("outcome")), EngineFailed)
            raise failure(f"the engine says: {' '.join(str(reply['error']).split())[:400]}")
        return reply

    def _broken(self, how: str) -> BadAnswer:
        """Kill the engine after a line that breaks the protocol: a later line may be a late answer."""
        self._kill()
        return BadAnswer(how)

    def _died(self, line: bytes | bytearray = b"") -> EngineFailed:
        """Describe the end of an engine that closed its pipe."""
        assert self._process is not None
        try:
            how = f"ended with {_ending(self._process.wait(_END_S))}"
        except subprocess.TimeoutExpired:
            how = "closed its standard input or output, and lives on"
        self._kill()
        cut = f", in the middle of the line {_quoted(line)}" if line else ""
        return EngineFailed(f"the engine {how} before it replied{cut}; its last words are in the job's log")

    def _kill(self) -> None:
        """Kill the engine and close its pipes."""
        process, self._process, self._rest = self._process, None, b""
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def command(*arguments: str | Path) -> type[JsonLines]:
    """Return an adapter class that runs a command; name it ``ENGINE`` in an image's ``adapter.py``.

    Args:
        arguments: the program and its arguments.  ``{cpus}`` becomes the envelope's CPUs, and the name of a
            parameter in braces becomes its value; write a brace itself twice.
    """
    return type("Engine", (JsonLines,), {"arguments": tuple(str(argument) for argument in arguments)})


def hits_of(answer: object) -> list[Hit]:
    """Convert pairs of id and score into hits; the driver checks their content."""
    try:
        return [Hit(doc_id, score) for doc_id, score in _listed("hits", answer)]
    except (TypeError, ValueError):
        raise BadAnswer("a hit of the engine's reply is not a pair [id, score]") from None


def _listed(name: str, value: object) -> list[Any]:
    if type(value) is not list:
        raise BadAnswer(f"the engine's reply has no list of {name}, but {type(value).__name__}")
    return value


def _mapping(name: str, value: object, kinds: tuple[type, ...]) -> dict[str, Any]:
    if type(value) is not dict or not all(type(item) in kinds for item in value.values()):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise BadAnswer(f"the engine's {name} is not an object whose values are {names}: {str(value)[:80]!r}")
    return value


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise BadAnswer(f"the engine's {name} is {type(value).__name__}, not a text")
    return value


def _ending(code: int) -> str:
    """Describe an exit code."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def _quoted(line: bytes | bytearray) -> str:
    return repr(line[:80].decode("utf-8", "replace"))

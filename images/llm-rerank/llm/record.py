"""Record the answers of an API model for ``transport = "replay"``; runs where there is a network, in no container.

    cd images/llm-rerank
    OPENAI_API_KEY=... python3 -m llm.record --run bm25.trec.gz --corpus corpus.jsonl.gz --queries queries.jsonl \
        --model gpt-4o-mini --depth 20 -o recorded/answers.jsonl

It ranks the first documents of a stored run as ``method = "rankgpt"`` does, and appends each answer to the file at
once, so that a second run asks only what is missing.  The key is read from the environment and stored nowhere.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import sys
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from llm import listwise, prompts, transport
from llm.prompts import Message
from llm.transport import Completion

_TIMEOUT_S = 300
_ATTEMPTS = 6
# Answers that may come a moment later: too many requests, and failures of the server.
_PASSING = (408, 409, 429, 500, 502, 503, 504, 529)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which would carry the key to another host."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none."""


_OPENER = urllib.request.build_opener(_NoRedirect)


class RecordingFailed(Exception):
    """A request that got no answer, or an input that cannot be read; the text says what to do."""


class Recorder:
    """A transport that asks a chat API for what the recording lacks.

    Args:
        path: the recording, which may exist.
        url: of the API, up to ``/chat/completions``.
        key: sent as a bearer token; empty for a server that wants none.
        body: keys of the request's body that the provider wants otherwise; null removes one.

    Raises:
        ValueError: the recording is malformed.
    """

    def __init__(
        self, path: Path, model: str, *, url: str, key: str, max_new_tokens: int, body: dict[str, Any] | None = None
    ) -> None:
        self._path = path
        self._known = transport.read_recording(path) if path.exists() else {}
        self._model = model
        self._url = f"{url.rstrip('/')}/chat/completions"
        self._key = key
        self._max_new_tokens = max_new_tokens
        self._changes = body or {}
        self.asked = 0

    def __call__(self, messages: Sequence[Message]) -> Completion:
        """Return the recorded answer, or ask for it and record it.

        Raises:
            RecordingFailed: the API gives none.
        """
        body = transport.request(self._model, messages, self._max_new_tokens)
        sha256 = transport.request_sha256(body)
        if sha256 not in self._known:
            self._known[sha256] = self._ask({**body, **self._changes})
            self._append(sha256, self._known[sha256])
            self.asked += 1
        return self._known[sha256]

    def _ask(self, body: dict[str, Any]) -> Completion:
        sent = json.dumps({name: value for name, value in body.items() if value is not None}).encode()
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        for attempt in range(_ATTEMPTS):
            start = time.perf_counter()
            try:
                asked = urllib.request.Request(self._url, sent, headers)  # noqa: S310 # main checks the scheme
                with _OPENER.open(asked, timeout=_TIMEOUT_S) as answer:
                    reply = json.load(answer)
                return _completion(reply, time.perf_counter() - start)
            except urllib.error.HTTPError as error:
                with error:
                    detail = error.read(500).decode("utf-8", "replace")
                if error.code not in _PASSING or attempt == _ATTEMPTS - 1:
                    raise RecordingFailed(f"{self._url} answers {error.code}: {detail}") from None
            except (urllib.error.URLError, OSError, ValueError, KeyError, TypeError, IndexError) as error:
                if attempt == _ATTEMPTS - 1:
                    raise RecordingFailed(f"{self._url} gives no answer: {error!r}") from None
            time.sleep(min(2**attempt, 30))
        raise AssertionError

    def _append(self, sha256: str, answer: Completion) -> None:
        entry = {
            "request_sha256": sha256,
            "answer": answer.text,
            "prompt_tokens": answer.prompt_tokens,
            "completion_tokens": answer.completion_tokens,
            "seconds": round(answer.provider_s, 3),
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def _completion(reply: dict[str, Any], seconds: float) -> Completion:
    usage = reply["usage"]
    # A model that refuses, or that used up its tokens in thought, writes no content.
    text = reply["choices"][0]["message"]["content"] or ""
    return Completion(text, int(usage["prompt_tokens"]), int(usage["completion_tokens"]), provider_s=seconds)


def read_run(path: Path, depth: int) -> dict[str, list[str]]:
    """Read the first ``depth`` document ids of each query of a TREC run, by rank.

    Raises:
        RecordingFailed: a line has not the six fields of a run.
    """
    ranked: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for number, line in enumerate(_lines(path), 1):
        try:
            query_id, _, doc_id, rank, *_ = (field.decode("utf-8") for field in line.encode("utf-8").split())
            if not re.fullmatch("[+-]?[0-9]{1,19}", rank):
                raise ValueError(rank)
            ranked[query_id].append((int(rank), doc_id))
        except ValueError:
            raise RecordingFailed(f"{path}, line {number}: no line of a TREC run") from None
    return {query_id: [doc_id for _, doc_id in sorted(hits)[:depth]] for query_id, hits in ranked.items()}


def main(arguments: list[str]) -> int:
    """See the module; 1 with one line where something is wrong."""
    options = _parser().parse_args(arguments)
    try:
        _record(options)
    except (RecordingFailed, OSError, ValueError, KeyError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    return 0


def _record(options: argparse.Namespace) -> None:
    if not options.url.startswith(("http://", "https://")):
        raise RecordingFailed(f"--url is {options.url!r}, must begin with http:// or https://")
    run = read_run(options.run, options.depth)
    queries = {each["_id"]: each["text"] for each in map(json.loads, _lines(options.queries))}
    wanted = {doc_id for hits in run.values() for doc_id in hits}
    documents = (json.loads(line) for line in _lines(options.corpus))
    texts = {
        each["_id"]: prompts.document_text(each.get("title", ""), each["text"])
        for each in documents
        if each["_id"] in wanted
    }
    recorder = Recorder(
        options.out,
        options.model,
        url=options.url,
        key=os.environ.get("OPENAI_API_KEY", ""),
        max_new_tokens=options.max_new_tokens,
        body=json.loads(options.body),
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for number, (query_id, hits) in enumerate(run.items(), 1):
        listwise.rank(
            recorder,
            queries[query_id],
            [texts[doc_id] for doc_id in hits],
            window=options.window,
            step=options.step,
            passage_words=None if options.passage_words == "none" else int(options.passage_words),
        )
        print(f"\r{number} of {len(run)} queries, {recorder.asked} requests", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m llm.record", description="Record an API model's rankings.")
    for name, what in (
        ("run", "TREC run of the first stage"),
        ("corpus", "corpus.jsonl"),
        ("queries", "queries.jsonl"),
    ):
        parser.add_argument(f"--{name}", type=Path, required=True, help=f"{what}, plain or .gz")
    parser.add_argument("--model", required=True, help="name of the model at the provider; the parameter `model`")
    parser.add_argument("--url", default="https://api.openai.com/v1", help="of an API as OpenAI's")
    parser.add_argument("--depth", type=int, default=100)
    parser.add_argument("--window", type=int, default=20)
    parser.add_argument("--step", type=int, default=10)
    parser.add_argument("--passage-words", default="300", help="a number, or none")
    parser.add_argument("--max-new-tokens", type=int, default=120)
    parser.add_argument("--body", default="{}", help="JSON that changes the request, such as other names of its keys")
    parser.add_argument("-o", "--out", type=Path, required=True, help="the recording, answers.jsonl")
    return parser


def _lines(path: Path) -> Iterator[str]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as lines:
        yield from lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

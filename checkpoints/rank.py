"""``python3 -m checkpoints.rank JOB OUT``: what a system ranks.  Runs inside a system's image, for tests.

JOB holds ``params.json``, ``corpus.jsonl`` and ``queries.jsonl``; each query's ten best come as a line of JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from harness.driver.adapter import Corpus
from harness.driver.records import Envelope

_MEMORY_BYTES = 4 << 30


def main(job: Path, out: Path) -> None:
    """See the module."""
    params = json.loads((job / "params.json").read_text(encoding="utf-8"))
    documents = (job / "corpus.jsonl").read_text(encoding="utf-8").count("\n")
    envelope = Envelope("test", len(os.sched_getaffinity(0)), _MEMORY_BYTES)
    index = out / "index"
    index.mkdir()

    def engine() -> Any:
        return importlib.import_module("adapter").ENGINE(params, envelope, Path("/opt/assets"))

    engine().build(Corpus(job / "corpus.jsonl", documents), index, lambda _done: None)
    system = engine()
    system.load(index)
    for line in (job / "queries.jsonl").read_text(encoding="utf-8").splitlines():
        query = json.loads(line)
        hits = [hit.doc_id for hit in system.search(query["text"], 10)]
        print(json.dumps({"query": query["_id"], "hits": hits}), flush=True)
    system.close()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

"""A results folder of a stranger: names that would leave a shell's quotes, texts that would drive a terminal."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from harness.results.reader import RESULT
from tests.support import publisher
from tests.support.publisher import Made, Outcome
from tests.support.results_folders import change

# Names of cells: what a name of a folder may hold, and no shell should see.
NAMES = (
    "a'; touch ran; '",
    "$(touch ran)",
    "`touch ran`",
    "--help",
    "-x; touch ran",
    'b" && touch ran #',
    "[ab]*?",
    "c | touch ran",
    "d  e",
    "<script>touch ran<",
    "!f\\",
    "~",
    "\u3164g\ufe0f",
)
# An id of a query, without blanks, which TREC files could not hold.
QUERY = "q|<script>`touch`[x](http://x)\u202e\u2028\\input{x}"
# A name in a printed table.
PRINTED = "A|<script>`touch ran`[x](http://x)$1$_&"
DATASET, PROFILE = "data'$(touch ran)*", "cpu1-mem1'; touch ran #"
# A text that clears a screen, turns a line around, hides, marks up, breaks a table, and runs a command.
TEXT = (
    "\x1b[2J\x1b]0;owned\x07 \u202egnp\u202c a\u200bb\ufe0f\u2066c\n# head | cell | <script>alert(1)</script> "
    "![x](http://x) **bold** `touch ran` \\input{x} $1$ \x85 \u2028 \x9b1m \ue0001"
)
# What no output may hold, whichever its format.
FORBIDDEN = ("\x1b", "\x07", "\u202e", "\u202c", "\u200b", "\ufe0f", "\u2066", "\x85", "\u2028", "\x9b")


def put(root: Path, *, valid: bool = False) -> Path:
    """Store a cell for each name, one that failed, and hostile texts in all their free fields; returns the folder.

    ``valid``: the kernel throttled no job, so that a leaderboard ranks them.
    """
    cells = [Made(name, 2.0 + number, (1, 2), profile=PROFILE, dataset=DATASET) for number, name in enumerate(NAMES)]
    failed = Made("failed'; touch ran", 1.0, outcome=Outcome.CRASH, profile=PROFILE, dataset=DATASET)
    queries = (QUERY, *publisher.QUERIES[1:])
    publisher.put(root, *cells, failed, suite="quick", queries=queries)
    for path in sorted(root.rglob(RESULT)):
        change(path.parent, _spoil)
        if valid:
            change(path.parent, lambda raw: raw["observed"].update(throttled_periods=0))
    return root


def put_published(paper: Path) -> None:
    """Give a copy of a paper's tables hostile names of a system and a dataset, and hostile free texts."""
    for path in (*paper.glob("*.csv"), paper / "published.toml"):
        text = path.read_text(encoding="utf-8").replace("ANCE", PRINTED)
        path.write_text(re.sub('(?m)^(venue|licence|licence_remark) = ".*"$', _hostile_text, text), encoding="utf-8")


def _hostile_text(match: re.Match[str]) -> str:
    return f"{match[1]} = {json.dumps(TEXT, ensure_ascii=True)}"


def _spoil(raw: dict[str, Any]) -> None:
    raw["provenance"]["stand_in"] = raw["page_cache"] = TEXT
    if raw["measured"] is not None:
        raw["measured"].update(detail=TEXT, device=TEXT, libraries={"torch": TEXT})
    raw["observed"]["throttled_periods"] = 7
    if raw["detail"] is not None:
        raw["detail"] = TEXT
    facts = raw["environment"]
    facts.update(dict.fromkeys(("cpu_model", "kernel", "docker_version", "harness_version", "gpu_driver"), TEXT))
    facts.update(architecture=TEXT, harness_commit=TEXT, instance_type=TEXT, gpu_models=[TEXT])
    raw["provenance"]["data_faults"] = [{"kind": "blank_queries", "count": 1, "total": 9, "example": TEXT}]


def paste(commands: list[str], folder: Path) -> list[list[str]]:
    """Run lines in bash beside a program ``harness`` that records its arguments; return these, for each line.

    Nothing else may run: a file that appears in the folder is a failure.
    """
    programs, here, record = folder / "bin", folder / "here", folder / "record"
    programs.mkdir()
    here.mkdir()
    fake = programs / "harness"
    fake.write_text('#!/bin/bash\nprintf "%s\\0" "$#" "$@" >>"$RECORD"\n', encoding="utf-8")
    fake.chmod(0o755)
    variables = {"PATH": f"{programs}:/usr/bin:/bin", "RECORD": str(record), "HOME": str(here)}
    calls = []
    for command in commands:
        record.unlink(missing_ok=True)
        done = subprocess.run(["bash", "-c", command], cwd=here, env=variables, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), f"{command!r}: {done.stderr!r}"
        assert not list(here.iterdir()), f"{command!r} ran something else"
        count, *words = record.read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1]
        assert int(count) == len(words), f"{command!r} ran more than one command"
        calls.append(words)
    return calls


def names(results: Path) -> set[tuple[str, ...]]:
    """Return the names of all stored cells."""
    cells = (json.loads(path.read_text())["spec"]["cell"] for path in results.rglob(RESULT))
    return {(cell["system"], cell["dataset"], cell["scenario"], cell["profile"]) for cell in cells}

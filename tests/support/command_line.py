"""Call commands as a person does."""

from __future__ import annotations

import csv
import io
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from click.testing import CliRunner, Result

from harness.cli import main
from tests.support.messages import PYTHON

# What a person sees without scrolling.
SCREEN_LINES = 25
# The header of judged pairs.
HEAD = "query_id\tdoc_id\tgrade\n"
Call = Callable[..., Result]
# Two run files of the tiny dataset, with their judgements (fixture ``tiny_runs``).
RUN_FILES = ("one.run", "two.run", "--qrels", "tiny/qrels.trec")


def call(*arguments: str) -> Result:
    """Run a command; return its output and exit code."""
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def run_process(words: Sequence[str], folder: Path, **variables: str) -> str:
    """Run a program in a folder with further variables, and return its output; it must end well."""
    done = subprocess.run(
        words, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def pooled(done: Result) -> list[dict[str, str]]:
    """Return the lines of a pool that a command printed."""
    assert done.exit_code == 0, done.output
    return list(csv.DictReader(io.StringIO(done.stdout), dialect="excel-tab"))


def assert_refused(done: Result, message: str) -> None:
    """Check that a command ended with exit code 2 and one line on stderr, beside those of corpora."""
    lines = [line for line in done.stderr.splitlines() if not line.endswith(": corpus ...")]
    assert (done.exit_code, len(lines)) == (2, 1), done.output
    assert message in done.stderr
    assert not PYTHON.search(done.stderr), done.stderr

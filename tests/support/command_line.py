"""Call commands as a person does."""

from __future__ import annotations

from collections.abc import Callable

from click.testing import CliRunner, Result

from harness.cli import main

Call = Callable[..., Result]
# Two run files of the tiny dataset, with their judgements (fixture ``tiny_runs``).
RUN_FILES = ("one.run", "two.run", "--qrels", "tiny/qrels.trec")


def call(*arguments: str) -> Result:
    """Run a command; return its output and exit code."""
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def assert_refused(done: Result, message: str) -> None:
    """Check that a command ended with exit code 2 and one line on stderr, beside those of corpora."""
    lines = [line for line in done.stderr.splitlines() if not line.endswith(": corpus ...")]
    assert (done.exit_code, len(lines)) == (2, 1), done.output
    assert message in done.stderr

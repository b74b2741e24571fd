"""Malformed results folders end in a line naming the file, within memory and time limits."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import resource
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness import filesystem
from tests.integration.strangers import ATTACKS
from tests.support.chance import chance
from tests.support.messages import PYTHON

# What a command may take on top of what its modules take, and how long; honest ones need a tenth of either.
_MORE_BYTES = 1 << 30
_LIMIT_S = 120
_PRELOADED = (
    "harness.cli.report",
    "harness.cli.export",
    "harness.analysis.rows",
    "harness.report.verify",
    "harness.evaluation.frechet",
    "ir_measures",
    "pyarrow.parquet",
    "pytest",
    "pytrec_eval",
    "scipy.special",
    __name__,
)


# Of the attacks on each file a third is drawn; a soak has the others.  What unpacks to very much is always there.
_ALWAYS = ("run of many lines", "answer depths of one line", "samples of a wide grid", "vectors are a bomb")
_DRAWN = [*_ALWAYS]
for _place, _group in itertools.groupby(sorted(ATTACKS.keys() - set(_ALWAYS)), lambda each: each.split()[0]):
    _names = list(_group)
    _DRAWN += chance(f"strangers {_place}").sample(_names, -(-len(_names) // 3))
_LEFT_OUT = sorted(ATTACKS.keys() - set(_DRAWN))

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Ended:
    """End of a command; ``code`` is negative for a signal and ``None`` if it was killed."""

    code: int | None
    said: str


def _command(arguments: list[str], said: str) -> None:
    """Run a command in this process, which is a fork that has imported everything."""
    descriptor = os.open(said, os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    from harness.cli import main

    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MORE_BYTES,) * 2)
    main(arguments)


class Commands:
    """Runs commands in forks of one process, each with its own bounds."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(_PRELOADED))

    def __call__(self, *arguments: str) -> Ended:
        with tempfile.NamedTemporaryFile() as said:
            process = self._context.Process(target=_command, args=(list(arguments), said.name))
            process.start()
            process.join(_LIMIT_S)
            code = process.exitcode
            if code is None:
                process.kill()
                process.join()
            return Ended(code, Path(said.name).read_text(encoding="utf-8", errors="replace"))


@pytest.fixture(scope="module")
def commands() -> Commands:
    return Commands()


@pytest.fixture
def handed(results: Path) -> Iterator[Path]:
    """Return a results folder; pytest could not remove one of 3,000 levels."""
    yield results
    filesystem.remove_tree(results)


def _wrong(ended: Ended, codes: tuple[int, ...], named: str) -> Iterator[str]:
    """Yield the faults of a command's end."""
    if ended.code not in codes:
        yield f"exit code {ended.code}, not in {codes}"
    if "Traceback" in ended.said or "Error" in ended.said:
        yield f"a traceback: {ended.said[-2000:]}"
    if PYTHON.search(ended.said):
        yield f"a Python object: {ended.said[:2000]}"
    if named not in ended.said:
        yield f"{named} is not named: {ended.said[:500]}"
    lines = ended.said.splitlines()
    if ended.code == 2 and (len(lines) != 1 or not lines[0].startswith("harness: ") or len(lines[0]) > 1000):
        yield f"not one line: {ended.said[:2000]}"


def _check(handed: Path, commands: Commands, name: str) -> None:
    attack = ATTACKS[name]
    attack.plant(handed)
    cache = ("--cache", str(handed.parent / "cache"))
    report = commands("report", str(handed), *cache, *attack.arguments)
    verified = commands("verify", str(handed), *cache)
    problems = [f"report: {each}" for each in _wrong(report, (0, 2), "" if attack.unread else attack.named)]
    problems += [
        f"verify: {each}"
        for each in _wrong(verified, (0,) if attack.of_tables else (1, 2), "" if attack.of_tables else attack.named)
    ]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("name", _DRAWN)
def test_malformed_folder_ends_in_a_line_naming_the_file(handed: Path, commands: Commands, name: str) -> None:
    _check(handed, commands, name)


@pytest.mark.soak
@pytest.mark.parametrize("name", _LEFT_OUT)
def test_remaining_malformed_folders_end_in_a_line_naming_the_file(handed: Path, commands: Commands, name: str) -> None:
    _check(handed, commands, name)

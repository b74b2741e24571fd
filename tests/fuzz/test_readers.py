"""No file of a stranger brings down what reads it: an error of one line or a good value, within bounds.

The bounds: 10 s of CPU time, 512 MiB of memory, nothing written outside the reader's own folder.  ``make test`` reads a
sample of the damaged files, and each odd thing in place of one of a reader's files; ``make soak`` reads thousands.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.fuzz import changes
from tests.fuzz.changes import MOST_NUMBER, Change
from tests.fuzz.child import Example, Reader, Sandbox
from tests.fuzz.readers import READERS
from tests.support import chance

pytestmark = pytest.mark.slow
_SOME, _MANY = 12, 2000
_NUMBER = st.integers(0, MOST_NUMBER - 1)
# A whole command takes a tenth of a second for each example.
_COMMANDS = [name for name, reader in READERS.items() if name.startswith("harness ") and reader.weight < 0.1]
every_reader = pytest.mark.parametrize("name", READERS)
every_quick_reader = pytest.mark.parametrize("name", [name for name in READERS if name not in _COMMANDS])


def _examples(reader: Reader) -> SearchStrategy[Example]:
    def of_file(file: str) -> SearchStrategy[Example]:
        one = st.builds(
            lambda edit, at, value: Change(edit[0], at, value, edit[1]),
            st.sampled_from(changes.edits_of(file)),
            _NUMBER,
            _NUMBER,
        )
        return st.builds(lambda made: Example(file, tuple(made)), st.lists(one, min_size=1, max_size=3))

    return st.one_of([of_file(file) for file in reader.files])


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Callable[[str], Sandbox]]:
    """Return a function that makes a reader's sandbox, whose unchanged folder can be read."""
    with contextlib.ExitStack() as stack:

        def make(name: str) -> Sandbox:
            made = Sandbox(READERS[name], tmp_path / "base")
            stack.callback(made.close)
            assert made.complaint(None) is None
            return made

        yield make


def _read_examples(sandbox: Sandbox, reader: Reader, number: int, drawn: int | None = None) -> None:
    """Read examples, the same in each run unless a seed is ``drawn``."""

    @settings(
        max_examples=max(2, round(number * reader.weight)),
        phases=[Phase.generate],  # an example is small from the start
        suppress_health_check=list(HealthCheck),
        derandomize=drawn is None,
        deadline=None,
        database=None,
    )
    @given(example=_examples(reader))
    def read(example: Example) -> None:
        complaint = sandbox.complaint(example)
        assert complaint is None, f"{reader.name}: {example}: {complaint}"

    (read if drawn is None else seed(drawn)(read))()


def _fits(file: str, oddity: str) -> bool:
    """Return whether a reader of this file unpacks what is in it."""
    if "zip of" in oddity and "members" not in oddity:
        return file.endswith(".whl" if oddity.startswith("a zip") else ".tar.gz")
    return file.endswith(("*", ".gz")) or ("gzip" not in oddity and "zstd" not in oddity)


def _read_oddities(
    sandbox: Sandbox,
    reader: Reader,
    oddities: Iterable[str],
    fits: Callable[[str, str], bool] = lambda _file, _oddity: True,
) -> None:
    wrong = {
        (file, oddity): complaint
        for file in reader.files
        for oddity in oddities
        if oddity not in reader.skips and fits(file, oddity)
        if (complaint := sandbox.complaint(Example(file, oddity=oddity))) is not None
    }
    assert not wrong, wrong


@every_reader
def test_reader_refuses_odd_things_in_place_of_its_files(name: str, sandbox: Callable[[str], Sandbox]) -> None:
    files, oddities = READERS[name].files, list(changes.ODDITIES)
    first = chance.chance(f"oddities {name}").randrange(len(files))

    def in_its_turn(file: str, oddity: str) -> bool:
        return files[(first + oddities.index(oddity)) % len(files)] == file

    _read_oddities(sandbox(name), READERS[name], oddities, in_its_turn)


@pytest.mark.soak
@every_reader
def test_reader_refuses_odd_things_in_place_of_any_file(name: str, sandbox: Callable[[str], Sandbox]) -> None:
    _read_oddities(sandbox(name), READERS[name], changes.ODDITIES)


@every_quick_reader
def test_reader_withstands_bombs(name: str, sandbox: Callable[[str], Sandbox]) -> None:
    _read_oddities(sandbox(name), READERS[name], changes.BOMBS, _fits)


@pytest.mark.soak
@every_reader
def test_reader_withstands_bombs_in_place_of_any_file(name: str, sandbox: Callable[[str], Sandbox]) -> None:
    _read_oddities(sandbox(name), READERS[name], changes.BOMBS)


@every_reader
def test_reader_withstands_some_damaged_files(name: str, sandbox: Callable[[str], Sandbox]) -> None:
    _read_examples(sandbox(name), READERS[name], _SOME)


@pytest.mark.soak
@every_reader
def test_reader_withstands_many_damaged_files(name: str, sandbox: Callable[[str], Sandbox]) -> None:
    # pytest prints the seed of all draws (tests/support/chance.py); the same number draws the same examples.
    _read_examples(sandbox(name), READERS[name], _MANY, chance.chance(name).randrange(1 << 32))


# What ``make soak`` has found.
_FOUND = {
    "suites": Example("engines-large.toml", (Change("TOML value", 8470, 8470, False),)),
    "stored jobs": Example(
        "results/*/planted/*/single_stream/*/*/samples.parquet", (Change("double", 3463, 3463, False),)
    ),
    "graded pools": Example("b.tsv", (Change("insert text", 6989, 1235, False),) * 2),
}


@pytest.mark.parametrize("name", _FOUND)
def test_reader_withstands_what_was_found(name: str, sandbox: Callable[[str], Sandbox]) -> None:
    assert sandbox(name).complaint(_FOUND[name]) is None

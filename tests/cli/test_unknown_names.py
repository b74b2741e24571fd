"""An unknown name of any kind is one line that a terminal holds, however many names there are and however long."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import MOST_OF_A_NAME
from tests.conftest import Bench
from tests.support.command_line import Call, call

SYSTEMS = [f"a-system-with-a-rather-long-name-for-a-test-of-messages-{number:03}" for number in range(300)]
SUITE = '{}systems = ["{}"]\ndatasets = ["{}"]\nprofiles = ["{}"]\noverhead = false\n'
RUN = ("run", "own.toml", "--launcher", "fake")
# For each kind of name: a near one, the start of its message, and the command that takes the name.
KINDS = {
    "system": (SYSTEMS[7][:-3] + "7", "unknown system ", ("run", "NAME", "--dataset", "./tiny", "--launcher", "fake")),
    "system of a suite": (SYSTEMS[7][:-3] + "7", "unknown system ", RUN),
    "dataset": ("scifakt", "unknown dataset ", ("run", "planted", "--dataset", "NAME", "--launcher", "fake")),
    "dataset of a suite": ("scifakt", "unknown dataset ", RUN),
    "suite": ("quickstrat", "no suite ", ("run", "NAME", "--launcher", "fake")),
    "hardware profile": ("cpu1-mem11", "unknown hardware profile ", RUN),
    "part of a suite": ("plantet", "key 'firstp': ", RUN),
    "launcher": ("dockr", "unknown launcher ", ("run", "own.toml", "--launcher", "NAME")),
    "engine": ("dens", "unknown engine ", ("images", "--engine", "NAME")),
    "platform": ("linux/arm46", "unknown platform ", ("images", "planted", "--platform", "NAME")),
    "instance type": ("m6g.medum", "unknown instance type ", ("validate", "planted", "--instance", "NAME")),
    "region": ("us-east-9", "unknown region ", ("instances", "--cpu", "1", "--memory", "1", "--region", "NAME")),
    "term": ("on_demand", "unknown term ", ("instances", "--cpu", "1", "--memory", "1", "--term", "NAME")),
    "latency figure": ("p59", "unknown latency figure ", ("viable", "planted", "--max-latency", "NAME=1ms")),
    "calibration case": ("spin-2ms", "unknown calibration case ", ("calibrate", "--only", "NAME")),
    "measure": ("nDGC@10", "unknown measure ", ("report", "quickstart", "--measures", "NAME")),
    "column": ("latnecy", "unknown column ", ("report", "quickstart", "--sort", "NAME")),
    "finding": ("latnecy", "no result, column or finding ", ("explain", "NAME", "--results", "quickstart")),
    "axis": ("acuracy", "unknown axis ", ("leaderboard", "quickstart", "--rank-by", "NAME")),
    "weights": ("qualty", "unknown preset of weights ", ("leaderboard", "quickstart", "--weights", "NAME")),
    "exact system": ("bm52", "unknown system ", ("recall", "quickstart", "--of", "NAME")),
    "results": ("quickstrat", "", ("report", "NAME")),
}


@pytest.fixture
def harness(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    """The command line in a folder with 300 systems of one's own."""
    for name in SYSTEMS:
        bench.plant(name)
    monkeypatch.setenv("HARNESS_CACHE", str(bench.cache))
    monkeypatch.chdir(bench.folder)
    yield call


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_unknown_name_is_one_short_line_with_the_nearest_name(harness: Call, kind: str) -> None:
    near, begin, command = KINDS[kind]
    line = _said(harness, kind, near, command)
    assert line.startswith(begin) and "Did you mean " in line, line
    for strange in ("#", "z" * 200):
        line = _said(harness, kind, strange, command)
        assert line.startswith(begin) and "Did you mean" not in line, line


def _said(harness: Call, kind: str, name: str, command: tuple[str, ...]) -> str:
    names = {"system of a suite": "planted", "dataset of a suite": "./tiny", "hardware profile": "cpu1-mem1"}
    parts = {key: name if key == kind else usual for key, usual in names.items()}
    Path("own.toml").write_text(SUITE.format("", *parts.values()), encoding="utf-8")
    if kind == "part of a suite":
        with Path("own.toml").open("a", encoding="utf-8") as file:
            file.write(f'[firstp]\nplanted = "{name}"\n')
    done = harness(*(word.replace("NAME", name) for word in command))
    assert done.exit_code == 2, done.output
    *usage, line = done.stderr.splitlines()
    assert not usage or line.startswith("Error: "), done.stderr
    # The place is as long as people make it.
    text = re.sub(r"^(harness: |Error: Invalid value for '[^']*': )(own\.toml: )?", "", line)
    text = text.removeprefix(f"{name}: ") if kind == "results" else text
    assert len(text) <= MOST_OF_A_NAME, f"{len(text)} characters: {text}"
    return text

"""Tests of scripts/test with commands that only record their calls."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import LONG_TESTS, TEST_GROUPS
from tests.integration.proxy import wait_until

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "test"

# pytest ends in order on Ctrl-C, with a code of its own.
PYTEST = f"""#!{sys.executable}
import sys, time
with open("runs", "a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
try:
    time.sleep(60 if "slow" in open("how").read() else 0)
except KeyboardInterrupt:
    sys.exit(2)
sys.exit("fails" in open("how").read())
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a checkout whose commands only record their calls."""
    for name in ("scripts", "tests", ".venv/bin"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / "scripts")
    (tmp_path / "tests" / "test_some.py").write_text("pytestmark = pytest.mark.docker")
    (tmp_path / "tests" / "test_node.py").write_text("pytestmark = pytest.mark.cluster")
    for name, text in (
        (".venv/bin/python", PYTEST),
        (".venv/bin/harness", "#!/bin/sh\n"),
        ("scripts/test-tools", "#!/bin/sh\n"),
        ("scripts/with-cluster", '#!/bin/sh\necho "cluster required: $HARNESS_CLUSTER_REQUIRED" >>runs\nexec "$@"\n'),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def started(checkout: Path, how: str, *what: str) -> subprocess.Popen[bytes]:
    (checkout / "how").write_text(how)
    (checkout / "memory").mkdir()
    with (checkout / "output").open("wb") as output:
        return subprocess.Popen(
            [checkout / "scripts" / "test", *what],
            env={**os.environ, "TMPDIR": str(checkout / "memory")},
            stdout=output,
            start_new_session=True,
        )


def runs(checkout: Path) -> list[str]:
    path = checkout / "runs"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.slow
def test_script_runs_tests_with_an_engine_last(checkout: Path) -> None:
    assert started(checkout, "quick").wait(60) == 0
    *aside, last = runs(checkout)
    on_cluster, longest, first, *clusters = sorted(aside)
    assert "not (docker or browser or tools or cluster) and not soak" in first and "tests/test_" not in first
    on_cluster, longest = sorted((on_cluster, longest), key=len)
    assert on_cluster.endswith("-m cluster and not soak tests/test_node.py")
    assert longest.endswith("-m cluster and not soak tests/integration/test_apptainer.py")
    assert clusters == ["cluster required: 1"] * 2
    assert last.endswith("-m (docker or browser or tools) and not cluster and not soak tests/test_some.py")
    assert list((checkout / "memory").iterdir()) == [], "nothing temporary is left"


@pytest.mark.parametrize(("how", "code", "line"), [("quick", 0, "soak: all limits hold"), ("fails", 1, "soak: FAILED")])
def test_soak_runs_calibration_alone_and_ends_with_a_verdict(checkout: Path, how: str, code: int, line: str) -> None:
    assert started(checkout, how, "soak").wait(60) == code
    assert runs(checkout) == [
        "-m pytest -n 2 -m soak --ignore tests/experiments/calibration",
        "-m pytest -m soak tests/experiments/calibration",
    ]
    assert (checkout / "output").read_text().splitlines()[-1] == line


@pytest.mark.slow
def test_script_stops_on_ctrl_c(checkout: Path) -> None:
    process = started(checkout, "slow")
    wait_until(lambda: len(runs(checkout)) == 5, "the first runs")
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(60) == 130
    assert len(runs(checkout)) == 5, "what came after them did not begin"
    assert list((checkout / "memory").iterdir()) == []


def test_order_and_groups_of_tests_name_existing_files() -> None:
    paths = [str(path.relative_to(ROOT / "tests")) for path in ROOT.glob("tests/**/test_*.py")]
    stale = {
        start
        for start in (*LONG_TESTS, *TEST_GROUPS)
        if not any(path.startswith(start.partition("::")[0]) for path in paths)
    }
    assert not stale

"""What a command imports before it answers: most of the time that a short command takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli import main
from harness.config import data_root

NEVER = {"boto3", "botocore", "docker", "harness.aws.results", "ir_datasets", "ir_measures", "matplotlib", "nltk"}
NEVER |= {"pandas", "requests", "scipy"}
OTHER_LAYOUTS = {
    "harness.report.cheapest",
    "harness.report.latex",
    "harness.report.leaderboard",
    "harness.report.plots.style",
}
OTHER_LAYOUTS |= {"harness.evaluation.evaluate", "harness.analysis.long_documents", "harness.aws.clients"}
DEMO = ("demo", "--launcher", "fake")
REPORT = ("report", str(data_root() / "results" / "published" / "quickstart"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "late"),
    [
        (
            ("--help",),
            NEVER | {"numpy", "pyarrow", "pydantic", "rich", "harness.untrusted", "harness.analysis", "harness.jobs"},
        ),
        # All jobs are stored: nothing is measured, judged, or written again.
        (
            (*DEMO, "--only", "*/cpu1-mem1"),
            (NEVER - {"ir_measures"}) | {"harness.aws.clients", "harness.remote.run", "harness.evaluation.evaluate"},
        ),
        # The rows and the test are cached: nothing is scored or tested again.
        (
            REPORT,
            NEVER | {"numpy", "pyarrow", "rich.progress", "harness.datasets", "harness.report.page"} | OTHER_LAYOUTS,
        ),
    ],
    ids=["help", "demo that is done", "report"],
)
def test_short_command_imports_no_heavy_module(
    arguments: tuple[str, ...], late: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, arguments).exit_code == 0
    code = (
        "import sys; from harness.__main__ import start\n"
        f"sys.argv = ['harness', *{arguments!r}]\n"
        "try: start()\n"
        f"except SystemExit: print(*sorted({late!r} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout and done.stderr.splitlines()[-1] == ""

"""The wheel: it holds what commands read, and they work from it in an empty folder, without a clone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from harness import config
from harness.config import CACHE_VARIABLE
from harness.pricing.instances import PRICES_VARIABLE

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("images", "instance_profiles", "datasets", "docs", "results/published")
# One process for all commands: it prints, for each, its exit code, its output and its errors.
COMMANDS = """
import json
import sys
from pathlib import Path
from click.testing import CliRunner
import harness
from harness.cli import main

assert Path(harness.__file__).is_relative_to(sys.argv[1]), harness.__file__
for line in sys.stdin.read().splitlines():
    done = CliRunner().invoke(main, line.split(" "))
    print(json.dumps([done.exit_code, done.stdout, done.stderr, repr(done.exception)]))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and unpack it, as an installer does."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def files(folder: Path) -> set[str]:
    """Return the names of all files under a folder that are not caches of Python's."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.slow
def test_wheel_holds_every_file_that_commands_read(site: Path) -> None:
    shipped = site / "harness" / "shipped"
    for name in SHIPPED:
        assert files(shipped / name) == files(ROOT / name), name
    assert (shipped / "suites" / "quickstart.toml").read_bytes() == (ROOT / "suites" / "quickstart.toml").read_bytes()
    program = {name for name in files(site / "harness") if not name.startswith("shipped/")}
    assert program == files(ROOT / "harness")
    (metadata,) = site.glob("*.dist-info")
    assert "harness = harness.__main__:start" in (metadata / "entry_points.txt").read_text()


@pytest.mark.slow
def test_every_page_that_the_program_names_is_in_the_wheel(site: Path) -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "harness").rglob("*.py")]
    named = {name for text in texts for name in re.findall(r"docs/[\w/-]+\.md", text)}
    assert "docs/guides/add-a-system.md" in named
    assert [name for name in sorted(named) if not (site / "harness" / "shipped" / name).is_file()] == []


def run(site: Path, folder: Path, *commands: str) -> dict[str, tuple[int, str, str]]:
    """Run commands of the wheel in an empty folder; return exit code, output and errors of each."""
    (folder / "empty").mkdir()
    done = subprocess.run(
        # Without the editable installation of this environment: its interpreter reads no .pth file.
        [getattr(sys, "_base_executable", sys.executable), "-c", COMMANDS, str(site)],
        input="\n".join(commands),
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{site}{os.pathsep}{sysconfig.get_path('purelib')}",
            CACHE_VARIABLE: str(folder / "cache"),
            PRICES_VARIABLE: os.devnull,
            "DOCKER_HOST": f"unix://{folder}/none.sock",
        },
        cwd=folder / "empty",
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(commands), done.stderr
    wrong = [(name, error) for name, (*_, error) in zip(commands, lines, strict=True) if "SystemExit" not in error]
    assert [(name, error) for name, error in wrong if error != "None"] == []
    return {name: (code, out, err) for name, (code, out, err, _) in zip(commands, lines, strict=True)}


@pytest.mark.slow
def test_commands_of_the_wheel_work_in_an_empty_folder(site: Path, tmp_path: Path) -> None:
    commands = [f"report {name} --format csv" for name in config.published_names()]
    commands += [
        "report results/published/santhanam2023",
        "report santhanam2023 --format html",
        "leaderboard santhanam2023 --dataset msmarco",
        "--help",
        "demo --help",
        "systems",
        "systems bm25",
        "prices",
        "prices fetch --help",
        "instances --cpu 2 --memory 4",
        "explain tantivy --results quickstart",
        "plan quickstart --launcher fake",
        "demo --launcher fake --only */cpu1-mem1",
    ]
    done = run(site, tmp_path, *commands)
    assert {name: each for name, each in done.items() if each[0] != 0 or len(each[1]) <= 20} == {}
    assert done["demo --launcher fake --only */cpu1-mem1"][1].startswith("scifact-1200, ")
    assert {path.name for path in (tmp_path / "empty").iterdir()} == {"results"}
    said = "".join(f"{out}{err}" for _, out, err in done.values())
    assert str(ROOT) not in said and "scripts/" not in said


@pytest.mark.slow
def test_messages_of_the_wheel_name_files_that_are_there(site: Path, tmp_path: Path) -> None:
    service, no_engine = "report http://localhost:9200", "demo"
    spot = "instances --cpu 1 --memory 1 --term spot"
    done = run(site, tmp_path, service, no_engine, "doctor --quick", "export --help", spot)
    page = site / "harness" / "shipped" / "docs" / "guides" / "services.md"
    assert done[service][0] == 2 and f"a service that runs already ({page})" in done[service][2]
    assert page.is_file()
    columns = re.search(r"^  Columns: (.+/columns.md)$", done["export --help"][1], re.MULTILINE)
    assert columns and Path(columns[1]).is_relative_to(site) and Path(columns[1]).is_file()
    code, _, error = done[no_engine]
    assert code == 1 and "the Docker engine does not answer" in error and "--launcher process" in error
    code, checks, _ = done["doctor --quick"]
    assert code == 1 and "no Docker engine answers" in checks and "use --launcher process" in checks
    assert "`harness prices fetch --region us-east-1 --spot`" in done[spot][2]

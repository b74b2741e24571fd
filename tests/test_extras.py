"""The bare installation: its commands run without the packages of any extra, and each extra's commands name it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import harness
from harness import config, extras
from harness.errors import UsageError

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# A process in which no package of an extra can be found; it prints each command's exit code and what it says.
WITHOUT_EXTRAS = """
import importlib.machinery
import sys

blocked = set(sys.argv[1].split(","))


class PathFinder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in blocked else super().find_spec(name, path, target)


sys.meta_path[:] = [PathFinder if each is importlib.machinery.PathFinder else each for each in sys.meta_path]

from click.testing import CliRunner
from harness.cli import main

for line in sys.stdin.read().splitlines():
    done = CliRunner().invoke(main, line.split(" "))
    text = done.stdout if done.exit_code == 0 else done.stderr
    print(done.exit_code, line, repr(done.exception) if done.exit_code == 1 else text.strip(), sep="\\t")
    assert not blocked & {name.partition(".")[0] for name in sys.modules}
"""


def run_bare(folder: Path, *commands: str) -> dict[str, tuple[int, str]]:
    """Run commands one after the other without the extras' packages; return exit code and text of each."""
    imported = {"boto3", "botocore", "ijson", "ir_datasets", "matplotlib", "nltk", "pandas", "tokenizers"}
    assert imported >= extras.EXTRAS.keys()
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS, ",".join(imported)],
        input="\n".join(commands),
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HARNESS_CACHE": str(folder / "cache")},
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    parts = re.split(rf"^(\d)\t({'|'.join(map(re.escape, commands))})\t", done.stdout, flags=re.MULTILINE)
    return {name: (int(code), text.strip()) for code, name, text in zip(*[iter(parts[1:])] * 3, strict=True)}


@pytest.mark.slow
def test_commands_of_the_bare_installation_need_no_extra(tmp_path: Path) -> None:
    done = run_bare(
        tmp_path,
        "--help",
        "systems",
        "prices",
        "instances --cpu 2 --memory 4",
        "report quickstart",
        "report quickstart --format html",
        "explain bm25 --results quickstart",
        "leaderboard quickstart",
        "compare bm25 minilm --results quickstart",
        "reprice quickstart",
        "verify quickstart",
        "export quickstart --format csv -o rows.csv",
        "export quickstart --format ir_metadata -o runs",
        "export --help",
        "generate --help",
        "positions --help",
        "plan quickstart --launcher fake",
        "demo --launcher fake --only */cpu1-mem1",
        "run suites/quickstart.toml --launcher ec2 --dry-run",
    )
    assert {name: text for name, (code, text) in done.items() if code != 0 or not text} == {}
    assert done["report quickstart"][1].startswith("scifact-1200, priced on c7a.medium")


AWS = "EC2, AWS Batch and S3 need boto3: pip install 'ir-harness[aws]'"
FRAMES = "data frames, Parquet and SQLite need pandas: pip install 'ir-harness[notebooks]'"
PICTURES = "pictures need matplotlib: pip install 'ir-harness[plots]'"
DATASETS = "pip install 'ir-harness[datasets]'"
IR_DATASETS = f"collections of ir_datasets need ir-datasets: {DATASETS}"
NEEDY = {
    "run quickstart --launcher ec2 --work s3://bucket/work": AWS,
    "run quickstart --launcher batch --work s3://bucket/work": AWS,
    "report s3://bucket/results": AWS,
    "run quickstart --launcher fake --results s3://bucket/results": AWS,
    "ec2 ls": AWS,
    "prices fetch --spot": AWS,
    "prices fetch": "AWS's price lists need ijson: pip install 'ir-harness[aws]'",
    "batch ls": AWS,
    "report quickstart --format png -o pictures": PICTURES,
    "leaderboard quickstart --format svg -o pictures": PICTURES,
    "robustness quickstart --format pdf -o pictures": PICTURES,
    "curve bm25": PICTURES,
    "export quickstart --format parquet -o rows.parquet": FRAMES,
    "export quickstart --format sqlite -o rows.db": FRAMES,
    "generate uniform --from scifact --out made": f"token counts of passages need tokenizers: {DATASETS}",
    "generate uniform --from ./xor#xor_dev --out made": f"answers in passages (R@2kt) need nltk: {DATASETS}",
}


@pytest.mark.slow
def test_missing_extra_is_one_line_where_it_is_needed(tmp_path: Path) -> None:
    (tmp_path / "xor").mkdir()
    for name in ("psgs_w100.tsv", "xor_dev.jsonl", "queries.tsv"):
        (tmp_path / "xor" / name).touch()
    done = run_bare(tmp_path, *NEEDY, "viable minilm --dataset beir/scifact/test", "viable minilm --dataset scifcat")
    assert {name: done[name] for name in NEEDY} == {name: (2, f"harness: {text}") for name, text in NEEDY.items()}
    code, said = done["viable minilm --dataset beir/scifact/test"]
    assert code == 2 and said.startswith(
        "harness: unknown dataset 'beir/scifact/test'; known: a folder such as ./my-data"
    )
    assert said.endswith(f" more; {IR_DATASETS}") and len(said) <= len("harness: ") + 200
    assert done["viable minilm --dataset scifcat"] == (
        2,
        "harness: unknown dataset 'scifcat'. Did you mean 'scifact'?",
    )
    assert not [path.name for path in tmp_path.iterdir() if path.name not in ("cache", "xor")]


def test_each_package_of_an_extra_has_its_line() -> None:
    declared = {
        (Requirement(line).name, extra)
        for extra, lines in PROJECT["optional-dependencies"].items()
        if extra != "all"
        for line in lines
    }
    assert {(extra.distribution, extra.name) for extra in extras.EXTRAS.values()} == declared
    (everything,) = map(Requirement, PROJECT["optional-dependencies"]["all"])
    assert everything.extras == {extra for _, extra in declared}


def test_data_frames_name_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UsageError) as error:
        harness.load  # noqa: B018 # importing it is what fails
    assert str(error.value) == FRAMES


@pytest.mark.parametrize(
    ("marker", "folder", "command"),
    [
        ("pyvenv.cfg", "venv", "pip install 'ir-harness[plots]'"),
        ("pipx_metadata.json", "venvs/ir-harness", "pipx inject ir-harness matplotlib"),
        ("uv-receipt.toml", "tools/ir-harness", "uv tool install 'ir-harness[aws,plots]'"),
        ("pyvenv.cfg", "archive-v0/aBcD", "uvx --from 'ir-harness[aws,plots]' harness"),
    ],
)
def test_missing_extra_names_the_installer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marker: str, folder: str, command: str
) -> None:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / marker).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / folder))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name in ("boto3", "ijson") else None)
    assert extras.missing("matplotlib") == f"pictures need matplotlib: {command}"
    assert extras.missing("boto3") == ""


def test_shipped_suite_has_a_name_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = config.data_root() / "suites" / "quickstart.toml"
    assert config.suite_by_name(Path("quickstart")) == shipped
    assert config.suite_by_name(Path("suites/quickstart.toml")) == shipped
    for other in ("other/quickstart.toml", "quickstart.toml", "./other", "..", ".", "", "suites", "quickstar"):
        assert config.suite_by_name(Path(other)) == Path(other)
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "quickstart.toml").touch()
    assert config.suite_by_name(Path("suites/quickstart.toml")) == Path("suites/quickstart.toml")

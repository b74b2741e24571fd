"""The measured result that ships: sealed, small, and about no machine but by its CPU."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pyarrow.parquet
import pytest
from click.testing import CliRunner

from harness import config
from harness.cli import main
from harness.results import reader

pytestmark = pytest.mark.slow

REFERENCE = config.published_folder() / "quickstart"
# Paths of a machine, and names of users, hosts and networks.
PRIVATE = re.compile(rb"/(?:root|home|tmp|work|var|mnt|Users)/|[\w.-]+@[\w-]+\.|\b(?:\d{1,3}\.){3}\d{1,3}:\d|hostname")


def contents(path: Path) -> bytes:
    """Return what a file says, unpacked."""
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes())
    if path.suffix == ".parquet":
        table = pyarrow.parquet.read_table(path)
        return str(table.schema.metadata).encode() + b"".join(str(table[name]).encode() for name in table.column_names)
    return path.read_bytes()


def test_reference_is_sealed_and_small() -> None:
    done = CliRunner().invoke(main, ["verify", "quickstart"])
    assert done.exit_code == 0, done.output
    assert sum(path.stat().st_size for path in REFERENCE.rglob("*") if path.is_file()) < 4_000_000


def test_reference_names_nothing_of_its_machine_but_the_hardware() -> None:
    for path in REFERENCE.rglob("*"):
        if path.is_file():
            assert not (found := PRIVATE.search(contents(path))), f"{path.name}: {found}"
    for job in reader.read_jobs(REFERENCE):
        assert job.result.environment.cpu_model


@pytest.mark.parametrize("command", ["report", "leaderboard"])
def test_reference_is_shown_by_name(command: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, [command, "quickstart", "--cache", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert all(name in done.stdout for name in ("bm25", "minilm", "scifact", "out of memory"))
    explained = CliRunner().invoke(main, ["explain", "bm25", "--results", "quickstart", "--cache", str(tmp_path)])
    assert explained.exit_code == 0 and "Measured on" in explained.stdout, explained.output

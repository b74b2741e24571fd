"""Runs a real ``harness run`` as a child process and compares its surroundings."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import docker
from click.testing import CliRunner

from harness.cli import main
from harness.filesystem import has_died
from harness.launch.container import LABEL
from harness.pricing import prices, serverless
from harness.report import render
from harness.results.reader import read_jobs
from tests.conftest import Bench
from tests.support.stored_jobs import build_table


@dataclass(frozen=True)
class Finished:
    """End of a command; ``peak_bytes`` is its peak resident memory, 0 if unknown."""

    code: int
    said: str
    peak_bytes: int

    @property
    def complaint(self) -> str:
        """Return its last line; fail on a traceback."""
        assert "Traceback" not in self.said, self.said
        return self.said.strip().splitlines()[-1] if self.said.strip() else ""


def command(bench: Bench, path: Path, *more: str) -> list[str]:
    """``harness run`` on this bench."""
    places = ["--results", str(bench.results), "--cache", str(bench.cache)]
    return [sys.executable, "-m", "harness", "run", str(path), *places, *more]


def environment(bench: Bench, **more: str) -> dict[str, str]:
    """The child's environment: temporary files where a test can look for leftovers."""
    scratch = bench.folder / "tmp"
    scratch.mkdir(exist_ok=True)
    return {**os.environ, "HARNESS_IMAGES": str(bench.folder / "engines"), "TMPDIR": str(scratch), **more}


def start(bench: Bench, arguments: Sequence[str], **more: str) -> subprocess.Popen[bytes]:
    """Start a command that writes its output to ``said.txt``."""
    with (bench.folder / "said.txt").open("wb") as said:
        return subprocess.Popen(
            arguments, env=environment(bench, **more), stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )


def finish(bench: Bench, child: subprocess.Popen[bytes]) -> Finished:
    """Wait for its end."""
    peak_bytes = 0
    while child.poll() is None:
        # The kernel's own mark of this program.  What it tells at the end (ru_maxrss) also holds what the process had
        # when it was a copy of this one, whose libraries are many.
        peak_bytes = max(peak_bytes, _peak_bytes(child.pid))
        time.sleep(0.02)
    said = (bench.folder / "said.txt").read_text(encoding="utf-8", errors="replace")
    return Finished(child.returncode, said, peak_bytes)


def _peak_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def run(bench: Bench, arguments: Sequence[str], **more: str) -> Finished:
    """Run a command to its end."""
    return finish(bench, start(bench, arguments, **more))


def run_here(bench: Bench, arguments: Sequence[str], **more: str) -> Finished:
    """Run a command of ``command`` in this process: where nothing dies with it, it needs none of its own."""
    there = mock.patch.dict(os.environ, more)
    with mock.patch.object(tempfile, "tempdir", environment(bench)["TMPDIR"]), there:
        done = CliRunner().invoke(main, arguments[3:], catch_exceptions=False)
    return Finished(done.exit_code, done.output, 0)


def table(results: Path) -> str:
    """Return the whole table as text."""
    made = build_table(read_jobs(results), snapshot=prices.snapshot(), serverless=serverless.FILES.newest())
    return render(made, "json")


def leftovers(bench: Bench) -> list[str]:
    """Return leftovers that a run should have removed."""
    found = [path for folder in (bench.results, bench.cache) for path in folder.rglob("*.partial")]
    found += bench.results.rglob(".staging")
    found += (bench.folder / "tmp").iterdir()
    found += (bench.cache / "tmp").iterdir() if (bench.cache / "tmp").is_dir() else []
    return sorted(str(path.relative_to(bench.folder)) for path in found)


def orphans(engine: docker.DockerClient, name: str) -> list[str]:
    """Return containers of these systems whose harness process is dead."""
    found = engine.containers.list(all=True, filters={"label": LABEL, "name": f"harness-{name}"}, ignore_removed=True)
    return [each.name for each in found if has_died(each.labels[LABEL])]


def files(folder: Path) -> Iterator[tuple[str, str]]:
    """Return everything below a folder by path: mode, and content or target."""
    for path in sorted(folder.rglob("*")):
        facts = path.lstat()
        if path.is_symlink():
            what = f"-> {path.readlink()}"
        elif path.is_file():
            what = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            what = "folder"
        yield str(path.relative_to(folder)), f"{facts.st_mode:o} {facts.st_uid} {what}"


def stored(results: Path) -> dict[str, str]:
    """Return every stored job's folder with a hash of its files."""
    return {
        str(job.folder.relative_to(results)): json.dumps(dict(files(job.folder))) for job in read_jobs(results)
    } if results.is_dir() else {}  # fmt: skip

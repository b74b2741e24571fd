"""Time an empty job (start, load, one query, stored) against a bare ``docker run`` of the same image."""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import tempfile
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from benchmarks.spec import ENVELOPE, spec
from benchmarks.table import Line
from harness.driver.records import to_json
from harness.jobs import orchestrator, suite
from harness.jobs.inputs import RunOptions, gather
from harness.launch.docker import DockerLauncher
from harness.launch.images import catalog
from harness.results.isolation import PROCESS

ROUNDS = 3
JOBS = 4


def lines(launcher: DockerLauncher, cache: Path) -> list[Line]:
    """Measure it."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        suite_path = _suite(work)
        prepared = launcher.prepare(catalog.system("null"))
        _harness_jobs(suite_path, cache, launcher)  # builds the index, warms the page cache
        with_harness, bare = [], []
        for _ in range(ROUNDS):
            with_harness += _harness_jobs(suite_path, cache, launcher)
            bare += [_bare_docker_run(work, cache, prepared.reference) for _ in range(JOBS - 1)]
    job_s, bare_s = statistics.median(with_harness), statistics.median(bare)
    return [
        Line(
            "an empty job, stored, against `docker run` of the same image and job",
            f"{job_s:.2f} s",
            f"{bare_s:.2f} s",
            f"{job_s / bare_s:.2f} x",
            "1.5 x",
            job_s <= 1.5 * bare_s,
        )
    ]


def _suite(work: Path) -> Path:
    """Write a suite: one cell of the null system, one query a trial."""
    tiny = work / "tiny"
    tiny.mkdir()
    lines = "".join(json.dumps({"_id": f"d{n}", "title": "", "text": f"word {n}"}) + "\n" for n in range(10))
    (tiny / "corpus.jsonl").write_text(lines, encoding="utf-8")
    topics = "".join(json.dumps({"_id": f"q{n}", "text": f"word {n}"}) + "\n" for n in range(2))
    (tiny / "queries.jsonl").write_text(topics, encoding="utf-8")
    (tiny / "qrels.trec").write_text("q0 0 d0 1\n", encoding="utf-8")
    path = work / "bench.toml"
    path.write_text(
        'systems = ["null"]\ndatasets = ["./tiny"]\nprofiles = ["cpu1-mem1"]\n'
        f"[protocol]\ntrials = {JOBS}\nsample_size = 1\nwarmup_queries = 1\nwarmup_cap = 1\nrepeats = 0\n",
        encoding="utf-8",
    )
    return path


def _harness_jobs(path: Path, cache: Path, launcher: DockerLauncher) -> list[float]:
    """Return the seconds from the start of each job to the start of the next."""
    loaded = suite.load(path)
    options = RunOptions(path.parent / "results", cache, path.parent, fresh=True)
    summary = orchestrator.run_suite(gather(loaded, options), options, launcher)
    if summary.unforeseen:
        raise SystemExit(summary.complaints[0])
    starts = sorted(datetime.fromisoformat(result.started_at) for result, _expected in summary.jobs)
    return [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(starts)]


def _bare_docker_run(work: Path, cache: Path, image: str) -> float:
    """Time the same job by the engine's own command line, unobserved, unchecked and not stored."""
    index = next((cache / "indexes").glob("*/data/ids.json")).parent
    with tempfile.TemporaryDirectory(dir=work) as folder:
        job = Path(folder)
        job.chmod(0o755)
        (job / "out").mkdir()
        (job / "out").chmod(0o777)
        job_spec = replace(spec(1), envelope=replace(ENVELOPE, cpus=len(os.sched_getaffinity(0))))
        (job / "spec.json").write_text(to_json(replace(job_spec, enforced=PROCESS.enforced)), encoding="utf-8")
        start = time.perf_counter()
        done = subprocess.run(
            ["docker", "run", "--rm", "--network=none", "-v", f"{job}:/job", "-v", f"{index}:/index:ro", image],
            capture_output=True,
            text=True,
            check=False,
        )
        taken = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"the bare run failed: {done.stderr[-300:]}")
    return taken

"""Makes a small results folder with all scenarios and outcomes, and damages copies of it."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.driver.records import Outcome
from harness.launch.base import LaunchRequest
from harness.launch.fake import FakeLauncher
from harness.results import seals
from harness.results.reader import RESULT
from harness.results.suite_record import FILE
from tests.conftest import Bench, protocol, write_dataset

QUERIES = 40
_SCENARIOS = "[offline]\nbatch_size = 3\n[server]\nlatency_target_s = 0.1\nlatency_percentile = 50\n"


def make(bench: Bench) -> None:
    """Run two systems in three scenarios, two jobs each; one runs out of memory."""
    large = write_dataset(bench.folder / "large")
    topics = [{"_id": f"q{n}", "text": f"where is number {n}"} for n in range(QUERIES)]
    (large / "queries.jsonl").write_text("".join(json.dumps(topic) + "\n" for topic in topics))
    (large / "qrels.trec").write_text("".join(f"q{n} 0 d1 1\n" for n in range(QUERIES)))
    bench.plant("greedy")
    path = bench.suite(
        protocol(2, repeats=2) + _SCENARIOS,
        systems=["planted", "greedy"],
        datasets=["./large"],
        scenarios=["single_stream", "offline", "server"],
    )

    def script(job: LaunchRequest) -> Outcome:
        return Outcome.OOM if job.spec.system == "greedy" and job.spec.kind == "search" else Outcome.OK

    bench.run(FakeLauncher(script), path)


def job(results: Path, system: str = "planted", scenario: str = "single_stream", number: int = 0) -> Path:
    """Return the folder of one job."""
    folders = [
        path.parent
        for path in sorted(results.rglob(RESULT))
        if (spec := json.loads(path.read_text())["spec"])["cell"]["system"] == system
        and spec["cell"]["scenario"] == scenario
        and spec["job"] == number
    ]
    return folders[0]


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edit a job's record, then seal and list it again.  The file is a new one: others may be linked to the old."""
    raw = json.loads((folder / RESULT).read_text())
    edit(raw)
    with contextlib.suppress(ValueError):  # JSON has no word for it
        raw["seal"] = seals.of(raw)
    put(folder / RESULT, json.dumps(raw).encode())
    relist(folder.parents[4])


def relist(suite: Path) -> None:
    """Rewrite a suite's manifest from the stored jobs; the lines of its other files stay."""
    records = {path.parent: json.loads(path.read_text()) for path in sorted(suite.rglob(RESULT))}
    listed = {str(folder.relative_to(suite)): raw["seal"] for folder, raw in records.items()}
    files = {path: sha256 for path, sha256 in (seals.read(suite) or {}).items() if seals.names_file(path)}
    put(suite / seals.MANIFEST, seals.text(listed | files).encode())


def seal_files(suite: Path) -> None:
    """List a suite's other files in its manifest as they are now."""
    listed = {path: seal for path, seal in (seals.read(suite) or {}).items() if not seals.names_file(path)}
    listed[FILE] = hashlib.sha256((suite / FILE).read_bytes()).hexdigest()
    for path in (each for folder in seals.INPUT_FOLDERS for each in sorted((suite / folder).glob("*"))):
        listed[path.relative_to(suite).as_posix()] = path.name.partition(".")[0]
    put(suite / seals.MANIFEST, seals.text(listed).encode())


def replace(folder: Path, name: str, content: bytes) -> None:
    """Replace a file of a job and update its checksum."""
    put(folder / name, content)
    change(folder, lambda raw: raw["files"].update({name: hashlib.sha256(content).hexdigest()}))


def put(path: Path, content: bytes) -> None:
    """Replace a file with a new one."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)

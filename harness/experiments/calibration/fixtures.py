"""A calibration's dataset, its suites, and a launcher that injects faults from outside."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from harness import child_process, datasets
from harness.analysis.evaluate_job import JobEvaluator
from harness.analysis.rows import build_rows
from harness.analysis.table import Row
from harness.datasets import Dataset, QuerySample
from harness.driver.records import Envelope, Outcome
from harness.experiments.calibration.cases import Case, Group
from harness.experiments.calibration.known_values import JobEnd
from harness.jobs import orchestrator
from harness.jobs.inputs import Inputs, RunOptions
from harness.jobs.suite import Suite
from harness.launch.base import LaunchEnd, Launcher, LaunchRequest, Prepared
from harness.launch.images.systems import System
from harness.progress import NOWHERE, Progress, show_progress
from harness.results.reader import StoredJob, read_jobs

_DATASET = "planted"
_DOCUMENTS = 20
_MAXIMUM_QUERIES = 2000
_MAXIMUM_WARMUP = 64
_BUILD = Envelope("calibration-build", 1, 512 << 20)

# A busy loop on one CPU.  It ends with its standard input, so at the latest when this process dies.
_RIVAL = """
import os, sys, threading
os.sched_setaffinity(0, {int(sys.argv[1])})
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
while True:
    pass
"""


def dataset(folder: Path, cache: Path) -> Dataset:
    """Write a tiny corpus and queries that each end in a quantile, drawn by a fixed seed.

    A lognormal system takes the latency at that quantile of its distribution.

    Args:
        folder: an empty folder for the files; it may be removed afterwards.
        cache: the cache, which keeps the corpus.
    """
    chance = random.Random("calibration")
    source = folder / _DATASET
    documents = [{"_id": f"d{number:02}", "text": f"document {number}"} for number in range(_DOCUMENTS)]
    queries = [
        {"_id": f"q{number:04}", "text": f"query {number} quantile {chance.uniform(1e-6, 1 - 1e-6):.9f}"}
        for number in range(_MAXIMUM_QUERIES + _MAXIMUM_WARMUP)
    ]
    write_dataset(source, documents, queries, [(str(query["_id"]), "d00") for query in queries[:_MAXIMUM_QUERIES]])
    return datasets.load(source, cache)


def write_dataset(
    folder: Path, documents: Iterable[object], queries: Iterable[object], relevant: Iterable[tuple[str, str]]
) -> None:
    """Write a dataset into a new folder; ``relevant`` are pairs of query and document."""
    folder.mkdir(parents=True)
    for name, records in (("corpus.jsonl", documents), ("queries.jsonl", queries)):
        lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        (folder / name).write_text(lines, encoding="utf-8")
    qrels = "".join(f"{query} 0 {document} 1\n" for query, document in relevant)
    (folder / "qrels.trec").write_text(qrels, encoding="utf-8")


def inputs(group: Group, base: System, dataset: Dataset) -> Inputs:
    """Write the inputs of a group's suite; each case is a system with the case's name."""
    suite = Suite.model_validate(
        {
            "name": group.name,
            "systems": [case.name for case in group.cases],
            "datasets": [_DATASET],
            "profiles": [group.envelope.name],
            "scenarios": [group.scenario],
            "build_profile": _BUILD.name,
            "overhead": False,
            "protocol": {"sample_size": group.queries, **group.protocol},
            "expect": [
                {"system": case.name, "profile": group.envelope.name, "outcome": case.known_value.outcome.value}
                for case in group.cases
                if isinstance(case.known_value, JobEnd) and case.known_value.outcome is not Outcome.OK
            ],
            **group.suite,
        }
    )
    warmup = dataset.queries[_MAXIMUM_QUERIES:][: suite.protocol.warmup_queries]
    return Inputs(
        suite=suite,
        cells=suite.cells(),
        systems={case.name: _system(case, base) for case in group.cases},
        profiles={envelope.name: envelope for envelope in (group.envelope, _BUILD)},
        datasets={_DATASET: dataset},
        samples={_DATASET: QuerySample(dataset.queries[: group.queries], warmup)},
    )


def run_group(
    group: Group, base: System, dataset: Dataset, options: RunOptions, launcher: Launcher
) -> tuple[list[StoredJob], tuple[Row, ...]]:
    """Run a group's suite without progress on the screen; return the jobs of this run and their rows."""
    with show_progress(NOWHERE):
        summary = orchestrator.run_suite(inputs(group, base, dataset), options, launcher)
    keys = {result.key for result, _ in summary.jobs}
    jobs = [job for job in read_jobs(options.results / group.name) if job.result.key in keys]
    return jobs, build_rows(jobs, JobEvaluator(("RR@10",))).table.rows


def _system(case: Case, base: System) -> System:
    return base.model_copy(update={"name": case.name, "search_params": case.params, "build_params": case.build_params})


@dataclass
class InjectingLauncher(Launcher):
    """A launcher that runs every case in one image, and injects quotas and busy processes.

    Args:
        inner: the launcher that runs the jobs.
        base: the system whose image all cases share.
        cases: all cases by name.
        started: called with a case's name when its job begins.
    """

    inner: Launcher
    base: System
    cases: Mapping[str, Case]
    started: Callable[[str], None]
    image: Prepared | None = None

    def __post_init__(self) -> None:
        self.isolation = self.inner.isolation

    def engine_version(self) -> str | None:
        """Forward to the inner launcher."""
        return self.inner.engine_version()

    def cannot(self, envelope: Envelope) -> str | None:
        """Forward to the inner launcher."""
        return self.inner.cannot(envelope)

    def recipe(self, system: System) -> str:  # noqa: ARG002 # all cases have one image
        """Return the recipe of the shared image."""
        return self.inner.recipe(self.base)

    def find(self, system: System) -> Prepared | None:
        """Return the shared image under the case's name."""
        self.image = self.image or self.inner.find(self.base)
        return replace(self.image, system=system) if self.image else None

    def prepare(self, system: System) -> Prepared:
        """Return the shared image under the case's name."""
        self.image = self.image or self.inner.prepare(self.base)
        return replace(self.image, system=system)

    def launch(self, job: LaunchRequest, progress: Progress) -> LaunchEnd:
        """Run a job; set its quota once the envelope is verified and the first trial runs."""
        if job.spec.kind != "search":
            return self.inner.launch(job, progress)
        self.started(job.spec.system)
        case = self.cases.get(job.spec.system)
        pending = [case.quota] if case and case.quota else []

        def watched(done: int, total: int = 0, phase: str = "", /) -> None:
            progress(done, total, phase)
            if pending and phase.startswith("trial-"):
                self.inner.throttle(job, pending.pop())

        with busy_cpus() if case and case.rival == job.spec.first_trial else nullcontext():
            return self.inner.launch(job, watched)

    def sweep(self) -> int:
        """Forward to the inner launcher."""
        return self.inner.sweep()


@contextmanager
def busy_cpus() -> Iterator[None]:
    """Keep each CPU busy, as a neighbour might."""
    with ExitStack() as stack:
        for cpu in os.sched_getaffinity(0):
            command = [sys.executable, "-c", _RIVAL, str(cpu)]
            process = stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, env=child_process.environment())
            )
            stack.callback(process.kill)
        yield

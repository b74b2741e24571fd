"""The verdict against planted needs, through the very code that judges real systems."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest

from harness.datasets import QuerySample
from harness.driver.records import Scalar
from harness.experiments.calibration import fixtures
from harness.experiments.calibration.fixtures import InjectingLauncher
from harness.experiments.viability import curve as curves
from harness.experiments.viability.acceptance import MEAN, Criteria
from harness.experiments.viability.judge import LATENCY, OOM
from harness.experiments.viability.probe import MIB, Subject, SubjectJobs
from harness.experiments.viability.search import PROBES
from harness.experiments.viability.session import Question
from harness.experiments.viability.smallest import ViabilityVerdict, smallest
from harness.launch.docker import DockerLauncher
from harness.launch.images import catalog
from tests.experiments.calibration.test_with_docker import CACHE
from tests.support.chance import chance

pytestmark = pytest.mark.docker

QUERIES, WARMUP = 4, 2
# Where memory alone is planted, no busy machine shall play a part.
ANY_TIME = Criteria({MEAN: 10.0})
FILE_MIB, PAGES = 64, 3000
# Limits of which one leaves next to nothing of the file in memory, and the other all of it: whole steps of the search,
# whose jobs the curve then shows.
STEP_MIB, TIGHT_MIB, ROOMY_MIB = 32, 32, 128
# Where a file is mapped, a query takes 2 ms, and hundreds once its pages come from the disk: no machine is so busy.
BETWEEN = Criteria({MEAN: 0.05})
SIZES_MIB = (100, 300, 900)


@contextmanager
def injected(
    folder: Path,
    name: str,
    params: dict[str, Scalar],
    build: dict[str, Scalar] | None = None,
    criteria: Criteria | None = None,
    step: int = Question.step,
) -> Iterator[Question]:
    """Open a question about a system that its parameters script."""
    base = catalog.system("calibration")
    system = base.model_copy(update={"name": name, "search_params": params, "build_params": build or {}})
    dataset = fixtures.dataset(folder / name, CACHE)
    sample = QuerySample(dataset.queries[:QUERIES], dataset.queries[-WARMUP:])
    launcher = InjectingLauncher(DockerLauncher(CACHE), base, {}, lambda _: None)
    subject = Subject(system, dataset, sample, trials=1, warmup_cap=WARMUP)
    try:
        yield Question(SubjectJobs(subject, folder / "results", CACHE, launcher), criteria or Criteria(), step=step)
    finally:
        launcher.close()


def _check_anonymous(folder: Path, sizes_mib: tuple[int, ...]) -> None:
    """Check the limit: injected memory plus interpreter, within the larger of 5 % and 32 MiB."""
    with injected(folder, "planted-0", {"service_ms": 2}) as question:
        job, _ = question.jobs.attempt(question.check(1), 0)
    interpreter = job.result.observed.memory.peak_anon_bytes
    assert interpreter is not None and 0 < interpreter < 64 * MIB
    for mib in sizes_mib:
        with injected(folder, f"planted-{mib}", {"service_ms": 2, "hold_mib": mib}, criteria=ANY_TIME) as question:
            verdict = smallest(question, 1)
        truth = mib * MIB + interpreter
        print(f"{mib} MiB + {interpreter / MIB:.1f}: {_summary(verdict)}")
        assert verdict.limit_bytes is not None, verdict
        assert abs(verdict.limit_bytes - truth) <= max(0.05 * truth, 32 * MIB), verdict
        assert verdict.binding == (OOM,) and verdict.probes <= PROBES, verdict
        _readable(verdict, folder)


def test_verdict_finds_injected_anonymous_memory(engine: docker.DockerClient, tmp_path: Path) -> None:
    _check_anonymous(tmp_path, (chance("planted memory").choice(SIZES_MIB[:2]),))  # the largest takes the longest


@pytest.mark.soak
def test_verdict_finds_each_injected_anonymous_memory(engine: docker.DockerClient, tmp_path: Path) -> None:
    _check_anonymous(tmp_path, SIZES_MIB)


@pytest.mark.usefixtures("real_looks")
def test_evicted_mapped_file_makes_latency_the_binding_criterion(engine: docker.DockerClient, tmp_path: Path) -> None:
    """A file, little else: it never dies of a small limit, it slows."""
    params: dict[str, Scalar] = {"service_ms": 2, "touch_file": True, "touch_per_query": PAGES}
    with injected(tmp_path, "mapped", params, {"file_mib": FILE_MIB}, BETWEEN, STEP_MIB * MIB) as question:
        verdict = smallest(question, 1)
        print(f"mapped: {_summary(verdict)}")
        assert verdict.unconstrained.peak_anon_bytes < 64 * MIB
        assert verdict.binding == (LATENCY,), verdict
        assert verdict.limit_bytes is not None and verdict.limit_bytes > 2 * verdict.unconstrained.peak_anon_bytes, (
            verdict
        )
        _readable(verdict, tmp_path)
        drawn = curves.measure_curve(question, 1, tuple(size * MIB for size in (TIGHT_MIB, ROOMY_MIB)))
    assert {point.outcome for point in drawn.points} == {"ok"}
    tight, roomy, unconstrained = drawn.points
    assert unconstrained.unconstrained and not roomy.unconstrained
    # How many pages are read again depends on what the kernel kept of the file from earlier jobs.
    assert (tight.faults_per_query or 0.0) > PAGES / 10 and (tight.mean_s or 0.0) > 0.05
    assert all((point.faults_per_query or 0.0) < PAGES / 30 for point in (roomy, unconstrained))
    # A machine that was slow for that one rung leaves a curve without a knee, and never one elsewhere.
    near = (roomy.mean_s or 0.0) <= 1.25 * (unconstrained.mean_s or 0.0)
    assert drawn.knee_bytes == (ROOMY_MIB * MIB if near else None), drawn


def _summary(verdict: ViabilityVerdict) -> str:
    return (
        f"{(verdict.limit_bytes or 0) // MIB} MiB, {verdict.binding}, {verdict.probes} probes, sharp: {verdict.sharp}"
    )


def _readable(verdict: ViabilityVerdict, folder: Path) -> None:
    for job in verdict.evidence:
        assert (folder / "results" / job.job / "result.json").is_file()

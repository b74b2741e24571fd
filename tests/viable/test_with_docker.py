"""The verdict against planted needs, through the very code that judges real systems."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import TypeVar

import docker
import pytest
from rich.console import Console

from harness import catalog
from harness.calibration import planting
from harness.calibration.planting import PlantingLauncher
from harness.datasets import QuerySample
from harness.errors import HarnessError
from harness.launch.docker import DockerLauncher
from harness.progress import Screen
from harness.records import Scalar
from harness.viable import curve as curves
from harness.viable.asked import MEAN, Criteria, Target
from harness.viable.judge import LATENCY, OOM
from harness.viable.probing import MIB, Probing, Subject
from harness.viable.run import Question, Viability
from harness.viable.search import PROBES
from harness.viable.smallest import smallest
from harness.viable.verdict import Verdict
from tests.calibration.test_with_docker import CACHE

pytestmark = [pytest.mark.docker, pytest.mark.alone]

QUERIES, WARMUP = 60, 20
# Where memory alone is planted, no busy machine shall play a part.
ANY_TIME = Criteria((Target(MEAN, 10.0),))
# A busy machine ends a search, which then goes on from what is stored.
PATIENCE = 8
Found = TypeVar("Found")


@contextmanager
def planted(
    folder: Path,
    name: str,
    params: dict[str, Scalar],
    build: dict[str, Scalar] | None = None,
    criteria: Criteria | None = None,
) -> Iterator[Viability]:
    """A system that does what its parameters say, ready to be asked."""
    base = catalog.system("calibration")
    system = base.model_copy(update={"name": name, "search_params": params, "build_params": build or {}})
    dataset = planting.dataset(folder / name, CACHE)
    sample = QuerySample(dataset.queries[:QUERIES], dataset.queries[-WARMUP:])
    launcher = PlantingLauncher(DockerLauncher(CACHE), base, planting.throttle_container, {}, lambda _: None)
    subject = Subject(system, dataset, sample, warmup_cap=WARMUP)
    try:
        screen = Screen(Console(file=StringIO()))
        yield Viability(Probing(subject, folder / "results", CACHE, launcher, screen), Question(criteria or Criteria()))
    finally:
        launcher.close()


def test_planted_anonymous_memory_is_what_the_verdict_says(engine: docker.DockerClient, tmp_path: Path) -> None:
    """Within the larger of 5 % and 32 MiB of what was planted plus the interpreter."""
    with planted(tmp_path, "planted-0", {"service_ms": 2}) as asked:
        interpreter = asked.unconstrained(1).anonymous
    assert 0 < interpreter < 64 * MIB
    for mib in (100, 300, 900):
        with planted(tmp_path, f"planted-{mib}", {"service_ms": 2, "hold_mib": mib}, criteria=ANY_TIME) as asked:
            found = smallest(asked, 1)
        truth = mib * MIB + interpreter
        print(f"{mib} MiB + {interpreter / MIB:.1f}: {_said(found)}")
        assert found.limit_bytes is not None, found
        assert abs(found.limit_bytes - truth) <= max(0.05 * truth, 32 * MIB), found
        assert found.binding == (OOM,) and found.probes <= PROBES, found
        _readable(found, tmp_path)


def test_a_mapped_file_that_is_evicted_binds_by_latency(engine: docker.DockerClient, tmp_path: Path) -> None:
    """400 MiB of file, little else: it never dies of a small limit, it slows."""
    params: dict[str, Scalar] = {"service_ms": 2, "touch_file": True, "touch_per_query": 300}
    with planted(tmp_path, "mapped-400", params, {"file_mib": 400}) as asked:
        found = _patiently(lambda: smallest(asked, 1))
        print(f"mapped: {_said(found)}")
        assert found.unconstrained.peak_anon_bytes < 64 * MIB
        assert found.binding == (LATENCY,), found
        assert found.limit_bytes is not None and found.limit_bytes > 4 * found.unconstrained.peak_anon_bytes, found
        _readable(found, tmp_path)
        rungs = tuple(size * MIB for size in (16, 100, 200, 300, 448))
        drawn = _patiently(lambda: curves.measure(asked, 1, rungs))
    assert {point.outcome for point in drawn.points[1:]} == {"ok"}
    *means, unconstrained = [point.mean_s or 0.0 for point in drawn.points[1:]]
    assert drawn.points[-1].unconstrained and means[0] > 2 * unconstrained, drawn
    # A machine that was slow for that one rung leaves a curve without a knee, and never one elsewhere.
    assert drawn.knee_bytes == (448 * MIB if means[-1] <= 1.25 * unconstrained else None), drawn
    assert (drawn.points[1].faults_per_query or 0.0) > 100 > (drawn.points[-1].faults_per_query or 0.0)


def _said(found: Verdict) -> str:
    return f"{(found.limit_bytes or 0) // MIB} MiB, {found.binding}, {found.probes} probes, sharp: {found.sharp}"


def _patiently(ask: Callable[[], Found]) -> Found:
    for _ in range(PATIENCE):
        try:
            return ask()
        except HarnessError as error:
            assert "too busy" in str(error)
            time.sleep(10)
    pytest.fail("the machine never came to rest")


def _readable(found: Verdict, folder: Path) -> None:
    for each in found.evidence:
        assert (folder / "results" / each.job / "result.json").is_file()

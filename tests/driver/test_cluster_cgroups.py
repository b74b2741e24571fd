"""The cgroup reader on what jobs of clusters see: the limits stand above the process's own cgroup."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.driver import cgroup
from harness.driver.cgroup import UNLIMITED, Cgroup
from tests.support.recorded_cgroups import CLUSTERS, unfold

MIB = 1 << 20
RECORDINGS = sorted(path.stem for path in CLUSTERS.glob("*.inside"))
SLURM = [name for name in RECORDINGS if name.startswith("slurm")]


def group_of_job(root: Path, recording: str) -> Cgroup:
    seen = unfold(root, f"{recording}.inside", CLUSTERS)
    group = cgroup.of_process(seen.membership, seen.cgroups)
    assert group is not None
    return group


@pytest.mark.parametrize("recording", RECORDINGS)
def test_smallest_limit_of_all_ancestors_is_the_jobs_memory(tmp_path: Path, recording: str) -> None:
    group = group_of_job(tmp_path, recording)
    limited = [
        (each.memory_limit_bytes(), each.swap_limit_bytes())
        for each in (group, *group.memory_parents())
        if each.memory_limit_bytes() not in (None, UNLIMITED)
    ]
    # One limit for the job and one for its step, or one for the scope.
    assert limited == [(300 * MIB, 0)] * (2 if recording in SLURM else 1)


@pytest.mark.parametrize("recording", SLURM)
def test_own_cgroup_of_a_slurm_task_shows_no_limit_but_its_use(tmp_path: Path, recording: str) -> None:
    group = group_of_job(tmp_path, recording)
    assert group.memory_limit_bytes() == UNLIMITED
    stat, peak, used = group.memory_stat(), group.peak_bytes(), group.cpu_ns()
    assert stat is not None and peak is not None and used is not None
    assert 48 * MIB < stat.anon_bytes < peak < 300 * MIB
    assert 4e8 < used < 1e10
    assert group.oom_kills() == 0


@pytest.mark.parametrize("recording", RECORDINGS)
def test_cpus_are_read_where_they_are_delegated(tmp_path: Path, recording: str) -> None:
    expected = None if recording.endswith("not-delegated") else {0}
    assert group_of_job(tmp_path, recording).cpus() == expected

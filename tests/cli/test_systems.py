"""`harness systems`, `doctor` and `conformance`, as a person types them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from harness.filesystem import this_process
from harness.launch.process import ProcessLauncher
from tests.conftest import Bench
from tests.support.command_line import Call


def test_systems_lists_shipped_and_user_systems(harness: Call) -> None:
    done = harness("systems")
    assert {"bm25", "minilm", "planted"} <= {line.split()[0] for line in done.stdout.splitlines()[1:]}


def test_doctor_has_a_level_and_a_fact_on_every_line(harness: Call) -> None:
    done = harness("doctor")
    levels = {line.split()[0] for line in done.stdout.splitlines()}
    assert levels <= {"ok", "warn", "fail"}
    assert done.exit_code == (1 if "fail" in levels else 0)
    assert all(word in done.stdout for word in ("engine:", "cgroup:", "CPUs:", "memory:", "swap:", "load:"))


@pytest.mark.slow
def test_conformance_prints_fail_only_for_a_broken_contract(harness: Call, bench: Bench) -> None:
    good = harness("conformance", "planted", "--launcher", "process")
    assert good.exit_code == 0 and "FAIL" not in good.stdout, good.stdout
    bench.plant("bad", misdeed="duplicate")
    bad = harness("conformance", "bad", "--launcher", "process")
    assert bad.exit_code == 1 and "FAIL" in bad.stdout and "comes twice" in bad.stdout


def test_conformance_sweeps_dead_runs_before_it_deletes_their_folders(
    harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / f"harness-conformance-1.{this_process().rpartition('_')[0]}_1.partial"
    left.mkdir()
    seen: list[bool] = []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ProcessLauncher, "sweep", lambda _: seen.append(left.exists()))
    assert harness("conformance", "planted", "--launcher", "process").exit_code == 0
    assert seen == [True] and not left.exists()

"""Finished output survives a kill; incomplete output is absent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.driver.output import EVENTS, MEASUREMENT, SAMPLES, Output
from harness.driver.records import Measurement, Outcome

DONE = Measurement(Outcome.OK, None, None, load_s=0.5)


@pytest.fixture
def out(tmp_path: Path) -> Output:
    made = Output(tmp_path)
    yield made
    made.close()


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_sample_is_one_line_on_disk_at_once(tmp_path: Path, out: Output) -> None:
    out.write_sample(0, "q1", 1234, {"encode": 7}, [("dé", 1.5)])
    expected = {"trial": 0, "query_id": "q1", "latency_ns": 1234, "stages_ns": {"encode": 7}, "hits": [["dé", 1.5]]}
    assert lines(tmp_path / SAMPLES) == [expected]


def test_phase_is_written_at_its_start_and_end(tmp_path: Path, out: Output) -> None:
    with out.phase("trial-0", 300):
        (event,) = lines(tmp_path / EVENTS)
        assert (event["phase"], event["total"]) == ("trial-0", 300)
        assert out.phases == []
        out.progress(17)
    assert lines(tmp_path / EVENTS)[1]["done"] == 17
    (phase,) = out.phases
    assert phase.name == "trial-0" and phase.start_ns == event["t_ns"] and phase.end_ns >= phase.start_ns


def test_failed_phase_is_written(out: Output) -> None:
    with pytest.raises(RuntimeError), out.phase("load"):
        raise RuntimeError
    assert [phase.name for phase in out.phases] == ["load"]


def test_samples_of_a_killed_process_are_whole(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from harness.driver.output import Output\n"
        "out = Output(Path(sys.argv[1]))\n"
        "for n in range(100): out.write_sample(0, f'q{n}', n + 1, {}, [('d', 1.0)])\n"
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == -9
    assert [line["query_id"] for line in lines(tmp_path / SAMPLES)] == [f"q{n}" for n in range(100)]


def test_the_measurement_is_renamed_into_place(tmp_path: Path, out: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(source: Path, target: Path) -> None:
        assert json.loads(source.read_text())["load_s"] == 0.5, "whole before it gets its name"
        assert target == tmp_path / MEASUREMENT and not target.exists()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", die)
        with pytest.raises(KeyboardInterrupt):
            out.measurement(DONE)
    assert not (tmp_path / MEASUREMENT).exists()
    out.measurement(DONE)
    assert json.loads((tmp_path / MEASUREMENT).read_text())["outcome"] == "ok"
    assert sorted(path.name for path in tmp_path.iterdir()) == [EVENTS, MEASUREMENT, SAMPLES]


def test_nan_is_not_written(tmp_path: Path, out: Output) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        out.write_sample(0, "q1", 1, {}, [("d", float("nan"))])
    assert (tmp_path / SAMPLES).read_bytes() == b""

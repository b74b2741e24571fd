"""Laws that the calibration engine plants are recovered from real jobs at several sizes, through the commands."""

from __future__ import annotations

import json
from pathlib import Path

import docker
import pytest

from tests.images.conftest import CACHE
from tests.support.command_line import call

pytestmark = [pytest.mark.docker, pytest.mark.slow]

SYSTEM = """\
description = "1 ms and 20 us a document; 64 KiB a document"
[search_params]
service_ms = 1
us_per_document = 20
kib_per_document = 64
"""
SUITE = """\
systems = ["grows"]
datasets = ["scifact-1200"]
profiles = ["cpu1-mem1"]
build_profile = "cpu1-mem1"
overhead = false
[sizes]
documents = [300, 600, 1_200, 2_400]
[protocol]
trials = 3
sample_size = 40
repeats = 0
warmup_queries = 4
warmup_cap = 4
"""


def test_planted_laws_of_size_are_recovered(
    engine: docker.DockerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_CACHE", str(CACHE))
    monkeypatch.setenv("HARNESS_IMAGES", str(tmp_path / "own"))
    own = tmp_path / "own" / "calibration" / "systems"
    own.mkdir(parents=True)
    (own / "grows.toml").write_text(SYSTEM)
    (tmp_path / "grown.toml").write_text(SUITE)
    done = call("run", "grown.toml")
    assert done.exit_code == 0, done.output
    assert "what more documents cost: harness report results/grown --at 24000" in done.stdout
    found = json.loads(call("report", "results/grown", "--at", "24k", "--format", "json").stdout)
    figures = {each["figure"]: each for each in found["figures"]}
    assert figures["latency_ms"]["sizes"] == "300 600 1200 2400"
    for name, planted in (("latency_ms", 1 + 0.020 * 24_000), ("memory_mib", 24_000 / 16)):
        each = figures[name]
        assert each["exam_passed"], each
        assert each["predicted_low"] < planted < each["predicted_high"], each
    # Python itself is in the memory.  Other work on this machine is in the latency, and makes its interval wide.
    memory = figures["memory_mib"]
    assert memory["predicted"] == pytest.approx(24_000 / 16, rel=0.25)
    assert memory["predicted_high"] < 2 * memory["predicted_low"]
    (cost,) = found["costs"]
    assert cost["machine"] and cost["usd_per_million"] == pytest.approx(
        cost["usd_per_hour"] * figures["latency_ms"]["predicted"] / 3.6
    )
    shown = call("report", "results/grown", "--at", "24k").stdout
    assert "scifact-1200 single_stream cpu1-mem1, predicted at 24,000 documents (95 %); measured up to 2,400" in shown
    drawn = call("report", "results/grown", "--at", "24k", "--format", "png", "-o", "drawn")
    assert drawn.exit_code == 0 and [path.suffix for path in (tmp_path / "drawn").iterdir()] == [".png"]
    bill = call("bill", "results/grown", "--queries-per-month", "1M", "--documents", "24k")
    assert bill.exit_code == 0 and "grows (predicted)" in bill.stdout

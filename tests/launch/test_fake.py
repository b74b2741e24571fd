"""The whole path without an engine: suite -> plan -> jobs -> store -> table."""

from __future__ import annotations

import json
import re

import pytest

from harness.driver.records import Outcome
from harness.launch.base import LaunchRequest
from harness.launch.fake import FakeLauncher
from harness.results.reader import read_jobs
from tests.conftest import Bench, protocol, write_dataset

EXPECT = '[[expect]]\nsystem = "planted"\nprofile = "cpu1-mem256m"\noutcome = "oom"\n'


def test_expected_failure_is_done_in_the_second_run(bench: Bench) -> None:
    path = bench.suite(EXPECT)
    small = FakeLauncher(lambda job: Outcome.OOM if job.spec.kind == "search" else Outcome.OK)
    assert not bench.run(small, path).unforeseen
    assert "oom (foreseen): the kernel killed the job" in bench.screen.getvalue()
    assert bench.run(FakeLauncher(), path).done_before == 1


def test_finding_of_several_trials_and_cells_is_said_once(bench: Bench) -> None:
    def script(job: LaunchRequest) -> Outcome:
        failed = job.spec.kind == "search" and (job.spec.envelope.cpus == 2 or job.spec.first_trial == 0)
        return Outcome.CRASH if failed else Outcome.OK

    text = protocol(3, name="interleaved")
    profiles = ["cpu1-mem256m", "cpu1-mem1", "cpu2-mem4"]
    (line,) = bench.run(FakeLauncher(script), bench.suite(text, profiles=profiles)).complaints
    assert sorted(re.findall(r"planted tiny \S+(?: \(1 of 3 trials\))?(?=, | ended)", line)) == [
        "planted tiny cpu1-mem1 (1 of 3 trials)",
        "planted tiny cpu1-mem256m (1 of 3 trials)",
        "planted tiny cpu2-mem4",
    ]
    assert line.endswith(" ended crash: scripted crash")


def test_further_cells_of_a_finding_are_counted(bench: Bench) -> None:
    for number in range(5):
        bench.plant(f"system{number}")
    path = bench.suite(systems=[f"system{number}" for number in range(5)])
    crash = FakeLauncher(lambda job: Outcome.CRASH if job.spec.kind == "search" else Outcome.OK)
    (line,) = bench.run(crash, path).complaints
    assert line.count("system") == 3 and line.endswith(" and 2 more cells ended crash: scripted crash")


def test_failing_index_build_is_tried_once_per_run_and_never_stored(bench: Bench) -> None:
    launcher = FakeLauncher(lambda _: Outcome.OOM)
    summary = bench.run(launcher, bench.suite(profiles=["cpu1-mem256m", "cpu1-mem1"]))
    assert [job.spec.kind for job in launcher.launched] == ["build"]
    assert {result.outcome for result in summary.unforeseen} == {Outcome.OOM}
    assert all((result.detail or "").startswith("index build: ") for result in summary.unforeseen)
    assert list((bench.cache / "indexes").glob("*")) == []


def _large(bench: Bench) -> str:
    """Use 40 queries: fewer than 11 prove no rate."""
    write_dataset(bench.folder / "large")
    topics = [{"_id": f"q{n}", "text": f"where is number {n}"} for n in range(40)]
    (bench.folder / "large" / "queries.jsonl").write_text("".join(json.dumps(topic) + "\n" for topic in topics))
    (bench.folder / "large" / "qrels.trec").write_text("".join(f"q{n} 0 d1 1\n" for n in range(40)))
    return "./large"


PROTOCOL = "[protocol]\nname = {name}\nwarmup_queries = 2\ntrials = 3\nrepeats = 2\nk = 3\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", ['"interleaved"', '"santhanam2023"'])
@pytest.mark.parametrize("scenario", ["single_stream", "offline", "server"])
def test_every_scenario_runs_to_ok(bench: Bench, scenario: str, name: str) -> None:
    """Output of the fake is judged like a container's output."""
    params = "[offline]\nbatch_size = 3\n[server]\nlatency_percentile = 50\n"
    path = bench.suite(PROTOCOL.format(name=name) + params, scenarios=[scenario], datasets=[_large(bench)])
    summary = bench.run(FakeLauncher(), path)
    assert [result.outcome for result, _ in summary.jobs] == [Outcome.OK] * (3 if "inter" in name else 1)
    for job in read_jobs(bench.results):
        columns = set(job.samples().column_names)
        assert ("batch" in columns) is (scenario == "offline")
        assert ({"scheduled_ns", "service_ns"} <= columns) is (scenario == "server")
        assert bool(job.result.measured.probes) is (scenario == "server")

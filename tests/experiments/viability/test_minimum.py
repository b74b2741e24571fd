"""The smallest hardware of each system of a suite, beside the paper's Table 2."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import docker
import pytest
from click.testing import CliRunner, Result

from harness.analysis import published
from harness.cli import main, viability
from harness.driver.records import Outcome
from harness.experiments.viability.minimum import suite_questions
from harness.experiments.viability.probe import subject
from harness.jobs import suite as suites
from harness.launch.base import LaunchEnd, LaunchRequest
from harness.launch.fake import FakeLauncher
from harness.progress import Progress
from harness.results.reader import read_jobs
from tests.conftest import Bench
from tests.experiments.viability.conftest import Life, Scripted, needs
from tests.support.command_line import Call

NEEDS_MIB = {"planted": 129, "bm25": 200}


class Several(Scripted):
    """Each system has its own need; `broken` crashes; `stop` ends the command at a system's limit."""

    launched_by: ClassVar[Counter[str]] = Counter()
    stop_at: ClassVar[str | None] = None

    def launch(self, job: LaunchRequest, progress: Progress) -> LaunchEnd:
        name = job.spec.system
        if job.spec.kind == "build":
            self._script = lambda _: Outcome.OK
        else:
            if name == self.stop_at and job.spec.envelope.memory_bytes < 8000 << 20:
                raise KeyboardInterrupt
            self.launched_by[name] += 1
        self.script = (lambda *_: Life(Outcome.CRASH)) if name == "broken" else needs(NEEDS_MIB.get(name, 129))
        return super().launch(job, progress)


@pytest.fixture
def viable(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setattr("harness.launch.host.memory_bytes", lambda: 16 << 30)
    monkeypatch.setattr("harness.launch.host.cpus", lambda: 2)
    monkeypatch.setattr(Several, "launched_by", Counter())
    monkeypatch.setattr(Several, "stop_at", None)
    monkeypatch.setattr(FakeLauncher, "open", lambda *_: Several(needs(129)))

    def made(*arguments: str, launcher: str = "fake") -> Result:
        common = ["--results", str(bench.results), "--cache", str(bench.cache), "--launcher", launcher]
        return CliRunner().invoke(main, ["viable", *arguments, *common])

    return made


@pytest.mark.slow
def test_suite_has_a_row_for_each_system_beside_the_papers(viable: Call, bench: Bench) -> None:
    bench.plant("broken")
    path = bench.suite(systems=["planted", "broken", "bm25"], profiles=["cpu1-mem256m"])
    done = viable(str(path))
    assert done.exit_code == 1, "one system failed"
    head, _, planted, broken, bm25 = [line for line in done.stdout.splitlines() if line.startswith("|")]
    names = ["system", "smallest hardware", "to rent", "US$/1M", "Table 2", "its type", "its US$/1M"]
    assert [name.strip() for name in head.strip("|").split("|")] == names
    assert "1 CPU, 144 MiB" in planted and "GiB" not in planted, "the paper has no such system"
    assert "1 CPU, 208 MiB" in bm25 and "1 CPU, 4 GiB" in bm25 and "m6g.medium" in bm25 and "0.04" in bm25
    assert "MiB" not in broken
    assert "- broken on tiny, 1 CPU: broken does not run even" in done.stdout
    assert "harness: broken on tiny: broken does not run even" in done.stderr
    assert "[1/3] planted on tiny: 1 CPU, 144 MiB" in done.stderr and "[3/3] bm25 on tiny ..." in done.stderr
    notes = [line for line in done.stdout.splitlines() if line.startswith("- ")]
    assert len(notes) <= 5 and notes[0].startswith("- Asked: every query answered and ranked as unconstrained, mean")

    raw = json.loads(viable(str(path), "--format", "json").stdout)
    assert [entry["system"] for entry in raw["minima"]] == ["planted", "broken", "bm25"]
    first, failed, _ = raw["minima"]
    (verdict,) = first["verdicts"]
    assert verdict["smallest"] and verdict["limit_bytes"] == 144 << 20 and verdict["usd_per_million"] > 0
    assert len(verdict["evidence"]) > 4
    assert not failed["verdicts"] and failed["failures"]["1"].startswith("broken does not run even")
    rows = list(csv.DictReader(io.StringIO(viable(str(path), "--format", "csv").stdout)))
    jobs = [job["job"] for entry in raw["minima"] for verdict in entry["verdicts"] for job in verdict["evidence"]]
    assert [row["job"] for row in rows if row["job"]] == jobs
    (lost,) = [row for row in rows if row["system"] == "broken"]
    assert lost["failure"].startswith("broken does not run even") and lost["verdict_limit_bytes"] == ""
    wide = viable(str(path), "--wide").stdout
    assert wide.count("unconstrained") > 2 and "Without an answer" in wide


@pytest.mark.slow
def test_stopped_search_goes_on_where_it_was(viable: Call, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bench.suite(systems=["planted", "bm25"])
    monkeypatch.setattr(Several, "stop_at", "bm25")
    assert viable(str(path)).exit_code not in (0, 2)
    stored, launched = len(read_jobs(bench.results)), Several.launched_by.copy()
    assert launched["planted"] and launched["bm25"] == 3, "bm25's unconstrained jobs are stored"
    monkeypatch.setattr(Several, "stop_at", None)
    done = viable(str(path))
    assert done.exit_code == 0, done.output
    assert Several.launched_by["planted"] == launched["planted"], "its answer comes from stored jobs"
    assert len(read_jobs(bench.results)) == Several.launched_by.total() and stored == launched.total()
    again = viable(str(path))
    assert again.stdout == done.stdout and len(read_jobs(bench.results)) == Several.launched_by.total()


@pytest.mark.slow
def test_processors_come_from_the_suites_profiles_or_from_the_command(viable: Call, bench: Bench) -> None:
    path = bench.suite(systems=["planted"], profiles=["cpu1-mem256m", "cpu2-mem4", "cpu1-mem1"])
    loaded = suites.load(path)
    (question,) = suite_questions(loaded, None, None)
    assert (question.cpus, question.gpus, str(question)) == ((1, 2), 0, "planted on tiny")
    assert suite_questions(loaded, None, (2,))[0].cpus == (2,)
    done = viable(str(path), "--cpus", "2", "--format", "json")
    (found,) = json.loads(done.stdout)["minima"]
    assert [verdict["cpus"] for verdict in found["verdicts"]] == [2]


@pytest.mark.slow
def test_gpu_that_is_not_here_is_a_failure_of_its_row(viable: Call, bench: Bench) -> None:
    path = bench.suite(systems=["planted"], profiles=["cpu1-mem256m", "gpu1-cpu8-mem64"])
    done = viable(str(path))
    assert done.exit_code == 1
    assert "planted on tiny, 8 CPUs, 1 GPU: " in done.stdout and "1 CPU, 144 MiB" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dataset", "scifact"], "--dataset is for a SYSTEM; the suite's file names its own"),
        (["--gpus", "1"], "--gpus is for a SYSTEM"),
        (["--only", "absent"], "--only 'absent' matches no cell of the suite test-suite"),
    ],
)
def test_impossible_question_about_a_suite_is_one_line(
    viable: Call, bench: Bench, arguments: list[str], message: str
) -> None:
    done = viable(str(bench.suite()), *arguments)
    assert done.exit_code == 2 and message in done.stderr and not bench.results.exists()


def test_only_is_refused_for_a_system(viable: Call) -> None:
    done = viable("planted", "--only", "x")
    assert done.exit_code == 2 and "--only chooses cells of a SUITE" in done.stderr


@pytest.mark.slow
def test_suite_of_tables_1_and_2_has_their_systems_on_the_papers_hardware() -> None:
    root = Path(__file__).resolve().parents[3]
    loaded = suites.load(root / "suites" / "minimum-hardware.toml")
    tables = published.read(root / "results" / "published" / "santhanam2023")
    ours = {name: source.system for source in tables.about.table2 for name in source.systems}
    cells = loaded.cells()
    of_paper = {(row.system, row.hardware.profile) for row in tables.table2}
    with_row = {
        (row[0].system, cell.profile)
        for cell in cells
        if (row := published.minimum_viable(cell.system, loaded.envelopes()[cell.profile].gpus))
    }
    assert with_row == of_paper and len(of_paper) == 10
    assert {cell.system for cell in cells if cell.system not in ours} == {"rocketqa-v2", "cocondenser", "cot-mae"}
    assert len(cells) == 13
    envelopes = loaded.envelopes()
    for row in tables.table2:
        envelope = envelopes[row.hardware.profile]
        had = (envelope.gpus, envelope.cpus, envelope.memory_bytes)
        assert had == (row.gpu, row.cpu, row.hardware.memory_bytes)


@pytest.mark.docker
def test_suite_of_planted_systems_on_the_engine(
    bench: Bench, engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A need and a failure in containers: memory alone decides, so that no busy machine plays a part."""
    monkeypatch.setattr(
        viability, "subject", lambda *given, **asked: replace(subject(*given, **asked), trials=1, warmup_cap=2)
    )
    bench.plant("large", hold_mib=120)
    bench.plant("broken", misdeed="raise_in_load")
    path = bench.suite(systems=["broken", "large"])
    arguments = ["viable", str(path), "--max-latency", "mean=10s", "--step", "64MiB", "--queries", "4"]
    common = ["--results", str(bench.results), "--cache", str(bench.cache), "--format", "json"]
    done = CliRunner().invoke(main, [*arguments, *common])
    broken, large = json.loads(done.stdout)["minima"]
    assert large["verdicts"][0]["limit_bytes"] >> 20 == 192
    assert large["verdicts"][0]["binding"] == ["oom"]
    assert "broken does not run even" in broken["failures"]["1"] and done.exit_code == 1
    jobs = len(read_jobs(bench.results))
    again = CliRunner().invoke(main, [*arguments, "--only", "large", *common])
    assert json.loads(again.stdout)["minima"] == [large]
    assert len(read_jobs(bench.results)) == jobs, "what is finished needs no container"

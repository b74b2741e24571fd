"""The three commands, and one line for each impossible question."""

from __future__ import annotations

import csv
import io
import json
import shutil

import pytest
from click.testing import CliRunner, Result

from harness.cli import main
from harness.launch.base import LaunchEnd, LaunchRequest
from harness.launch.fake import FakeLauncher
from harness.progress import Progress
from harness.results.reader import read_jobs
from tests.conftest import Bench
from tests.experiments.viability.conftest import Scripted, needs
from tests.support import hostile
from tests.support.command_line import Call


@pytest.fixture
def call(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setattr("harness.launch.host.memory_bytes", lambda: 16 << 30)
    monkeypatch.setattr("harness.launch.host.cpus", lambda: 2)
    monkeypatch.setattr(FakeLauncher, "open", lambda *_: Scripted(needs(129)))

    def made(*arguments: str, launcher: str = "fake") -> Result:
        common = ["--results", str(bench.results), "--cache", str(bench.cache), "--launcher", launcher]
        dataset = [] if "--dataset" in arguments else ["--dataset", str(bench.folder / "tiny")]
        return CliRunner().invoke(main, [*arguments, *dataset, *common])

    return made


@pytest.mark.slow
def test_viable_prints_the_verdict_and_the_type_to_rent(call: Call) -> None:
    done = call("viable", "planted", "--cpus", "1,2")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].endswith(
        "1 CPU (fake): 144 MiB is the smallest limit that passes; what binds is oom: 128 MiB fails."
    )
    assert done.stdout.count("144 MiB is the smallest limit") == 2 and len(lines) < 20
    assert "every probe: --wide   prices of aws us-east-1 on-demand of " in lines[-1]
    wide = call("viable", "planted", "--cpus", "1,2", "--wide").stdout
    assert "- To rent (aws us-east-1 on-demand of " in wide and "with the host's own 512MiB" in wide
    again = call("viable", "planted", "--cpus", "1,2", "--as-of", "2022-10-31")
    assert "on-demand of 2022-10-31" in again.stdout and again.stderr == ""
    verdicts = json.loads(call("viable", "planted", "--format", "json").stdout)["minima"][0]["verdicts"]
    jobs = list(csv.DictReader(io.StringIO(call("viable", "planted", "--format", "csv").stdout)))
    assert [job["job"] for job in jobs] == [job["job"] for job in verdicts[0]["evidence"]]
    assert jobs[0]["verdict_limit_bytes"] == str(144 << 20) and float(jobs[0]["usd_per_hour"]) > 0
    assert verdicts[0]["limit_bytes"] == 144 << 20 and verdicts[0]["usd_per_hour"] > 0


@pytest.mark.slow
def test_validate_and_curve_print_their_verdicts(call: Call, bench: Bench) -> None:
    with (bench.folder / "tiny" / "queries.jsonl").open("a") as file:
        file.write('{"_id": "q99", "text": " "}\n')
    holds = call("validate", "planted", "--instance", "m6g.medium")
    assert holds.exit_code == 0, holds.output
    assert (
        "m6g.medium is enough for planted on tiny (fake)." in holds.stdout
        and "only memory was validated" in holds.stdout
    )
    assert "- tiny: 1 of 7 queries are blank, such as 'q99'; they are asked anyway.\n" in holds.stdout
    drawn = call("curve", "planted", "--limits", "128MiB,160MiB")
    assert drawn.exit_code == 0, drawn.output
    assert "No knee: flat: each that ran, from 160 MiB on" in drawn.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["viable", "plnted"], 2, "unknown system 'plnted'. Did you mean 'planted'?"),
        (["viable", "planted", "--dataset", "scifakt"], 2, "unknown dataset 'scifakt'. Did you mean 'scifact'?"),
        (["viable", "planted", "--region", "us-east-9"], 2, "unknown region 'us-east-9'"),
        (["viable", "planted", "--as-of", "2001-01-01"], 2, "2001-01-01"),
        (["viable", "planted", "--max-latency", "p95=1ms"], 2, "4 timed queries show no p95"),
        (["viable", "planted", "--unjudged", "--max-latency", "p95=1ms"], 2, "5 timed queries show no p95"),
        (["viable", "planted", "--max-latency", "mean=1ms"], 1, "the target is 1 ms: no limit can keep it"),
        (["viable", "planted", "--min", "NumRet=99999"], 1, "at least 99999 is asked: no limit can reach it"),
        (["viable", "planted", "--step", "64GiB", "--cpus", "1,2"], 2, "--step 65,536 MiB: this host leaves 15,872"),
        (["viable", "planted", "--gpus", "1"], 2, "the fake launcher has no GPU; ask for less"),
        (
            ["validate", "planted", "--instance", "m6g.medum"],
            2,
            "unknown instance type 'm6g.medum'. Did you mean",
        ),
        (["validate", "planted", "--instance", "r6a.48xlarge"], 2, "this host 15,872: this host is too small"),
        (["curve", "planted", "--limits", "64"], 2, "--limits: '64' is not a memory size"),
    ],
)
def test_impossible_question_is_one_line(call: Call, arguments: list[str], code: int, message: str) -> None:
    done = call(*arguments)
    assert done.exit_code == code, done.output
    lines = [line for line in done.stderr.splitlines() if line.startswith("harness: ")]
    assert len(lines) == 1 and message in lines[0], done.stderr
    assert "Traceback" not in done.output


def test_process_launcher_cannot_enforce_a_limit(call: Call) -> None:
    done = call("viable", "planted", launcher="process")
    assert done.exit_code == 2 and "use --launcher docker" in done.stderr


@pytest.mark.slow
def test_cpu_count_that_misses_its_target_does_not_affect_the_others(
    call: Call,
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tests.experiments.viability.conftest import Life

    class Slow(Scripted):
        def launch(self, job: LaunchRequest, progress: Progress) -> LaunchEnd:
            one = job.spec.envelope.cpus == 1
            self.script = (lambda *_: Life(ms=30)) if one else needs(129)
            return super().launch(job, progress)

    monkeypatch.setattr(FakeLauncher, "open", lambda *_: Slow(needs(129)))
    done = call("viable", "planted", "--cpus", "1,2", "--max-latency", "mean=20ms")
    assert done.exit_code == 1
    assert "planted on tiny, 2 CPUs" in done.stdout and "144 MiB" in done.stdout
    assert "planted on 1 CPU: mean is 30 ms" in done.stderr
    assert len(read_jobs(bench.results)) == 13


def test_unmeasurable_cpu_count_is_refused_before_any_job(
    call: Call,
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FakeLauncher, "cannot", lambda _, envelope: "this host gives 2" if envelope.cpus > 2 else None)
    done = call("viable", "planted", "--cpus", "1,64")
    assert done.exit_code == 2 and "this host gives 2; ask for less" in done.stderr
    assert not (bench.results / "viable").exists()


@pytest.mark.slow
def test_a_strangers_name_of_a_dataset_is_inert_in_every_form(call: Call, bench: Bench) -> None:
    folder = bench.folder / hostile.QUERY.replace("/", "").replace("\u202e", "").replace("\u2028", "")
    shutil.copytree(bench.folder / "tiny", folder)
    named = ("--dataset", str(folder))
    for form in ((), ("--wide",), ("--format", "csv"), ("--format", "json")):
        done = call("viable", "planted", *named, *form)
        assert done.exit_code == 0, done.output
        assert form[1:] or ("&lt;script" in done.stdout and "<s" not in done.stdout and "\\`touch\\`" in done.stdout)
    for arguments in (("validate", "planted", "--instance", "m6g.medium"), ("curve", "planted", "--limits", "128MiB")):
        done = call(*arguments, *named)
        assert done.exit_code == 0 and "&lt;script" in done.stdout and "<s" not in done.stdout, done.output

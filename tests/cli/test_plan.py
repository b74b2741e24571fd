"""`harness plan`, as a person types it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from harness.config import data_root
from harness.errors import EngineError
from harness.jobs import estimates, growth
from harness.launch.base import LaunchEnd, LaunchRequest
from harness.launch.fake import FakeLauncher
from harness.launch.images.systems import System
from harness.progress import Progress
from tests.conftest import Bench, protocol
from tests.images.test_fusion import declare
from tests.support.command_line import Call

FAKE = ("plan", "test-suite.toml", "--launcher", "fake")


@pytest.mark.slow
def test_plan_lists_the_steps_and_changes_nothing(harness: Call, bench: Bench) -> None:
    bench.suite(profiles=["cpu1-mem1", "cpu1-mem4"])
    before = harness(*FAKE)
    assert "- 0 of 2 jobs done; the rest takes about" in before.stdout and not (bench.folder / "results").exists()
    assert before.stdout.endswith("- next: harness run test-suite.toml --launcher fake   all cells: --wide\n")
    harness("run", "test-suite.toml", "--launcher", "fake", "--only", "cpu1-mem4")
    assert "1 of 2 jobs done" in harness(*FAKE).stdout
    assert "done (ok)" in harness(*FAKE, "--wide").stdout


@pytest.mark.slow
def test_plan_of_a_measured_suite_leads_to_its_report(
    harness: Call, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.suite(protocol(3))
    harness("run", "test-suite.toml", "--launcher", "fake")
    assert harness(*FAKE).stdout.endswith("- next: harness report results/test-suite   all cells: --wide\n")
    assert "- next: harness run test-suite.toml --launcher fake --fresh   all" in harness(*FAKE, "--fresh").stdout

    launch, left = FakeLauncher.launch, iter(range(1))

    def stopped_after_one(self: FakeLauncher, job: LaunchRequest, progress: Progress) -> LaunchEnd:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return launch(self, job, progress)

    monkeypatch.setattr(FakeLauncher, "launch", stopped_after_one)
    stopped = harness("run", "test-suite.toml", "--launcher", "fake", "--fresh")
    assert stopped.exit_code == 130 and "  1 of 3 jobs are stored\n" in stopped.stderr
    planned = harness(*FAKE).stdout
    assert "- 3 of 3 jobs done\n- 1 of 3 noisy jobs were measured again; --retry-noisy measures the others\n" in planned
    assert "- next: harness run test-suite.toml --launcher fake --retry-noisy 1   all cells: --wide\n" in planned
    shown = harness("report").stdout
    assert "- 1 of 3 noisy jobs were measured again (planted); the earlier measurement is shown until all are" in shown


@pytest.mark.slow
def test_plan_says_that_images_come_on_top_and_what_null_is(
    harness: Call, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.suite(overhead=True)
    assert "come on top" not in harness(*FAKE).stdout
    monkeypatch.setattr(FakeLauncher, "find", lambda *_: None)
    planned = harness(*FAKE).stdout
    assert "- images and their downloads come on top of this time: planted, null (harness's own cost)\n" in planned
    assert "| null (harness's own cost) | tiny " in planned


@pytest.mark.slow
def test_time_is_that_of_stored_results_or_marked_as_assumed(harness: Call, bench: Bench) -> None:
    bench.suite(profiles=["cpu1-mem1", "cpu1-mem4"])
    cells = json.loads(harness(*FAKE, "--format", "json").stdout)["cells"]
    assert [cell["time_is_measured"] for cell in cells] == [False, False]
    assert [cell["build_s"] for cell in cells] == [60 + 0.01 * 10, 0], "one index serves both"
    assert cells[0]["timing_s"] == 30 + 0.1 * (2 + 2 * 4), "warm-up, and two passes over four queries"
    assert "~" in harness(*FAKE).stdout and "(~: assumed, not from stored results)" in harness(*FAKE).stdout
    harness("run", "test-suite.toml", "--launcher", "fake", "--only", "cpu1-mem4")
    known = json.loads(harness(*FAKE, "--format", "json").stdout)["cells"]
    assert known[0]["time_is_measured"] and known[0]["build_s"] == 0 and known[1]["timing_s"] == 0
    assert "assumed" not in harness(*FAKE).stdout


@pytest.mark.slow
def test_fresh_index_plans_each_build_once_more(harness: Call, bench: Bench) -> None:
    bench.suite(profiles=["cpu1-mem1", "cpu1-mem4"])
    harness("run", "test-suite.toml", "--launcher", "fake")
    for option, builds_s in (("--fresh", [0, 0]), ("--fresh-index", [2.0, 0])):
        cells = json.loads(harness(*FAKE, option, "--format", "json").stdout)["cells"]
        assert [cell["build_s"] for cell in cells] == builds_s and {cell["jobs_done"] for cell in cells} == {0}
        assert f"- next: harness run test-suite.toml --launcher fake {option}   all" in harness(*FAKE, option).stdout


@pytest.mark.slow
def test_several_suites_are_one_plan_by_published_latencies(
    harness: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("ir_datasets.util.home_path", lambda: tmp_path / "none")
    paths = [str(data_root() / "suites" / f"santhanam2023-{name}.toml") for name in ("msmarco", "xortydi")]
    done = harness("plan", *paths, "--launcher", "fake", "--price")
    assert "- 0 of 52 jobs done; the rest takes at least 8.4 h and US$ 12.11, without 8 index builds" in done.stdout
    assert "(~: 52 cells by published latencies, not from stored results)" in done.stdout
    assert "- next: harness run " in done.stdout and all(path in done.stdout for path in paths)
    cells = json.loads(harness("plan", *paths, "--launcher", "fake", "--price", "--format", "json").stdout)["cells"]
    first, last = cells[0], cells[-1]
    assert (first["system"], first["hardware_profile"], first["suite"]) == (
        "pyserini-tuned",
        "cpu1-mem4",
        "santhanam2023-msmarco",
    )
    # Table 3a: 11 ms; ten queries warm up, five passes of 1,000, and 20 asked twice.
    assert first["timing_s"] == pytest.approx(30 + 0.011 * (10 + 5 * 1000 + 2 * 20)) and first["time_is_published"]
    assert (first["instance_type"], first["memory_bytes"] / 2**30) == ("m6gd.medium", 4)
    assert first["memory_limit_bytes"] / 2**30 == pytest.approx(3.3, abs=0.01)
    assert (last["instance_type"], last["substitutes"]) == ("g6.24xlarge", "p3.8xlarge")
    one = harness("plan", paths[0], "--only", "bt-splade-l/*/*/cpu1-mem32", "--launcher", "fake")
    assert "without 1 index build of unknown time (~: 1 cell by published latencies" in one.stdout
    twice = json.loads(harness("plan", paths[0], paths[0], "--launcher", "fake", "--format", "json").stdout)["cells"]
    assert [cell["build_s"] for cell in twice].count(None) == 4, "an index of two suites counts once"


@pytest.mark.slow
def test_build_that_a_hybrid_and_its_component_share_counts_once(harness: Call, bench: Bench) -> None:
    declare(bench)

    def builds(*systems: str) -> dict[str, float]:
        bench.suite(systems=list(systems))
        cells = json.loads(harness(*FAKE, "--format", "json").stdout)["cells"]
        return {cell["system"]: cell["build_s"] for cell in cells}

    index_s, joining_s = 60 + 0.01 * 10, 60
    assert builds("both") == {"both": 2 * index_s + joining_s}
    assert builds("words", "both", "letters") == {"words": index_s, "both": index_s + joining_s, "letters": 0}
    bench.suite(systems=["words"])
    harness("run", "test-suite.toml", "--launcher", "fake")
    assert builds("both") == {"both": index_s + joining_s}, "the index of words is there"
    harness("run", "test-suite.toml", "--launcher", "fake")
    assert builds("both", "words", "letters") == {"both": 0, "words": 0, "letters": 0}
    parts = harness(*FAKE, "--fresh-index", "--format", "json").stdout
    assert [cell["build_s"] for cell in json.loads(parts)["cells"]] == [6, 0, 0], "measured: two of each part"


@pytest.mark.slow
def test_points_of_a_sweep_share_one_build(harness: Call, bench: Bench) -> None:
    bench.plant("grid", depth=1, form="a")
    bench.suite('[sweep.grid]\ndepth = [10, 20]\nform = ["a", "b"]\n', systems=["grid"])
    cells = json.loads(harness(*FAKE, "--format", "json").stdout)["cells"]
    assert [cell["build_s"] for cell in cells] == [60 + 0.01 * 10, 0, 0, 0]


def test_price_is_that_of_the_machine_of_each_profile(harness: Call, bench: Bench) -> None:
    bench.suite(profiles=["cpu1-mem1", "cpu16-mem32"])
    small, large = json.loads(harness(*FAKE, "--price", "--format", "json").stdout)["cells"]
    assert 0 < small["usd"] < large["usd"]
    assert json.loads(harness(*FAKE, "--format", "json").stdout)["cells"][0]["usd"] is None


def test_cell_without_a_machine_says_why_it_has_no_price(harness: Call, bench: Bench) -> None:
    bench.suite('[ec2.instances]\ncpu1-mem4 = "t3.large"\n', profiles=["cpu1-mem1", "cpu1-mem4"])
    text = harness(*FAKE, "--price", "--only", "cpu1-*").stdout
    assert "- no price: 1 cell, e.g. t3.large is burstable" in text and "for 1 of 2 cells" in text
    assert "- next: harness run test-suite.toml --only 'cpu1-*' --launcher fake   all cells: --wide" in text


def test_further_rows_are_counted(harness: Call, bench: Bench) -> None:
    for number in range(20):
        bench.plant(f"system{number}")
    bench.suite(systems=[f"system{number}" for number in range(20)])
    shown = harness(*FAKE).stdout
    assert len(shown.splitlines()) <= 25 and "- 6 more rows: --wide" in shown


def test_plan_needs_no_engine(harness: Call, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    bench.suite(profiles=["cpu1-mem1", "cpu1-mem4"])
    planned = harness("plan", "test-suite.toml")
    assert planned.exit_code == 0 and "- 0 of 2 jobs done" in planned.stdout
    assert "- no Docker engine answers, so it is not known which images are built" in planned.stdout


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True], ids=["one image", "an image that only searches"])
def test_stored_jobs_count_as_done_without_an_engine(
    harness: Call, bench: Bench, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    def refuse(*_: object) -> None:
        raise EngineError("no engine")

    if apart:
        monkeypatch.setattr(System, "_needs_search_only", lambda _: True)
    bench.suite(profiles=["cpu1-mem1", "cpu1-mem4"])
    harness("run", "test-suite.toml", "--launcher", "fake", "--only", "cpu1-mem4")
    monkeypatch.setattr(FakeLauncher, "find", refuse)
    assert "- 1 of 2 jobs done" in harness(*FAKE).stdout


def test_missing_data_leave_the_null_system_in_the_plan(
    harness: Call, bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("ir_datasets.util.home_path", lambda: tmp_path / "none")
    bench.suite(datasets=["msmarco-document/dev"], overhead=True)
    planned = harness(*FAKE)
    assert planned.exit_code == 0 and "- data is not here: msmarco-document-dev" in planned.stdout, planned.output
    assert "| null " in planned.stdout


def test_missing_folder_of_a_dataset_is_an_error_that_names_the_nearest(harness: Call, bench: Bench) -> None:
    bench.suite(datasets=["./tiny", "./tinny"])
    planned = harness(*FAKE)
    assert planned.exit_code == 1 and "| tinny " in planned.stdout
    folder = bench.folder / "tinny"
    assert planned.stderr.splitlines()[-1] == (
        f"harness: {folder}: this folder does not exist; give one with corpus, queries and qrels. Did you mean 'tiny'?"
    )
    assert "data is not here" not in planned.stdout
    assert harness("run", "test-suite.toml", "--launcher", "fake").stderr == planned.stderr


@pytest.mark.slow
def test_plan_makes_no_corpus_of_another_size_and_foresees_disk_and_memory(
    harness: Call, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.suite(datasets=["./tiny", "./tiny@6", "./tiny@8"])
    peaks = {10: 2**29, 8: 2**27, 6: 2**20}  # the limit is 256 MiB
    monkeypatch.setattr(
        growth, "shipped", lambda _, figure, documents: peaks[documents] if figure == "memory_bytes" else None
    )
    planned = harness(*FAKE, "--wide")
    assert planned.exit_code == 0, planned.output
    assert planned.stdout.count("to do: its corpus is made first") == 2 and "data is not here" not in planned.stdout
    assert len(list((bench.cache / "corpora").iterdir())) == 1, "the whole corpus alone"
    assert "- memory: planted may need 512 MiB on tiny, but cpu1-mem256m has 256 MiB; take a larger" in planned.stdout
    cells = json.loads(harness(*FAKE, "--format", "json").stdout)["cells"]
    assert [cell["memory_foreseen_bytes"] for cell in cells] == [2**29, 2**20, 2**27]
    assert all(cell["build_s"] is not None for cell in cells), "the name says how many documents there are"
    ran = harness("run", "test-suite.toml", "--launcher", "fake")
    assert ran.exit_code == 0 and "  memory: planted may need 512 MiB on tiny" in ran.stderr, ran.output
    assert len(list((bench.cache / "corpora").iterdir())) == 3
    again = harness(*FAKE).stdout
    assert "- 3 of 3 jobs done" in again and "memory:" not in again and "disk:" not in again
    shutil.rmtree(bench.cache / "corpora")
    assert "- 3 of 3 jobs done" in harness(*FAKE).stdout, "corpora of stored results are made again"


@pytest.mark.slow
def test_cells_without_their_data_take_the_time_of_those_with_it(harness: Call, bench: Bench) -> None:
    systems, datasets = ["planted", "null"], ["./tiny", "./tiny@8"]
    bench.suite(protocol(3, repeats=4), systems=systems, datasets=datasets, scenarios=["single_stream", "offline"])
    cells = json.loads(harness(*FAKE, "--format", "json").stdout)["cells"]
    times = {(cell["system"], cell["scenario"], cell["dataset"]): cell["timing_s"] for cell in cells}
    assert len(times) == 8
    for (system, scenario, _), time_s in times.items():
        assert time_s == times[system, scenario, "tiny"], "offline repeats no query, and a named null has 3 jobs"


def test_a_size_of_a_dataset_without_its_files_is_named_with_all_else_that_is_missing(
    harness: Call, bench: Bench
) -> None:
    bench.suite(datasets=["./tiny@6", "./gone"])
    (bench.folder / "tiny" / "qrels.trec").unlink()
    ran = harness("run", "test-suite.toml", "--launcher", "fake")
    assert ran.exit_code != 0 and "gone: this folder does not exist" in ran.stderr, ran.output
    assert "qrels" in ran.stderr and "Traceback" not in ran.output


def test_help_states_the_rule_of_assumed_times(harness: Call) -> None:
    rule = (
        f"{estimates.JOB_S:g} s per job and {estimates.QUERY_S:g} s per query, and for an index build "
        f"{estimates.BUILD_S:g} s and {estimates.DOCUMENT_S:g} s per document"
    )
    assert rule in " ".join(harness("plan", "--help").stdout.split())

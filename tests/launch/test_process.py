"""The real driver in a child process: every adapter failure has its outcome."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from harness.driver.records import Outcome
from harness.errors import ImageError
from harness.jobs.orchestrator import RunSummary
from harness.launch.images import catalog
from harness.launch.monitor.sources import ProcessTree
from harness.launch.process import ProcessLauncher
from harness.results.isolation import PROCESS
from harness.results.reader import StoredJob, read_jobs
from harness.results.schema import Result
from tests.conftest import Bench, make_bench
from tests.launch.monitor.nvml import Nvml
from tests.support.chance import chance

pytestmark = pytest.mark.slow

# Hits that the driver refuses: tests/driver/test_adapter.py has them all, one by chance is answered for real.
_REFUSED = {
    "nan": (Outcome.BAD_OUTPUT, "rank 1: the score is nan"),
    "duplicate": (Outcome.BAD_OUTPUT, "comes twice"),
    "too_few": (Outcome.BAD_OUTPUT, "2 hits, expected 3"),
    "too_many": (Outcome.BAD_OUTPUT, "4 hits, asked for 3"),
    "rising": (Outcome.BAD_OUTPUT, "is above the one before"),
    "none": (Outcome.BAD_OUTPUT, "search returned NoneType"),
}
MISDEEDS = {
    "raise": (Outcome.CRASH, "ValueError: planted in two lines"),
    "exit": (Outcome.CRASH, "exit code 0: it left no measurement"),
    "kill": (Outcome.CRASH, "exit code -9"),
    "unknown": (Outcome.BAD_OUTPUT, "the corpus lacks 1 document id, such as 'no-such-document'"),
    "million": (Outcome.BAD_OUTPUT, "1000000 hits, asked for 3"),
    "huge": (Outcome.BAD_OUTPUT, "the document id has 1073741824 characters"),
    "raise_in_load": (Outcome.CRASH, "does not load"),
    **dict([chance("refused hits").choice(sorted(_REFUSED.items()))]),
}


# What differs from the planted system and is still measured.
HARMLESS: dict[str, dict[str, str | int | float]] = {
    "slow": {"service_s": 0.05},
    "heavy": {"hold_mib": 200, "service_s": 0.02},
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, environments: Path) -> tuple[Bench, RunSummary]:
    """Run the sample system and all failing ones once, for tests that only read."""
    bench = make_bench(tmp_path_factory.mktemp("ran"))
    (bench.cache / "process").symlink_to(environments)
    for misdeed in MISDEEDS:
        bench.plant(misdeed, misdeed=misdeed, at=5)
    for name, params in HARMLESS.items():
        bench.plant(name, **params)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_IMAGES", str(bench.folder / "engines"))
        systems = [*MISDEEDS, *HARMLESS, "planted"]
        return bench, bench.run(ProcessLauncher(bench.cache), bench.suite(systems=systems))


@pytest.fixture(scope="module")
def results(ran: tuple[Bench, RunSummary]) -> dict[str, Result]:
    return {result.spec.cell.system: result for result, _ in ran[1].jobs}


@pytest.fixture(scope="module")
def stored(ran: tuple[Bench, RunSummary]) -> dict[str, StoredJob]:
    return {job.result.spec.cell.system: job for job in read_jobs(ran[0].results)}


@pytest.mark.parametrize("misdeed", MISDEEDS)
def test_misdeed_has_its_outcome(results: dict[str, Result], stored: dict[str, StoredJob], misdeed: str) -> None:
    outcome, detail = MISDEEDS[misdeed]
    result = results[misdeed]
    assert result.outcome is outcome
    assert detail in (result.detail or "")
    assert "\n" not in (result.detail or "")
    if misdeed not in ("raise_in_load", "unknown"):
        # Two warm-up queries and three timed ones were finished before the sixth search went wrong.
        assert stored[misdeed].samples().num_rows == 5


@pytest.mark.parametrize("name", ["pisa", "static-minilm", "both"])
def test_an_engine_that_needs_its_image_is_not_available(tmp_path: Path, name: str) -> None:
    pisa = catalog.system("pisa")
    joined = catalog.system("bm25-minilm").model_copy(update={"components": (pisa,)})
    system = joined if name == "both" else catalog.system(name)
    launcher = ProcessLauncher(tmp_path)
    reason = launcher.cannot_run(system)
    assert reason is not None and reason.startswith("not available as a process: engine '")
    with pytest.raises(ImageError, match=r"not available as a process: .*; use --launcher docker"):
        launcher.prepare(system)
    assert launcher.cannot_run(catalog.system("bm25")) is None


def test_misdeeds_of_a_system_stop_no_other(ran: tuple[Bench, RunSummary], results: dict[str, Result]) -> None:
    assert {results[name].outcome for name in (*HARMLESS, "planted")} == {Outcome.OK}
    assert {result.spec.cell.system for result in ran[1].unforeseen} == {*MISDEEDS}


def test_complete_job_is_stored_completely(stored: dict[str, StoredJob]) -> None:
    job = stored["planted"]
    result = job.result
    assert result.outcome is Outcome.OK
    assert result.isolation is PROCESS
    assert result.measured.load_s is not None and 0 < result.measured.load_s < 60
    assert result.answers.first_query_s is not None and result.answers.first_query_s > 0
    assert result.index is not None and result.index.index_bytes > 100 and result.index.build_s > 0
    assert result.observed.memory.peak_anon_bytes is not None and result.observed.memory.peak_anon_bytes > 1 << 20
    assert result.observed.memory.peak_cgroup_bytes is None, "a plain process has no cgroup of its own: never 0"
    assert result.measured.effective is not None and len(result.measured.effective.cpus) == 1
    assert result.measured.effective.threads == {"planted": 1}
    assert [phase.name for phase in result.measured.phases] == ["load", "warmup", "trial-0", "trial-1", "close"]
    assert result.answers.trials_finished == 2
    assert result.answers.ranking_disagreements == 0
    samples = job.samples().to_pylist()
    assert sum(row["warmup"] for row in samples) == 2
    assert len([row for row in samples if not row["warmup"]]) == 8
    warm = {row["query_id"] for row in samples if row["warmup"]}
    assert not warm & {row["query_id"] for row in samples if not row["warmup"]}
    assert set(result.files) == {"samples.parquet", "run.trec.gz", "log.txt.gz"}


def test_latency_is_the_service_time(stored: dict[str, StoredJob]) -> None:
    assert min(stored["slow"].samples().column("latency_ns").to_pylist()) >= 50_000_000


def test_held_memory_is_counted_and_mapped_files_are_not(results: dict[str, Result]) -> None:
    heavy, plain = (results[name].observed.memory.peak_anon_bytes or 0 for name in ("heavy", "planted"))
    assert 195 << 20 < heavy - plain < 215 << 20


def test_hang_ends_as_timeout_and_leaves_no_process(bench: Bench) -> None:
    bench.plant("stuck", misdeed="hang", at=3)
    text = "[protocol]\nwarmup_queries = 2\ntrials = 1\nk = 3\nquery_timeout_s = 0.3\n"
    (result, _), *_ = bench.run(ProcessLauncher(bench.cache), bench.suite(text, systems=["stuck"])).jobs
    assert result.outcome is Outcome.TIMEOUT
    assert result.detail == "a query took more than 0.3 s"
    assert not [pid for pid in Path("/proc").glob("[0-9]*") if str(bench.folder) in _environment(pid)]


def _environment(process: Path) -> str:
    try:
        return (process / "environ").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


class Busy(Nvml):
    """A driver drawing 100 W; GPU 0 runs the job's processes and those that a test adds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.before = set(ProcessTree(os.getpid()).pids())  # servers of other tests are no job's

    def DeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        return time.perf_counter_ns() // 10_000

    def DeviceGetComputeRunningProcesses(self, handle: int) -> list[object]:
        ours = dict.fromkeys((pid for pid in ProcessTree(os.getpid()).pids() if pid not in self.before), 1 << 20)
        self.compute[0] = {**ours, **self.graphics[0]}
        return super().DeviceGetComputeRunningProcesses(handle)


@pytest.mark.parametrize("shared", [False, True])
def test_gpu_job_is_stored_with_nvml_readings(bench: Bench, monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    nvml = Busy(monkeypatch)
    monkeypatch.setattr("harness.launch.monitor.gpu._numbered_as_the_host", lambda: True)  # wherever the tests run
    nvml.graphics[0] = {os.getppid(): 5 << 20} if shared else {}
    bench.plant("slow", service_s=0.1)
    bench.run(ProcessLauncher(bench.cache), bench.suite(systems=["slow"], profiles=["gpu1-cpu1-mem4"]))
    (job,) = read_jobs(bench.results)
    result = job.result
    assert result.outcome is Outcome.OK, result.detail
    assert result.environment.gpu_models == ("GPU 0", "GPU 1")
    looks = [reading.gpu for reading in result.observed.canary]
    assert len(looks) >= 3
    assert {(look.sm_clock_mhz, look.clock_reasons, look.temperature_c) for look in looks if look} == {
        (1980, ("gpu_idle",), 40)
    }
    trials = [phase for phase in result.measured.phases if phase.name.startswith("trial")]
    trials_s = sum(phase.end_ns - phase.start_ns for phase in trials) / 1e9
    use = result.observed.gpu
    assert trials_s / 2 < use.wall_s < trials_s * 2 and use.energy_j == pytest.approx(100 * use.wall_s, rel=0.1)
    assert use.readings >= 2 and use.clock_reasons == {"gpu_idle": use.readings}
    assert (use.foreign_processes, use.foreign_bytes) == ((1, 5 << 20) if shared else (0, 0))
    assert nvml.open == 0

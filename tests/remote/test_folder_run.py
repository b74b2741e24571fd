"""A whole suite through a shared folder: one process submits, workers that see only the folder measure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from harness.driver.records import Outcome
from harness.errors import UsageError, counted
from harness.remote import claims, folder_worker, journal, records
from harness.remote.backend import ENDED, RUNNING, WAITING, PartState
from harness.remote.folder_backend import FolderBackend
from harness.remote.records import Heartbeat, Launch, PlannedPart, RemoteRun, ShippedInput, WorkerEnd, dump
from harness.remote.shared_folder import SharedFolder, open_folder
from harness.remote.worker import HEARTBEAT_VARIABLE
from harness.results.reader import read_jobs
from tests.conftest import Bench, protocol
from tests.support.command_line import Call

ROOT = Path(__file__).resolve().parents[2]
# The submitter's folder is empty for the worker.
_HIDDEN = 'mount -t tmpfs none "$1" && shift && exec "$@"'


class Site:
    """A bench whose owner submits, and a shared folder beside it."""

    def __init__(self, bench: Bench, shared: Path) -> None:
        self.bench, self.shared, self.children = bench, shared, list[subprocess.Popen[bytes]]()
        self.work = open_folder(shared)

    def submit(self, launcher: str) -> subprocess.Popen[bytes]:
        command = ["run", "test-suite.toml", "--launcher", launcher, "--work", str(self.shared)]
        paths = {"HARNESS_CACHE": str(self.bench.cache), "HARNESS_IMAGES": str(self.bench.folder / "engines")}
        return self._start([], command, self.bench.folder, paths)

    def worker(self, name: str, idle_s: float = 600) -> subprocess.Popen[bytes]:
        home = self.shared.parent / name
        home.mkdir()
        hidden = ["unshare", "--mount", "sh", "-c", _HIDDEN, "sh", str(self.bench.folder)]
        command = ["worker", str(self.shared), "--idle", str(idle_s)]
        return self._start(hidden, command, home, {"HOME": str(home), "HARNESS_CACHE": str(home / "cache")})

    def _start(
        self, before: list[str], command: list[str], folder: Path, paths: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        usual = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        variables = {**usual, "PYTHONPATH": str(ROOT), HEARTBEAT_VARIABLE: "0.3", **paths}
        with (self.shared.parent / f"log-{len(self.children)}").open("wb") as log:
            full = [*before, sys.executable, "-m", "harness", *command]
            self.children.append(
                subprocess.Popen(full, cwd=folder, env=variables, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            )
        return self.children[-1]

    def logs(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.shared.parent.glob("log-*")))

    def uploaded(self) -> list[str]:
        """Keys of all jobs that workers have uploaded, once for each upload."""
        names = [Path(stored.name) for stored in self.work.list(f"{records.WORKERS}/")]
        return [name.stem for name in names if name.parent.name == records.JOBS]

    def end_of(self, submit: subprocess.Popen[bytes]) -> list[str]:
        """Wait for a command's success; return the keys of all jobs that came meanwhile, once for each upload."""
        names: set[Path] = set()
        while submit.poll() is None:
            names |= {Path(stored.name) for stored in self.work.list(f"{records.WORKERS}/")}
            time.sleep(0.02)
        assert submit.returncode == 0, self.logs()
        return sorted(name.stem for name in names if name.parent.name == records.JOBS)

    def wait(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 300
        while not done():
            assert time.monotonic() < deadline and all(child.poll() in (None, -9) for child in self.children), (
                self.logs()
            )
            time.sleep(0.02)


@pytest.fixture
def site(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    shared = tmp_path_factory.mktemp("site") / "shared"
    shared.mkdir(mode=0o750)
    made = Site(bench, shared)
    yield made
    for child in made.children:
        child.kill()
        child.wait()


def measuring(site: Site) -> int | None:
    """Return the process that measures a second job of a part, if one does now."""
    for stored in site.work.list(f"{records.WORKERS}/"):
        if stored.name.endswith(records.HEARTBEAT):
            folder = Path(stored.name).parent
            beat = json.loads(site.work.get(stored.name, 1 << 20) or b"{}")
            if beat.get("current") and list((site.shared / folder / records.JOBS).glob("*.tar")):
                return int(folder.name.split("-")[-2])
    return None


@pytest.mark.slow
def test_killed_worker_is_replaced_and_no_job_is_measured_twice_or_lost(site: Site, harness_here: Call) -> None:
    site.bench.plant("planted", service_s=0.1)
    site.bench.suite(protocol(3), overhead=True)
    submit = site.submit("process")
    first = site.worker("first")
    site.wait(lambda: measuring(site) is not None)
    first.send_signal(signal.SIGKILL)
    first.wait()
    before = site.uploaded()
    assert before and len(before) < 4
    results = site.bench.results / "test-suite"
    site.wait(lambda: any(results.rglob("result.json")))
    submit.kill()
    submit.wait()
    stored = len(read_jobs(results))
    submit = site.submit("process")
    site.worker("second")
    uploaded = site.end_of(submit)
    said = f"{counted(4 - stored, 'job')} run, {stored} done before"
    assert said in site.logs() and f"({stored} of 4 jobs)" in site.logs(), site.logs()
    jobs = read_jobs(results)
    cells = Counter((job.result.spec.cell.system, job.result.spec.job) for job in jobs)
    assert cells == {("null", 0): 1, ("planted", 0): 1, ("planted", 1): 1, ("planted", 2): 1}
    assert {job.result.outcome for job in jobs} == {Outcome.OK}
    assert uploaded == sorted(job.result.key for job in jobs), "each job was uploaded once"
    assert set(before) <= {job.result.key for job in jobs}
    assert harness_here("verify", "results").exit_code == 0
    left = [stored.name for stored in site.work.list() if not stored.name.startswith(records.INPUTS)]
    assert not left, "the run is closed, and all that it left is taken home"


@pytest.fixture
def harness_here(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Call:
    from tests.support.command_line import call

    monkeypatch.setenv("HARNESS_CACHE", str(bench.cache))
    monkeypatch.chdir(bench.folder)
    return call


# ---- claims and states, without processes


RUN = RemoteRun("s-1", "fake", "s", "r", "o", ())


class Scene:
    """A run of one part in a folder."""

    def __init__(self, work: SharedFolder) -> None:
        self.work, self.run = work, work.below(records.run(RUN.run_id))
        self.backend = FolderBackend(work, "fake")
        run_journal = journal.Journal(work, RUN)
        run_journal.begin()
        self.backend.begin(RUN, ShippedInput("inputs/bundles/b.tar.gz", "0" * 64, 1))
        self.launch = run_journal.new_launch(Launch("001", 3600, 3, 1, 0.0))
        work.ask_time()

    def look(self) -> PartState:
        return claims.look(self.work, RUN.run_id, "001")

    def claim(self, worker: str) -> bool:
        return claims.claim(self.work, RUN.run_id, "001", self.look(), worker)

    def silent(self, worker: str) -> None:
        """A worker wrote its last heartbeat an hour ago."""
        path = Path(self.work.where(f"{records.worker(worker)}/{records.HEARTBEAT}"))
        os.utime(path, (time.time() - 3600,) * 2)

    def end(self, worker: str, detail: str = "", *, cut_off: bool = False) -> None:
        end = WorkerEnd(not detail, detail or None, cut_off)  # type: ignore[arg-type]
        self.work.below(records.worker(worker)).put(records.END, dump(end))

    def state(self) -> tuple[str, tuple[str, ...], str]:
        state = self.backend.look([self.launch])["001"]
        return state.phase, state.workers, state.reason


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    (tmp_path / "shared").mkdir(mode=0o750)
    return Scene(open_folder(tmp_path / "shared"))


def test_part_is_free_until_one_worker_claims_it(scene: Scene) -> None:
    found = scene.look()
    assert scene.state() == (WAITING, (), "")
    assert scene.claim("a-1")
    assert not claims.claim(scene.work, RUN.run_id, "001", found, "b-1"), "both had found it free"
    assert scene.state() == (RUNNING, ("a-1",), "")
    assert claims.holds(scene.work, RUN.run_id, "001", "a-1")
    assert not list(folder_worker.free_parts(scene.work))
    assert not list(scene.work.list(records.worker("b-1"))), "the loser leaves nothing"


def test_silent_workers_part_goes_to_another(scene: Scene) -> None:
    assert scene.claim("a-1")
    scene.silent("a-1")
    [free] = folder_worker.free_parts(scene.work)
    assert free[2].workers == ("a-1",) and scene.state()[0] == WAITING and "no sign of life" in scene.state()[2]
    assert scene.claim("b-1") and scene.state() == (RUNNING, ("a-1", "b-1"), "")
    assert not claims.holds(scene.work, RUN.run_id, "001", "a-1"), "it stops, should it still live"


@pytest.mark.parametrize(
    ("detail", "cut_off", "phase"),
    [("", False, ENDED), ("a signal ended the worker", True, WAITING), ("exit code 1", False, ENDED)],
)
def test_ended_part_is_free_only_if_its_worker_was_stopped(
    scene: Scene, detail: str, cut_off: bool, phase: str
) -> None:
    assert scene.claim("a-1")
    scene.end("a-1", detail, cut_off=cut_off)
    assert scene.state() == (phase, ("a-1",), detail)


def test_part_is_given_up_after_some_workers(scene: Scene) -> None:
    for number in range(claims.ATTEMPTS):
        assert scene.state()[0] == WAITING and scene.claim(f"a-{number}")
        scene.silent(f"a-{number}")
    assert scene.state()[0] == ENDED


def test_closed_run_ends_its_worker(scene: Scene) -> None:
    assert scene.claim("a-1")
    journal.Journal(scene.work, RUN).close()
    assert not claims.holds(scene.work, RUN.run_id, "001", "a-1")
    assert not list(folder_worker.free_parts(scene.work))


def test_worker_refuses_a_run_without_its_harness(scene: Scene, tmp_path: Path) -> None:
    scene.run.delete(["bundle.json"])
    with pytest.raises(UsageError, match="does not name the harness to run"):
        folder_worker.serve(scene.work, tmp_path / "cache", 1)


def test_heartbeat_comes_before_the_claim(scene: Scene) -> None:
    """Else another worker could take the part for one of a dead worker."""
    assert scene.claim("a-1")
    beat = records.fetch(Heartbeat, scene.work.below(records.worker("a-1")), records.HEARTBEAT)
    assert beat == Heartbeat("fetching")


def test_finished_run_leaves_only_its_inputs(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o750)
    work, part = open_folder(tmp_path / "shared"), PlannedPart("001", "", 0.0, 30)
    backend, run = FolderBackend(work, "fake"), replace(RUN, parts=(part,))
    work.put("inputs/bundles/b.tar.gz", b"bundle")
    journal.Journal(work, run).begin()
    backend.begin(run, ShippedInput("inputs/bundles/b.tar.gz", "0" * 64, 1))
    assert claims.claim(work, RUN.run_id, "001", claims.look(work, RUN.run_id, "001"), "a-1")
    journal.Journal(work, run).close()
    backend.tidy()
    backend.tidy()  # again after an error
    assert [stored.name for stored in work.list()] == ["inputs/bundles/b.tar.gz"]


BARE = """description = "bare"
[[assets]]
folder = "m"
licence = "MIT"
hub = "a/m"
revision = "{}"
[assets.sha256]
"w.bin" = "{}"
"""


@pytest.mark.slow
def test_missing_data_and_weights_are_named_before_parts_are_shown(site: Site, harness_here: Call) -> None:
    command = ("run", "test-suite.toml", "--launcher", "process", "--work", str(site.shared), "--dry-run")
    site.bench.suite(datasets=["./gone", "./lost"])
    done = harness_here(*command)
    assert done.exit_code == 2
    for name in ("gone", "lost"):
        assert f"{site.bench.folder}/{name}: this folder does not exist" in done.stderr
    (site.bench.folder / "engines/planted/systems/bare.toml").write_text(BARE.format("a" * 40, "0" * 64))
    site.bench.suite(systems=["planted", "bare"], profiles=["cpu1-mem1", "cpu1-mem256m"])
    done = harness_here(*command)
    named = "bare: cannot find w.bin of 'm': the hub does not answer for a/m"
    assert done.exit_code == 0 and named in done.stderr, done.output
    assert "2 parts with 2 jobs and 1 index builds" in done.stderr, done.stderr
    site.bench.suite(systems=["bare"])
    done = harness_here(*command)
    assert done.exit_code == 1 and done.stderr.splitlines()[-1].startswith(f"harness: {named}"), done.output


def test_workers_that_start_side_by_side_unpack_the_shipped_harness_once(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked: list[Path] = []

    def unpack(_fetcher: object, _bundle: ShippedInput, _kind: str, target: Path) -> None:
        unpacked.append(target)
        time.sleep(0.05)
        (target / "harness").touch()

    monkeypatch.setattr(folder_worker.Fetcher, "unpack", unpack)
    with ThreadPoolExecutor(4) as pool:
        starts = [pool.submit(folder_worker._code, scene.work, RUN.run_id, tmp_path / "cache") for _ in range(4)]
        folders = [start.result() for start in starts]
    assert len(unpacked) == 1 and all((folder / "harness").exists() for folder in folders)

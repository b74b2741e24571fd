"""A run that Ctrl-C stops, in each of its phases: it says what is kept, leaves no process, and the next run goes on."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness.driver.records import Outcome
from harness.results.reader import read_jobs
from harness.results.schema import Result
from tests.conftest import Bench, protocol
from tests.support import model_hub
from tests.support.chance import drawn
from tests.support.command_line import call
from tests.support.model_hub import Hub

WAIT = """
def wait(folder, phase):
    gate = Path(folder, phase)
    Path(folder, phase + ".reached").touch()
    while gate.exists():
        time.sleep(0.01)
"""
ADAPTER = (
    WAIT
    + """

class Gated(Planted):
    def build(self, corpus, index_dir, progress):
        half = index_dir / ".building" / "half"
        if Path(self.params["gates"], "build").exists() and not half.exists():
            half.parent.mkdir()
            half.write_text("0.01")
            wait(self.params["gates"], "build")
        super().build(corpus, index_dir, progress)

    def search(self, query, k):
        wait(self.params["gates"], "trial")
        return super().search(query, k)


ENGINE = Gated
"""
)
PREPARE = (
    "import json, sys, time\nfrom pathlib import Path\n"
    + WAIT
    + 'wait(json.loads(Path(sys.argv[2]).read_text())["build_params"]["gates"], "image")\n'
)
WEIGHTS = b"weights"
SYSTEM = """description = "waits at gates"
[build_params]
gates = "{gates}"
[[assets]]
folder = "model"
licence = "MIT"
hub = "a/m"
revision = "{revision}"
[assets.sha256]
"weights" = "{sha256}"
"""
# A run that waits for the hub's first answer for as long as a busy machine takes.
PATIENT = """
from harness.__main__ import start
from harness.launch.images import assets
assets._HUB_PROBE_S = 600.0
start()
"""
# A run that stops itself at a moment of which no other process hears.
STOPS = """
import os, signal
from pathlib import Path
from harness.__main__ import start
from harness.results import seals

def stop(*_, **__):
    os.kill(os.getpid(), signal.SIGINT)

rename, append = Path.rename, seals.append
if {when!r} == "writing":
    Path.rename = lambda path, to: (path.name.startswith("put-") and stop(), rename(path, to))[1]
else:
    seals.append = lambda folder, name, seal: ("single_stream" in name and stop(), append(folder, name, seal))[1]
start()
"""
# A command that is stopped while a library's lock is held, which the library's exit handler waits for.
LOCKED = """
import atexit, queue
from harness import cli
from harness.__main__ import start

pool = queue.LifoQueue()
atexit.register(lambda: pool.get(block=False))

def stopped_in_the_pool():
    pool.mutex.acquire()
    print("harness: stopped")
    raise SystemExit(130)

cli.main = stopped_in_the_pool
start()
"""


@dataclass
class Downloads(list[str]):
    """The files that a hub has sent; while the gate is closed, it sends nothing."""

    gates: Path = field(default_factory=Path)

    def append(self, name: str) -> None:
        (self.gates / "fetching.reached").touch()
        while (self.gates / "fetching").exists():
            time.sleep(0.01)
        super().append(name)


@dataclass
class Gated:
    """A run of two systems: ``planted``, and one that waits at gates."""

    bench: Bench
    gates: Path

    def start(self, *program: str, launcher: str) -> subprocess.Popen[str]:
        """Start the run."""
        command = [sys.executable, *program, "run", "test-suite.toml", "--launcher", launcher]
        command += ["--results", str(self.bench.results), "--cache", str(self.bench.folder / "own-cache")]
        return subprocess.Popen(
            command, cwd=self.bench.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def stopped(self, child: subprocess.Popen[str]) -> set[str]:
        """Check how a run ends that Ctrl-C stops; return the keys of the stored jobs."""
        _, said = child.communicate()
        assert child.returncode == 130 and "Traceback" not in said, said
        stop = "harness: stopped; what was finished is kept, and the same command goes on from there"
        assert [line for line in said.splitlines() if line.startswith("harness: ")] == [stop], said
        assert said.splitlines()[-1] == stop
        assert _processes_of(self.bench.folder) == []
        return self.keys()

    def goes_on(self, launcher: str, finished: set[str]) -> list[Result]:
        """Run again, check that each job is stored once, and return the results."""
        again = self.start("-c", PATIENT, launcher=launcher)
        _, said = again.communicate()
        assert again.returncode == 0, said
        results = [job.result for job in read_jobs(self.bench.results)]
        jobs = sorted((result.spec.cell.system, result.spec.job) for result in results)
        assert jobs == [("gated", 0), ("gated", 1), ("planted", 0), ("planted", 1)]
        assert {(result.outcome, result.spec.repetition) for result in results} == {(Outcome.OK, 0)}
        assert finished <= self.keys()
        assert not (self.bench.results / "test-suite" / ".staging").exists()
        assert call("verify", str(self.bench.results)).exit_code == 0
        return results

    def keys(self) -> set[str]:
        """Return the keys of the stored jobs."""
        return {job.result.key for job in read_jobs(self.bench.results)}


@pytest.fixture
def gated(bench: Bench) -> Iterator[Gated]:
    gates, engine = bench.folder / "gates", bench.folder / "engines" / "gated"
    gates.mkdir()
    planted = bench.folder / "engines" / "planted"
    engine.mkdir()
    for name in ("Dockerfile", "requirements.lock"):
        (engine / name).write_bytes((planted / name).read_bytes())
    adapter = (planted / "adapter.py").read_text(encoding="utf-8").replace("ENGINE = Planted\n", "")
    (engine / "adapter.py").write_text(adapter + ADAPTER, encoding="utf-8")
    (engine / "gated_prepare.py").write_text(PREPARE, encoding="utf-8")
    settings = (planted / "engine.toml").read_text(encoding="utf-8")
    (engine / "engine.toml").write_text(
        f'{settings}prepare = "gated_prepare"\nprepare_params = ["gates"]\n', encoding="utf-8"
    )
    (engine / "systems").mkdir()
    values = {"gates": gates, "revision": "a" * 40, "sha256": hashlib.sha256(WEIGHTS).hexdigest()}
    (engine / "systems" / "gated.toml").write_text(SYSTEM.format(**values), encoding="utf-8")
    bench.suite(protocol(2), systems=["planted", "gated"])
    hub = Hub({"a/m": {"a" * 40: {"weights": WEIGHTS}}}, downloaded=Downloads(gates=gates))
    with model_hub.serve(hub), model_hub.chosen(hub.url):
        yield Gated(bench, gates)
        for gate in gates.iterdir():
            gate.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("phase", drawn("interrupted phase", ["fetching", "image", "build", "trial"], 2))
def test_ctrl_c_keeps_what_is_finished_and_the_next_run_goes_on(gated: Gated, phase: str) -> None:
    (gated.gates / phase).touch()
    child = gated.start("-c", PATIENT, launcher="process")
    while not (gated.gates / f"{phase}.reached").exists():
        assert child.poll() is None, child.communicate()
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    finished = gated.stopped(child)
    assert len(finished) == 1, "planted has its first trial while the other system is made"
    (gated.gates / phase).unlink()
    results = gated.goes_on("process", finished)
    resumed = {result.index.resumed_s for result in results if result.index and result.spec.cell.system == "gated"}
    assert resumed == {0.01 if phase == "build" else None}


@pytest.mark.slow
@pytest.mark.parametrize(("moment", "stored"), [("writing", 0), ("sealing", 1)])
def test_ctrl_c_while_a_job_is_written_stores_it_whole_or_not_at_all(gated: Gated, moment: str, stored: int) -> None:
    finished = gated.stopped(gated.start("-c", STOPS.format(when=moment), launcher="fake"))
    assert len(finished) == stored
    gated.goes_on("fake", finished)


def _processes_of(folder: Path) -> list[str]:
    """Return the commands of other processes that work in a folder or were told of it."""
    found, here = [], str(folder).encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            facts = (process / "environ").read_bytes(), (process / "cmdline").read_bytes()
            place = str((process / "cwd").readlink()).encode()
        except OSError:
            continue
        if int(process.name) != os.getpid() and any(here in fact for fact in (*facts, place)):
            found.append(facts[1].decode("utf-8", "replace"))
    return found


@pytest.mark.slow
def test_a_stopped_command_ends_whatever_lock_is_held() -> None:
    """Ctrl-C raises between any two instructions, and so may leave a lock of a library held for good."""
    done = subprocess.run(
        [sys.executable, "-c", LOCKED],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode, done.stdout) == (130, "harness: stopped\n")

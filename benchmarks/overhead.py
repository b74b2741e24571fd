"""What measuring costs, side by side in one run: ``make bench``.

Four questions, each answered against something that does the same work without harness:

1. What does the driver's clock add to a query, against a bare loop around the same callable, and against two reads
   of the clock alone?  (at most 2 microseconds a query for a Python adapter)
2. What does a JSON-lines engine add?  (at most 100 microseconds a query)
3. How much longer is an empty job (start, load, one query, stored) than a bare ``docker run`` of the same image?
   (at most 1.5 times)
4. How much of a CPU do the samplers take that look at a job from outside?  (under 1 %)

Rounds of the alternatives are interleaved, so that a machine that drifts favours none; the median of the rounds counts.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness import catalog, orchestrator, suite
from harness.inputs import Options
from harness.launch.base import Job, Limits, Prepared
from harness.launch.docker import DockerLauncher
from harness.measure import jsonlines
from harness.measure.adapter import Adapter, Corpus
from harness.measure.output import SAMPLES, Output
from harness.measure.scenarios import single_stream
from harness.progress import Screen
from harness.records import Envelope, Hit, Isolation, JobSpec, Query, to_json
from harness.samples import read

ROUNDS = 15
QUERIES = 400
ROUNDS_OF_JOBS = 3
JOBS = 4
CACHE = Path(os.environ.get("HARNESS_CACHE", "~/.cache/ir-harness")).expanduser()
K = 10
ENVELOPE = Envelope("bench", 1, 256 << 20)
LIMITS = Limits(load_s=60, query_s=10, build_s=60, job_s=120)

# The smallest engine that speaks JSON lines; what it costs beyond its own work is the protocol.
ENGINE = """
import json, sys
HITS = [[f"d{n}", -float(n)] for n in range(10)]
for line in sys.stdin:
    verb = json.loads(line)["verb"]
    print(json.dumps({"hits": HITS} if verb == "search" else {}), flush=True)
"""


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    what: str
    measured: str
    against: str
    figure: str
    allowed: str
    ok: bool


class Nothing(Adapter):
    """Answers at once."""

    hits: Sequence[Hit] = tuple(Hit(f"d{n}", -float(n)) for n in range(K))

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Nothing to build."""

    def load(self, index_dir: Path) -> None:
        """Nothing to load."""

    def search(self, query: str, k: int) -> Sequence[Hit]:  # noqa: ARG002
        """The answer."""
        return self.hits


def main() -> int:
    """Measure all, print the table; exit code 1 when something costs more than allowed."""
    lines = [*_queries(), *_jobs()]
    table = Table(title="What measuring costs")
    for head in ("what", "with harness", "without", "difference", "allowed", ""):
        table.add_column(head, overflow="fold")
    for line in lines:
        table.add_row(line.what, line.measured, line.against, line.figure, line.allowed, "ok" if line.ok else "OVER")
    Console(width=150 if not sys.stdout.isatty() else None).print(table)
    return 0 if all(line.ok for line in lines) else 1


def _queries() -> list[Line]:
    """Questions 1 and 2."""
    nothing = Nothing({}, ENVELOPE, Path())
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(everywhere)})  # one CPU, as the envelope says
    with tempfile.TemporaryDirectory() as folder:
        engine = Path(folder, "engine.py")
        engine.write_text(ENGINE, encoding="utf-8")
        piped = jsonlines.command(sys.executable, str(engine))({}, ENVELOPE, Path())
        piped.load(Path(folder))
        ways: dict[str, Callable[[], list[int]]] = {
            "clock": _clock_alone,
            "bare": lambda: _bare_loop(nothing.search),
            "driver": lambda: _driver(nothing, Path(folder)),
            "piped": lambda: _driver(piped, Path(folder)),
        }
        rounds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                rounds[name].append(statistics.fmean(way()) / 1e3)
        piped.close()
    os.sched_setaffinity(0, everywhere)
    us = {name: statistics.median(values) for name, values in rounds.items()}

    def line(what: str, name: str, base: str, most_us: float) -> Line:
        more = us[name] - us[base]
        return Line(
            what, f"{us[name]:.2f} µs", f"{us[base]:.2f} µs", f"{more:+.2f} µs", f"{most_us:g} µs", more <= most_us
        )

    return [
        line("a query, Python adapter, against a bare loop around the same callable", "driver", "bare", 2),
        line("a query, Python adapter, against two clock reads alone", "driver", "clock", 2),
        line("a query, JSON-lines engine, against a bare loop around the same answer", "piped", "bare", 100),
    ]


def _clock_alone() -> list[int]:
    clock, taken = time.perf_counter_ns, []
    for _ in range(QUERIES):
        start = clock()
        taken.append(clock() - start)
    return taken


def _bare_loop(search: Callable[[str, int], object]) -> list[int]:
    clock, taken = time.perf_counter_ns, []
    for _ in range(QUERIES):
        start = clock()
        search("a query of some words", K)
        taken.append(clock() - start)
    return taken


def _driver(adapter: Adapter, folder: Path) -> list[int]:
    """The latencies that the driver writes down."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        out = Output(Path(place))
        single_stream(adapter, _spec(QUERIES), out)
        out.close()
        job = Job(_spec(QUERIES), _no_image(), Path(place), Path(place), Path(place))
        Path(place, "out").mkdir()
        Path(place, SAMPLES).rename(Path(place, "out", SAMPLES))
        found, _ids, wrong = read(job)
    if wrong:
        raise SystemExit(wrong)
    return [sample.latency_ns for sample in found if sample.trial == 0]


def _spec(queries: int) -> JobSpec:
    return JobSpec(
        kind="search",
        system="null",
        params={},
        envelope=ENVELOPE,
        isolation=Isolation.CONTAINER,
        k=K,
        trials=1,
        corpus_size=10,
        warmup=(Query("w", "a query of some words"),),
        sample=tuple(Query(f"q{number}", "a query of some words") for number in range(queries)),
    )


def _no_image() -> Prepared:
    return Prepared(catalog.system("null"), "none", "none")


def _jobs() -> list[Line]:
    """Questions 3 and 4."""
    launcher = DockerLauncher(CACHE)
    screen = Screen(Console(file=StringIO()))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        suite_path = _suite(place)
        prepared = launcher.prepare(catalog.system("null"), screen.say)
        _harness_jobs(suite_path, launcher, screen)  # builds the index, warms the page cache
        with_harness, bare = [], []
        for _ in range(ROUNDS_OF_JOBS):
            with_harness += _harness_jobs(suite_path, launcher, screen)
            bare += [_bare_docker_run(place, prepared.reference) for _ in range(JOBS - 1)]
        sampler, everything = _looking_on(place, launcher)
    launcher.close()
    job_s, bare_s = statistics.median(with_harness), statistics.median(bare)
    return [
        Line(
            "an empty job, stored, against `docker run` of the same image and job",
            f"{job_s:.2f} s",
            f"{bare_s:.2f} s",
            f"{job_s / bare_s:.2f} x",
            "1.5 x",
            job_s <= 1.5 * bare_s,
        ),
        Line("the sampling thread, beside a job", f"{sampler:.2%}", "0", "of a CPU", "1 %", sampler < 0.01),
        Line("all that harness does beside a job", f"{everything:.2%}", "0", "of a CPU", "2 %", everything < 0.02),
    ]


def _suite(place: Path) -> Path:
    """One cell of the null system, one query a trial."""
    tiny = place / "tiny"
    tiny.mkdir()
    lines = "".join(json.dumps({"_id": f"d{n}", "title": "", "text": f"word {n}"}) + "\n" for n in range(10))
    (tiny / "corpus.jsonl").write_text(lines, encoding="utf-8")
    topics = "".join(json.dumps({"_id": f"q{n}", "text": f"word {n}"}) + "\n" for n in range(2))
    (tiny / "queries.jsonl").write_text(topics, encoding="utf-8")
    (tiny / "qrels.trec").write_text("q0 0 d0 1\n", encoding="utf-8")
    path = place / "bench.toml"
    path.write_text(
        'systems = ["null"]\ndatasets = ["./tiny"]\nprofiles = ["cpu1-mem1"]\n'
        f"[protocol]\ntrials = {JOBS}\nsample_size = 1\nwarmup_queries = 1\nwarmup_cap = 1\nrepeats = 0\n",
        encoding="utf-8",
    )
    return path


def _harness_jobs(path: Path, launcher: DockerLauncher, screen: Screen) -> list[float]:
    """Seconds from the start of each job to the start of the next: everything that harness does for one."""
    loaded = suite.load(path)
    options = Options(path.parent / "results", CACHE, path.parent, fresh=True)
    summary = orchestrator.run(loaded, options, launcher, screen)
    if summary.unforeseen:
        raise SystemExit(summary.complaints[0])
    starts = sorted(datetime.fromisoformat(result.started_at) for result, _expected in summary.jobs)
    return [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(starts)]


def _bare_docker_run(place: Path, image: str) -> float:
    """The same job by the engine's own command line: nothing looks on, nothing is checked or stored."""
    index = next((CACHE / "indexes").glob("*/data/ids.json")).parent
    with tempfile.TemporaryDirectory(dir=place) as folder:
        job = Path(folder)
        job.chmod(0o755)
        (job / "out").mkdir()
        (job / "out").chmod(0o777)
        spec = replace(_spec(1), envelope=replace(ENVELOPE, cpus=len(os.sched_getaffinity(0))))
        (job / "spec.json").write_text(to_json(replace(spec, isolation=Isolation.PROCESS)), encoding="utf-8")
        start = time.perf_counter()
        done = subprocess.run(
            ["docker", "run", "--rm", "--network=none", "-v", f"{job}:/job", "-v", f"{index}:/index:ro", image],
            capture_output=True,
            text=True,
            check=False,
        )
        taken = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"the bare run failed: {done.stderr[-300:]}")
    return taken


def _looking_on(place: Path, launcher: DockerLauncher) -> tuple[float, float]:
    """Shares of a CPU beside a job that mostly sleeps: of the sampling thread, and of this whole process.

    For the process a long job less a short one: what starting, ending and the canary cost is in both.
    """
    prepared = launcher.prepare(catalog.system("calibration"), lambda _text: None)
    taken, sampler = [], _ThreadTime("sampler")
    for queries in (20, 20, 520):  # the first pays for what later ones find ready
        with tempfile.TemporaryDirectory(dir=place) as folder:
            job = _sleeping_job(Path(folder), prepared, queries)
            sampler.clear()
            start, start_cpu = time.perf_counter(), time.process_time()
            ended = launcher.launch(job, sampler.read)
            taken.append((time.perf_counter() - start, time.process_time() - start_cpu))
        if ended.exit_code:
            raise SystemExit(f"the sleeping job failed: {ended.log[-300:]!r}")
    _, (short_s, short_cpu_s), (long_s, long_cpu_s) = taken
    return sampler.share(), (long_cpu_s - short_cpu_s) / (long_s - short_s)


class _ThreadTime:
    """CPU time of the thread of a name, as the kernel counts it; to be read now and again while the thread lives."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._readings: list[tuple[float, int]] = []

    def clear(self) -> None:
        """Begin anew."""
        self._readings = []

    def read(self, _step: object) -> None:
        """Take a reading, if the thread is there."""
        for thread in threading.enumerate():
            if thread.name == self._name:
                ran_ns = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text(encoding="ascii").split()[0]
                self._readings.append((time.perf_counter(), int(ran_ns)))

    def share(self) -> float:
        """Of one CPU, from the first reading to the last."""
        (first_s, first_ns), (last_s, last_ns) = self._readings[0], self._readings[-1]
        return (last_ns - first_ns) / 1e9 / (last_s - first_s)


def _sleeping_job(folder: Path, prepared: Prepared, queries: int) -> Job:
    (folder / "out").mkdir()
    (folder / "index").mkdir()
    (folder / "index" / "ids.json").write_text(json.dumps([f"d{n}" for n in range(K)]), encoding="utf-8")
    folder.chmod(0o755)
    spec = replace(_spec(queries), system="calibration", params={"service_ms": 20, "how": "sleep"})
    (folder / "spec.json").write_text(to_json(spec), encoding="utf-8")
    return Job(spec, prepared, folder, folder / "index", folder / "index", LIMITS)


if __name__ == "__main__":
    sys.exit(main())

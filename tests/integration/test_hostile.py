"""Images that attack: nothing outside the job's folder changes, the host stays usable, the outcome says what happened.

One run measures a system that attacks otherwise in each trial; the tests look at what came of it.
"""

from __future__ import annotations

import gzip
import re
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import docker
import pyarrow.parquet as parquet
import pytest

from harness.driver.records import Outcome
from harness.launch import podman
from harness.results.reader import StoredJob, read_jobs
from harness.results.schema import Result
from tests.conftest import Bench, make_bench, protocol
from tests.integration import support
from tests.support.chance import chance

pytestmark = pytest.mark.docker

ENGINE = Path(__file__).parents[1] / "engines" / "hostile"
# Of two limits the one that is met first says what happened.
_TOO_MUCH = ((Outcome.CRASH, "File too large"), (Outcome.BAD_OUTPUT, "the limit is"))
_SLOW = (Outcome.TIMEOUT, "a query took more than 2 s")
_KILLED = "at the memory limit of 256 MiB"

# What each attack must come to: the outcome, and words of its one line.
ENDS: dict[str, tuple[tuple[Outcome, str], ...]] = {
    "none": ((Outcome.OK, ""),),
    "linked_samples": ((Outcome.BAD_OUTPUT, "samples are missing"),),
    "linked_events": ((Outcome.BAD_OUTPUT, "samples are missing"),),
    "piped_measurement": ((Outcome.CRASH, "it left no measurement"),),
    "linked_measurement": ((Outcome.CRASH, "it left no measurement"),),
    "odd_names": ((Outcome.BAD_OUTPUT, "samples are missing"),),
    "deep_folders": ((Outcome.BAD_OUTPUT, "the limit is"),),
    "deep_measurement": ((Outcome.CRASH, "its measurement.json is wrong"),),
    "deep_inside": ((Outcome.CRASH, "its measurement.json is wrong"),),
    "deep_samples": ((Outcome.BAD_OUTPUT, "samples.jsonl: line 1: more than"),),
    "deep_events": ((Outcome.OK, ""),),
    "many_lines": _TOO_MUCH,
    "long_line": _TOO_MUCH,
    "many_hits": ((Outcome.BAD_OUTPUT, "10000000 hits"),),
    "many_pauses": (*_TOO_MUCH, (Outcome.BAD_OUTPUT, "out of turn")),
    "same_pause": ((Outcome.BAD_OUTPUT, "out of turn"),),
    "flood": (_SLOW,),
    "deaf": (_SLOW,),
    "fork_bomb": (_SLOW, (Outcome.OOM, _KILLED)),
    "log_of_50_mib": ((Outcome.OK, ""),),
    "memory_bomb": ((Outcome.OOM, f"the kernel killed the job {_KILLED}"),),
    "shared_memory_bomb": ((Outcome.CRASH, "No space left on device"), (Outcome.OOM, _KILLED)),
    "network": ((Outcome.CRASH, "reached nobody"),),
    "write_elsewhere": ((Outcome.CRASH, "written: []"),),
    "escapes": ((Outcome.CRASH, "harness: all is well"),),
    "number_nan": ((Outcome.CRASH, "its measurement.json is wrong"),),
    "number_infinity": ((Outcome.CRASH, "its measurement.json is wrong"),),
    "number_too_large": ((Outcome.CRASH, "its measurement.json is wrong"),),
    "number_endless": ((Outcome.CRASH, "its measurement.json is wrong"),),
    "number_negative": ((Outcome.BAD_OUTPUT, "the image reported -1.0 s"),),
}

# Of attacks that are alike one is drawn by chance; a soak has the others.
_ALIKE = (
    ("deep_measurement", "deep_inside"),
    ("many_lines", "long_line"),
    ("number_nan", "number_infinity", "number_too_large", "number_endless"),
)
_LEFT_OUT = {name for names in _ALIKE for name in names} - {chance(names[0]).choice(names) for names in _ALIKE}
DRAWN = [attack for attack in ENDS if attack not in _LEFT_OUT]

# Seconds for a query: of what goes on for ever, and of all else, which a busy machine may take long for.
ENDLESS, ENDLESS_S, LONG_S = {"flood", "deaf", "fork_bomb"}, 2.0, 120.0


@dataclass(frozen=True)
class Attacked:
    """Results of a run over all attacks."""

    bench: Bench
    honest: support.Finished
    finished: tuple[support.Finished, ...]
    before: dict[str, str]
    after: dict[str, str]
    jobs: dict[str, StoredJob]
    log_bytes: int | None

    @property
    def said(self) -> str:
        """Return the output of the runs."""
        return "".join(each.said for each in self.finished)

    def result(self, attack: str) -> Result:
        """The stored result of one attack."""
        return self.jobs[attack].result


def _surroundings(bench: Bench) -> dict[str, str]:
    """Return everything on the bench except what this run adds."""
    mine = (
        "said.txt",
        "results/test-suite/hostile",
        "results/test-suite/report.md",
        "results/test-suite/report.html",
        "results/test-suite/manifest.txt",
        "test-suite.toml",
    )
    mine += ("engines/hostile/systems/", "cache/tables/")  # rows that are kept, for the results as they are now
    mine += ("cache/hashes",)  # remembered once files have lain unchanged for two seconds
    return {name: facts for name, facts in support.files(bench.folder) if not name.startswith(mine)}


def attack_suite(bench: Bench, attacks: list[str], *, query_timeout_s: float = 10.0, system: str = "hostile") -> Path:
    """Write a system whose trials attack in turn, and a suite of it."""
    folder = bench.folder / "engines" / "hostile" / "systems"
    folder.mkdir(exist_ok=True)
    text = f'description = "attacks"\nfewer_hits_ok = true\n[search_params]\nattacks = "{" ".join(attacks)}"\n'
    (folder / f"{system}.toml").write_text(text, encoding="utf-8")
    return bench.suite(protocol(len(attacks), warmup_cap=2, query_timeout_s=query_timeout_s), systems=[system])


@contextmanager
def _looking(engine: docker.DockerClient) -> Iterator[list[int]]:
    """Record how large the engine lets a container's log grow, where its folder can be seen from here."""
    log_bytes, ended = list[int](), threading.Event()

    def look() -> None:
        while not ended.wait(0.25):
            for each in engine.containers.list(filters={"name": "harness-hostile"}, ignore_removed=True):
                log = Path(str(each.attrs.get("LogPath") or "/absent"))
                with suppress(FileNotFoundError):  # it went, or was turned over, while we looked
                    log_bytes.append(sum(path.stat().st_size for path in log.parent.rglob("*")))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield log_bytes
    finally:
        ended.set()
        looking.join()


def _attack(folder: Path, engine: docker.DockerClient, every: Iterable[str]) -> Attacked:
    bench = make_bench(folder)
    shutil.copytree(ENGINE, bench.folder / "engines" / "hostile")
    honest = support.run(bench, support.command(bench, attack_suite(bench, ["none"])))
    assert honest.code == 0, honest.said
    before = _surroundings(bench)
    done = {job.result.key for job in read_jobs(bench.results)}
    jobs, finished = {}, []
    with _looking(engine) as log_bytes:
        for timeout_s in (ENDLESS_S, LONG_S):
            attacks = [attack for attack in every if (attack in ENDLESS) == (timeout_s == ENDLESS_S)]
            if not attacks:
                continue
            path = attack_suite(bench, attacks, query_timeout_s=timeout_s)
            finished.append(support.run(bench, support.command(bench, path)))
            new = [job for job in read_jobs(bench.results) if job.result.key not in done]
            jobs |= {attacks[job.result.spec.job]: job for job in new}
            done |= {job.result.key for job in new}
    largest = max(log_bytes, default=None)
    return Attacked(bench, honest, tuple(finished), before, _surroundings(bench), jobs, largest)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory, engine: docker.DockerClient) -> Attacked:
    return _attack(tmp_path_factory.mktemp("hostile"), engine, DRAWN)


def _log(job: StoredJob) -> bytes:
    return gzip.decompress((job.folder / "log.txt.gz").read_bytes())


def _check_outcome(attacked: Attacked, attack: str) -> None:
    assert attack in attacked.jobs, attacked.said
    result = attacked.result(attack)
    said = (result.outcome, result.detail)
    assert any(result.outcome is outcome and words in (result.detail or "") for outcome, words in ENDS[attack]), said
    detail = result.detail.raw if result.detail else ""
    assert "\n" not in detail and detail.isprintable()
    assert len(result.detail or "") < 700


@pytest.mark.parametrize("attack", DRAWN)
def test_attack_has_its_outcome(attacked: Attacked, attack: str) -> None:
    _check_outcome(attacked, attack)


@pytest.mark.soak
def test_remaining_attack_has_its_outcome(tmp_path: Path, engine: docker.DockerClient) -> None:
    attacked = _attack(tmp_path, engine, sorted(_LEFT_OUT))
    for attack in _LEFT_OUT:
        _check_outcome(attacked, attack)


def test_every_attack_is_one_line_and_the_run_finishes(attacked: Attacked) -> None:
    assert attacked.jobs.keys() == {*DRAWN}, attacked.said
    assert [each.code for each in attacked.finished] == [1, 1]
    assert "Traceback" not in attacked.said and "\x1b" not in attacked.said
    bad = sum(ENDS[attack][0][0] is not Outcome.OK for attack in DRAWN)
    lines = [line for line in attacked.said.splitlines() if line.startswith("harness: ")]
    # A run of attacks alone has one line more.  Trials that all end alike are not counted: the endless ones may.
    ended = [
        re.search(r"(?:\((\d+) of \d+ trials\))? ended ", line)
        for line in lines
        if not line.startswith("harness: nothing could be measured: ")
    ]
    assert sum(int(found[1] or len(ENDLESS)) for found in ended if found) == bad and all(ended)


def test_attacks_change_nothing_outside_the_job(attacked: Attacked, engine: docker.DockerClient) -> None:
    assert attacked.after == attacked.before
    assert support.leftovers(attacked.bench) == []
    assert support.orphans(engine, "hostile") == []


def test_at_most_four_files_are_stored_per_job(attacked: Attacked) -> None:
    for attack, job in attacked.jobs.items():
        names = {path.name for path in job.folder.iterdir()}
        assert names <= {"result.json", "log.txt.gz", "samples.parquet", "run.trec.gz"}, attack
        assert all(path.is_file() and not path.is_symlink() for path in job.folder.iterdir())
        assert sum(path.stat().st_size for path in job.folder.iterdir()) < 2 << 20, attack


def test_attacks_do_not_increase_the_memory_of_harness(attacked: Attacked) -> None:
    most = max(each.peak_bytes for each in attacked.finished)
    assert most < 512 << 20
    assert most < attacked.honest.peak_bytes + (64 << 20)


def test_disk_use_of_an_endless_log_is_bounded(attacked: Attacked) -> None:
    if attacked.log_bytes is not None:  # else the engine's folder cannot be seen from here
        assert 1 << 20 < attacked.log_bytes < 32 << 20
    flood = attacked.jobs["flood"]
    assert 0 < len(_log(flood)) <= 10 << 20
    assert (flood.folder / "log.txt.gz").stat().st_size < 1 << 20


def test_canary_runs_are_limited_if_a_job_pauses_endlessly(attacked: Attacked) -> None:
    for attack in ("many_pauses", "same_pause"):
        assert len(attacked.result(attack).observed.canary) <= 4


def test_long_log_costs_only_time(attacked: Attacked, engine: docker.DockerClient) -> None:
    job = attacked.jobs["log_of_50_mib"]
    assert (job.result.outcome, job.result.detail) == (Outcome.OK, None)
    log = _log(job)
    assert f"logged {50 << 20} bytes\n".encode() in log, "all of it was written, and the end is kept"
    # Podman begins its one file again whenever that is full.
    assert (0 if podman.is_engine(engine) else 4 << 20) < len(log) <= 10 << 20
    slowest_s = max(parquet.read_table(job.folder / "samples.parquet")["latency_ns"].to_pylist()) / 1e9
    assert 0.02 < slowest_s < job.result.wall_s, "what it took is the system's own"

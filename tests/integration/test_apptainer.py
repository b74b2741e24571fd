"""The launcher `apptainer` for real: an ordinary user, in an allocation of a real Slurm, without Docker and network.

What ends a job is the same as in a Docker container: the tables of its tests are used here.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import tomlkit

from harness.config import data_root
from harness.driver.envelope import LIMITS
from harness.driver.records import Outcome
from harness.launch.apptainer import ApptainerLauncher
from harness.launch.images import catalog
from harness.results.isolation import APPTAINER
from harness.results.reader import StoredJob, read_jobs
from tests.conftest import Bench, make_bench, protocol
from tests.integration.proxy import wait_until
from tests.integration.test_hostile import DRAWN, ENDLESS, ENDLESS_S, ENDS, ENGINE, LONG_S, attack_suite
from tests.integration.test_results import mount, small_disk
from tests.launch.test_docker import WRONG
from tests.remote.cluster import ROOT, interpreter
from tests.support.cluster import Cluster, cluster, restart_slurmd
from tests.support.command_line import call

pytestmark = [pytest.mark.docker, pytest.mark.cluster]

# Apptainer writes an /etc/passwd and /etc/group for the user into a file system of the container's own.
_OWN = {"write_elsewhere": ((Outcome.CRASH, "written: ['/etc/passwd']"), (Outcome.CRASH, "written: []"))}
_SYSTEMS = {"hostile-endless": ENDLESS_S, "hostile-long": LONG_S}


ALLOCATION = ("--cpus-per-task=2", "--mem=5G")


@dataclass
class Site:
    """A bench on the cluster's shared folder, with the images that its user needs."""

    cluster: Cluster
    bench: Bench
    python: str

    def submit(self, *commands: list[str], options: tuple[str, ...] = ALLOCATION) -> str:
        """Have one allocation run harness commands; return its number."""
        return self.cluster.sbatch(self.script(*commands), *options)

    def script(self, *commands: list[str]) -> str:
        """Return a shell script that runs harness commands."""
        variables = {"PYTHONPATH": str(ROOT), "HARNESS_IMAGES": str(self.bench.folder / "engines")}
        lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        lines += [shlex.join([self.python, "-m", "harness", *command]) for command in commands]
        return "\n".join(lines)

    def job(self, *commands: list[str], options: tuple[str, ...] = ALLOCATION) -> str:
        """Run harness commands in one allocation to their end; return what they said."""
        number = self.submit(*commands, options=options)
        self.cluster.wait(number, 240)
        return self.cluster.output(number)

    def suite(self, name: str, text: str = "", **keys: object) -> list[str]:
        """Write a suite as the user's; return the words of `harness run`, with a results folder of its own."""
        return self.runs(self.bench.suite(text, **keys).rename(self.bench.folder / f"{name}.toml"))

    def runs(self, suite: Path) -> list[str]:
        """Return the words of `harness run` of a suite."""
        for path in (self.bench.folder, *self.bench.folder.rglob("*")):
            shutil.chown(path, self.cluster.user)
        places = ["--results", str(self.bench.results / suite.stem), "--cache", str(self.bench.cache)]
        return ["run", str(suite), "--launcher", "apptainer", *places]

    def work(self) -> Path:
        """Return a folder for workers, which only the user can write to."""
        folder = self.cluster.folder / "work"
        folder.mkdir(mode=0o750, exist_ok=True)
        shutil.chown(folder, self.cluster.user)
        return folder

    def steps(self, job: str) -> list[str]:
        """Return the steps of a job in which containers run."""
        shown = self.cluster.run_as_user(["squeue", "--steps", "--noheader", f"--job={job}", "--format=%i"]).stdout
        return [step for step in shown.split() if step.rpartition(".")[2].isdigit()]

    def stored(self, name: str) -> list[StoredJob]:
        """Return the stored jobs of a suite."""
        folder = self.bench.results / name
        return list(read_jobs(folder)) if any(folder.rglob("result.json")) else []


@pytest.fixture(scope="module")
def site(engine: object) -> Iterator[Site]:
    del engine  # the images are made with it
    with cluster() as found:
        folder = found.folder / "bench"
        folder.mkdir()
        bench = make_bench(folder)
        shutil.copytree(ENGINE, folder / "engines" / "hostile")
        for misdeed in WRONG:
            bench.plant(misdeed, misdeed=misdeed, at=3)
        bench.plant("slow", service_s=0.15)
        bench.plant("filling", misdeed="some_files", at=3)
        for system in _SYSTEMS:
            attack_suite(bench, ["none"], system=system)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HARNESS_IMAGES", str(folder / "engines"))
            launcher = ApptainerLauncher(bench.cache)
            # Systems of one engine without weights have one image, and each its own file.
            for made in catalog.named(("planted", "slow", "filling", *WRONG, *_SYSTEMS)).values():
                launcher.prepare(made)
        yield Site(found, bench, interpreter(folder) or pytest.fail("the user may run no Python"))


@pytest.fixture(scope="module")
def staged(site: Site) -> Path:
    """The folder of `tantivy` of the quickstart suite with one trial on two profiles, the user's."""
    folder, file = site.bench.folder / "staged", site.bench.folder / "tantivy.toml"
    suite = tomlkit.parse((data_root() / "suites" / "quickstart.toml").read_text(encoding="utf-8"))
    profiles = ["cpu1-mem1", "cpu1-mem256m"]
    suite |= {"name": "tantivy", "systems": ["tantivy"], "profiles": profiles, "overhead": False}
    suite["protocol"]["trials"] = 1
    for table in ("restrict", "expect"):
        suite.pop(table)
    file.write_text(tomlkit.dumps(suite), encoding="utf-8")
    done = call("stage", str(file), str(folder), "--cache", str(site.bench.cache))
    assert done.exit_code == 0, done.output
    site.bench.results.mkdir(exist_ok=True)
    for path in (site.bench.results, folder, *folder.rglob("*")):
        shutil.chown(path, site.cluster.user)
    return folder


@pytest.fixture(scope="module")
def ended(site: Site) -> dict[str, StoredJob]:
    """Return the jobs of one allocation, by misdeed or attack; none of their processes is left."""
    commands, attacks = [site.suite("wrong", systems=["planted", *WRONG])], {}
    for system, timeout_s in _SYSTEMS.items():
        attacks[system] = [attack for attack in DRAWN if (attack in ENDLESS) == (timeout_s == ENDLESS_S)]
        path = attack_suite(site.bench, attacks[system], query_timeout_s=timeout_s, system=system)
        commands.append(site.runs(path.rename(site.bench.folder / f"{system}.toml")))
    said = site.job(*commands)
    assert "Traceback" not in said, said
    assert not _left(site)
    found = {job.result.spec.cell.system: job for job in site.stored("wrong")}
    for system, names in attacks.items():
        found |= {names[job.result.spec.job]: job for job in site.stored(system)}
    return found


def _left(site: Site) -> list[psutil.Process]:
    """Return the user's processes in containers."""
    return [
        each
        for each in psutil.process_iter(["username", "name"])
        if each.info["username"] == site.cluster.user
        and each.info["name"].startswith(("starter", "squashfuse", "python"))
    ]


def test_limits_are_verified_inside_and_stored(ended: dict[str, StoredJob]) -> None:
    result = ended["planted"].result
    effective, observed = result.measured.effective, result.observed
    assert result.outcome is Outcome.OK and result.isolation is APPTAINER
    assert effective.cpus == observed.placement.cpus and len(effective.cpus) == 1
    assert effective.memory_bytes == 256 << 20 and effective.swap_bytes == 0
    assert effective.network_interfaces == ("lo",) and effective.root_read_only and effective.no_new_privileges
    assert effective.effective_capabilities == 0 and effective.uid != 0
    assert set(LIMITS) - set(APPTAINER.enforced) == {"pids", "numa_nodes"}
    memory = observed.memory
    assert memory.source and memory.source.startswith("cgroup")
    assert 2 << 20 < memory.peak_anon_bytes <= memory.peak_cgroup_bytes <= 256 << 20
    assert observed.oom_kills == 0 and result.environment.docker_version


def test_staged_row_of_the_quickstart_is_measured_by_a_job_of_ones_own_without_a_network(
    site: Site, staged: Path
) -> None:
    """With the folder's own harness and packages, no home, and proxies that lead nowhere."""
    places = ["--results", site.bench.results / "staged", "--only", "*/cpu1-mem1"]
    command = ["run", staged / "suite.toml", "--launcher", "apptainer", *places]
    apart = "export HOME=/nonexistent http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9\n"
    number = site.cluster.sbatch(apart + shlex.join(map(str, [staged / "harness", *command])), *ALLOCATION)
    site.cluster.wait(number, 120)
    said = site.cluster.output(number)
    results = [job.result for job in site.stored("staged")]
    assert len(results) == 1 and {result.outcome for result in results} == {Outcome.OK}, said
    assert "tantivy" in said and "1 CPU, 1 GiB (apptainer)" in said and "nDCG@10 0.796" in said


def test_parts_of_two_profiles_are_tasks_of_slurm_each_with_its_limit(site: Site, staged: Path) -> None:
    """From a login node, in no allocation; tasks find the packages of the staged folder."""
    words = ["run", staged / "suite.toml", "--on", "slurm", "--work", site.work()]
    words += ["--results", site.bench.results / "parts"]
    done = site.cluster.run_as_user([staged / "harness", *words], environment={"HOME": "/nonexistent"}, timeout_s=120)
    assert "2 job arrays of Slurm with 2 tasks" in done.stdout + done.stderr
    jobs = [job.result for job in site.stored("parts")]
    limits = {(job.outcome, job.isolation, job.measured.effective.memory_bytes >> 20) for job in jobs}
    assert limits == {(Outcome.OK, APPTAINER, size) for size in (256, 1024)}
    assert len({job.key for job in jobs}) == len(jobs) == 2


@pytest.mark.parametrize("misdeed", WRONG)
def test_misdeed_has_the_outcome_that_it_has_in_docker(ended: dict[str, StoredJob], misdeed: str) -> None:
    outcome, detail = WRONG[misdeed]
    result = ended[misdeed].result
    assert (result.outcome, detail in (result.detail or "")) == (outcome, True), result.detail


@pytest.mark.parametrize("attack", DRAWN)
def test_attack_has_the_outcome_that_it_has_in_docker(ended: dict[str, StoredJob], attack: str) -> None:
    result, expected = ended[attack].result, _OWN.get(attack, ENDS[attack])
    said = (result.outcome, result.detail)
    assert any(result.outcome is outcome and words in (result.detail or "") for outcome, words in expected), said
    assert len(result.detail or "") < 700


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--cpus-per-task=1", "--mem=2G"), "profile cpu2-mem4 needs 2 CPUs, this host gives 1; ask Slurm for more"),
        (
            ("--cpus-per-task=2", "--mem=700M"),
            r"needs 4096 MiB and harness 512 MiB, but the allocation has 700 MiB \(/sys/fs/cgroup/.*\); ask Slurm for"
            " --mem 4608M or more",
        ),
    ],
    ids=["too few CPUs", "wrong --mem"],
)
def test_allocation_that_is_too_small_is_one_line(site: Site, options: tuple[str, ...], message: str) -> None:
    name = options[1].removeprefix("--mem=").lower()
    said = site.job(site.suite(name, systems=["planted"], profiles=["cpu2-mem4"]), options=options)
    assert re.search(message, said), said
    assert "Traceback" not in said


def test_run_outside_of_an_allocation_is_refused_in_one_line(site: Site) -> None:
    done = site.cluster.run_as_user(["sh", "-c", site.script(site.suite("outside", systems=["planted"]))], check=False)
    assert done.returncode == 1
    assert "no Slurm allocation here" in done.stderr.splitlines()[-1]


def test_missing_image_is_named_before_anything_is_measured(site: Site) -> None:
    site.bench.plant("imageless")
    command = site.suite("imageless", systems=["planted", "imageless"])
    said = site.job([*command[:-1], str(site.cluster.folder / "empty-cache")])
    assert "has no image of imageless, planted, and no engine answers here to make one; run `harness stage" in said
    assert not site.stored("imageless") and "Traceback" not in said


def test_killed_harness_leaves_nothing_and_the_same_command_goes_on(site: Site) -> None:
    """Not the batch script, whose end ends the allocation, but harness in it, as a crash would."""
    command = site.suite("killed", protocol(3, name="santhanam2023"), systems=["planted", "slow"])
    number = site.submit(command, ["--version"])

    wait_until(lambda: site.stored("killed") and _drivers(site), "a job after a stored one")
    stored = {job.result.key for job in site.stored("killed")}
    harness = next(each for each in _left(site) if {"run", "apptainer"} <= set(_words(each)))
    harness.kill()
    site.cluster.wait(number)
    wait_until(lambda: not _left(site), "the end of the job of a dead harness", limit_s=20)
    said = site.job(command)
    assert re.search(r"jobs? run, [1-9]\d* done before", said), said
    after = {job.result.key: job.result.outcome for job in site.stored("killed")}
    assert stored < after.keys() and set(after.values()) == {Outcome.OK}
    assert not any(site.bench.results.rglob("*.partial"))


def test_dead_slurmd_and_a_cancelled_step_lose_nothing_else(site: Site) -> None:
    command = site.suite("cancelled", protocol(3, name="santhanam2023"), systems=["planted", "slow"])
    number = site.submit(command)
    wait_until(lambda: _left(site), "a job")
    restart_slurmd()
    wait_until(lambda: site.stored("cancelled") and _drivers(site), "a job after a stored one")
    site.cluster.run_as_user(["scancel", "--signal=KILL", *site.steps(number)])
    site.cluster.wait(number, 60)
    ends = {job.result.outcome: str(job.result.detail) for job in site.stored("cancelled")}
    assert ends.keys() == {Outcome.OK, Outcome.INTERRUPTED}, site.cluster.output(number)
    assert ends[Outcome.INTERRUPTED].startswith("srun ended the job: ")
    said = site.job(command)
    assert "1 job run, 1 done before" in said, said
    outcomes = Counter(job.result.outcome for job in site.stored("cancelled"))
    assert outcomes == {Outcome.OK: 2, Outcome.INTERRUPTED: 1}, said


def test_full_disk_is_not_the_systems_fault_and_the_same_command_goes_on(site: Site) -> None:
    command = site.suite("full", protocol(1, warmup_cap=2), systems=["filling"])
    folder = site.bench.results / "full"
    folder.mkdir()
    with small_disk(folder, 6 << 10):
        shutil.chown(folder, site.cluster.user)
        assert "the disk is full" in site.job(command).splitlines()[-1]
        assert not site.stored("full")
        mount("-o", "remount,size=64m", str(folder))
        said = site.job(command)
        assert [job.result.outcome for job in site.stored("full")] == [Outcome.OK], said


def _drivers(site: Site) -> list[psutil.Process]:
    """Return the user's jobs whose driver runs."""
    return [each for each in _left(site) if "harness.driver" in " ".join(_words(each))]


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has ended
        return []

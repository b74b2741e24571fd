"""The launcher `apptainer` for real: an ordinary user, in an allocation of a real Slurm, without Docker and network."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.driver.records import Outcome
from harness.launch.apptainer import ApptainerLauncher
from harness.launch.images import catalog
from harness.results.isolation import APPTAINER
from harness.results.reader import StoredJob, read_jobs
from tests.conftest import Bench, make_bench, protocol
from tests.integration.test_hostile import _DRAWN, _ENDLESS, _ENDLESS_S, _ENDS, _ENGINE, _LONG_S, _suite
from tests.launch.test_docker import _WRONG
from tests.support.cluster import Cluster, cluster

pytestmark = [pytest.mark.docker, pytest.mark.cluster]


@dataclass
class Site:
    """A bench on the cluster's shared folder, with the images that its user needs."""

    cluster: Cluster
    bench: Bench

    def job(self, *commands: list[str | Path], options: tuple[str, ...] = ("--cpus-per-task=2", "--mem=3G")) -> str:
        """Run harness commands in one allocation; return what they said."""
        lines = [f"export {name}={shlex.quote(value)}" for name, value in self._variables().items()]
        lines += [f"cd {shlex.quote(str(self.bench.folder))}"]
        lines += [shlex.join(["/usr/bin/python3", "-m", "harness", *map(str, command)]) for command in commands]
        number = self.cluster.sbatch("\n".join(lines), *options)
        self.cluster.wait(number, 240)
        return self.cluster.output(number)

    def run(self, suite: Path) -> list[str | Path]:
        """Return the words of `harness run`."""
        places = ["--results", self.bench.results, "--cache", self.bench.cache]
        return ["run", suite, "--launcher", "apptainer", *places]

    def _variables(self) -> dict[str, str]:
        packages = next(path for path in sys.path if path.endswith("site-packages"))
        root = str(Path(__file__).parents[2])
        return {"PYTHONPATH": f"{root}:{packages}", "HARNESS_IMAGES": str(self.bench.folder / "engines")}


@pytest.fixture(scope="module")
def site(engine: object) -> Iterator[Site]:
    del engine  # the images are made with it
    with cluster() as found:
        bench = make_bench(_folder(found))
        shutil.copytree(_ENGINE, bench.folder / "engines" / "hostile")
        for misdeed in _WRONG:
            bench.plant(misdeed, misdeed=misdeed, at=3)
        _suite(bench, ["none"])
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HARNESS_IMAGES", str(bench.folder / "engines"))
            launcher = ApptainerLauncher(bench.cache)
            for system in catalog.named(("planted", *_WRONG, "hostile")).values():
                launcher.prepare(system)
        yield Site(found, bench)


def _folder(found: Cluster) -> Path:
    folder = found.folder / "bench"
    folder.mkdir()
    return folder


def _hand_over(site: Site) -> None:
    for path in (site.bench.folder, *site.bench.folder.rglob("*")):
        shutil.chown(path, site.cluster.user)


@pytest.fixture(scope="module")
def ended(site: Site) -> dict[str, StoredJob]:
    """The jobs of one allocation, by misdeed or attack."""
    suites, names = [], {}
    text = protocol(2, name="santhanam2023")
    suites.append(site.bench.suite(text, systems=list(_WRONG)).rename(site.bench.folder / "wrong.toml"))
    for timeout_s in (_ENDLESS_S, _LONG_S):
        attacks = [attack for attack in _DRAWN if (attack in _ENDLESS) == (timeout_s == _ENDLESS_S)]
        names[timeout_s] = attacks
        path = _suite(site.bench, attacks, query_timeout_s=timeout_s)
        suites.append(path.rename(site.bench.folder / f"hostile-{timeout_s:g}.toml"))
    _hand_over(site)
    said = site.job(*map(site.run, suites))
    print(said)
    return {job.result.spec.cell.system: job for job in read_jobs(site.bench.results)}


@pytest.mark.parametrize("misdeed", _WRONG)
def test_misdeed_has_the_outcome_of_a_docker_container(ended: dict[str, StoredJob], misdeed: str) -> None:
    outcome, detail = _WRONG[misdeed]
    result = ended[misdeed].result
    assert (result.outcome, detail in (result.detail or "")) == (outcome, True), result.detail
    assert result.isolation is APPTAINER

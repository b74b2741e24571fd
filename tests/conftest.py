"""Fixtures of many tests: a tiny dataset, a bench, scripted systems, stored jobs."""

from __future__ import annotations

import functools
import gc
import json
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import botocore.loaders
import botocore.session
import docker
import pytest
import requests
from hypothesis import settings
from rich.console import Console
from xdist.scheduler import LoadScopeScheduling

from harness.jobs import orchestrator, suite
from harness.jobs.inputs import RunOptions, gather
from harness.jobs.orchestrator import RunSummary
from harness.launch.base import Launcher
from harness.launch.images.systems import System
from harness.launch.monitor import canary
from harness.pricing import prices
from harness.pricing.instances import PRICES_VARIABLE
from harness.pricing.prices import Snapshot
from harness.progress import show_progress
from tests.aws import server
from tests.integration.own_host import own_host
from tests.support import chance, model_hub, toy_dataset
from tests.support.cluster import Cluster
from tests.support.cluster import cluster as running_cluster
from tests.support.messages import messages
from tests.support.stored_jobs import Maker

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# The same examples in each run; and a busy machine's pause is no failure.
settings.load_profile("ci")

PLANTED = Path(__file__).parent / "engines" / "planted"
TOPICS = ("river", "glacier", "volcano", "desert", "forest", "harbour", "bridge", "castle", "market", "orchestra")

_ENOUGH_S, _COPY_BYTES = canary._ENOUGH_S, canary._COPY_BYTES

BROWSER_ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]

# scripts/test runs these when what they need is there, and finds their files by these words.
_PREPARED = ("docker", "browser", "tools", "cluster")

# What takes longest begins first, so that no worker ends long after the others.
LONG_TESTS = (
    "docs/test_tutorial",
    "aws/ec2/test_with_docker",
    "aws/batch/test_",
    "test_main_job",
    "remote/test_slurm_run",
    "integration/test_hostile",
    "checkpoints/test_small",
    "images/",
    "checkpoints/test_conformance",
    "experiments/calibration/test_with_docker",
    "experiments/viability/test_with_docker",
    "report/page/",
    "results/test_hostile_samples",
    "launch/",
    "integration/",
)
# Tests of one engine share its warm container, others what their fixtures made: each group has one worker.
TEST_GROUPS = {
    "images/test_colbert": "colbert",
    **dict.fromkeys(("images/test_impact", "images/test_bmp", "images/test_seismic"), "impact"),
    "images/test_dense": "dense",
    "images/test_encoder": "dense",
    "images/test_rerank_heads": "dense",
    "images/test_rerank_long": "dense",
    "images/test_llm.py": "llm",
    "images/test_rerank.py": "dense",
    "images/test_rocketqa": "dense",
    "images/test_static": "dense",
    # Each worker makes ColBERT's checkpoints anew.
    "images/test_layers": "colbert",
    "images/test_stored_scores.py::test_colbert": "colbert",
    "images/test_stored_scores.py::test_dense": "dense",
    **dict.fromkeys(("images/test_bm25s", "images/test_pisa", "images/test_tantivy"), "words"),
    "images/test_lucene": "lucene",
    "images/test_pyserini": "lucene",
    "images/test_jsonlines_example": "lucene",
    "report/page/": "browser",
    "launch/test_process": "processes",
    "launch/test_docker.py": "containers",
    "launch/test_foreign_launcher": "foreign launcher",
    "datasets/test_answer_recall": "depths",
    "report/plots/": "pictures",
    "report/test_long_documents": "long documents",
    "results/test_hostile_samples": "hostile samples",
    "published_study/test_paper": "paper",
    "integration/test_kill": "kills",
    "integration/test_results": "kills",
    "cli/test_compare": "leaderboard",
    "cli/test_strangers_texts": "strangers",
    "cli/test_leaderboard": "leaderboard",
    "cli/test_prices": "prices",
    "test_architecture": "parsed modules",
    "test_main_job": "main job",
    "integration/test_hostile": "hostile",
    # One node: jobs of two workers would wait for each other.
    **dict.fromkeys(("integration/test_cluster", "integration/test_apptainer", "remote/test_slurm_run"), "cluster"),
    "checkpoints/test_small": "small",
    "checkpoints/test_conformance": "conformance",
    "aws/batch/test_whole": "batch",
    "aws/batch/test_agent": "batch",
    # The first boot keeps the packages that the others then find installed.
    "aws/ec2/test_with_docker": "stand-ins",
}


def pytest_configure() -> None:
    """Draw the seed before workers start, which inherit it; pause garbage collection during collection."""
    chance.seed()
    gc.disable()


def pytest_report_header() -> str:
    """Print how to draw the same samples again."""
    return f"drawn by chance with {chance.VARIABLE}={chance.seed()}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that use moto's server, and run long tests first."""
    for item in items:
        if "_aws_server" in getattr(item, "fixturenames", ()):
            item.add_marker("cloud")
        for name in _PREPARED:
            if item.get_closest_marker(name) and f"mark.{name}" not in _text(item.path):
                raise pytest.UsageError(
                    f"{item.path}: has tests for {name}, and no mark.{name}: scripts/test looks for it"
                )
    items.sort(key=_turn)


@functools.cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def pytest_collection_finish() -> None:
    """Keep the garbage collector from scanning loaded modules again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def _turn(item: pytest.Item) -> int:
    path = item.nodeid.removeprefix("tests/")
    return next((turn for turn, start in enumerate(LONG_TESTS) if path.startswith(start)), len(LONG_TESTS))


class Grouped(LoadScopeScheduling):
    """Gives each test to whichever worker is free, and all tests of a group to one."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.removeprefix("tests/")
        return next((group for start, group in TEST_GROUPS.items() if path.startswith(start)), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Grouped:
    """Have xdist group the tests so; its own ``loadgroup`` does nothing under pytest 9.2."""
    config.option.loadscopereorder = False
    return Grouped(config, log)


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Messages that harness logs during the test."""
    with messages() as lines:
        yield lines


@pytest.fixture(autouse=True)
def _children_hear_ctrl_c() -> None:
    """Children would inherit a Ctrl-C that does nothing: in the background of a shell, or after a stopped command."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def engine() -> Iterator[docker.DockerClient]:
    """The Docker engine; ``make test`` sees to it that there is one."""
    try:
        client = docker.from_env()
        client.ping()
    except (docker.errors.DockerException, requests.RequestException) as error:
        pytest.fail(f"no Docker engine answers ({error}); run `make test`, or deselect with -m 'not docker'")
    client.api.trust_env = False  # tests poll it, and proxies are looked for at each request
    yield client
    client.close()


@pytest.fixture(scope="session", autouse=True)
def _short_looks() -> Iterator[None]:
    """Shorten the canary, which would take a tenth of a second before each job."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canary, "_ENOUGH_S", dict.fromkeys(canary._ENOUGH_S, 1e-9))
        patch.setattr(canary, "_COPY_BYTES", 1 << 20)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_hub() -> Iterator[None]:
    """Keep tests from asking the real model hub; a test with a hub of its own chooses that."""
    with model_hub.chosen(model_hub.NO_HUB):
        yield


@pytest.fixture(scope="session", autouse=True)
def _only_shipped_prices() -> Iterator[None]:
    """Keep tests from reading the prices that this machine's user has fetched."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PRICES_VARIABLE, os.devnull)
        yield


@pytest.fixture(scope="module")
def real_looks() -> Iterator[None]:
    """The machine's speed is looked at as long as users' runs look at it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canary, "_ENOUGH_S", _ENOUGH_S)
        patch.setattr(canary, "_COPY_BYTES", _COPY_BYTES)
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_loader_of_aws_models() -> Iterator[None]:
    """Models of AWS' services are read once a process, not once a session of boto3."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "create_loader", functools.cache(botocore.loaders.create_loader))
        yield


@pytest.fixture(scope="session")
def _aws_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server.running(tmp_path_factory.mktemp("aws") / "moto.log") as endpoint:
        yield endpoint


@pytest.fixture
def aws(_aws_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty AWS on loopback, which boto3 and all child processes speak to; its endpoint."""
    server.reset(_aws_server)
    for name, value in server.environment(_aws_server).items():
        monkeypatch.setenv(name, value)
    return _aws_server


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A Slurm of one node, with a shared folder of the test's own; skipped where the machine cannot have one."""
    with running_cluster() as found:
        yield found


@pytest.fixture
def host(engine: docker.DockerClient) -> Iterator[str]:
    """A host name of the test's own: what it leaves behind is its own to sweep."""
    with own_host(engine) as name:
        yield name


def protocol(trials: int, *, name: str = "interleaved", **more: object) -> str:
    """The protocol of a short run, as a suite has it: one pass warms up, where ten thousand queries would otherwise."""
    keys = {"name": name, "warmup_queries": 2, "warmup_cap": 2, "repeats": 0, "k": 3, "trials": trials, **more}
    return "[protocol]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())


def write_dataset(folder: Path, queries: int = 4) -> Path:
    """Ten documents, some queries, one judgement each; two more queries, without, warm up."""
    folder.mkdir(parents=True, exist_ok=True)
    documents = [{"_id": f"d{n}", "title": topic, "text": f"all about the {topic}"} for n, topic in enumerate(TOPICS)]
    topics = [{"_id": f"q{n}", "text": f"where is the {TOPICS[n]}"} for n in range(queries)]
    topics += [{"_id": f"w{n}", "text": f"what is {number}"} for n, number in enumerate(("warm", "warmer"))]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(fields) + "\n" for fields in documents), encoding="utf-8")
    (folder / "queries.jsonl").write_text("".join(json.dumps(fields) + "\n" for fields in topics), encoding="utf-8")
    (folder / "qrels.trec").write_text("".join(f"q{n} 0 d{n} 1\n" for n in range(queries)), encoding="utf-8")
    return folder


@dataclass
class Bench:
    """A temporary folder with a dataset, scripted systems, results and cache."""

    folder: Path

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    def plant(self, name: str, engine: str = "planted", **params: str | int | float) -> None:
        """Add a system that misbehaves as its parameters say; ``engine`` is ``planted`` or ``planted-service``."""
        lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in params.items() if key != "build_misdeed")
        build = f"build_misdeed = {json.dumps(params['build_misdeed'])}\n" if "build_misdeed" in params else ""
        path = self.folder / "engines" / engine / "systems" / f"{name}.toml"
        path.write_text(f'description = "planted"\n[build_params]\n{build}[search_params]\n{lines}', encoding="utf-8")

    def suite(self, text: str = "", **keys: object) -> Path:
        """Write a suite over the tiny dataset."""
        declared = {
            "systems": ["planted"],
            "datasets": ["./tiny"],
            "profiles": ["cpu1-mem256m"],
            "overhead": False,
            **keys,
        }
        body = "".join(f"{key} = {json.dumps(value)}\n" for key, value in declared.items())
        text = text if "[protocol]" in text else protocol(2, name="santhanam2023") + text
        path = self.folder / "test-suite.toml"
        path.write_text(f'build_profile = "cpu1-mem1"\n{body}{text}', encoding="utf-8")
        return path

    def run(
        self,
        launcher: Launcher,
        path: Path | None = None,
        *,
        only: str | None = None,
        fresh: bool = False,
        retry_noisy: int = 0,
        fresh_index: bool = False,
    ) -> RunSummary:
        """Run a suite to its end."""
        path = path or self.suite()
        options = RunOptions(self.results, self.cache, path.parent, only, fresh, retry_noisy, fresh_index)
        self.screen = StringIO()
        with show_progress(Console(file=self.screen, width=200)):
            return orchestrator.run_suite(gather(suite.load(path), options), options, launcher)


def make_bench(folder: Path) -> Bench:
    """A bench in an empty folder; ``HARNESS_IMAGES`` is still to be set."""
    (folder / "cache").mkdir()
    write_dataset(folder / "tiny")
    for engine in (PLANTED, PLANTED.with_name("planted-service")):
        shutil.copytree(engine, folder / "engines" / engine.name)
    return Bench(folder)


@pytest.fixture
def make(tmp_path: Path) -> Maker:
    """Makes stored jobs."""
    return Maker(tmp_path)


@pytest.fixture(scope="session")
def snapshot() -> Snapshot:
    """The prices."""
    return prices.snapshot()


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Environments of the process launcher: the same for all tests, slow to make."""
    return tmp_path_factory.mktemp("environments")


@pytest.fixture
def bench(tmp_path: Path, environments: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = make_bench(tmp_path)
    (tmp_path / "cache" / "process").symlink_to(environments)
    monkeypatch.setenv("HARNESS_IMAGES", str(tmp_path / "engines"))
    return made


@pytest.fixture
def toy(tmp_path: Path) -> System:
    """An engine of this test alone."""
    return toy_dataset.make(tmp_path)


@pytest.fixture(scope="session")
def _handed_on(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.support import results_folders

    made = make_bench(tmp_path_factory.mktemp("handed-on"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_IMAGES", str(made.folder / "engines"))
        results_folders.make(made)
    return made.results


@pytest.fixture
def results(_handed_on: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a results folder of all scenarios, in the current folder, with a cache of its own."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(_handed_on, tmp_path / "results"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A real browser, one for all tests of a worker; ``scripts/test-tools`` installs it."""
    from playwright.sync_api import sync_playwright  # slow to import, and few tests need it

    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.fail("no chromium is on the path; run scripts/test-tools, or deselect with -m 'not browser'")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=BROWSER_ARGUMENTS)
        yield launched
        launched.close()

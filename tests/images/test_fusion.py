"""Two systems in one envelope: rankings are fused, and a failure names its component."""

from __future__ import annotations

import gzip
import json
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.cli import main
from harness.driver.records import Hit, Outcome
from harness.launch.base import Launcher
from harness.launch.process import ProcessLauncher
from harness.results.reader import read_jobs
from harness.results.schema import Result
from tests.conftest import PLANTED, Bench
from tests.images.test_rank_fusion import rank_fusion
from tests.integration.proxy import wait_until

# Each test starts processes of both.
pytestmark = pytest.mark.slow

TOY = Path(__file__).with_name("toy.py")
PROTOCOL = "[protocol]\nwarmup_queries = 2\nwarmup_cap = 2\ntrials = 1\nk = 3\nquery_timeout_s = {}\n"


def declare(bench: Bench, fusion: str = 'method = "rrf"\ndepth = 5\n', **letters: object) -> None:
    """Systems ``words`` and ``letters``, and ``both`` of them."""
    toy = bench.folder / "engines" / "toy"
    (toy / "systems").mkdir(parents=True, exist_ok=True)
    shutil.copy(PLANTED / "Dockerfile", toy / "Dockerfile")
    shutil.copy(TOY, toy / "adapter.py")
    (toy / "requirements.lock").touch()
    (toy / "engine.toml").write_text('description = "toy"\nscores = true\n')
    keys = "".join(f"{key} = {json.dumps(value)}\n" for key, value in letters.items())
    for name, more in (("words", ""), ("letters", keys)):
        text = f'description = "toy"\n[build_params]\nshared = "{name}"\n[search_params]\n{more}'
        (toy / "systems" / f"{name}.toml").write_text(text)
    systems = bench.folder / "engines" / "fusion" / "systems"
    systems.mkdir(parents=True, exist_ok=True)
    joined = f'description = "both"\ncomponents = ["words", "letters"]\n[search_params]\n{fusion}'
    (systems / "both.toml").write_text(joined)


def run(
    bench: Bench, *systems: str, launcher: Launcher | None = None, query_timeout_s: float = 10
) -> dict[str, Result]:
    suite = bench.suite(PROTOCOL.format(query_timeout_s), systems=list(systems or ["both"]), profiles=["cpu1-mem256m"])
    done = bench.run(launcher or ProcessLauncher(bench.cache), suite)
    return {result.spec.cell.system: result for result, _ in done.jobs}


def rankings(bench_results: Path) -> dict[str, dict[str, list[Hit]]]:
    """System -> query -> its hits, from the stored runs."""
    ranked: dict[str, dict[str, list[Hit]]] = {}
    for job in read_jobs(bench_results):
        lists: dict[str, list[Hit]] = defaultdict(list)
        for line in gzip.decompress((job.folder / "run.trec.gz").read_bytes()).decode().splitlines():
            query_id, _, doc_id, _, score, _ = line.split()
            lists[query_id].append(Hit(doc_id, float(score)))
        ranked[job.result.spec.cell.system] = dict(lists)
    return ranked


def fused(lists: list[list[Hit]], k: int, **params: Any) -> list[Hit]:
    pairs = [([hit.doc_id for hit in hits], [hit.score for hit in hits]) for hits in lists]
    made: list[Hit] = rank_fusion.ranked(rank_fusion.fuse(params)(pairs), k)
    return made


@pytest.mark.parametrize(
    "params",
    [
        {"method": "rrf"},
        {"method": "weighted", "normalise": "z", "first_weight": 0.3, "second_weight": 0.7},
    ],
    ids=lambda params: params["method"],
)
def test_ranking_fuses_both_components(bench: Bench, params: dict[str, Any]) -> None:
    # k = depth = 3: the components' own runs, measured alone, hold all that was fused.
    keys = "".join(f"{key} = {json.dumps(value)}\n" for key, value in params.items())
    declare(bench, f"{keys}depth = 3\n")
    results = run(bench, "words", "letters", "both")
    assert {result.outcome for result in results.values()} == {Outcome.OK}, results["both"].detail
    ranked = rankings(bench.results)
    assert ranked["words"] != ranked["letters"], "else anything would do"
    for query_id, hits in ranked["both"].items():
        assert hits == fused([ranked["words"][query_id], ranked["letters"][query_id]], 3, **params)


def test_stages_sum_within_the_latency_and_libraries_name_their_component(bench: Bench) -> None:
    declare(bench)
    result = run(bench)["both"]
    (job,) = read_jobs(bench.results)
    rows = job.samples().to_pylist()
    assert [name for name in rows[0] if name.startswith("stage_")] == [
        "stage_fuse_ns",
        "stage_letters_ns",
        "stage_letters.retrieve_ns",
        "stage_words_ns",
        "stage_words.retrieve_ns",
    ]
    for row in rows:
        outer = sum(row[f"stage_{name}_ns"] for name in ("words", "letters", "fuse"))
        assert outer <= row["latency_ns"]
        for name in ("words", "letters"):
            assert 0 < row[f"stage_{name}.retrieve_ns"] < row[f"stage_{name}_ns"]
    assert result.measured.effective is not None
    assert result.measured.effective.threads == {"words.python": 1, "letters.python": 1}
    assert result.measured.libraries.keys() == {"words.python", "words.omp", "letters.python", "letters.omp"}
    assert result.measured.libraries["letters.omp"] == "1", "what the launcher sets reaches both"
    assert result.measured.device == "cpu"
    shown = CliRunner().invoke(main, ["report", str(bench.results), "--format", "csv"])
    assert shown.exit_code == 0 and "stage_words.retrieve_mean_ms" in shown.output
    assert "sum to more" not in shown.output


MISDEEDS = {
    "raise": (Outcome.CRASH, "letters: the engine says: ValueError: planted in two lines"),
    "kill": (Outcome.CRASH, "letters: the engine ended with signal SIGKILL before it replied"),
    "heap": (Outcome.CRASH, "letters: the engine says: MemoryError: planted"),  # no limit is in force
    "hang": (Outcome.TIMEOUT, "a query took more than 0.5 s"),
    "twice": (Outcome.BAD_OUTPUT, "letters: the engine says: BadAnswer: rank 2: document 'd1' comes twice"),
}


@pytest.mark.parametrize("misdeed", MISDEEDS)
def test_component_failure_is_an_outcome_naming_the_component(bench: Bench, misdeed: str) -> None:
    declare(bench, misdeed=misdeed)
    result = run(bench, query_timeout_s=0.5 if misdeed == "hang" else 10)["both"]
    outcome, detail = MISDEEDS[misdeed]
    assert result.outcome is outcome, result.detail
    assert detail in (result.detail or "")
    # The kernel ends them; that takes a moment.
    wait_until(lambda: not _alive(bench), "no process of it is left")


def _alive(bench: Bench) -> list[Path]:
    return [pid for pid in Path("/proc").glob("[0-9]*") if str(bench.folder) in _environment(pid)]


@pytest.mark.parametrize(
    ("fusion", "message"),
    [
        ('method = "rrf"\n', "depth is None, must be a whole number of hits above 0"),
        ('method = "rrf"\ndepth = 0\n', "depth is 0, must be a whole number"),
        ('method = "rrf"\ndepth = true\n', "depth is True, must be a whole number"),
        ('method = "best"\ndepth = 5\n', "method is 'best', must be one of rrf, weighted"),
        ('method = "rrf"\ndepth = 5\n"wrods.k" = 1\n', "'wrods.k' is no parameter of 'rrf'"),
    ],
)
def test_invalid_fusion_parameters_are_reported_in_one_line(bench: Bench, fusion: str, message: str) -> None:
    declare(bench, fusion)
    detail = run(bench)["both"].detail
    assert message in (detail or ""), detail


def test_threads_are_limited_in_both_components(bench: Bench) -> None:
    declare(bench, threads=4)
    result = run(bench)["both"]
    assert result.outcome is Outcome.ENVELOPE_MISMATCH
    assert result.detail is not None and "letters.python says 4 threads on 1 CPUs" in result.detail


def _environment(pid: Path) -> str:
    try:
        return (pid / "environ").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""

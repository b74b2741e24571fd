"""Inputs of a suite are found and checked before any costly step."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO

import pytest
from rich.console import Console

from harness.datasets import corpus
from harness.driver.records import Envelope
from harness.errors import HarnessError, UsageError
from harness.jobs import inputs, suite
from harness.jobs.inputs import Inputs, RunOptions
from harness.jobs.plan import plan_here
from harness.launch.fake import FakeLauncher
from harness.pricing import offers
from harness.progress import show_progress
from tests.conftest import Bench, write_dataset

Gather = Callable[..., Inputs]


def options(bench: Bench, **changes: object) -> RunOptions:
    return RunOptions(**{"results": bench.results, "cache": bench.cache, "suite_dir": bench.folder, **changes})


@pytest.fixture
def gather(bench: Bench) -> Gather:
    def call(text: str = "", only: str | None = None, **keys: object) -> Inputs:
        return inputs.gather(suite.load(bench.suite(text, **keys)), options(bench, only=only))

    return call


def test_everything_the_suite_names_is_loaded(gather: Gather) -> None:
    gathered = gather(profiles=["cpu1-mem256m", "cpu2-mem4"])
    assert [(cell.system, cell.dataset, cell.profile) for cell in gathered.cells] == [
        ("planted", "tiny", "cpu1-mem256m"),
        ("planted", "tiny", "cpu2-mem4"),
    ]
    assert set(gathered.systems) == {"planted"}
    assert set(gathered.profiles) == {"cpu1-mem256m", "cpu2-mem4", "cpu1-mem1"}, "the build profile is one of them"
    assert gathered.datasets["tiny"].corpus.size == 10
    sample = gathered.samples["tiny"]
    assert {query.query_id for query in sample.sample} == {"q0", "q1", "q2", "q3"}
    assert {query.query_id for query in sample.warmup} == {"w0", "w1"} and not sample.held_out


def test_language_of_a_dataset_is_a_parameter_of_systems_with_analysers(bench: Bench, gather: Gather) -> None:
    write_dataset(bench.folder / "chinese")
    (bench.folder / "chinese" / "dataset.toml").write_text('language = "zh"\n')
    systems = {"systems": ["bm25", "minilm", "hybrid"], "datasets": ["./tiny", "./chinese"]}

    def languages(gathered: Inputs) -> dict[tuple[str, str], object]:
        name = {"hybrid": "bm25.language"}
        return {
            (cell.system, cell.dataset): gathered.builder(cell).params.get(name.get(cell.system, "language"))
            for cell in gathered.cells
        }

    stated = languages(gather(**systems))
    assert {key: code for key, code in stated.items() if code} == {
        ("bm25", "chinese"): "zh",
        ("hybrid", "chinese"): "zh",
    }
    said = languages(gather("[languages]\nchinese = 'en'\ntiny = 'ar'\n", **systems))
    assert {key: code for key, code in said.items() if code} == {("bm25", "tiny"): "ar", ("hybrid", "tiny"): "ar"}
    gathered = gather(**systems, profiles=["cpu1-mem1"])
    keys = {job.cell.dataset: job.spec.index_key for job in plan_here(gathered, options(bench), FakeLauncher())}
    assert keys["tiny"] != keys["chinese"], "one corpus, two analysers"
    with pytest.raises(UsageError, match=r"bm25 has no analyser for 'tlh'; it has en, ar, .*: set one in `languages`"):
        gather("[languages]\ntiny = 'tlh'\n", **systems)


def test_more_hits_than_a_fusion_takes_are_refused(gather: Gather) -> None:
    with pytest.raises(
        UsageError, match=r"hybrid fuses the first 100 hits of its systems, protocol\.k asks for 101; lower"
    ):
        gather("[protocol]\nk = 101\n", systems=["hybrid"])
    gather("[protocol]\nk = 100\n", systems=["hybrid"])


def test_measures_beyond_the_hits_asked_for_are_named_before_the_run(gather: Gather, logged: list[str]) -> None:
    gather("[protocol]\nk = 20\n", measures=["R@100", "AP", "nDCG@20"])
    assert [line for line in logged if "deeper" in line] == ["  R@100: deeper than 20 hits; raise protocol.k"]


def test_warm_up_queries_are_reported_once_and_reduce_the_timed_sample(bench: Bench) -> None:
    topics = [{"_id": f"q{n}", "text": f"where is number {n}"} for n in range(20)]
    (bench.folder / "tiny" / "queries.jsonl").write_text("".join(json.dumps(topic) + "\n" for topic in topics))
    (bench.folder / "tiny" / "qrels.trec").write_text("".join(f"q{n} 0 d1 1\n" for n in range(20)))
    text = StringIO()
    with show_progress(Console(file=text, width=200)):
        gathered = inputs.gather(suite.load(bench.suite("[protocol]\nwarmup_queries = 5\n")), options(bench))
    assert "  tiny: 4 of 20 queries warm the systems up; they are judged, not timed" in text.getvalue()
    job = plan_here(gathered, options(bench), FakeLauncher())[0]
    assert (job.spec.sample_size, job.spec.timed_queries, job.spec.warmup_queries) == (20, 16, 4)


def test_timed_and_judged_queries_are_counted_where_they_differ(gather: Gather, logged: list[str]) -> None:
    keys = "[protocol]\nwarmup_queries = 1\nunjudged = true\nsample_size = {}\n"
    gather(keys.format(4))
    assert [line for line in logged if "judged" in line] == []
    sample = gather(keys.format(1000)).samples["tiny"]
    assert (len(sample.timed), len(sample.warmup)) == (5, 1)
    assert [line for line in logged if "judged" in line] == ["  tiny: 5 queries timed, 4 judged"]


@pytest.mark.parametrize("name", ["nDCG@ten", "rr@10", "P", "P@0", "AP(rel=0)"])
def test_unknown_measure_is_a_usage_error_before_any_preparation(bench: Bench, gather: Gather, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        gather(measures=["RR@10", name])
    assert caught.value.exit_code == 2
    assert repr(name) in str(caught.value) and "\n" not in str(caught.value)
    assert not bench.results.exists()
    assert [path.name for path in bench.cache.iterdir()] == ["process"], "no corpus was prepared"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"systems": ["plantet"]}, "unknown system 'plantet'. Did you mean 'planted'"),
        ({"profiles": ["cpu1-mem3"]}, "unknown hardware profile 'cpu1-mem3'"),
        ({"datasets": ["scifakt"]}, "unknown dataset 'scifakt'. Did you mean 'scifact'"),
        ({"datasets": ["./absent"]}, "absent"),
        ({"only": "minilm"}, "--only 'minilm' matches no cell of the suite test-suite"),
    ],
)
def test_unknown_name_is_a_usage_error(gather: Gather, keys: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        gather(**keys)
    assert caught.value.exit_code == 2


@pytest.mark.slow
def test_sweep_that_makes_the_name_of_another_system_is_a_usage_error(bench: Bench, gather: Gather) -> None:
    bench.plant("grid", depth=1)
    sweep = "[sweep.grid]\ndepth = [10, 20]\n"
    assert list(gather(sweep, systems=["grid"]).systems) == ["grid-depth10", "grid-depth20"]
    bench.plant("grid-depth20", depth=20)
    with pytest.raises(UsageError, match=r"\[sweep.grid\]: grid-depth20 is the name of another system; rename"):
        gather(sweep, systems=["grid"])


SERVER = """[protocol]
warmup_queries = 2
sample_size = {size}
[server]
latency_percentile = {percentile}
"""


@pytest.mark.parametrize(
    ("size", "percentile", "floor", "larger"),
    [
        (1000, 50, 11, "judge more of its queries, set protocol.unjudged"),
        (10, 50, 11, "raise protocol.sample_size (now 10)"),
        (129, 95, 130, "raise protocol.sample_size (now 129)"),
        (661, 99, 662, "raise protocol.sample_size (now 661)"),
    ],
)
def test_sample_too_small_to_prove_a_rate_is_a_usage_error(
    gather: Gather, size: int, percentile: int, floor: int, larger: str
) -> None:
    text, queries = SERVER.format(size=size, percentile=percentile), 4 if size == 1000 else size
    with pytest.raises(UsageError) as caught:
        gather(text, scenarios=["single_stream", "server"])
    assert str(caught.value) == (
        f"dataset tiny: a sample of {queries} queries cannot show that a rate keeps server.latency_percentile"
        f" = {percentile}, which takes {floor}; {larger}, or lower the percentile"
    )
    assert gather(text, scenarios=["single_stream", "offline"]).cells, "no other scenario needs as many"


def test_the_sample_follows_the_seed(gather: Gather) -> None:
    protocol = "[protocol]\nwarmup_queries = 2\nsample_size = 2\nseed = {}\n"
    hashes = [gather(protocol.format(seed)).samples["tiny"].sample_sha256 for seed in (0, 0, 1, 2, 3, 4)]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) > 1


def test_null_system_is_found_without_a_suite_naming_it(gather: Gather, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARNESS_IMAGES")
    gathered = gather(systems=["bm25"], profiles=["cpu1-mem1", "cpu2-mem4"], overhead=True)
    assert set(gathered.systems) == {"bm25", "null"}
    assert [(cell.system, cell.profile) for cell in gathered.cells if cell.system == "null"] == [
        ("null", "cpu1-mem1"),
        ("null", "cpu2-mem4"),
    ]


def test_progress_is_shown_while_a_corpus_is_prepared_and_not_afterwards(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "_PROGRESS_STEP", 5)
    with (bench.folder / "tiny" / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "nothing", "title": "", "text": " "}\n')
    messages = []
    for _ in range(2):
        text = StringIO()
        with show_progress(Console(file=text, width=200)):
            inputs.gather(suite.load(bench.suite()), options(bench))
        messages.append(text.getvalue())
    empty = "  tiny: 1 of 11 documents are empty\n"
    assert messages == [f"  tiny: corpus ...\n{empty}", empty]


def test_blank_queries_are_reported_and_unmatched_judgements_refused(bench: Bench) -> None:
    with (bench.folder / "tiny" / "queries.jsonl").open("a") as file:
        file.write('{"_id": "q99", "text": " "}\n')
    text = StringIO()
    with show_progress(Console(file=text, width=300)):
        inputs.gather(suite.load(bench.suite()), options(bench))
    assert "queries are blank, such as 'q99'; they are asked anyway" in text.getvalue()
    (bench.folder / "tiny" / "qrels.trec").write_text("q1 0 D1 1\n")
    with pytest.raises(
        HarnessError, match="none of 1 judged documents is in the corpus; qrels name 'D1', the corpus has 'd0'"
    ) as refused:
        inputs.gather(suite.load(bench.suite()), options(bench))
    assert refused.value.exit_code == 1


def test_protocol_with_more_samples_than_a_table_reads_is_refused(
    gather: Gather, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "MOST_ROWS", 19)
    protocol = "[protocol]\nwarmup_queries = 2\nsample_size = 4\ntrials = {}\n"
    assert gather(protocol.format(4)).samples
    with pytest.raises(
        UsageError, match=r"a cell would have 20 samples; the limit is 19\. Lower protocol\.sample_size"
    ):
        gather(protocol.format(5))


@pytest.mark.parametrize("value", ["1e30", "100000000000000000000000", "-9223372036854775809"])
def test_parameter_beyond_64_bits_is_refused_before_anything_runs(gather: Gather, value: str) -> None:
    with pytest.raises(UsageError, match=r"key 'sweep\.planted\.x': the number .* is not finite, or beyond 64 bits"):
        gather(f"[sweep.planted]\nx = [1, {value}]\n")


def test_images_are_made_for_the_machines_that_run_them(bench: Bench) -> None:
    """Searches on arm64, builds on x86-64: as the paper's suites on Graviton with an index built on a GPU's machine."""
    loaded = suite.load(bench.suite(profiles=["cpu1-mem256m", "cpu2-mem4"]))
    assert loaded.build_profile == "cpu1-mem1"
    platforms = {"cpu1-mem256m": "linux/arm64", "cpu2-mem4": "linux/amd64", "cpu1-mem1": "linux/amd64"}
    gathered = inputs.gather(loaded, options(bench, platforms=platforms))
    images = gathered.images(gathered.cells)
    assert {name: system.on_platform for name, system in images.items()} == {
        "planted-arm64": "linux/arm64",
        "planted": "linux/amd64",
    }
    small, large = gathered.cells
    assert (gathered.system(small).image, gathered.system(large).image) == ("planted-arm64", "planted")
    assert gathered.builder(small).image == gathered.building("planted").image == "planted"
    jobs = plan_here(gathered, options(bench), FakeLauncher())
    assert len({job.spec.index_key for job in jobs}) == 1, "one index serves both"
    assert len({job.spec.recipe for job in jobs}) == 2


def test_run_on_arm64_alone_builds_there_too(bench: Bench) -> None:
    path = bench.suite(profiles=["cpu1-mem256m"])
    loaded = suite.load(path).model_copy(update={"build_profile": None})
    gathered = inputs.gather(loaded, options(bench, platforms={"cpu1-mem256m": "linux/arm64"}))
    assert list(gathered.images(gathered.cells)) == ["planted-arm64"]
    assert gathered.building("planted").image == "planted-arm64"


GIB = 1 << 30
PROFILES = {"small": Envelope("small", 1, 4 * GIB), "large": Envelope("large", 16, 32 * GIB, gpus=1, pids=99)}


def test_profile_of_a_whole_machine_gets_what_its_host_leaves() -> None:
    types = {"small": "m6gd.medium", "large": "c7g.4xlarge"}
    found = inputs.enforced_limits(PROFILES, types)
    reserve = offers.host_reserve()
    assert found["small"].memory_bytes == reserve.left(4 * GIB)
    assert found["large"] == Envelope("large", 16, reserve.left(32 * GIB), gpus=1, pids=99)
    part = inputs.enforced_limits(PROFILES, {"small": "c7g.4xlarge", "large": "m6gd.medium"})
    assert part == PROFILES, "a part of a machine is given whole; what does not fit stays as it is"
    assert inputs.enforced_limits(PROFILES, {"small": "m6gd.medium"})["large"] == PROFILES["large"]


@pytest.mark.parametrize(
    ("shown", "limit"), [(33.0, 32.0), (32.0, 32.0), (31.5, 29.9), (30.41, 29.9), (30.3, 32.0), (16.0, 32.0)]
)
def test_local_host_is_a_whole_machine_though_its_kernel_shows_less(
    monkeypatch: pytest.MonkeyPatch, shown: float, limit: float
) -> None:
    monkeypatch.setattr("harness.launch.host.memory_bytes", lambda: int(shown * GIB))
    found = inputs.enforced_limits(PROFILES, {})["large"].memory_bytes / GIB
    assert found == pytest.approx(limit, abs=0.01), "too small a host: the launcher says that it cannot"

"""A suite file is read, or its mistake is reported in one line."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import get_args

import pytest
from pydantic import TypeAdapter

from harness.analysis import published as published_tables
from harness.datasets import dataset_name
from harness.driver.records import Envelope, Outcome, ScenarioParams, digest, to_json
from harness.errors import FileError, UnknownName
from harness.jobs import suite
from harness.jobs.suite import Scenario
from harness.launch.images import catalog
from harness.pricing import instances
from harness.results.schema import SweepPoint

LEAST = 'systems = ["bm25"]\ndatasets = ["scifact"]\nprofiles = ["cpu1-mem1"]\n'
ROOT = Path(__file__).parents[2]
TWO = 'systems = ["bm25", "dpr"]\ndatasets = ["scifact"]\nprofiles = ["cpu1-mem1", "cpu2-mem4"]\n'
RESTRICT = '[[restrict]]\nprofiles = ["cpu1-mem1"]\nsystems = ["bm25"]\n'
EXPECT = '[[expect]]\nsystem = "bm25"\nprofile = "cpu1-mem1"\noutcome = "oom"\n'
HUNDRED = list(range(100))
GROUPS = """
profiles = ["cpu1-mem1"]
[[group]]
systems = ["bm25"]
datasets = ["./arabic", "./chinese"]
[[group]]
systems = ["bm25", "minilm"]
datasets = ["scifact", "./chinese"]
profiles = ["cpu1-mem1", "tight"]
[hardware.tight]
cpus = 1
memory = "300MiB"
"""


def load(folder: Path, text: str) -> suite.Suite:
    path = folder / "my-suite.toml"
    path.write_text(text, encoding="utf-8")
    return suite.load(path)


def test_minimal_suite_interleaves_fresh_processes(tmp_path: Path) -> None:
    loaded = load(tmp_path, LEAST)
    assert loaded.name == "my-suite"
    assert loaded.scenarios == ("single_stream",)
    assert loaded.measures == (), "the default ones"
    protocol = loaded.protocol
    assert (protocol.name, protocol.warmup_queries, protocol.trials) == ("interleaved", 20, 5)
    assert (protocol.warmup_cap, protocol.repeats) == (50_000, 20)
    assert (protocol.jobs, protocol.trials_a_job) == (5, 1)
    assert loaded.overhead, "what harness adds is measured unless it is declined"
    assert (protocol.sample_size, protocol.k) == (1000, 10)


def test_paper_protocol_runs_all_trials_in_one_process(tmp_path: Path) -> None:
    protocol = load(tmp_path, LEAST + '[protocol]\nname = "santhanam2023"\n').protocol
    assert (protocol.warmup_queries, protocol.warmup_cap, protocol.trials) == (10, None, 5)
    assert (protocol.jobs, protocol.trials_a_job) == (1, 5)
    protocol = load(tmp_path, LEAST + '[protocol]\nname = "santhanam2023"\nwarmup_queries = 3\n').protocol
    assert protocol.warmup_queries == 3, "what the suite says counts"


# What stands in the place of ``LEAST``'s words, or behind it, and the mistake.
# A service that runs already.
RUNNING = 'url = "{}"\nsystems = ["null-service"]\ndatasets = ["scifact"]\n'
MISTAKES = [
    (LEAST.replace("systems", "system"), "unknown key 'system'. Did you mean 'systems'"),
    (LEAST + "[hardware.tiny]\nzzz = 3\n", "unknown key 'hardware.tiny.zzz'; known keys: cpus, gpus, memory, pids"),
    ('systems = ["bm25"]\nprofiles = ["p"]\n', "key 'datasets' is missing; add it"),
    (LEAST.replace('["bm25"]', '"bm25"'), "key 'systems': expected a list"),
    (LEAST.replace('["bm25"]', "[]"), "key 'systems' has 0 entries; write 1 or more"),
    (LEAST.replace('["bm25"]', "[1]"), "key 'systems.0' is 1; write text in quotes"),
    (LEAST.replace('["bm25"]', '["a", "b", "a"]'), "key 'systems': a comes twice; name each once"),
    (LEAST.replace('["scifact"]', '["./a/x", "./b/x/"]'), "key 'datasets': two datasets are called 'x'"),
    (LEAST.replace('["scifact"]', '[".."]'), "key 'datasets': '..' does not name a dataset"),
    *(
        (LEAST.replace("scifact", f"./a\\u{ord(each):04x}b"), "does not name a dataset")
        for each in "\u00a0\u3000\t\n\u202e\u200b\u2028\x7f"
    ),
    (
        LEAST + 'scenarios = ["burst"]\n',
        "'scenarios.0' is \"burst\"; write 'single_stream', 'offline', 'server' or 'mixed'",
    ),
    (LEAST + "[server]\nlatency_target_s = 0\n", "key 'server.latency_target_s' is 0; write a number above 0"),
    (LEAST + 'name = "../escape"\n', "key 'name' is \"../escape\"; write 1 to 63 lower-case letters"),
    (LEAST + "protocol = 3\n", "key 'protocol': expected a table"),
    (LEAST + "[protocol]\ntrials = 1.5\n", "key 'protocol.trials' is 1.5; write a whole number"),
    (LEAST + "[protocol]\njob_timeout_s = inf\n", "'protocol.job_timeout_s' is nan or infinite; write a finite number"),
    (LEAST + EXPECT.replace("bm25", "bm52"), "key 'expect.system': 'bm52' is not in this suite"),
    (LEAST + EXPECT.replace("mem1", "mem2"), "key 'expect.profile': 'cpu1-mem2' is not in this suite"),
    (LEAST + EXPECT.replace("oom", "fire"), "key 'expect.0.outcome' is \"fire\"; write 'ok', 'oom'"),
    (LEAST + '[firstp]\nbm25 = "bm52"\n', "key 'firstp': 'bm52' is not in this suite. Did you mean 'bm25'"),
    (LEAST + '[same_index]\nbm25 = "bm25@old"\n', "key 'same_index': 'bm25@old' is not in this suite"),
    (TWO + '[same_index]\nbm25 = "dpr"\n', "key 'same_index': bm25 and dpr are not versions of one system"),
    (LEAST + '[exact]\nbm25 = "bm25"\n', "key 'exact': 'bm25' is paired with itself; name another system"),
    (LEAST + EXPECT + EXPECT, "key 'expect': bm25 on cpu1-mem1 comes 2 times"),
    (TWO + RESTRICT + EXPECT.replace("bm25", "dpr"), "key 'expect': a [[restrict]] removes dpr on cpu1-mem1"),
    (TWO + RESTRICT.replace("bm25", "bm52"), "'restrict.0.systems': 'bm52' is not in this suite. Did you mean 'bm25'"),
    (TWO + RESTRICT.replace("cpu1-mem1", "gpu9"), "'gpu9' is not in this suite; known: cpu1-mem1, cpu2-mem4"),
    (TWO + RESTRICT + RESTRICT, "key 'restrict': cpu1-mem1 comes 2 times; name all its systems in one [[restrict]]"),
    (TWO + RESTRICT.replace('mem1"', 'mem1", "cpu2-mem4"'), "key 'restrict': no profile is left for dpr"),
    (GROUPS.replace('profiles = ["cpu1-mem1"]', "", 1), "key 'group.0.profiles' is missing"),
    ('systems = ["dpr"]\n' + GROUPS, "key 'systems': 'dpr' is in no [[group]]; name it in one"),
    (GROUPS.replace('memory = "300MiB"', 'memory = "300"'), "key 'hardware.tight.memory': '300' is not a memory"),
    (LEAST + '[hardware.mine]\ncpus = 1\nmemory = "1GiB"\n', "key 'hardware.mine': nothing uses it"),
    (LEAST + '[hardware.cpu1-mem1]\ncpus = 2\nmemory = "1GiB"\n', "key 'hardware.cpu1-mem1': harness has a"),
    (LEAST + '[ec2]\ninstances = {p = "m6i.large"}\n', "key 'ec2.instances': 'p' is not in this suite; known: cpu1"),
    (TWO + '[curve]\nc = ["bm25", "dqr"]', "key 'curve.c': 'dqr' is not in this suite. Did you mean 'dpr'"),
    (TWO + '[curve]\nc = ["bm25"]', "key 'curve.c' has 1 entries; write 2 or more"),
    (TWO + '[curve]\nbm25 = ["bm25", "dpr"]', "key 'curve.bm25': a system of this suite has this name"),
    (TWO + '[curve]\nc = ["bm25", "dpr"]\nd = ["dpr", "bm25"]', "key 'curve.d': dpr is in 'curve.c' already"),
    (TWO + '[curve]\nc = ["bm25-k1_1", "dpr"]\n[sweep.bm25]\nk1 = [1, 2]', "bm25-k1_1 is in 'sweep.bm25' already"),
    (TWO + '[seeds]\nbm25 = ["bm25", "dpr"]', "key 'seeds.bm25': a system of this suite has this name; choose another"),
    (TWO + '[seeds]\na = ["bm25", "dpr"]\nb = ["dpr", "bm25"]', "key 'seeds.b': dpr is in 'seeds.a' already; remove"),
    (TWO + '[seeds]\na = ["bm25", "c-1"]', "key 'seeds.a': 'c-1' is not in this suite"),
    (TWO + "[sweep.bm52]\nk1 = [1.2]\n", "key 'sweep.bm52': 'bm52' is not in this suite. Did you mean 'bm25'"),
    (TWO + '[sweep.bm25]\nform = ["a b"]\n', "'bm25-form_a b' is not a valid name"),
    (TWO + '[sweep.bm25]\nform = ["a", "A"]\n', "bm25-form_a comes twice"),
    (TWO + f"[sweep.bm25]\na = {HUNDRED}\nb = {HUNDRED}\n", "has 10,000 points; the limit is 500. Remove some values"),
    (
        TWO + f"[sweep.bm25]\n{'x' * 60} = [1]\n",
        "is not a valid name (lowercase letters, digits, '.', '_', '-'; at most 63)",
    ),
    (TWO + "[sweep.bm25]\nk1 = [1.2, 1.2]\n", "1.2 comes twice"),
    (TWO + "[sweep.bm25]\nk1 = 1.2\n", "sweep.bm25.k1"),
    (TWO + "[sweep]\nbm25 = {}\n", "sweep.bm25"),
    (RUNNING.format("http://alice:secret@host"), "key 'url': it has a user or a password in it; set HARNESS_SERVICE_"),
    (RUNNING.format("http://host?key=secret"), "key 'url': it has more than an address"),
    (RUNNING.format("ftp://host"), "key 'url': it is not the address of a service; write http://HOST:PORT"),
    (RUNNING.format("http://host:99999"), "key 'url': it is not an address"),
    ('profiles = ["cpu1-mem1"]\n' + RUNNING.format("http://host"), "key 'profiles': harness cannot limit a service"),
    ('scenarios = ["server"]\n' + RUNNING.format("http://host"), "key 'scenarios': server sends many queries at once"),
    (RUNNING.format("http://host") + "[service]\nbuild = true\n", "key 'service.build': harness builds only into"),
    (
        RUNNING.format("http://host") + '[service]\nbuild = true\nparams = {index = "products"}\n',
        "set service.params.index to a name such as harness-0a1b2c3d",
    ),
    (RUNNING.format("http://host") + '[service]\ninstance = "a"\nusd_per_hour = 1\n', "both give a price; keep one"),
    (LEAST + "[protocol]\nmax_qps = 5\n", "key 'protocol.max_qps': only a service that runs already has it"),
    (LEAST + "[service]\nusd_per_hour = 1\n", "key 'service': only a service that runs already has it"),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_each_mistake_is_reported_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(FileError, match=rf"^{tmp_path}/my-suite.toml: .*{re.escape(message)}") as caught:
        load(tmp_path, text)
    assert "\n" not in str(caught.value) and "secret" not in str(caught.value)


def test_a_running_service_is_asked_gently_and_limited_by_nothing(tmp_path: Path) -> None:
    loaded = load(tmp_path, RUNNING.format("https://host/prefix") + "[protocol]\ntrials = 7\n")
    protocol = loaded.protocol
    assert (protocol.trials, protocol.warmup_cap, protocol.repeats, protocol.max_qps) == (7, None, 0, None)
    assert loaded.envelopes() == {"attached": Envelope("attached", 0, 0)}
    assert [cell.names for cell in loaded.cells()] == [("null-service", "scifact", "single_stream", "attached")]
    again = suite.parse(loaded.model_dump(mode="json"), tmp_path / "again.toml")
    assert again.model_dump(exclude={"name"}) == loaded.model_dump(exclude={"name"})


def test_groups_tie_systems_to_datasets_and_profiles(tmp_path: Path) -> None:
    loaded = load(tmp_path, "overhead = false\n" + GROUPS)
    assert (loaded.systems, loaded.profiles) == (("bm25", "minilm"), ("cpu1-mem1", "tight"))
    assert loaded.datasets == ("./arabic", "./chinese", "scifact")
    cells = [(cell.system, cell.dataset, cell.profile) for cell in loaded.cells()]
    assert cells[:2] == [("bm25", "arabic", "cpu1-mem1"), ("bm25", "chinese", "cpu1-mem1")]
    assert len(cells) == len(set(cells)) == 2 + 8 - 1, "a cell of both groups is measured once"
    assert ("minilm", "arabic", "cpu1-mem1") not in cells and ("bm25", "arabic", "tight") not in cells
    again = suite.parse(loaded.model_dump(mode="json"), tmp_path / "shipped.toml")
    assert again == loaded, "as it goes to other machines"


def test_own_hardware_is_a_profile_like_those_of_harness(tmp_path: Path) -> None:
    loaded = load(tmp_path, GROUPS)
    assert loaded.envelopes()["tight"] == Envelope("tight", 1, 300 * 2**20)
    assert loaded.envelopes()["cpu1-mem1"] == instances.hardware_profile("cpu1-mem1")
    with pytest.raises(UnknownName, match=r"unknown hardware profile 'huge'.*; or declare it: \[hardware.NAME\]"):
        load(tmp_path, LEAST + 'build_profile = "huge"\n').envelopes()


def test_suite_needs_a_name_if_its_file_name_is_invalid(tmp_path: Path) -> None:
    path = tmp_path / "My Suite.toml"
    path.write_text(LEAST)
    with pytest.raises(FileError, match="'My Suite' is not a valid suite name"):
        suite.load(path)
    path.write_text('name = "mine"\n' + LEAST)
    assert suite.load(path).name == "mine"


def test_expected_outcome_applies_to_its_cell_only(tmp_path: Path) -> None:
    text = LEAST.replace('["bm25"]', '["bm25", "minilm"]').replace('["cpu1-mem1"]', '["cpu1-mem1", "cpu2-mem4"]')
    loaded = load(tmp_path, text + EXPECT)
    assert loaded.expected("bm25", "cpu1-mem1") is Outcome.OOM
    assert loaded.expected("minilm", "cpu1-mem1") is Outcome.OK
    assert loaded.expected("bm25", "cpu2-mem4") is Outcome.OK


@pytest.mark.parametrize(("dataset", "count"), [("msmarco", 28), ("xortydi", 24)])
def test_paper_suites_have_exactly_the_cells_of_table_3(dataset: str, count: int) -> None:
    declared = suite.load(ROOT / "suites" / f"santhanam2023-{dataset}.toml")
    profiles = instances.hardware_profiles()
    planned = [(cell.system, profiles[cell.profile]) for cell in declared.cells()]
    published = published_tables.read(ROOT / "results" / "published" / "santhanam2023")
    (about,) = (each for each in published.about.datasets if each.name == dataset)
    printed = [
        (about.shipped(line.system), line.gpu, line.cpu, float(line.ram_gib.value))
        for line in published.table3[dataset]
    ]
    cells = [(system, held.gpus, held.cpus, held.memory_bytes / 2**30) for system, held in planned]
    assert len(cells) == count
    assert sorted(cells) == sorted(printed)
    paper = published.about.protocol
    protocol = declared.protocol
    assert (protocol.name, protocol.warmup_queries) == ("santhanam2023", paper.warmup_queries)
    assert protocol.warmup_cap is None
    assert (protocol.trials, protocol.sample_size, protocol.k) == (paper.trials, paper.queries, paper.k)
    assert declared.scenarios == (paper.scenario,)
    assert declared.measures == tuple(published_tables.MEASURES)
    assert len(declared.datasets) == 1


@pytest.mark.slow
def test_paper_suites_have_tuned_bm25_and_the_named_dpr() -> None:
    """Appendix A names the multiset encoders; RR@10 18.7 is that of k1 .82 and b .68."""
    shipped = catalog.systems(catalog.images_dir())
    for dataset, dpr in (("msmarco", "dpr-msmarco"), ("xortydi", "dpr")):
        declared = suite.load(ROOT / "suites" / f"santhanam2023-{dataset}.toml")
        bm25, encoders = (shipped[name] for name in declared.systems[:2])
        assert (bm25.engine, bm25.params["k1"], bm25.params["b"]) == ("pyserini", 0.82, 0.68)
        assert bm25.params == shipped["bm25-tuned"].params and encoders.name == dpr
        hubs = [asset.hub for asset in encoders.assets]
        assert hubs == [f"facebook/dpr-{side}_encoder-multiset-base" for side in ("question", "ctx")]
        # The paper trained it further on MS MARCO, and published no weights of that.
        assert bool(encoders.stand_in) == (dataset == "msmarco")


@pytest.mark.parametrize(
    ("declared", "name"),
    [
        *((path, "tiny") for path in ("tiny", "./tiny", "../data/tiny", "/data/tiny/", "tiny//")),
        ("beir/scifact/test", "beir-scifact-test"),
        ("./msmarco#dev.small", "msmarco-dev.small"),
        ("beir#test", "beir-test"),
    ],
)
def test_dataset_name_is_the_last_part_of_its_path_or_its_id(declared: str, name: str) -> None:
    assert dataset_name(declared) == name


def test_every_shipped_suite_is_valid() -> None:
    paths = sorted((ROOT / "suites").glob("*.toml"))
    assert paths and all(suite.load(path).systems for path in paths)


@pytest.mark.slow
def test_dureader_retrieval_has_all_four_pairs_of_table_5() -> None:
    """Qiu et al. 2022: each of two cross-encoders over the first 50 of each retriever."""
    loaded = suite.load(ROOT / "suites" / "qiu2022.toml")
    systems = catalog.systems()
    two_stages = [systems[name] for name in loaded.systems[2:]]
    pairs = {tuple(part.name for part in each.components): each.search_params["depth"] for each in two_stages}
    retrievers, rerankers = ("bm25-zh", "dureader-de"), ("dureader-ce-bm25", "dureader-ce")
    assert loaded.systems[:2] == retrievers
    assert pairs == dict.fromkeys(itertools.product(retrievers, rerankers), 50) and loaded.protocol.k == 50
    first, second = (systems[name] for name in rerankers)
    assert first.search_params == second.search_params and first.build_params["document_tokens"] == 349
    assert {**first.build_params, "model": ""} == {**second.build_params, "model": ""}


SWEEP = "[sweep.bm25]\nk1 = [0.9, 1.2]\nb = [0.4]\n"


def test_sweep_puts_variants_in_the_place_of_their_system(tmp_path: Path) -> None:
    loaded = load(tmp_path, TWO + SWEEP + RESTRICT)
    assert loaded.systems == ("bm25-k1_0.9-b0.4", "bm25-k1_1.2-b0.4", "dpr")
    assert loaded.variants["bm25-k1_1.2-b0.4"] == SweepPoint("bm25", {"k1": 1.2, "b": 0.4})
    assert loaded.restrict[0].systems == ("bm25-k1_0.9-b0.4", "bm25-k1_1.2-b0.4")
    assert suite.parse(loaded.model_dump(mode="json"), tmp_path / "again.toml").systems == loaded.systems


def test_a_grid_is_the_product_of_its_lists_in_their_order(tmp_path: Path) -> None:
    grid = "[sweep.bm25]\nk1 = [2, 1]\nb = [0.4, 0.75]\nexact = [true]\nbackend = ['Torch', 'int8']\n"
    loaded = load(tmp_path, TWO + grid + EXPECT)
    assert [name for name in loaded.systems if name != "dpr"] == list(loaded.variants)
    assert list(loaded.variants)[:3] == [
        *("bm25-k1_2-b0.4-exact_true-backend_torch", "bm25-k1_2-b0.4-exact_true-backend_int8"),
        "bm25-k1_2-b0.75-exact_true-backend_torch",
    ]
    assert len(loaded.variants) == 8 and len(loaded.cells()) == 2 * 9 + 2, "each on two profiles; the null system"
    assert {entry.system for entry in loaded.expect} == set(loaded.variants)
    again = suite.parse(loaded.model_dump(mode="json"), tmp_path / "again.toml")
    assert (again.systems, again.expect) == (loaded.systems, loaded.expect)


def test_seeds_are_systems_of_one_model_that_firstp_may_name(tmp_path: Path) -> None:
    four = 'systems = ["a-1", "a-2", "b-1", "b-2"]\ndatasets = ["scifact"]\nprofiles = ["cpu1-mem4"]\n'
    both = '[seeds]\na = ["a-1", "a-2"]\nb = ["b-1", "b-2"]\n[firstp]\nb = "a"\n'
    named = load(tmp_path, four + both)
    assert named.seeds == {"a": ("a-1", "a-2"), "b": ("b-1", "b-2")} and named.firstp == {"b": "a"}


def test_exact_search_of_swept_systems_is_the_one_that_is_named(tmp_path: Path) -> None:
    named = load(tmp_path, TWO + '[sweep.bm25]\nk1 = [1, 2]\n[exact]\nbm25 = "dpr"\n')
    assert list(named.exact.values()) == ["dpr", "dpr"] and set(named.exact) == set(named.systems) - {"dpr"}


def test_firstp_of_swept_systems_has_the_same_parameters_or_is_one_of_them(tmp_path: Path) -> None:
    named = load(tmp_path, TWO + '[sweep.bm25]\nk1 = [1, 2]\n[sweep.dpr]\nk1 = [1, 2]\n[firstp]\nbm25 = "dpr"\n')
    assert named.firstp == {"bm25-k1_1": "dpr-k1_1", "bm25-k1_2": "dpr-k1_2"}
    assert suite.parse(named.model_dump(mode="json"), tmp_path / "again.toml").firstp == named.firstp
    one = load(tmp_path, TWO + '[sweep.bm25]\nk1 = [1, 2, 3]\n[firstp]\nbm25 = "bm25-k1_1"\n')
    assert one.firstp == {"bm25-k1_2": "bm25-k1_1", "bm25-k1_3": "bm25-k1_1"}


def test_sizes_put_each_dataset_at_several_numbers_of_documents(tmp_path: Path) -> None:
    text = TWO.replace('["scifact"]', '["scifact", "./mine@500"]') + "[sizes]\ndocuments = [1_000, 3_000]\n"
    loaded = load(tmp_path, text + '[languages]\nscifact = "en"\n')
    assert loaded.datasets == ("scifact@1000", "scifact@3000", "./mine@500")
    assert (loaded.language("scifact@3000"), loaded.language("mine@500")) == ("en", None)
    assert {cell.dataset for cell in loaded.cells()} == {"scifact@1000", "scifact@3000", "mine@500"}
    again = suite.parse(loaded.model_dump(mode="json"), tmp_path / "again.toml")
    assert again.datasets == loaded.datasets


@pytest.mark.parametrize("scenario", get_args(Scenario))
def test_parameters_of_a_scenario_have_the_hash_of_what_is_read_back(tmp_path: Path, scenario: str) -> None:
    """Else a finished job would never count as done."""
    path = tmp_path / "all.toml"
    path.write_text('systems = ["bm25"]\ndatasets = ["scifact"]\nprofiles = ["cpu1-mem1"]\n', encoding="utf-8")
    planned = suite.load(path).scenario_params(scenario)
    assert digest(planned) == digest(TypeAdapter(ScenarioParams).validate_json(to_json(planned)))

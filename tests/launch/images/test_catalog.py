"""The catalogue: TOML files of engines and systems, and systems with components."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from harness.errors import FileError, UnknownName, UsageError
from harness.jobs import plan
from harness.launch.fake import FakeLauncher
from harness.launch.images import catalog, recipes
from harness.launch.images.platforms import ARM64
from harness.launch.images.recipes import recipe

SHA = "0" * 64
ASSET = f'[[assets]]\nfolder = "m"\nlicence = "MIT"\nsha256 = {{ "w.bin" = "{SHA}" }}\n'
UNPINNED = '[[assets]]\nfolder = "m"\nlicence = "MIT"\nhub = "a/m"\nfiles = ["w.bin"]\n'
NOT_FOR = '[[not_for]]\nplatform = "linux/arm64"\n'
LEAN_SEARCH = 'prepare = "x"\nprepare_params = ["method"]\n[lean_search_if]\nmethod = ["deepct"]\n'
LEAN_IF = """prepare = "x"
prepare_params = ["backend", "expander"]
[lean_if]
backend = ["onnx", "openvino"]
expander = [""]
"""
WITH_GPUS = """[build_params]
documents = "onnx"
batch = 8
[search_params]
queries = "int8"
[with_gpus]
documents = "torch"
queries = "torch"
"""


@pytest.fixture
def images(tmp_path: Path) -> Path:
    write_system(tmp_path, "lucene", "bm25", "[build_params]\nstemmer = true\n[search_params]\nk1 = 0.9\n")
    return tmp_path


def write_system(folder: Path, engine: str, system: str, text: str = "", engine_text: str = "") -> None:
    (folder / engine / "systems").mkdir(parents=True, exist_ok=True)
    (folder / engine / "engine.toml").write_text(f'description = "an engine"\n{engine_text}')
    (folder / engine / "systems" / f"{system}.toml").write_text(f'description = "a system"\n{text}')


def test_system_has_its_engines_folder_and_all_its_parameters(images: Path) -> None:
    system = catalog.system("bm25", images)
    assert (system.engine, system.engine_dir) == ("lucene", images / "lucene")
    assert system.params == {"stemmer": True, "k1": 0.9}
    assert system.build_params == {"stemmer": True}, "search parameters shape no index"
    assert not system.fewer_hits_ok


def test_folder_without_engine_toml_is_not_an_engine(images: Path) -> None:
    (images / "base").mkdir()
    assert list(catalog.systems(images)) == ["bm25"]


def test_parameters_keep_their_types(images: Path) -> None:
    write_system(images, "x", "y", '[search_params]\na = true\nb = 1\nc = 1.0\nd = "1"\n')
    params = catalog.system("y", images).params
    assert [type(params[name]) for name in "abcd"] == [bool, int, float, str]


def test_unknown_system_suggests_the_nearest_name(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownName, match=r"^unknown system 'bm52'. Did you mean 'bm25'\?$"):
        catalog.system("bm52", images)
    monkeypatch.delenv("HARNESS_IMAGES", raising=False)
    with pytest.raises(UnknownName, match=r"Systems of your own are found once HARNESS_IMAGES names their folder$"):
        catalog.system("dpr-small")


def test_two_systems_with_the_same_name_are_refused(images: Path) -> None:
    write_system(images, "tantivy", "bm25")
    with pytest.raises(FileError, match=r"tantivy/systems/bm25.toml: the engine 'lucene' has a system of this name"):
        catalog.systems(images)


@pytest.mark.parametrize("name", ["My System", "UPPER", "-x", "ü"])
def test_invalid_system_name_is_refused(images: Path, name: str) -> None:
    write_system(images, "x", name)
    with pytest.raises(FileError, match="system names are lower-case letters"):
        catalog.systems(images)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("surprise = 1\n", "unknown key 'surprise'"),
        ("[serach_params]\nk1 = 1\n", r"unknown key 'serach_params'. Did you mean 'search_params'\?"),
        ("[search_params]\nk1 = [1, 2]\n", r"key 'search_params.k1"),
        ("[search_params]\nk1 = nan\n", r"key 'search_params.k1"),
        (ASSET.replace(SHA, "123"), "key 'assets.0.sha256.w.bin' is \"123\"; write 64 digits"),
        (ASSET.replace("w.bin", "../w.bin"), "is not a plain name inside the folder"),
        (ASSET.replace("w.bin", "/w.bin"), "is not a plain name inside the folder"),
        (ASSET + 'revision = "main"\n', "key 'assets.0.revision'"),
        (ASSET.replace('licence = "MIT"\n', ""), "key 'assets.0.licence' is missing"),
        (ASSET + 'files = ["w.bin"]\n', "each file is named once: in sha256 with its checksum, or in files without"),
        (ASSET.split("sha256")[0], "each file is named once"),
        (UNPINNED.replace("w.bin", "../w.bin"), "is not a plain name inside the folder"),
        (WITH_GPUS + 'query = "torch"\n', "with_gpus: query is in neither build_params nor search_params"),
        (
            "[search_params]\nx = 100000000000000000000000\n",
            r"key 'search_params\.x': the number 1000.* beyond 64 bits",
        ),
        (f'[search_params]\nx = "{"y" * 70_000}"\n', r"parameters and stand_in take 70,\d+ bytes; the limit is 65,536"),
        (
            "[search_params]\n" + "".join(f"x{n} = 1\n" for n in range(501)),
            "search_params has 501 keys; the limit is 500",
        ),
    ],
)
def test_mistake_in_a_system_file_is_named(images: Path, text: str, message: str) -> None:
    write_system(images, "x", "y", text)
    with pytest.raises(FileError, match=f"x/systems/y.toml: .*{message}"):
        catalog.systems(images)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (UNPINNED, "key 'assets': .* give sha256, not files"),
        (NOT_FOR, "reason"),
        (NOT_FOR + 'reason = ""\n', "reason"),
        (NOT_FOR.replace("linux/", "") + 'reason = "none"\n', "platform"),
        (LEAN_IF.replace(', "expander"]', "]"), "lean_if: expander is not in prepare_params"),
        (LEAN_SEARCH.replace('["method"]', "[]", 1), "lean_search_if: method is not in prepare_params"),
        (LEAN_SEARCH.replace('prepare = "x"\n', ""), "lean_search_if: only files that `prepare` makes ready go into"),
    ],
)
def test_mistake_in_an_engines_file_is_named(images: Path, text: str, message: str) -> None:
    write_system(images, "x", "y", engine_text=text)
    with pytest.raises(FileError, match=f"x/engine.toml: .*{message}"):
        catalog.systems(images)


@pytest.mark.slow
def test_own_engines_are_added_to_the_shipped_ones(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_system(images, "mine", "my-system")
    (images / "lucene" / "systems" / "bm25.toml").unlink()
    monkeypatch.setenv("HARNESS_IMAGES", str(images))
    assert {"bm25", "minilm", "my-system"} <= catalog.systems().keys()


def test_wrong_harness_images_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_IMAGES", "/no/such/folder")
    with pytest.raises(FileError, match="HARNESS_IMAGES: /no/such/folder is not a folder"):
        catalog.systems()


@pytest.mark.slow
def test_shipped_catalogue_is_valid() -> None:
    systems = catalog.systems(catalog.images_dir())
    assert systems["bm25"].params["k1"] == 0.9 and systems["bm25"].params["b"] == 0.4
    assert all(system.description for system in systems.values())


def test_unpinned_system_is_listed_and_marked(images: Path) -> None:
    write_system(images, "x", "y", UNPINNED)
    write_system(images, "x", "z", ASSET)
    systems = catalog.systems(images)
    assert [systems[name].unpinned for name in ("bm25", "y", "z")] == [(), ("y",), ()]
    write_system(images, "x", "part", ASSET + 'files = ["vocab.txt"]\n')
    assert catalog.system("part", images).unpinned == ("part",), "a pinned half is not pinned"
    assert systems["y"].assets[0].names == systems["z"].assets[0].names == ("w.bin",)


def test_user_file_pins_a_shipped_system_and_replaces_no_pinned_one(tmp_path: Path) -> None:
    shipped, own = tmp_path / "shipped", tmp_path / "own"
    write_system(shipped, "x", "y", UNPINNED)
    pinned = UNPINNED.replace('files = ["w.bin"]', f'revision = "{"0" * 40}"\nsha256 = {{ "w.bin" = "{SHA}" }}')
    write_system(own, "x", "y", pinned)
    assert catalog.system("y", shipped, own).unpinned == ()
    for other in (
        "[search_params]\nk1 = 1.2\n" + pinned,
        pinned.replace("a/m", "b/m"),
        pinned.replace("w.bin", "v.bin"),
        pinned + pinned.replace('"m"', '"n"'),
    ):
        write_system(own, "x", "y", other)
        with pytest.raises(FileError, match="has a system of this name"):
            catalog.systems(shipped, own)
    write_system(own, "x", "y", pinned)
    write_system(shipped, "x", "y", pinned)
    with pytest.raises(FileError, match=r"own/x/systems/y.toml: the engine 'x' has a system of this name"):
        catalog.systems(shipped, own)
    write_system(shipped, "x", "y", UNPINNED)
    (own / "x").rename(own / "other")
    with pytest.raises(FileError, match=r"own/other/systems/y.toml: the engine 'x' has a system of this name"):
        catalog.systems(shipped, own)


def test_missing_platform_has_its_reason(images: Path) -> None:
    stated = NOT_FOR + 'reason = "its compiler knows x86-64 alone"\n'
    write_system(images, "x", "y", engine_text=stated)
    write_system(images, "z", "gpu", engine_text=stated.replace('reason = "', 'accelerator = "cuda"\nreason = "'))
    bound, able = catalog.system("y", images), catalog.system("gpu", images)
    assert bound.lacking is None
    assert bound.for_platform(ARM64).lacking == "engine 'x' has no linux/arm64 image: its compiler knows x86-64 alone"
    (able.engine_dir / "requirements-cuda12.lock").touch()
    assert able.for_platform(ARM64).lacking is None and able.for_job("build", gpus=1).lacking is None
    assert (able.for_job("build", gpus=1).for_platform(ARM64).lacking or "").startswith(
        "engine 'z' has no linux/arm64 image for GPUs: its"
    )


@pytest.mark.parametrize(
    ("text", "lean"),
    [
        ('[build_params]\nbackend = "onnx"\n' + ASSET, True),
        ('[search_params]\nbackend = "openvino"\nexpander = ""\n' + ASSET, True),
        ('[build_params]\nbackend = "torch"\n' + ASSET, False),
        ('[build_params]\nbackend = "onnx"\nexpander = "t5"\n' + ASSET, False),
        ("[build_params]\nk = 1\n" + ASSET, False),  # the engine's default decides
        ('[build_params]\nbackend = "onnx"\n', False),  # nothing was prepared
    ],
)
def test_system_is_lean_if_every_parameter_has_a_declared_value(images: Path, text: str, lean: bool) -> None:
    write_system(images, "x", "y", text, LEAN_IF)
    system = catalog.system("y", images)
    assert system.lean == lean
    (images / "x" / "requirements-cuda12.lock").touch()
    assert not system.for_job("build", gpus=1).lean


def test_variants_are_lean_if_all_swept_values_are(images: Path) -> None:
    write_system(images, "x", "y", '[build_params]\nbackend = "onnx"\n' + ASSET, LEAN_IF)
    system = catalog.system("y", images)
    for values, lean in ((("onnx", "openvino"), True), (("onnx", "torch"), False)):
        assert [system.vary(name, {"backend": name}, {"backend": values}).lean for name in values] == [lean] * 2


def test_parameters_have_another_value_where_there_are_gpus(images: Path) -> None:
    write_system(images, "x", "y", WITH_GPUS)
    system = catalog.system("y", images)
    jobs = {
        ("onnx", "int8"): (system, system.for_job("build", gpus=0)),
        ("torch", "torch"): (system.for_job("build", gpus=1),),
        ("onnx", "torch"): (system.for_job("search", gpus=1, build_gpus=0),),
        ("torch", "int8"): (system.for_job("search", gpus=0, build_gpus=1),),
    }
    for (documents, queries), made in jobs.items():
        assert all(each.params == {"documents": documents, "batch": 8, "queries": queries} for each in made)


def test_value_that_a_sweep_or_a_joining_system_sets_stays_with_gpus(images: Path) -> None:
    write_system(images, "x", "y", WITH_GPUS)
    point = catalog.system("y", images).vary("point", {"queries": "int8"}, {"queries": ("int8", "onnx")})
    assert point.for_job("build", gpus=1).params == {"documents": "torch", "batch": 8, "queries": "int8"}
    write_system(images, "lucene", "bm25", BM25)
    write_system(images, "fusion", "both", 'components = ["bm25", "y"]\n')
    write_system(images, "fusion", "own", 'components = ["bm25", "y"]\n[search_params]\n"y.queries" = "onnx"\n')
    for name, queries in (("both", "torch"), ("own", "onnx")):
        there = catalog.system(name, images).for_job("build", gpus=1)
        assert (there.params["y.documents"], there.params["y.queries"]) == ("torch", queries)
        assert there.components[1].params == {"documents": "torch", "batch": 8, "queries": queries}


BM25 = "fewer_hits_ok = true\n[build_params]\nheap = 1024\n[search_params]\nk1 = 0.9\nheap = 96\n"
DENSE = '[build_params]\nbackend = "torch"\n[search_params]\ntokens = 32\n'
BOTH = 'components = ["bm25", "dense"]\n'


@pytest.fixture
def two_engines(tmp_path: Path) -> Path:
    write_system(tmp_path, "lucene", "bm25", BM25)
    write_system(tmp_path, "vectors", "dense", DENSE, 'prepare_params = ["backend"]\n')
    (tmp_path / "shared").mkdir()
    return tmp_path


def test_composite_system_has_the_parameters_of_both_components(two_engines: Path) -> None:
    write_system(two_engines, "fusion", "both", BOTH + '[search_params]\nmethod = "rrf"\n')
    both = catalog.system("both", two_engines)
    assert [part.name for part in both.components] == ["bm25", "dense"]
    assert both.build_params == {"bm25.heap": 1024, "dense.backend": "torch"}
    assert both.search_params == {"method": "rrf", "bm25.k1": 0.9, "bm25.heap": 96, "dense.tokens": 32}
    assert not both.fewer_hits_ok, "its own to declare"


def test_parameter_of_a_component_reaches_it_and_its_image(two_engines: Path) -> None:
    write_system(two_engines, "vectors", "dense", DENSE + ASSET, 'prepare = "x"\nprepare_params = ["backend"]\n')
    write_system(two_engines, "fusion", "plain", BOTH)
    write_system(two_engines, "fusion", "deep", BOTH + '[search_params]\n"bm25.heap" = 200\n')
    write_system(two_engines, "fusion", "quick", BOTH + '[build_params]\n"dense.backend" = "onnxruntime"\n')
    plain, deep, quick = (catalog.system(name, two_engines) for name in ("plain", "deep", "quick"))
    assert deep.search_params["bm25.heap"] == deep.components[0].search_params["heap"] == 200
    assert deep.build_params["bm25.heap"] == 1024, "the one of the build is another"
    assert quick.components[1].prepared_with == {"backend": "onnxruntime"}
    for folder in ("lucene", "vectors", "fusion"):
        for name in ("Dockerfile", "requirements.lock"):
            (two_engines / folder / name).touch()
    assert recipe(deep) == recipe(plain) and recipe(quick) != recipe(plain), "weights were prepared for another backend"


def test_composite_system_inherits_flags_of_components(two_engines: Path) -> None:
    write_system(two_engines, "lucene", "bm25", "result_cache = true\n" + UNPINNED)
    write_system(two_engines, "vectors", "dense", 'stand_in = "a small one"\n')
    write_system(two_engines, "fusion", "both", BOTH)
    both = catalog.system("both", two_engines)
    assert both.result_cache and both.stand_in == "a small one" and both.unpinned == ("bm25",)


def test_components_json_describes_each_component(two_engines: Path) -> None:
    write_system(two_engines, "vectors", "dense", DENSE)
    write_system(two_engines, "fusion", "both", BOTH)
    for folder in ("lucene", "vectors"):
        (two_engines / folder / "adapter.py").write_text(f"# {folder}\n")
    both = catalog.system("both", two_engines)
    first, second = json.loads(recipes.components_json(both, [{"A": "1"}, {}]))
    assert (first["name"], first["engine"], first["environment"]) == ("bm25", "lucene", {"A": "1"})
    assert len({first["adapter_sha256"], second["adapter_sha256"], ""}) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('components = ["bm25", "dnse"]\n', r"unknown system 'dnse'. Did you mean 'dense'\?"),
        ('components = ["bm25"]\n', "1 names, must be two different systems"),
        ('components = ["bm25", "bm25"]\n', "2 names, must be two different systems"),
        ('components = ["bm25", "dense", "bm25"]\n', "3 names, must be two different systems"),
        ('components = ["bm25", "both"]\n', "'both' has components itself; name those"),
        ('components = ["bm25", "other"]\n', "'other' has components itself; name those"),
        (
            BOTH + '[search_params]\n"dense.tokns" = 1\n',
            r"'dense' has no parameter 'tokns' there. Did you mean 'tokens'\?",
        ),
        (
            BOTH + '[search_params]\n"dense.backend" = "x"\n',
            "key 'search_params': 'dense' has no parameter 'backend' there",
        ),
        (BOTH + "[search_params]\ndense.tokens = 1\n", "key 'search_params.dense"),
    ],
)
def test_invalid_components_are_refused(two_engines: Path, text: str, message: str) -> None:
    write_system(two_engines, "fusion", "other", BOTH)
    write_system(two_engines, "fusion", "both", text)
    with pytest.raises(FileError, match=message) as caught:
        catalog.systems(two_engines)
    assert "both.toml" in str(caught.value)


@pytest.mark.parametrize("whose", ["the engine's", "the system's"])
def test_components_with_conflicting_files_are_refused(two_engines: Path, whose: str) -> None:
    write_system(two_engines, "fusion", "both", BOTH)
    write_system(two_engines, "lucene", "bm25", ASSET)
    same = ("", ASSET) if whose == "the engine's" else (ASSET, "")
    write_system(two_engines, "vectors", "dense", *same)
    assert catalog.system("both", two_engines)
    other = tuple(text.replace(SHA, "1" * 64) for text in same)
    write_system(two_engines, "vectors", "dense", *other)
    with pytest.raises(FileError, match="key 'components': both have assets in 'm', and not the same; rename one"):
        catalog.systems(two_engines)


def test_weights_prepared_in_two_ways_are_refused(two_engines: Path) -> None:
    engine = 'prepare = "x"\nprepare_params = ["backend"]\n'
    write_system(two_engines, "vectors", "dense", DENSE + ASSET, engine)
    write_system(two_engines, "vectors", "dense-int8", DENSE.replace("torch", "int8") + ASSET, engine)
    write_system(two_engines, "fusion", "both", 'components = ["dense", "dense-int8"]\n')
    with pytest.raises(FileError, match="both have assets in 'm', and not the same"):
        catalog.systems(two_engines)


def test_same_named_engines_and_components_in_two_folders_are_refused(
    two_engines: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    own = tmp_path_factory.mktemp("own")
    write_system(own, "lucene", "mine")
    write_system(two_engines, "fusion", "both", 'components = ["bm25", "mine"]\n')
    with pytest.raises(FileError, match="both have an engine 'lucene', in two folders; rename one"):
        catalog.systems(two_engines, own)
    (two_engines / "fusion" / "systems" / "both.toml").write_text(
        'description = "both"\ncomponents = ["dense", "graph"]\n', encoding="utf-8"
    )
    for folder, engine, system in ((two_engines, "vectors", "dense"), (own, "graphs", "graph")):
        (folder / "shared" / "encoder").mkdir(parents=True)
        write_system(folder, engine, system, "", 'shared = ["encoder"]\n')
    with pytest.raises(FileError, match="both have shared code 'encoder', in two folders; rename one"):
        catalog.systems(two_engines, own)


def test_engine_lists_the_languages_that_its_code_knows() -> None:
    known = (catalog.images_dir() / "shared" / "jvm" / "languages.py").read_text(encoding="utf-8")
    codes = re.findall(r'^    "(\w+)": f"\{_PACKAGE', known, re.M)
    assert catalog.system("bm25").languages == ("en", *codes)


def test_variants_share_one_image_that_is_ready_for_all_values() -> None:
    grid = {"document_backend": ("torch", "openvino"), "backend": ("torch", "onnxruntime")}
    point = {"document_backend": "openvino", "backend": "torch"}
    minilm = catalog.system("minilm")
    other, made = minilm.vary("other", {**point, "backend": "onnxruntime"}, grid), minilm.vary("made", point, grid)
    assert (made.build_params["document_backend"], made.search_params["backend"]) == ("openvino", "torch")
    assert (made.name, made.image) == ("made", "minilm") and made.build_params == other.build_params
    assert recipe(made) == recipe(other) != recipe(minilm)
    read = json.loads(recipes.prepare_parameters(made))
    assert read["build_params"]["document_backend"] == ["torch", "openvino"]
    assert read["search_params"]["backend"] == ["torch", "onnxruntime"] and read["build_params"]["pooling"] == "mean"
    assert minilm.vary("few", {"batch_size": 8}, {"batch_size": (8,)}).swept == {}


def test_sweep_of_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(UsageError, match=r"minilm has no parameter 'bakend'. Did you mean 'backend'"):
        catalog.system("minilm").vary("a", {"bakend": "torch"}, {})
    with pytest.raises(UsageError, match=r"hybrid-minilm has no parameter 'minilm.bakend'. Did you mean 'minilm.back"):
        catalog.system("hybrid-minilm").vary("a", {"minilm.bakend": "torch"}, {})


def test_sweep_of_a_components_index_builds_one_for_each_value_over_one_image() -> None:
    """Table 6 of Boytsov et al. (2025): a reranker reads more and more of a document after the same first stage."""
    name, lengths = "parade-attn.document_tokens", (477, 954, 1431)
    whole = catalog.system("bm25-parade-attn")
    points = [whole.vary(f"point{tokens}", {name: tokens}, {name: lengths}) for tokens in lengths]
    assert [point.params[name] for point in points] == [*lengths]
    assert [point.components[1].build_params["document_tokens"] for point in points] == [*lengths]
    assert whole.components[1].build_params["document_tokens"] == 1431, "the system itself stays"
    assert len({recipe(point) for point in points}) == len({point.components[1].image for point in points}) == 1
    read = json.loads(recipes.prepare_parameters(points[0].components[1]))
    assert read["build_params"]["document_tokens"] == [*lengths]
    keys = [plan.component_keys(point, FakeLauncher(), "corpus") for point in points]
    assert len({each["bm25"] for each in keys}) == 1 and len({each["parade-attn"] for each in keys}) == 3
    assert len({plan.index_key(point, "image", "corpus") for point in points}) == 3


def test_system_whose_search_needs_less_searches_in_a_lean_image(images: Path) -> None:
    write_system(images, "x", "able", '[build_params]\nmethod = "deepct"\n' + ASSET, LEAN_SEARCH)
    write_system(images, "x", "other", '[build_params]\nmethod = "splade"\n' + ASSET, LEAN_SEARCH)
    able, other = catalog.systems(images)["able"], catalog.systems(images)["other"]
    search = able.for_job("search")
    assert (search.image, search.lean, able.image, able.lean) == ("able-search", True, "able", False)
    assert search.for_job("search") == search
    assert other.for_job("search") == other
    joined = other.model_copy(update={"name": "both", "components": (able, other)})
    assert joined.for_job("search").image == "both-search"
    assert [part.image for part in joined.for_job("search").components] == ["able-search", "other"]
    (images / "x" / "requirements-cuda12.lock").touch()
    assert able.for_job("search", gpus=1) == able.for_job("build", gpus=1), "packages for GPUs come with all others"
    there = joined.for_job("search", platform=ARM64)
    assert there.for_job("search", platform=ARM64) == there, "a system that was made for a job once stays as it is"
    assert {part.on_platform for part in there.parts} == {ARM64}
    whole = there.for_platform(ARM64, all_packages=True)
    assert [(part.platform, part.search_only) for part in whole.parts] == [(ARM64, False)] * 3


def test_lean_system_has_one_image(images: Path) -> None:
    engine = 'lean_if = {method = ["deepct"]}\n' + LEAN_SEARCH
    write_system(images, "x", "y", '[build_params]\nmethod = "deepct"\n' + ASSET, engine)
    system = catalog.system("y", images)
    assert system.lean and system.for_job("search") == system


def test_no_system_has_the_name_of_anothers_image(images: Path) -> None:
    for name in ("bm25-search", "bm25-cuda"):
        write_system(images, "x", name)
        with pytest.raises(FileError, match=f"{name}.toml: bm25 may have an image of this name; rename the file"):
            catalog.systems(images)
        (images / "x" / "systems" / f"{name}.toml").unlink()


@pytest.mark.slow
def test_one_system_is_read_with_its_components_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    read, declared = [], catalog._declared
    monkeypatch.setattr(catalog, "_declared", lambda path, *more: read.append(path.stem) or declared(path, *more))
    hybrid = catalog.system("hybrid-minilm")
    assert sorted(read) == sorted((hybrid.name, *(part.name for part in hybrid.components)))
    with pytest.raises(UnknownName, match="Did you mean 'hybrid-minilm'"):
        catalog.system("hybrid-minilmm")


def test_a_version_has_a_lock_of_its_own_and_no_other_recipe(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (images / "lucene" / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nCOPY driver /opt/harness\n")
    (images / "lucene" / "adapter.py").write_text("")
    (images / "lucene" / "requirements.lock").write_text("")
    before = recipe(catalog.system("bm25", images))
    lock = images / "lucene" / "requirements@old.lock"
    lock.write_text("# older\n")
    monkeypatch.delenv("HARNESS_IMAGES", raising=False)
    plain, old = catalog.named(["bm25", "bm25@old"], images).values()
    assert (old.name, old.version, old.lock, old.image) == ("bm25@old", "old", lock, "bm25__old")
    assert old.engine_image == "lucene__old" and plain.version == "" and plain.engine_image == "lucene"
    assert recipe(plain) == before != recipe(old), "the lock of a version is in no other image"
    assert old.params == plain.params
    own = images / "own" / "lucene"
    own.mkdir(parents=True)
    (own / "requirements@old.lock").write_text("# mine\n")
    monkeypatch.setenv("HARNESS_IMAGES", str(images / "own"))
    assert catalog.system("bm25@old", images).lock == own / "requirements@old.lock"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bm25@new", "bm25@new: no lock of this version; write requirements@new.lock in a folder lucene/"),
        ("bm25@", "write a version as lower-case letters"),
        ("bm25@../x", "write a version as lower-case letters"),
        ("bm26@old", "unknown system 'bm26'"),
    ],
)
def test_a_version_without_a_lock_says_where_to_write_it(
    images: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.delenv("HARNESS_IMAGES", raising=False)
    with pytest.raises(UsageError, match=re.escape(said)):
        catalog.system(name, images)


def test_a_joined_system_has_no_versions() -> None:
    with pytest.raises(UsageError, match="hybrid-minilm joins tantivy and minilm; name a version of one of those"):
        catalog.system("hybrid-minilm@old")

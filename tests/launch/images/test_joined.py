"""Systems made of two others: what they take from them, and which two cannot lie in one image."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.errors import FileError
from harness.launch.images import catalog, recipes
from harness.launch.images.recipes import recipe
from tests.launch.images.test_catalog import ASSET, SHA, plant

BM25 = "fewer_hits_ok = true\n[build_params]\nheap = 1024\n[search_params]\nk1 = 0.9\nheap = 96\n"
DENSE = '[build_params]\nbackend = "torch"\n[search_params]\ntokens = 32\n'
BOTH = 'components = ["bm25", "dense"]\n'


@pytest.fixture
def images(tmp_path: Path) -> Path:
    plant(tmp_path, "lucene", "bm25", BM25)
    plant(tmp_path, "vectors", "dense", DENSE, 'prepare_params = ["backend"]\n')
    (tmp_path / "shared").mkdir()
    return tmp_path


def test_a_joined_system_has_the_parameters_of_both_under_their_names(images: Path) -> None:
    plant(images, "fusion", "both", BOTH + '[search_params]\nmethod = "rrf"\n')
    both = catalog.system("both", images)
    assert [each.name for each in both.components] == ["bm25", "dense"]
    assert both.build_params == {"bm25.heap": 1024, "dense.backend": "torch"}
    assert both.search_params == {"method": "rrf", "bm25.k1": 0.9, "bm25.heap": 96, "dense.tokens": 32}
    assert not both.fewer_hits_ok, "its own to declare"


def test_a_parameter_set_for_one_reaches_that_one_and_its_image(images: Path) -> None:
    plant(images, "vectors", "dense", DENSE + ASSET, 'prepare = "x"\nprepare_params = ["backend"]\n')
    plant(images, "fusion", "plain", BOTH)
    plant(images, "fusion", "deep", BOTH + '[search_params]\n"bm25.heap" = 200\n')
    plant(images, "fusion", "quick", BOTH + '[build_params]\n"dense.backend" = "onnxruntime"\n')
    plain, deep, quick = (catalog.system(name, images) for name in ("plain", "deep", "quick"))
    assert deep.search_params["bm25.heap"] == deep.components[0].search_params["heap"] == 200
    assert deep.build_params["bm25.heap"] == 1024, "the one of the build is another"
    assert quick.components[1].prepared_with == {"backend": "onnxruntime"}
    for folder in ("lucene", "vectors", "fusion"):
        for name in ("Dockerfile", "requirements.lock"):
            (images / folder / name).touch()
    assert recipe(deep) == recipe(plain) and recipe(quick) != recipe(plain), "weights were prepared for another backend"


def test_what_one_of_them_is_it_is_too(images: Path) -> None:
    plant(images, "lucene", "bm25", "result_cache = true\n")
    plant(images, "vectors", "dense", 'stand_in = "a small one"\n')
    plant(images, "fusion", "both", BOTH)
    both = catalog.system("both", images)
    assert both.result_cache and both.stand_in == "a small one"


def test_each_is_told_apart_where_they_are_made(images: Path) -> None:
    plant(images, "vectors", "dense", DENSE, "resumable_builds = true\n")
    plant(images, "fusion", "both", BOTH)
    for folder in ("lucene", "vectors"):
        (images / folder / "adapter.py").write_text(f"# {folder}\n")
    both = catalog.system("both", images)
    first, second = json.loads(recipes.told(both, [{"A": "1"}, {}]))
    assert (first["name"], first["engine"], first["environment"]) == ("bm25", "lucene", {"A": "1"})
    assert (first["resumable_builds"], second["resumable_builds"]) == (False, True)
    assert len({first["adapter_sha256"], second["adapter_sha256"], ""}) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('components = ["bm25", "dnse"]\n', r"unknown system 'dnse'; did you mean 'dense'\?"),
        ('components = ["bm25"]\n', "1 names, must be two different systems"),
        ('components = ["bm25", "bm25"]\n', "2 names, must be two different systems"),
        ('components = ["bm25", "dense", "bm25"]\n', "3 names, must be two different systems"),
        ('components = ["bm25", "both"]\n', "'both' is itself made of others; name its components"),
        ('components = ["bm25", "other"]\n', "'other' is itself made of others; name its components"),
        (
            BOTH + '[search_params]\n"dense.tokns" = 1\n',
            r"'dense' has no parameter 'tokns' there; did you mean 'tokens'\?",
        ),
        (
            BOTH + '[search_params]\n"dense.backend" = "x"\n',
            "key 'search_params': 'dense' has no parameter 'backend' there",
        ),
        (BOTH + "[search_params]\ndense.tokens = 1\n", "key 'search_params.dense"),
    ],
)
def test_what_makes_no_system_is_refused(images: Path, text: str, said: str) -> None:
    plant(images, "fusion", "other", BOTH)
    plant(images, "fusion", "both", text)
    with pytest.raises(FileError, match=said) as caught:
        catalog.systems(images)
    assert "both.toml" in str(caught.value)


@pytest.mark.parametrize("whose", ["the engine's", "the system's"])
def test_two_with_other_files_in_one_place_are_refused(images: Path, whose: str) -> None:
    plant(images, "fusion", "both", BOTH)
    plant(images, "lucene", "bm25", ASSET)
    same = ("", ASSET) if whose == "the engine's" else (ASSET, "")
    plant(images, "vectors", "dense", *same)
    assert catalog.system("both", images)
    other = tuple(text.replace(SHA, "1" * 64) for text in same)
    plant(images, "vectors", "dense", *other)
    with pytest.raises(FileError, match="key 'components': both have assets in 'm', and not the same; rename one"):
        catalog.systems(images)


def test_weights_prepared_in_two_ways_are_refused(images: Path) -> None:
    engine = 'prepare = "x"\nprepare_params = ["backend"]\n'
    plant(images, "vectors", "dense", DENSE + ASSET, engine)
    plant(images, "vectors", "dense-int8", DENSE.replace("torch", "int8") + ASSET, engine)
    plant(images, "fusion", "both", 'components = ["dense", "dense-int8"]\n')
    with pytest.raises(FileError, match="both have assets in 'm', and not the same"):
        catalog.systems(images)


def test_engines_and_parts_of_one_name_in_two_folders_are_refused(
    images: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    own = tmp_path_factory.mktemp("own")
    plant(own, "lucene", "mine")
    plant(images, "fusion", "both", 'components = ["bm25", "mine"]\n')
    with pytest.raises(FileError, match="both have an engine 'lucene', in two folders; rename one"):
        catalog.systems(images, own)
    (images / "fusion" / "systems" / "both.toml").write_text(
        'description = "both"\ncomponents = ["dense", "graph"]\n', encoding="utf-8"
    )
    for folder, engine, system in ((images, "vectors", "dense"), (own, "graphs", "graph")):
        (folder / "shared" / "encoder").mkdir(parents=True)
        plant(folder, engine, system, "", 'shared = ["encoder"]\n')
    with pytest.raises(FileError, match="both have shared code 'encoder', in two folders; rename one"):
        catalog.systems(images, own)

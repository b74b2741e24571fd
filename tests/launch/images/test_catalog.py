"""Engines are folders, systems are files in them: found by looking, refused with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import FileError, UnknownName
from harness.launch.images import catalog
from harness.launch.images.platforms import ARM64

SHA = "0" * 64
ASSET = f'[[assets]]\nfolder = "m"\nlicence = "MIT"\nsha256 = {{ "w.bin" = "{SHA}" }}\n'
UNPINNED = '[[assets]]\nfolder = "m"\nlicence = "MIT"\nhub = "a/m"\nfiles = ["w.bin"]\n'


@pytest.fixture
def images(tmp_path: Path) -> Path:
    plant(tmp_path, "lucene", "bm25", "[build_params]\nstemmer = true\n[search_params]\nk1 = 0.9\n")
    return tmp_path


def plant(folder: Path, engine: str, system: str, text: str = "", engine_text: str = "") -> None:
    (folder / engine / "systems").mkdir(parents=True, exist_ok=True)
    (folder / engine / "engine.toml").write_text(f'description = "an engine"\n{engine_text}')
    (folder / engine / "systems" / f"{system}.toml").write_text(f'description = "a system"\n{text}')


def test_a_system_has_its_engines_folder_and_all_its_parameters(images: Path) -> None:
    system = catalog.system("bm25", images)
    assert (system.engine, system.engine_dir) == ("lucene", images / "lucene")
    assert system.params == {"stemmer": True, "k1": 0.9}
    assert system.build_params == {"stemmer": True}, "search parameters shape no index"
    assert not system.fewer_hits_ok


def test_a_folder_without_engine_toml_is_no_engine(images: Path) -> None:
    (images / "base").mkdir()
    assert list(catalog.systems(images)) == ["bm25"]


def test_parameters_keep_their_types(images: Path) -> None:
    plant(images, "x", "y", '[search_params]\na = true\nb = 1\nc = 1.0\nd = "1"\n')
    params = catalog.system("y", images).params
    assert [type(params[name]) for name in "abcd"] == [bool, int, float, str]


def test_an_unknown_system_offers_the_nearest(images: Path) -> None:
    with pytest.raises(UnknownName, match=r"^unknown system 'bm52'; did you mean 'bm25'\?; known: bm25$"):
        catalog.system("bm52", images)


def test_an_unknown_system_may_lie_in_a_folder_that_nothing_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARNESS_IMAGES", raising=False)
    with pytest.raises(UnknownName, match=r"; systems of your own are found once HARNESS_IMAGES names their folder$"):
        catalog.system("dpr-small")


def test_two_systems_of_one_name_are_refused(images: Path) -> None:
    plant(images, "tantivy", "bm25")
    with pytest.raises(FileError, match=r"tantivy/systems/bm25.toml: the engine 'lucene' has a system of this name"):
        catalog.systems(images)


@pytest.mark.parametrize("name", ["My System", "UPPER", "-x", "ü"])
def test_a_name_that_no_container_or_run_could_bear_is_refused(images: Path, name: str) -> None:
    plant(images, "x", name)
    with pytest.raises(FileError, match="system names are lower-case letters"):
        catalog.systems(images)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("surprise = 1\n", "unknown key 'surprise'"),
        ("[serach_params]\nk1 = 1\n", r"unknown key 'serach_params'; did you mean 'search_params'\?"),
        ("[search_params]\nk1 = [1, 2]\n", r"key 'search_params.k1"),
        ("[search_params]\nk1 = nan\n", r"key 'search_params.k1"),
        (ASSET.replace(SHA, "123"), "'w.bin': a sha256 has 64 hex digits, this has 3"),
        (ASSET.replace("w.bin", "../w.bin"), "must lie inside the folder"),
        (ASSET.replace("w.bin", "/w.bin"), "must lie inside the folder"),
        (ASSET + 'revision = "main"\n', "key 'assets.0.revision'"),
        (ASSET.replace('licence = "MIT"\n', ""), "key 'assets.0.licence' is missing"),
        (ASSET + 'files = ["w.bin"]\n', "each file is named once: in sha256 with its checksum, or in files without"),
        (ASSET.split("sha256")[0], "each file is named once"),
        (UNPINNED.replace("w.bin", "../w.bin"), "must lie inside the folder"),
    ],
)
def test_a_wrong_system_file_says_what_is_wrong(images: Path, text: str, said: str) -> None:
    plant(images, "x", "y", text)
    with pytest.raises(FileError, match=f"x/systems/y.toml: .*{said}"):
        catalog.systems(images)


def test_own_engines_stand_beside_the_shipped_ones(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(images, "mine", "my-system")
    (images / "lucene" / "systems" / "bm25.toml").unlink()
    monkeypatch.setenv("HARNESS_IMAGES", str(images))
    assert {"bm25", "minilm", "my-system"} <= catalog.systems().keys()


def test_a_wrong_harness_images_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_IMAGES", "/no/such/folder")
    with pytest.raises(FileError, match="HARNESS_IMAGES: /no/such/folder is no folder"):
        catalog.systems()


def test_what_is_shipped_can_be_read() -> None:
    systems = catalog.systems(catalog.images_dir())
    assert systems["bm25"].params["k1"] == 0.9 and systems["bm25"].params["b"] == 0.4
    assert all(system.description for system in systems.values())


def test_a_system_that_is_not_pinned_is_listed_and_marked(images: Path) -> None:
    plant(images, "x", "y", UNPINNED)
    plant(images, "x", "z", ASSET)
    systems = catalog.systems(images)
    assert [systems[name].unpinned for name in ("bm25", "y", "z")] == [(), ("y",), ()]
    plant(images, "x", "part", ASSET + 'files = ["vocab.txt"]\n')
    assert catalog.system("part", images).unpinned == ("part",), "a pinned half is not pinned"
    assert systems["y"].told == "a system [not pinned: harness pin y]" and systems["z"].told == "a system"
    assert systems["y"].system_assets[0].names == systems["z"].system_assets[0].names == ("w.bin",)


def test_a_system_made_of_others_is_marked_for_both(images: Path) -> None:
    plant(images, "x", "y", UNPINNED + 'revision = "' + "0" * 40 + '"\n')
    plant(images, "x", "z", 'stand_in = "a small checkpoint"\n')
    plant(images, "fusion", "both", 'components = ["y", "z"]\n')
    both = catalog.system("both", images)
    assert both.unpinned == ("y",)
    assert both.told == "a system [not pinned: harness pin y] [† a small checkpoint]"


def test_what_all_systems_of_an_engine_share_must_be_pinned(images: Path) -> None:
    plant(images, "x", "y", engine_text=UNPINNED)
    with pytest.raises(FileError, match=r"x/engine.toml: key 'assets': .* give sha256, not files"):
        catalog.systems(images)


def test_the_users_file_pins_a_shipped_system_and_replaces_no_pinned_one(tmp_path: Path) -> None:
    shipped, own = tmp_path / "shipped", tmp_path / "own"
    plant(shipped, "x", "y", UNPINNED)
    pinned = UNPINNED.replace('files = ["w.bin"]', f'revision = "{"0" * 40}"\nsha256 = {{ "w.bin" = "{SHA}" }}')
    plant(own, "x", "y", pinned)
    assert catalog.system("y", shipped, own).unpinned == ()
    for other in (
        "[search_params]\nk1 = 1.2\n" + pinned,
        pinned.replace("a/m", "b/m"),
        pinned.replace("w.bin", "v.bin"),
        pinned + pinned.replace('"m"', '"n"'),
    ):
        plant(own, "x", "y", other)
        with pytest.raises(FileError, match="has a system of this name"):
            catalog.systems(shipped, own)
    plant(own, "x", "y", pinned)
    plant(shipped, "x", "y", pinned)
    with pytest.raises(FileError, match=r"own/x/systems/y.toml: the engine 'x' has a system of this name"):
        catalog.systems(shipped, own)
    plant(shipped, "x", "y", UNPINNED)
    (own / "x").rename(own / "other")
    with pytest.raises(FileError, match=r"own/other/systems/y.toml: the engine 'x' has a system of this name"):
        catalog.systems(shipped, own)


def test_what_an_engine_has_no_image_for_is_said_with_its_reason(images: Path) -> None:
    stated = '[[not_for]]\nplatform = "linux/arm64"\nreason = "its compiler knows x86-64 alone"\n'
    plant(images, "x", "y", engine_text=stated)
    plant(images, "z", "gpu", engine_text=stated.replace('reason = "', 'accelerator = "cuda"\nreason = "'))
    bound, able = catalog.system("y", images), catalog.system("gpu", images)
    assert bound.told.endswith("[not for linux/arm64: its compiler knows x86-64 alone]") and bound.lacking is None
    assert bound.made_for(ARM64).lacking == "engine 'x' has no linux/arm64 image: its compiler knows x86-64 alone"
    (able.engine_dir / "requirements-cuda.lock").touch()
    assert "[not" not in able.told and able.made_for(ARM64).lacking is None and able.on(1).lacking is None
    assert (able.on(1).made_for(ARM64).lacking or "").startswith("engine 'z' has no linux/arm64 image for GPUs: its")


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ('platform = "linux/arm64"\n', "reason"),
        ('platform = "linux/arm64"\nreason = ""\n', "reason"),
        ('platform = "arm64"\nreason = "none"\n', "platform"),
    ],
)
def test_nothing_is_left_out_without_a_reason(images: Path, stated: str, said: str) -> None:
    plant(images, "x", "y", engine_text=f"[[not_for]]\n{stated}")
    with pytest.raises(FileError, match=f"engine.toml: .*{said}"):
        catalog.systems(images)

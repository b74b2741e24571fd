"""Tests of the sources of assets and wheels; nothing incomplete or wrong is used."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import subprocess
import tarfile
import time
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import filesystem
from harness.errors import ImageError, StoreError
from harness.launch.images import assets, registry
from harness.launch.images.asset import Asset
from harness.launch.images.systems import System
from tests.fuzz import archive_changes
from tests.support import job_fixtures, package_index, wheel_file

FILES = {"config.json": b"{}", "weights.bin": b"\x00\x01" * 500}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def asset(**keys: object) -> tuple[Asset, ...]:
    declared = {"folder": "model", "licence": "MIT", "sha256": {name: sha256(data) for name, data in FILES.items()}}
    return (Asset.model_validate({**declared, **keys}),)


def write(folder: Path, files: dict[str, bytes] | None = None) -> Path:
    folder.mkdir(parents=True)
    for name, data in (files or FILES).items():
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Block the real hub and the real index unless a test requests them."""
    monkeypatch.setattr(assets, "_quiet_python", lambda *_: "no network")
    monkeypatch.setattr(assets, "_pip_download", lambda *_: "no network")
    monkeypatch.setattr(registry, "download", lambda *_: "no network")


@pytest.mark.parametrize("place", ["model", "someone/model-v1"])
def test_local_folder_is_found_by_asset_name_or_hub_id(tmp_path: Path, place: str) -> None:
    write(tmp_path / "models" / place)
    toy = asset(hub="someone/model-v1", revision="0" * 40)
    tree = assets.fetch("toy", toy, tmp_path / "cache", tmp_path / "models")
    assert {path.name: path.read_bytes() for path in (tree / "model").iterdir()} == FILES


def test_cached_files_need_no_source_and_a_corrupt_one_is_fetched_again(tmp_path: Path) -> None:
    write(tmp_path / "models" / "model")
    tree = assets.fetch("toy", asset(), tmp_path / "cache", tmp_path / "models")
    assert assets.fetch("toy", asset(), tmp_path / "cache", None) == tree
    (tree / "model" / "config.json").write_bytes(b"[]")
    again = assets.fetch("toy", asset(), tmp_path / "cache", tmp_path / "models")
    assert (again / "model" / "config.json").read_bytes() == b"{}"


def test_wrong_checksum_names_the_file_and_both_checksums(tmp_path: Path) -> None:
    write(tmp_path / "models" / "model", {**FILES, "weights.bin": b"other"})
    with pytest.raises(ImageError) as caught:
        assets.fetch("toy", asset(), tmp_path / "cache", tmp_path / "models")
    message = str(caught.value)
    assert "model/weights.bin" in message
    assert sha256(b"other") in message
    assert sha256(FILES["weights.bin"]) in message
    assert "\n" not in message
    assert not (tmp_path / "cache" / "assets").exists()
    assert not (tmp_path / "cache" / "files" / sha256(FILES["weights.bin"])).exists()


def test_file_that_changes_after_its_check_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models, real = write(tmp_path / "models" / "model"), filesystem.sha256

    def swapped(path: Path) -> str:
        found = real(path)
        if path.parent == models:
            path.write_bytes(b"another content")
        return found

    monkeypatch.setattr(filesystem, "sha256", swapped)
    tree = assets.fetch("toy", asset(), tmp_path / "cache", tmp_path / "models")
    assert {path.name: path.read_bytes() for path in (tree / "model").iterdir()} == FILES


def test_missing_file_names_all_tried_sources(tmp_path: Path) -> None:
    toy = asset(hub="someone/model", revision="0" * 40, package="toy==1", package_sha256="a" * 64)
    with pytest.raises(ImageError) as caught:
        assets.fetch("toy", toy, tmp_path / "cache", tmp_path)
    for part in ("toy: ", "config.json, weights.bin", "hub does not answer", "not in the local folder", "no network"):
        assert part in str(caught.value)


def test_unpinned_asset_is_refused_before_any_download(tmp_path: Path) -> None:
    write(tmp_path / "models" / "model")
    (pinned,) = asset()
    bare = Asset(folder="model", licence="MIT", hub="someone/model", files=tuple(FILES))
    line = (
        "system 'toy': files of model have no sha256 yet, so their content is unknown; "
        "`harness run` pins them where the model hub answers or --models DIR has them"
    )
    with pytest.raises(ImageError, match=line):
        assets.fetch("toy", (pinned, bare), tmp_path / "cache", tmp_path / "models")
    assert not (tmp_path / "cache").exists()


def test_hub_is_tried_first_and_other_sources_fill_gaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def hub(script: str, arguments: list[str], timeout_s: float | None) -> None:
        asked.append(arguments)
        if "hf_hub_download" in script:  # only one of the two files arrives
            (Path(arguments[2]) / "config.json").write_bytes(FILES["config.json"])

    monkeypatch.setattr(assets, "_quiet_python", hub)
    write(tmp_path / "models" / "model")
    (tmp_path / "models" / "model" / "config.json").write_bytes(b"not looked at")
    toy = asset(hub="someone/model", revision="a" * 40)
    assets.fetch("toy", toy, tmp_path / "cache", tmp_path / "models")
    assert asked[0] == ["someone/model", "a" * 40]
    assert asked[1][3:] == ["config.json", "weights.bin"]


def offered(monkeypatch: pytest.MonkeyPatch, package: bytes) -> None:
    """Let the index have one distribution."""

    def download(wanted: registry.Distribution, target: Path) -> None:
        assert wanted == registry.Distribution("toy", "1", "b" * 64)
        target.write_bytes(package)

    monkeypatch.setattr(registry, "download", download)


@pytest.mark.parametrize("pack", [wheel_file.packed, package_index.sdist])
def test_only_members_are_extracted_from_a_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[dict[str, bytes]], bytes]
) -> None:
    offered(monkeypatch, pack({**{f"toy/data/{name}": data for name, data in FILES.items()}, "../evil": b"out"}))
    toy = asset(package="toy==1", package_folder="toy/data", package_sha256="b" * 64)
    tree = assets.fetch("toy", toy, tmp_path / "cache", None)
    assert {path.name: path.read_bytes() for path in (tree / "model").iterdir()} == FILES
    assert not list(tmp_path.rglob("evil"))


def test_name_that_a_wheel_has_twice_spares_the_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (first, content), *others = FILES.items()
    with io.BytesIO() as packed, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the name that comes twice
        with zipfile.ZipFile(packed, "w") as archive:
            for name, data in ((first, b"old"), (first, content), *others):
                archive.writestr(name, data)
        offered(monkeypatch, packed.getvalue())
    tree = assets.fetch("toy", asset(package="toy==1", package_sha256="b" * 64), tmp_path / "cache", None)
    assert {path.name: path.read_bytes() for path in (tree / "model").iterdir()} == FILES


def test_link_in_an_sdist_is_not_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with io.BytesIO() as packed:
        with tarfile.open(fileobj=packed, mode="w:gz") as sdist:
            entry = tarfile.TarInfo("config.json")
            entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
            sdist.addfile(entry)
        offered(monkeypatch, packed.getvalue())
    with pytest.raises(ImageError, match=r"cannot find config\.json"):
        assets.fetch("toy", asset(package="toy==1", package_sha256="b" * 64), tmp_path / "cache", None)


def damaged_lzma() -> bytes:
    """Damaged LZMA raises an error of its own, and its header may ask for 4 GiB of memory."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("config.json", bytes(1000))
    damaged = bytearray(packed.getvalue())
    start = damaged.index(b"config.json") + len("config.json") + 9  # behind the properties of LZMA
    damaged[start : start + 9] = b"\xff" * 9
    return bytes(damaged)


BOMB = wheel_file.packed({"config.json": bytes(2 << 20)})
WHEELS = {
    "cut": (lambda: BOMB[:-30], ""),
    "bomb": (lambda: BOMB, ""),
    "empty": (lambda: b"", ""),
    "lzma": (damaged_lzma, "wheels hold plain or deflated files"),
    "very many files": (lambda: archive_changes.zip_of_many(200_000), "its list of files has more than 8 MiB"),
}


@pytest.mark.parametrize("kind", WHEELS)
def test_damaged_or_hostile_wheel_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    package, reason = WHEELS[kind]
    monkeypatch.setattr(assets, "_MAX_UNPACKED_BYTES", 1 << 20)
    offered(monkeypatch, package())
    with pytest.raises(ImageError, match=rf"cannot find config\.json.*cannot be unpacked: {reason}") as caught:
        assets.fetch("toy", asset(package="toy==1", package_sha256="b" * 64), tmp_path / "cache", None)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_silent_hub_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    start = time.monotonic()
    assert assets._quiet_python("import time; time.sleep(60)", [], 0.2) == "no answer in 0.2 s"
    assert time.monotonic() - start < 5


def test_failed_script_prints_nothing(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.undo()
    assert assets._quiet_python("print('noise'); raise OSError('the reason')", [], None) == "OSError: the reason"
    assert assets._quiet_python("import sys; sys.exit(3)", [], None) == "exit code 3"
    assert capfd.readouterr() == ("", "")


def lock(folder: Path, text: str = f"toy==1 --hash=sha256:{'0' * 64}\n") -> Path:
    folder.mkdir()
    (folder / "requirements.lock").write_text(text)
    return folder / "requirements.lock"


def test_extra_indexes_are_used_only_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []

    def download(_requirements: str, target: Path, _platform: str, *options: str) -> str | None:
        calls.append("https://wheels.example/cpu" in options)
        (target / "toy.whl").touch()
        return None if calls[-1] else "No matching distribution found for toy==1"

    monkeypatch.setattr(assets, "_pip_download", download)
    place = assets.wheels(lock(tmp_path / "toys"), ("https://wheels.example/cpu",), tmp_path / "cache")
    assert calls == [False, True]
    assert [path.name for path in place.iterdir()] == ["toy.whl"]
    assets.wheels(tmp_path / "toys" / "requirements.lock", (), tmp_path / "cache")
    assert len(calls) == 2


def test_each_platform_gets_its_own_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[str]] = []

    def run_pip(*options: str) -> None:
        asked.append({value for key, value in itertools.pairwise(options) if key == "--platform"})

    monkeypatch.undo()
    monkeypatch.setattr(assets, "run_pip", run_pip)
    place = lock(tmp_path / "toys")
    x86, arm = (assets.wheels(place, (), tmp_path / "cache", platform) for platform in ("linux/amd64", "linux/arm64"))
    assert arm.name == f"{x86.name}-arm64"
    assert {"manylinux_2_36_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64", "linux_x86_64"} < asked[0]
    assert {"manylinux_2_36_aarch64", "manylinux2014_aarch64", "linux_aarch64"} < asked[1]
    assert all(name.endswith("_x86_64") for name in asked[0]) and all(name.endswith("_aarch64") for name in asked[1])


def test_a_failed_download_names_the_lock_and_the_requirement_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assets, "_pip_download", lambda *_: "No matching distribution found for toy==1")
    with pytest.raises(ImageError, match=r"packages of 'toys'.*toy==1.*check disk, network"):
        assets.wheels(lock(tmp_path / "toys"), (), tmp_path / "cache")
    assert not list((tmp_path / "cache" / "wheels").iterdir())


def test_an_interrupted_download_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: str, target: Path, *__: object) -> str | None:
        (target / "half.whl").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(assets, "_pip_download", interrupted)
    with pytest.raises(KeyboardInterrupt):
        assets.wheels(lock(tmp_path / "toys"), (), tmp_path / "cache")
    assert not list((tmp_path / "cache" / "wheels").iterdir())


def pip_that_knows(folder: Path, monkeypatch: pytest.MonkeyPatch, code: bytes) -> Path:
    """Offer one package to the real pip; return its wheel."""
    monkeypatch.undo()
    shelf = folder / "shelf"
    shelf.mkdir()
    (shelf / "toy-1-py3-none-any.whl").write_bytes(wheel_file.distribution("toy", code))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    return shelf / "toy-1-py3-none-any.whl"


@pytest.mark.slow
@pytest.mark.parametrize("right", [True, False])
def test_pip_itself_checks_the_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: bool) -> None:
    wheel = pip_that_knows(tmp_path, monkeypatch, b"")
    digest = sha256(wheel.read_bytes()) if right else "0" * 64
    engine = lock(tmp_path / "toys", f"toy==1 --hash=sha256:{digest}\n")
    if right:
        place = assets.wheels(engine, (), tmp_path / "cache")
        assert [path.name for path in place.iterdir()] == [wheel.name]
    else:
        with pytest.raises(ImageError, match="pip cannot download"):
            assets.wheels(engine, (), tmp_path / "cache")


@pytest.mark.slow
def test_pip_builds_no_file_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip takes a requirement that ends as archives do for a file; its backend would run here."""
    pip_that_knows(tmp_path, monkeypatch, b"")
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    evil = tmp_path / "cwd" / "evil==1.zip"
    with zipfile.ZipFile(evil, "w") as packed:
        packed.writestr(
            "evil-1/pyproject.toml", '[build-system]\nrequires=[]\nbuild-backend="evil"\nbackend-path=["."]\n'
        )
        packed.writestr("evil-1/evil.py", f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    engine = lock(tmp_path / "toys", f"{evil.name} --hash=sha256:{sha256(evil.read_bytes())}\n")
    with pytest.raises(ImageError, match="pip cannot download"):
        assets.wheels(engine, (), Path("cache"))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("code", [28, 122])
def test_download_onto_a_full_disk_is_a_host_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.undo()
    words = f"ERROR: Could not install packages due to an OSError: [Errno {code}] {os.strerror(code)}: '/x'\n\n"
    done = subprocess.CompletedProcess([], 1, stdout="", stderr=words)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(StoreError, match=f"{os.strerror(code)}: '/x'; make room"):
        assets.wheels(lock(tmp_path / "toys"), (), tmp_path / "cache")
    assert not list((tmp_path / "cache" / "wheels").iterdir())


def test_an_engine_without_packages_has_an_empty_wheelhouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    place = assets.wheels(lock(tmp_path / "toys", ""), (), tmp_path / "cache")
    assert not list(place.iterdir())


def _needing(name: str, **keys: str) -> System:
    return job_fixtures.system(name).model_copy(update={"assets": asset(folder=name, **keys)})


def test_weights_that_cannot_be_had_are_foreseen_with_one_question_to_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def silent(_script: str, arguments: list[str], _timeout_s: float) -> str:
        asked.append(arguments[0])
        return "no answer"

    listed: list[str] = []

    def missing(wanted: registry.Distribution) -> str | None:
        listed.append(wanted.project)
        return None if wanted.project == "toy" else "the index does not answer"

    monkeypatch.setattr(assets, "_quiet_python", silent)
    monkeypatch.setattr(registry, "missing", missing)
    hub = {"hub": "someone/model", "revision": "a" * 40}
    systems = {
        "first": _needing("first", **hub),
        "second": _needing("second", **hub),
        "local": _needing("local", **hub),
        "packed": _needing("packed", **hub, package="toy==1", package_sha256="b" * 64),
        "packed-too": _needing("packed-too", **hub, package="toy==1", package_sha256="b" * 64),
        "gone": _needing("gone", **hub, package="other==1", package_sha256="b" * 64),
    }
    write(tmp_path / "models" / "local")
    found = assets.lacking(systems, tmp_path / "cache", tmp_path / "models")
    assert found == {
        name: f"{name}: cannot find config.json, weights.bin of {name!r}: the hub does not answer for someone/model;"
        f" not in the local folder {tmp_path / 'models' / name}; {index}connect to the network, or name a"
        f" folder with --models DIR that has the files under {name}/"
        for name, index in (
            ("first", ""),
            ("second", ""),
            ("gone", "cannot download other==1: the index does not answer; "),
        )
    }
    assert asked == ["someone/model"] and listed == ["toy", "other"], "each is asked once"
    (tmp_path / "cache" / "files").mkdir(parents=True)
    for data in FILES.values():
        (tmp_path / "cache" / "files" / sha256(data)).write_bytes(data)
    assert assets.lacking(systems, tmp_path / "cache", None) == {}, "the cache has them"


def test_nothing_is_foreseen_where_the_hub_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets, "_quiet_python", lambda *_: None)
    system = _needing("first", hub="someone/model", revision="a" * 40)
    assert assets.lacking({"first": system}, tmp_path / "cache", None) == {}


def test_files_without_checksums_are_lacking_unless_a_folder_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assets, "_quiet_python", lambda *_: "no network")
    bare = Asset.model_validate({"folder": "m", "licence": "MIT", "hub": "a/m", "files": ["w.bin"]})
    systems = {"bare": job_fixtures.system("bare").model_copy(update={"assets": (bare,)})}
    found = assets.lacking(systems, tmp_path / "cache", tmp_path / "models")
    assert found["bare"].startswith("bare: cannot find w.bin of 'm': the hub does not answer for a/m")
    (tmp_path / "models" / "m").mkdir(parents=True)
    (tmp_path / "models" / "m" / "w.bin").touch()
    assert assets.lacking(systems, tmp_path / "cache", tmp_path / "models") == {}


def test_hub_that_lacks_one_model_may_have_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def hub(_script: str, arguments: list[str], _timeout_s: float) -> str | None:
        asked.append(arguments[0])
        return None if arguments[0] == "someone/there" else "404"

    monkeypatch.setattr(assets, "_quiet_python", hub)
    models = {"first": "someone/gone", "second": "someone/gone", "third": "someone/there", "fourth": "someone/more"}
    systems = {name: _needing(name, hub=model, revision="a" * 40) for name, model in models.items()}
    assert list(assets.lacking(systems, tmp_path / "cache", None)) == ["first", "second"]
    assert asked == ["someone/gone", "someone/there"]


def test_files_in_a_system_s_tree_are_not_lacking(tmp_path: Path) -> None:
    system, models = _needing("first"), tmp_path / "models"
    write(models / "first")
    assets.fetch("first", system.assets, tmp_path / "cache", models)
    for path in (tmp_path / "cache" / "files").iterdir():
        path.unlink()
    assert assets.fetch("first", system.assets, tmp_path / "cache", None).is_dir()
    assert assets.lacking({"first": system}, tmp_path / "cache", None) == {}

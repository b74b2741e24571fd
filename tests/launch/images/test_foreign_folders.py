"""A stranger's folder of an engine, of a system or of models: no name and no link in it leads out of it."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from harness.containment import tar_entries
from harness.errors import FileError, ImageError
from harness.launch.images import assets, catalog, pins, recipes
from harness.launch.images.asset import Asset
from harness.remote import bundle
from harness.untrusted import ForeignText
from tests.support.command_line import call

SECRET = b"aws_secret_access_key = hunter2\n"
SHA = "0" * 64


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the host that no image may have."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "credentials").write_bytes(SECRET)
    return tmp_path / "home" / "credentials"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stranger's engine among the user's own."""
    folder = tmp_path / "images" / "strange"
    (folder / "systems").mkdir(parents=True)
    (folder / "package").mkdir()
    texts = {
        **dict.fromkeys(("adapter.py", "requirements.lock", "package/__init__.py"), ""),
        "Dockerfile": "ARG BASE\nFROM $BASE\n",
        "engine.toml": 'description = "an engine"\nshared = ["part"]\n',
        "systems/odd.toml": 'description = "a"\n',
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    (tmp_path / "images" / "shared" / "part").mkdir(parents=True)
    (tmp_path / "images" / "shared" / "part" / "code.py").write_text("")
    monkeypatch.setenv("HARNESS_IMAGES", str(tmp_path / "images"))
    return folder


def context(name: str, wheels: Path) -> dict[str, bytes]:
    """Return the files of the build context of a system's engine."""
    system, packed = catalog.system(name), io.BytesIO()
    wheels.mkdir(exist_ok=True)
    folders = dict.fromkeys((*system.shared_locks.values(), system.lock), wheels)
    recipes.write_tar(packed, recipes.engine_context(system, folders, wheels, {"BASE": "base"}))
    packed.seek(0)
    return {entry.name: content.read() for entry, content in tar_entries(packed, most_bytes=1 << 20) if content}


_OWN = "notes.txt Dockerfile adapter.py requirements.lock engine.toml systems/odd.toml package/secret.py package"
_SHARED = "part/secret.py part/requirements.lock part/stages.Dockerfile part"
LINKS = (*(f"strange/{name}" for name in _OWN.split()), *(f"shared/{name}" for name in _SHARED.split()))


@pytest.mark.slow
@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("relative", [False, True], ids=["absolute", "relative"])
def test_link_out_of_an_engines_folder_is_refused(
    engine: Path, secret: Path, tmp_path: Path, name: str, relative: bool
) -> None:
    path = engine.parent / name
    target = secret
    if path.is_dir():
        target = shutil.copytree(path, secret.parent / "folder")
        shutil.copyfile(secret, target / "secret.py")
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent) if relative else target)
    with pytest.raises(FileError, match=re.escape(f"{path}: is a link out of ")):
        context("odd", tmp_path / "wheels")
    if target == secret and name.startswith("strange"):
        with pytest.raises(FileError, match="is a link out of "):
            bundle.bundle_entries()
    else:  # folders that are links are not walked, and shared ones are not shipped
        assert all(
            content != SECRET and getattr(content, "name", "") != "secret.py" for _, content in bundle.bundle_entries()
        )


@pytest.mark.slow
def test_link_within_an_engines_folder_is_followed(engine: Path, tmp_path: Path) -> None:
    (engine / "more.py").symlink_to("adapter.py")
    (engine / "adapter.py").write_text("text\n")
    assert context("odd", tmp_path / "wheels")["more.py"] == b"text\n"
    assert any(name == "own-images/strange/more.py" for name, _ in bundle.bundle_entries())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('hub = "/etc"', "hub"),
        ('hub = "../x"', "hub"),
        ('hub = "a/../../x"', "hub"),
        ('hub = "a/b/c"', "hub"),
        ('hub = "a/..hidden"', "hub"),
        ('files = ["../passwd"]', "files"),
        ('files = ["/etc/passwd"]', "files"),
        ('files = ["a\\\\..\\\\b"]', "files"),
        ('files = ["a\\nb"]', "files"),
        ('files = ["."]', "files"),
        ('folder = "../m"', "folder"),
        ('package = "evil @ https://evil.example/evil.tar.gz#x==1"', "package"),
        ('package = "evil==1\\n--index-url=https://evil.example"', "package"),
        ('package = "evil==1 --pre"', "package"),
        ('package = "evil==1;x"', "package"),
        ('package = "./evil==1"', "package"),
        ('package = "-e==1"', "package"),
        ('package = "evil==1"\npackage_folder = "../../etc"', "package_folder"),
    ],
)
def test_system_that_names_another_place_is_refused_in_one_line(engine: Path, line: str, key: str) -> None:
    names = {"folder": '"m"', "licence": '"MIT"', "files": '["w.bin"]', "hub": '"a/m"', "package_sha256": f'"{SHA}"'}
    names |= {part.partition(" = ")[0]: part.partition(" = ")[2] for part in line.split("\n")}
    table = "\n".join(f"{name} = {value}" for name, value in names.items())
    (engine / "systems" / "odd.toml").write_text(f'description = "a"\n[[assets]]\n{table}\n')
    for command in (["images", "odd"], ["systems", "odd"], ["pin", "odd"]):
        done = call(*command)
        assert done.exit_code == 2 and len(done.stderr.strip().split("\n")) == 1, done.output
        assert f"odd.toml: key 'assets.0.{key}" in done.stderr


@pytest.mark.parametrize(
    "line", ['shared = ["../../../etc"]', 'shared = ["/etc"]', 'extra_indexes = ["https://evil.example/simple"]']
)
def test_engine_that_names_another_place_is_refused(engine: Path, line: str) -> None:
    (engine / "engine.toml").write_text(f'description = "a"\n{line}\n')
    with pytest.raises(FileError, match=rf"engine\.toml: key '{line.split()[0]}\.0'"):
        catalog.system("odd")


def test_lock_with_a_url_is_refused_before_any_download(engine: Path, tmp_path: Path) -> None:
    (engine / "requirements.lock").write_text(f"evil @ https://evil.example/evil.tar.gz --hash=sha256:{SHA}\n")
    with pytest.raises(FileError, match=r"requirements\.lock:1: .* is not a pinned package"):
        assets.wheels(engine / "requirements.lock", (), tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def model(content: bytes, pinned: bool = True) -> Asset:
    files = {"sha256": {"w.bin": hashlib.sha256(content).hexdigest()}} if pinned else {"files": ("w.bin",)}
    return Asset.model_validate({"folder": "m", "licence": "MIT", "hub": "org/m", **files})


def read_models(asset: Asset, folder: Path) -> bytes:
    tree = assets.fetch("odd", (asset,), folder.parent / "cache", folder)
    return (tree / "m" / "w.bin").read_bytes()


@pytest.mark.parametrize("place", ["m/w.bin", "m", "org/m", "org"])
def test_link_out_of_a_models_folder_is_refused(secret: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "outside" / "m").mkdir(parents=True)
    for folder in ("outside", "outside/m"):
        shutil.copyfile(secret, tmp_path / folder / "w.bin")
    link = tmp_path / "models" / place
    link.parent.mkdir(parents=True)
    link.symlink_to(secret if place.endswith(".bin") else tmp_path / "outside")
    for use in (
        lambda: read_models(model(SECRET), tmp_path / "models"),
        lambda: pins.from_folder(model(SECRET, pinned=False), tmp_path / "models"),
    ):
        with pytest.raises((FileError, ImageError), match="is a link out of "):
            use()


def test_link_into_the_hubs_cache_of_the_model_is_followed(tmp_path: Path) -> None:
    cache = tmp_path / "hub" / "models--org--m"
    (cache / "blobs").mkdir(parents=True)
    (cache / "snapshots" / "abc").mkdir(parents=True)
    (cache / "blobs" / "1").write_bytes(b"weights")
    (cache / "snapshots" / "abc" / "w.bin").symlink_to("../../blobs/1")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "m").symlink_to(cache / "snapshots" / "abc")
    assert read_models(model(b"weights"), tmp_path / "models") == b"weights"
    assert pins.from_folder(model(b"weights", pinned=False), tmp_path / "models").sha256 == model(b"weights").sha256
    other = model(b"weights").model_copy(update={"hub": "org/other"})
    with pytest.raises(FileError, match="is a link out of "):
        pins.from_folder(other, tmp_path / "models")


def test_model_that_is_a_link_to_itself_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "models" / "m").mkdir(parents=True)
    (tmp_path / "models" / "m" / "w.bin").symlink_to("w.bin")
    with pytest.raises(FileError, match=r"w\.bin: is a link that leads nowhere"):
        pins.from_folder(model(b"", pinned=False), tmp_path / "models")


@pytest.mark.parametrize("name", ["a;b", "a\nb", "-x", "A", ".hidden", "\x1b[31m", "\udcff", "a" * 64])
def test_engine_with_an_odd_name_is_refused(engine: Path, name: str) -> None:
    engine.rename(engine.parent / name)
    with pytest.raises(FileError, match="engine names are lower-case letters"):
        catalog.system("odd")


@pytest.mark.parametrize("name", ["engine", "engine-strange", "base", "base-0123456789ab", "toolchain"])
def test_system_does_not_take_the_name_of_another_image(engine: Path, name: str) -> None:
    """The build of ``engine-strange`` would hold the lock that the build of its engine waits for."""
    (engine / "systems" / "odd.toml").rename(engine / "systems" / f"{name}.toml")
    with pytest.raises(FileError, match=r"images that are not a system's have names that begin with '[a-z]+'"):
        catalog.system(name)


def test_file_whose_name_is_not_text_is_refused(engine: Path) -> None:
    (engine / "\udcff.py").touch()
    with pytest.raises(FileError, match="a name must stay below"):
        recipes.recipe(catalog.system("odd"))


def test_component_without_an_adapter_is_one_line(engine: Path) -> None:
    (engine / "adapter.py").unlink()
    system = catalog.system("odd")
    with pytest.raises(FileError, match=r"adapter\.py: no such file; a component needs it"):
        recipes.components_json(system.model_copy(update={"components": (system,)}), [{}])


@pytest.mark.slow
def test_git_reads_no_configuration_of_a_strangers_folder(
    engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repository's own configuration names programs that git runs, here as HARNESS_IMAGES is in the checkout."""
    monkeypatch.setattr(bundle, "data_root", lambda: tmp_path)
    for folder in (tmp_path, engine):
        subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    subprocess.run(["git", "-C", str(engine), "add", "engine.toml"], check=True)
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    program.chmod(0o755)
    subprocess.run(["git", "-C", str(engine), "config", "core.fsmonitor", str(program)], check=True)
    assert any(name == "own-images/strange/adapter.py" for name, _ in bundle.bundle_entries())
    assert not (tmp_path / "ran").exists()


def test_printed_pins_show_no_hidden_characters() -> None:
    licence = "MIT\u202e\x9b31m\x1b[2J \u00e4"
    asset = model(b"").model_copy(update={"licence": ForeignText(licence), "sha256": {"w\u2066": SHA}})
    text = pins.as_toml(asset)
    assert not set("\u202e\x9b\x1b\u2066") & set(text)
    (table,) = tomllib.loads(text)["assets"]
    assert (table["licence"], table["sha256"]) == (licence, {"w\u2066": SHA})


def test_pins_follow_no_link_out_of_the_folder(engine: Path, secret: Path) -> None:
    """The trial whether a file can be written makes no file elsewhere."""
    path = engine / "systems" / "odd.toml"
    made = secret.parent / "made"
    path.with_name(".odd.toml.probe").symlink_to(made)
    path.write_text('description = "a"\n[[assets]]\nfolder = "m"\nlicence = "MIT"\nhub = "org/m"\nfiles = ["w.bin"]\n')
    written, _ = pins.edited(catalog.system("odd"), [model(b"")])
    assert written == path and not made.exists()


def test_link_to_itself_is_one_line(engine: Path) -> None:
    (engine / "requirements.lock").unlink()
    (engine / "requirements.lock").symlink_to("requirements.lock")
    with pytest.raises(FileError, match=r"requirements\.lock"):
        recipes.engine_files(catalog.system("odd"))

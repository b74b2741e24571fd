"""``harness pin`` writes a system's pins and changes nothing else of its file."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli import main
from harness.errors import FileError, StoreError
from harness.launch.images import catalog
from harness.launch.images import pins as pins_images
from harness.launch.images.asset import Asset
from tests.support.model_hub import NO_HUB, Hub, chosen, git_hash, serve

OLD, NEW = "a" * 40, "b" * 40
WEIGHTS = b"\x00\x01\x02" * 700
MODEL = {"config.json": b'{"old": true}', "model.safetensors": WEIGHTS, "README.md": b"# a model"}
NEWER = {**MODEL, "config.json": b'{"old": false}'}

SYSTEM = """description = "a dense system"  # people read this

[search_params]
query_tokens = 32  # as published

# The weights.
[[assets]]
folder = "toy"
licence = "MIT"  # the card says so
hub = "someone/toy"  # the authors' own
files = [
  "config.json",  # small
  "model.safetensors",
]
"""


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serve(Hub({"someone/toy": {OLD: dict(MODEL), NEW: dict(NEWER)}}, {"someone/toy": "mit"})) as served:
        yield served


@pytest.fixture
def images(tmp_path: Path) -> Path:
    write_system(tmp_path / "images", SYSTEM)
    return tmp_path / "images"


def write_system(images: Path, text: str, engine: bool = True) -> Path:
    path = images / "toys" / "systems" / "toy.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    if engine:
        (images / "toys" / "engine.toml").write_text('description = "toys"\n', encoding="utf-8")
    return path


def harness(*arguments: str, images: Path, hub: str = NO_HUB) -> subprocess.CompletedProcess[str]:
    """The command line in this process, with another hub."""
    with pytest.MonkeyPatch.context() as patch, chosen(hub):
        patch.setenv("HARNESS_IMAGES", str(images))
        done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def by_itself(*arguments: str, images: Path, hub: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in its own process, so that output of libraries shows."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
    environment |= {"HARNESS_IMAGES": str(images), "HF_ENDPOINT": hub, "HF_HOME": str(images.parent / "hf")}
    command = [sys.executable, "-m", "harness", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def assets(text: str) -> list[dict[str, object]]:
    return tomllib.loads(text)["assets"]


@pytest.mark.slow
def test_pin_prints_the_newest_commit_without_downloading_weights(images: Path, hub: Hub) -> None:
    done = by_itself("pin", "toy", images=images, hub=hub.url)
    assert (done.returncode, done.stderr) == (0, "")
    pins = {"config.json": sha256(NEWER["config.json"]), "model.safetensors": sha256(WEIGHTS)}
    told = {"folder": "toy", "licence": "MIT", "hub": "someone/toy", "revision": NEW, "sha256": pins}
    assert assets(done.stdout) == [told]
    assert hub.downloaded == ["config.json"]
    assert (images / "toys/systems/toy.toml").read_text() == SYSTEM, "printing changes nothing"


@pytest.mark.slow
def test_pin_write_leaves_the_rest_of_the_file(images: Path, hub: Hub) -> None:
    done = harness("pin", "toy", "--write", images=images, hub=hub.url)
    path = images / "toys/systems/toy.toml"
    assert (done.returncode, done.stdout) == (0, f"{path}: 2 files pinned\n")
    head, tail = SYSTEM.split("files = [")[0].splitlines(), path.read_text().splitlines()
    assert tail[: len(head)] == head, "comments and keys stay where they stood"
    assert tail[len(head) :] == [
        f'revision = "{NEW}"',
        "",
        "[assets.sha256]",
        f'"config.json" = "{sha256(NEWER["config.json"])}"',
        f'"model.safetensors" = "{sha256(WEIGHTS)}"',
    ]
    again = harness("pin", "toy", "--write", images=images, hub=hub.url)
    assert again.returncode == 0 and path.read_text().splitlines() == tail, "a second time changes nothing"


@pytest.mark.slow
def test_pin_keeps_a_named_revision_without_newest(images: Path, hub: Hub) -> None:
    write_system(images, SYSTEM.replace("files = [", f'revision = "{OLD}"\nfiles = ['))
    kept = assets(harness("pin", "toy", images=images, hub=hub.url).stdout)[0]
    newest = assets(harness("pin", "toy", "--newest", images=images, hub=hub.url).stdout)[0]
    assert [kept["revision"], newest["revision"]] == [OLD, NEW]
    assert kept["sha256"]["config.json"] == sha256(MODEL["config.json"])
    assert newest["sha256"]["config.json"] == sha256(NEWER["config.json"])


@pytest.mark.slow
def test_pin_warns_when_the_hub_gives_another_licence(images: Path, hub: Hub) -> None:
    hub.licences["someone/toy"] = "cc-by-nc-4.0"
    done = harness("pin", "toy", images=images, hub=hub.url)
    assert done.stderr == "toy: the hub gives the licence of someone/toy as 'cc-by-nc-4.0', the file as 'MIT'\n"
    assert done.returncode == 0


@pytest.mark.slow
def test_pin_refuses_a_changed_file_without_newest(images: Path, hub: Hub, tmp_path: Path) -> None:
    known = f'files = ["config.json"]\n\n[assets.sha256]\n"model.safetensors" = "{"0" * 64}"\n'
    path = write_system(images, SYSTEM.split("files = [")[0] + known)
    message = f"model.safetensors has the sha256 {sha256(WEIGHTS)}, the system's file says {'0' * 64}"
    done = harness("pin", "toy", "--write", images=images, hub=hub.url)
    assert done.returncode == 1
    assert f"someone/toy at {NEW[:12]}: {message}; correct 'model.safetensors', or pin with --newest" in done.stderr
    for name, content in MODEL.items():
        (tmp_path / "models/toy").mkdir(parents=True, exist_ok=True)
        (tmp_path / "models/toy" / name).write_bytes(content)
    local = harness("pin", "toy", "--models", str(tmp_path / "models"), "--write", images=images)
    assert (local.returncode, local.stderr) == (
        2,
        f"harness: {tmp_path}/models/toy: {message}; replace that file\n",
    )
    assert "0" * 64 in path.read_text()
    newest = harness("pin", "toy", "--newest", "--write", images=images, hub=hub.url)
    assert (newest.returncode, newest.stderr) == (0, f"toy: {message}\n")
    assert assets(path.read_text())[0]["sha256"]["model.safetensors"] == sha256(WEIGHTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ("no hub", "the hub does not answer for someone/toy: [Errno 111] Connection refused; connect to it, or give"),
        ("no model", "the hub has no model someone/toy; correct the name, log in for a private one, or give the files"),
        ("gated", "the hub restricts access to someone/toy; log in"),
        ("no revision", "the hub's someone/toy has no such revision; correct it, or pin with --newest"),
        ("no file", f"the hub's someone/toy has no model.safetensors at {NEW[:12]}, it has README.md, config.json;"),
    ],
)
def test_hub_failure_is_one_line(images: Path, hub: Hub, asked: str, line: str) -> None:
    if asked == "no model":
        hub.models.clear()
    elif asked == "gated":
        hub.gated.add("someone/toy")
    elif asked == "no revision":
        write_system(images, SYSTEM.replace("files = [", f'revision = "{"c" * 40}"\nfiles = ['))
    elif asked == "no file":
        del hub.models["someone/toy"][NEW]["model.safetensors"]
    run, url = (by_itself, NO_HUB) if asked == "no hub" else (harness, hub.url)
    done = run("pin", "toy", "--write", images=images, hub=url)
    assert done.returncode == 1 and done.stderr.startswith(f"harness: {line}")
    assert done.stderr.count("\n") == 1
    assert "sha256" not in (images / "toys/systems/toy.toml").read_text()


def test_full_disk_is_not_blamed_on_the_hub() -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with (
        pytest.raises(StoreError, match="the hub's someone/model: the disk is full"),
        pins_images._hub_errors("someone/model"),
    ):
        raise full


def test_small_file_that_is_not_what_the_hub_says_is_refused(images: Path, hub: Hub) -> None:
    hub.changed["config.json"] = b'{"old": none}'
    done = harness("pin", "toy", images=images, hub=hub.url)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    said = f"config.json has the git hash {git_hash(hub.changed['config.json'])}, the hub says"
    assert f"the hub's someone/toy at {NEW[:12]}: {said} {git_hash(NEWER['config.json'])}; run this" in done.stderr


@pytest.mark.parametrize("place", ["toy", "someone/toy"])
def test_pin_reads_a_local_folder_without_a_hub(images: Path, tmp_path: Path, place: str) -> None:
    folder = tmp_path / "models" / place
    folder.mkdir(parents=True)
    for name, content in MODEL.items():
        (folder / name).write_bytes(content)
    done = harness("pin", "toy", "--models", str(tmp_path / "models"), "--write", images=images)
    assert done.returncode == 0, done.stderr
    told = assets((images / "toys/systems/toy.toml").read_text())[0]
    assert told["sha256"] == {name: sha256(MODEL[name]) for name in ("config.json", "model.safetensors")}
    assert "revision" not in told, "a local file does not tell of which commit it is"


def test_local_folder_without_a_file_is_one_line(images: Path, tmp_path: Path) -> None:
    (tmp_path / "models/toy").mkdir(parents=True)
    done = harness("pin", "toy", "--models", str(tmp_path / "models"), images=images)
    assert done.returncode == 2
    assert f"{tmp_path}/models/toy has no config.json, model.safetensors; add them" in done.stderr
    elsewhere = harness("pin", "toy", "--models", str(tmp_path), images=images)
    assert f"the folder {tmp_path}/toy or {tmp_path}/someone/toy does not exist; put the model's" in elsewhere.stderr


def test_pin_refuses_a_system_without_files(images: Path) -> None:
    write_system(images, 'description = "no weights"\n')
    done = harness("pin", "toy", images=images)
    assert (done.returncode, done.stderr) == (2, "harness: system 'toy' has no files to pin; it needs none\n")


def test_pins_go_to_the_users_folder_if_the_shipped_file_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped, own = tmp_path / "shipped", tmp_path / "own"
    path = write_system(shipped, SYSTEM)
    own.mkdir()
    monkeypatch.setattr(catalog, "images_dir", lambda: shipped)
    monkeypatch.setattr(pins_images, "_writable", lambda _: False)  # root may write everywhere
    monkeypatch.delenv("HARNESS_IMAGES", raising=False)
    system = catalog.system("toy")
    pinned = [system.assets[0].pinned(NEW, {"config.json": "0" * 64, "model.safetensors": "1" * 64})]
    with pytest.raises(FileError, match=r"cannot be written; set HARNESS_IMAGES .* toys/systems/toy.toml"):
        pins_images.edited(system, pinned)
    monkeypatch.setenv("HARNESS_IMAGES", str(own))
    place, text = pins_images.edited(system, pinned)
    assert place == own / "toys/systems/toy.toml"
    place.write_text(text)
    found = catalog.system("toy")
    assert not found.unpinned and found.engine_dir == path.parent.parent, "it takes the shipped one's place"


def test_each_asset_gets_its_own_pins() -> None:
    tail = "\n# Of searches.\n[search_params]\nk = 1  # few\n"
    text = (
        'description = "two encoders"\n\n'
        '[[assets]]\nfolder = "query"\nlicence = "MIT"\nhub = "a/q"\nfiles = ["w"]  # tiny\n\n'
        "# The documents' encoder.\n"
        f'[[assets]]\nfolder = "doc"\nlicence = "MIT"\nhub = "a/d"\nsha256 = {{ "w" = "{"0" * 64}" }}\n{tail}'
    )
    pinned = [asset("query", "a/q", OLD, "1"), asset("doc", "a/d", NEW, "2")]
    told = pins_images.with_pins(text, pinned, Path("two.toml"))
    assert told == (
        'description = "two encoders"\n\n'
        f'[[assets]]\nfolder = "query"\nlicence = "MIT"\nhub = "a/q"\nrevision = "{OLD}"\n\n'
        f'[assets.sha256]\n"w" = "{"1" * 64}"\n\n'
        "# The documents' encoder.\n"
        f'[[assets]]\nfolder = "doc"\nlicence = "MIT"\nhub = "a/d"\nrevision = "{NEW}"\n\n'
        f'[assets.sha256]\n"w" = "{"2" * 64}"\n{tail}'
    )
    assert pins_images.with_pins(told, pinned, Path("two.toml")) == told


def asset(folder: str, hub: str, revision: str, digit: str) -> Asset:
    declared = {"folder": folder, "licence": "MIT", "hub": hub, "revision": revision, "sha256": {"w": digit * 64}}
    return Asset.model_validate(declared)


def test_pins_are_refused_if_assets_are_no_tables() -> None:
    text = 'assets = [{ folder = "m", licence = "MIT", hub = "a/m", files = ["w"] }]\n'
    with pytest.raises(FileError, match=r"odd.toml: its \[\[assets\]\] cannot be edited safely"):
        pins_images.with_pins(text, [asset("m", "a/m", NEW, "3")], Path("odd.toml"))


def test_printed_tables_parse_back_to_the_asset() -> None:
    told = Asset(
        folder="m",
        licence="Apache-2.0",
        hub="a/m",
        revision=NEW,
        package="m==1",
        package_sha256="4" * 64,
        package_folder='a "quoted" folder',
        sha256={"ü.bin": "5" * 64},
    )
    assert [Asset.model_validate(table) for table in assets(pins_images.as_toml(told))] == [told]

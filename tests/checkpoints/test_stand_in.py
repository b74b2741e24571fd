"""A stand-in system keeps everything of the published system but the weights."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from checkpoints import stand_in
from harness.errors import FileError

PUBLISHED = """description = "A published one"
stand_in = "trained elsewhere"
fewer_hits_ok = true  # why

[build_params]
model = "theirs"
normalise = false
tokens = 300
scale = 51.2

[search_params]
label = "a \\"quoted\\" \\\\ café"

[[assets]]
folder = "theirs"
licence = "CC-BY-NC-4.0"
hub = "them/theirs"
revision = "d04a52f6d2f96c60117a925e8c24c4043a75f265"
[assets.sha256]
"pytorch_model.bin" = "0ddc5a54234cff6d13bc9411250a5479d9d96f3ffbace76d8a1884144377e434"
"""


@pytest.fixture
def published(tmp_path: Path) -> Path:
    path = tmp_path / "shipped" / "dense" / "systems" / "theirs.toml"
    path.parent.mkdir(parents=True)
    path.write_text(PUBLISHED, encoding="utf-8")
    return path


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models" / "theirs"
    (folder / "deeper").mkdir(parents=True)
    (folder / "config.json").write_bytes(b"{}")
    (folder / "deeper" / "model.safetensors").write_bytes(b"weights")
    return folder.parent


def test_stand_in_replaces_only_the_weights(published: Path, models: Path, tmp_path: Path) -> None:
    path = stand_in.write(published, "theirs-small", models=models, images=tmp_path / "images", note="random")
    assert path == tmp_path / "images" / "dense" / "systems" / "theirs-small.toml"
    theirs, ours = tomllib.loads(PUBLISHED), tomllib.loads(path.read_text(encoding="utf-8"))
    for key in ("fewer_hits_ok", "build_params", "search_params"):
        assert ours[key] == theirs[key]
    assert ours["stand_in"] == "random"
    (asset,) = ours["assets"]
    assert asset["folder"] == "theirs"
    assert not {"hub", "revision", "package"} & asset.keys(), "nothing is to be looked for elsewhere"
    assert asset["sha256"] == {
        "config.json": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
        "deeper/model.safetensors": "9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c",
    }


def test_changed_weights_are_rewritten_and_equal_weights_are_not(published: Path, models: Path, tmp_path: Path) -> None:
    def write() -> Path:
        return stand_in.write(published, "theirs-small", models=models, images=tmp_path / "images", note="random")

    first = write().stat()
    assert write().stat().st_mtime_ns == first.st_mtime_ns
    before = write().read_text(encoding="utf-8")
    (models / "theirs" / "config.json").write_bytes(b"{ }")
    assert write().read_text(encoding="utf-8") != before


def test_missing_weights_are_reported(published: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="this folder does not hold weights; make it first"):
        stand_in.write(published, "theirs-small", models=tmp_path, images=tmp_path, note="random")


def test_components_are_renamed_with_their_parameters(tmp_path: Path) -> None:
    joined = tmp_path / "fusion" / "systems" / "both.toml"
    joined.parent.mkdir(parents=True)
    joined.write_text(
        'description = "both"\ncomponents = ["bm25", "theirs"]\n[search_params]\ndepth = 10\n"theirs.tokens" = 32\n'
    )
    path = stand_in.write(
        joined, "both-small", models=tmp_path, images=tmp_path, note="random", components={"theirs": "theirs-small"}
    )
    told = tomllib.loads(path.read_text(encoding="utf-8"))
    assert told["components"] == ["bm25", "theirs-small"]
    assert told["search_params"] == {"depth": 10, "theirs-small.tokens": 32}

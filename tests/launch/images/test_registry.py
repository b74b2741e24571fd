"""Tests of downloads from a package index: the checksum identifies a file, and nothing of it runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import ImageError
from harness.launch.images import assets, catalog, registry
from harness.launch.images.asset import Asset
from tests.support.package_index import PackageIndex, checksum, sdist, serve
from tests.support.wheel_file import packed as wheel

pytestmark = pytest.mark.slow

WEIGHTS = b"\x00\x01" * 500
WHEEL = wheel({"toy/data/weights.bin": WEIGHTS})
TOY, OTHER = (registry.Distribution("A.Toy", "1.0", sha256) for sha256 in (checksum(WHEEL), "0" * 64))


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    """An index that pip is configured with."""
    with serve(PackageIndex({"a-toy": {"a_toy-1.0-py3-none-any.whl": WHEEL}})) as served:
        for name in [name for name in os.environ if name.startswith("PIP_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", served.url)
        yield served


def asset(package: bytes, name: str = "toy/data") -> tuple[Asset, ...]:
    pins = {"package_sha256": checksum(package), "sha256": {"weights.bin": checksum(WEIGHTS)}}
    declared = {"folder": "model", "licence": "MIT", "package": "A.Toy==1.0", "package_folder": name, **pins}
    return (Asset.model_validate(declared),)


@pytest.mark.slow
@pytest.mark.parametrize("silent", [False, True], ids=["checksums", "no-checksums"])
@pytest.mark.parametrize("as_json", [True, False], ids=["json", "html"])
def test_file_with_the_checksum_is_downloaded(index: PackageIndex, tmp_path: Path, as_json: bool, silent: bool) -> None:
    index.json, index.silent = as_json, silent
    assert registry.download(TOY, tmp_path / "file") is None
    assert (tmp_path / "file").read_bytes() == WHEEL
    assert index.requests == ["/simple/a-toy/", "/files/a-toy/a_toy-1.0-py3-none-any.whl"]


def test_file_of_an_index_is_looked_up_without_a_download(index: PackageIndex, tmp_path: Path) -> None:
    assert registry.missing(TOY) is None
    assert index.requests == ["/simple/a-toy/"], "nothing is downloaded"
    assert registry.missing(OTHER) == f"127.0.0.1 has no file of A.Toy 1.0 with sha256 {'0' * 64}"
    index.status = 500
    assert str(registry.missing(TOY)).startswith("127.0.0.1 does not answer as an index does")
    (tmp_path / "A.Toy-1.0-py3-none-any.whl").write_bytes(WHEEL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_FIND_LINKS", str(tmp_path))
        assert registry.missing(TOY) is None


@pytest.mark.slow
def test_no_code_of_an_sdist_runs(index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = f"open({str(tmp_path / 'ran')!r}, 'w')\nfrom setuptools import setup\nsetup(name='a-toy', version='1.0')\n"
    packed = sdist({"a_toy-1.0/setup.py": evil.encode(), "a_toy-1.0/data/weights.bin": WEIGHTS})
    index.projects["a-toy"] = {"a_toy-1.0.tar.gz": packed}
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")
    tree = assets.fetch("toy", asset(packed, "a_toy-1.0/data"), tmp_path / "cache", None)
    assert (tree / "model" / "weights.bin").read_bytes() == WEIGHTS
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"projects": {}}, "127.0.0.1 has no file of A.Toy 1.0 with sha256"),
        ({"projects": {"a-toy": {"a_toy-1.0.tar.gz": b"other"}}}, "has no file of A.Toy 1.0 with sha256"),
        (
            {"projects": {"a-toy": {"a_toy-1.0.tar.gz": b"other"}}, "silent": True},
            "sent a file with sha256 d9298a10d1b0",
        ),
        ({"cut": {"a_toy-1.0-py3-none-any.whl"}}, "127.0.0.1 does not answer as an index does"),
        ({"moved": {"a_toy-1.0-py3-none-any.whl": "file:///etc/passwd"}}, "only http and https are read"),
    ],
    ids=["no-project", "other-file", "other-content", "cut", "address-of-this-machine"],
)
def test_wrong_answer_is_one_reason_and_leaves_no_file(
    index: PackageIndex, tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    for name, value in change.items():
        setattr(index, name, value)
    said = registry.download(TOY, tmp_path / "file")
    assert said is not None and reason in said and "\n" not in said
    assert not (tmp_path / "file").exists()


@pytest.mark.slow
def test_password_for_the_index_is_not_shown(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("//", "//me:hunter2@"))
    assert registry.download(TOY, tmp_path / "file") is None
    index.status = 503
    said = registry.download(TOY, tmp_path / "file")
    assert said is not None and "503 Server Error" in said and "hunter2" not in said


@pytest.mark.slow
def test_larger_answer_than_allowed_is_cut(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_MAX_FILE_BYTES", len(WHEEL) - 1)
    said = registry.download(TOY, tmp_path / "file")
    assert said is not None and f"more than {len(WHEEL) - 1:,} bytes" in said
    assert not (tmp_path / "file").exists()


@pytest.mark.slow
def test_folder_that_pip_finds_links_in_needs_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / "a_toy-1.0-py3-none-any.whl").write_bytes(WHEEL)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "shelf"))
    assert registry.download(TOY, tmp_path / "file") is None
    assert registry.download(OTHER, tmp_path / "file") == "pip is configured without a package index"


@pytest.mark.slow
def test_damaged_or_hostile_distribution_is_one_line(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assets, "_MAX_UNPACKED_BYTES", 1 << 20)
    bomb = {"toy/data/weights.bin": bytes(2 << 20)}
    for number, packed in enumerate((wheel(bomb), sdist(bomb), WHEEL[:-30], b"\x1f\x8b\x08junk", b"")):
        index.projects["a-toy"] = {"a_toy-1.0.tar.gz": packed}
        with pytest.raises(ImageError, match=r"cannot find weights\.bin.*cannot be unpacked: ") as caught:
            assets.fetch("toy", asset(packed), tmp_path / f"cache{number}", None)
        assert "\n" not in str(caught.value)


def _shipped() -> dict[str, Asset]:
    """Return one asset for each distribution that a shipped engine or system takes files from."""
    systems = catalog.systems(catalog.images_dir()).values()
    listed = [each for system in systems for each in (*system.engine_assets, *system.assets)]
    return {each.package: each for each in listed if each.package}


@pytest.mark.docker  # needs the network, as images do
@pytest.mark.parametrize("package", sorted(_shipped()))
def test_shipped_distribution_has_its_files(package: str, tmp_path: Path) -> None:
    """Without a cache, which hides that a distribution can no longer be fetched."""
    found = _shipped()[package]
    tree = assets.fetch("toy", (found.model_copy(update={"hub": None}),), tmp_path / "cache", None)
    assert {path.relative_to(tree / found.folder).as_posix() for path in tree.rglob("*") if path.is_file()} == set(
        found.sha256
    )

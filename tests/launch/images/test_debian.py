"""Tests of Debian packages of shared code: the lock's lines, the mirrors, and the checksums of files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from harness.errors import FileError, ImageError
from harness.launch.images import catalog, debian
from tests.support.loopback import serving

FILES = {"pool/main/a/ab/ab_1.0+x_amd64.deb": b"one", "pool/main/a/ab/liba1_1.0~1-2_amd64.deb": b"two"}


class Mirror:
    """A server of some files; the paths that it was asked for."""

    def __init__(self) -> None:
        self.files = dict(FILES)
        self.asked: list[str] = []
        self.url = ""


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    """The mirror that harness is told to ask."""
    made = Mirror()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append(self.path)
            path = self.path.removeprefix("/debian/").replace("%2B", "+")
            self.send_response(200 if path in made.files else 404)
            self.end_headers()
            self.wfile.write(made.files.get(path, b""))

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as url:
        made.url = f"{url}/debian/"
        monkeypatch.setenv("HARNESS_DEBIAN_MIRROR", made.url)
        yield made


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "postgres" / "packages-amd64.lock"
    path.parent.mkdir()
    lines = (
        f"{hashlib.sha256(content).hexdigest()} {name.rpartition('/')[2].partition('_')[0]}=1:1.0 {name}"
        for name, content in FILES.items()
    )
    path.write_text("# Debian trixie for amd64 on 20261129T000000Z, by scripts/lock-base.\n" + "\n".join(lines) + "\n")
    return path


@pytest.mark.slow
def test_pinned_packages_are_downloaded_once(mirror: Mirror, lock: Path, tmp_path: Path) -> None:
    folder = debian.fetch(lock, tmp_path / "cache")
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert found == {name.rpartition("/")[2]: content for name, content in FILES.items()}
    assert debian.fetch(lock, tmp_path / "cache") == folder and len(mirror.asked) == 2


@pytest.mark.slow
def test_another_content_is_refused_and_nothing_is_kept(mirror: Mirror, lock: Path, tmp_path: Path) -> None:
    first, second = FILES
    mirror.files = {first: b"other"}
    with pytest.raises(ImageError, match=r"no mirror has ab=1:1\.0, liba1=1:1\.0 as packages-amd64\.lock pins it"):
        debian.fetch(lock, tmp_path / "cache")
    mirror.files = {first: FILES[first], second: b"other"}
    with pytest.raises(ImageError, match=r"no mirror has liba1=1:1\.0 as .*: .* sent a file with sha256 d929"):
        debian.fetch(lock, tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.deb"))


@pytest.mark.slow
def test_a_mirror_is_asked_for_what_those_before_it_lack(
    mirror: Mirror, lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HARNESS_DEBIAN_MIRROR")
    monkeypatch.setattr(debian, "_of_apt", lambda: ["http://127.0.0.1:9"])  # nobody listens
    monkeypatch.setattr(debian, "ARCHIVE", mirror.url)
    monkeypatch.setattr(debian.registry, "_RETRIES", 0)
    assert len(list(debian.fetch(lock, tmp_path / "cache").iterdir())) == 2
    assert debian._mirrors("20261129T000000Z")[-1] == f"{debian.SNAPSHOT}/20261129T000000Z"


@pytest.mark.parametrize(
    "line",
    [
        "0" * 64 + " ab=1 ../a.deb",
        "0" * 64 + " ab=1 pool/../../a.deb",
        "0" * 64 + " ab=1 pool/main/a.deb extra",
        "0" * 63 + " ab=1 pool/main/a.deb",
        "0" * 64 + " ab pool/main/a.deb",
        "0" * 64 + " ab=1 http://elsewhere/pool/a.deb",
    ],
)
def test_a_line_that_pins_no_package_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "packages-amd64.lock").write_text(f"# Debian\n{line}\n")
    with pytest.raises(FileError, match=r"packages-amd64\.lock:2: .* is not a pinned package of Debian"):
        debian.read(tmp_path / "packages-amd64.lock")


@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_locks_of_shared_code_name_what_its_file_does(architecture: str) -> None:
    folder = catalog.images_dir() / "shared" / "postgres"
    packages, day = debian.read(folder / f"packages-{architecture}.lock")
    declared = (folder / "debian.toml").read_text().partition("packages = ")[2]
    assert sorted(package.name.partition("=")[0] for package in packages) == sorted(
        word.strip('[]", \n') for word in declared.split(",")
    )
    assert day and all(package.file.endswith((f"_{architecture}.deb", "_all.deb")) for package in packages)

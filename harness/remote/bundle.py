"""harness as shipped to boxes: they run what their orchestrator runs."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import harness
from harness import environment
from harness.catalog import data_root, own_images_dir
from harness.errors import UsageError

LOCK = "requirements.lock"
# The user's own engines, if there are some (HARNESS_IMAGES).
OWN_IMAGES = "own-images"
_DATA = ("images", "instance_profiles", "datasets")
_LEFT_OUT = ("__pycache__", "shipped")
_MOST_BYTES = 512 << 20
# Packages without wheels for arm64, which a box does not need: it scores no run.
_X86_ONLY = ("pytrec-eval-terrier",)
# Packages that the user's machine alone needs: for figures, data frames, public collections and checkpoints.
HOME_ONLY = {
    *("matplotlib", "contourpy", "cycler", "fonttools", "kiwisolver", "pillow", "pyparsing"),
    "pandas",
    *("ir-datasets", "lxml", "lz4", "nltk", "defusedxml", "joblib", "regex", "tqdm"),
    *("huggingface-hub", "anyio", "filelock", "fsspec", "h11", "hf-xet", "httpcore2", "httpx2", "truststore"),
}


def entries() -> list[tuple[str, Path | bytes]]:
    """Return all files of the bundle by their names in it, sorted."""
    package = Path(harness.__file__).resolve().parent
    found: dict[str, Path | bytes] = {}
    for name, folder in (("harness", package), *((name, data_root() / name) for name in _DATA)):
        found |= {f"{name}/{path.relative_to(folder).as_posix()}": path for path in _files(folder)}
    own = own_images_dir()
    for engine in sorted(own.iterdir()) if own else ():
        # The user's folder may hold other files, too: only engines and systems are shipped.
        if engine.is_dir() and ((engine / "engine.toml").is_file() or (engine / "systems").is_dir()):
            for path in _files(engine):
                found[f"{OWN_IMAGES}/{engine.name}/{path.relative_to(engine).as_posix()}"] = path
    found[LOCK] = lock().encode()
    found[f"harness/{environment.COMMIT_FILE}"] = f"{environment.commit() or ''}\n".encode()
    size = sum(each.stat().st_size for each in found.values() if isinstance(each, Path))
    if size > _MOST_BYTES:
        raise UsageError(
            f"harness and the engines take {size >> 20} MiB, more than {_MOST_BYTES >> 20}: no weights belong there;"
            " declare them as assets, and move other files out of HARNESS_IMAGES"
        )
    return sorted(found.items())


def lock() -> str:
    """Return a box's packages, pinned with hashes, for both architectures."""
    text = (Path(__file__).resolve().parent / LOCK).read_text(encoding="utf-8")
    # A package's line, and the lines of its hashes below it.
    packages = re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)
    needed = [each for each in packages if each.partition("==")[0] not in HOME_ONLY]
    return "".join(
        each.replace(" \\", " ; platform_machine == 'x86_64' \\", 1) if each.partition("==")[0] in _X86_ONLY else each
        for each in needed
    )


def pins(*names: str) -> list[str]:
    """Return some packages' requirements from the lock, each on one line."""
    joined = lock().replace("\\\n", " ").splitlines()
    known = {line.partition("==")[0]: " ".join(line.split()) for line in joined if ";" not in line}
    return [known[name] for name in names]


def _files(folder: Path) -> Iterator[Path]:
    """Yield harness's own files of a folder."""
    listed = _listed(folder)
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _LEFT_OUT)
        for name in sorted(names):
            path = Path(place, name)
            hidden = name.startswith(".") or name.endswith((".pyc", "~"))
            if not hidden and path.is_file() and (listed is None or path in listed):
                yield path


def _listed(folder: Path) -> set[Path] | None:
    """List a checkout's files that git does not ignore; ``None`` elsewhere."""
    if not (data_root() / ".git").exists() or not folder.is_relative_to(data_root()):
        return None
    command = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    with suppress(OSError, subprocess.CalledProcessError):
        done = subprocess.run(command, capture_output=True, check=True)
        return {folder / os.fsdecode(name) for name in done.stdout.split(b"\0") if name}
    return None

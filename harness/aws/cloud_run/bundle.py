"""The bundle: harness as workers run it, its pinned packages, and the user data that installs both."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import harness
from harness import child_process
from harness.aws.clients import S3Uri
from harness.aws.cloud_run.records import VERSION, ShippedInput
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
# Packages that the user's machine alone needs: for figures, data frames, collections and checkpoints.
LOCAL_ONLY = {
    *("matplotlib", "contourpy", "cycler", "fonttools", "kiwisolver", "pillow", "pyparsing"),
    "pandas",
    *("ir-datasets", "lxml", "lz4", "nltk", "defusedxml", "joblib", "regex", "tqdm"),
    *(
        "huggingface-hub",
        "anyio",
        "filelock",
        "fsspec",
        "h11",
        "hf-xet",
        "httpcore2",
        "httpx2",
        "tokenizers",
        "truststore",
    ),
}
# EC2's own limit, before it is encoded.
MAXIMUM_USER_DATA_BYTES = 16_384
_TEMPLATE = Path(__file__).resolve().parent / "user-data.sh"
# boto3 and its dependencies: with these a worker fetches the bundle, which pins the other packages.
BOTO3 = ("boto3", "botocore", "jmespath", "python-dateutil", "s3transfer", "six", "urllib3")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ACCESS_KEY = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b")
_ACCOUNT = re.compile(r"(?<!\d)\d{12}(?!\d)")
_SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID")


def bundle_entries() -> list[tuple[str, Path | bytes]]:
    """Return all files of the bundle by their names in it, sorted."""
    package = Path(harness.__file__).resolve().parent
    files: dict[str, Path | bytes] = {}
    for name, folder in (("harness", package), *((name, data_root() / name) for name in _DATA)):
        listed = _listed(folder)
        files |= {f"{name}/{path.relative_to(folder).as_posix()}": path for path in _files(folder, listed)}
    own = own_images_dir()
    for engine in sorted(own.iterdir()) if own else ():
        # The user's folder may hold other files, too: only engines and systems are shipped.
        if engine.is_dir() and ((engine / "engine.toml").is_file() or (engine / "systems").is_dir()):
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


def lock() -> str:
    """Return a worker's packages, pinned with hashes, for both architectures."""
    text = (Path(__file__).resolve().parent / LOCK).read_text(encoding="utf-8")
    # A package's line, and the lines of its hashes below it.
    packages = re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)
    text = ""
    for package in packages:
        name = package.partition("==")[0]
        if name not in LOCAL_ONLY:
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
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"]
    command.append(folder.relative_to(root).as_posix())
    with suppress(OSError, subprocess.CalledProcessError):
        done = subprocess.run(command, capture_output=True, check=True, env=child_process.environment("GIT_*"))
        return {root / os.fsdecode(name) for name in done.stdout.split(b"\0") if name}
    return None


def refuse_accounts(work: S3Uri) -> None:
    """Refuse a work place with an account's number: logs name it."""
    if _ACCOUNT.search(str(work)):
        raise UsageError(
            "the work place's name holds twelve digits, like an account number, which harness never writes;"
            " choose another bucket or prefix"
        )


def render_user_data(
    work: S3Uri, run_id: str, part: str, bundle: ShippedInput, region: str, limit_s: int, *, gpus: bool
) -> str:
    """Return the bash script for Amazon Linux 2023 and Debian 12; ``gpus``: refuse to go on without."""
    for what, name in (("run id", run_id), ("part", part), ("region", region)):
        if not _NAME.fullmatch(name):
            raise UsageError(f"{what} {name!r}: letters, digits, '.', '_' and '-' only")
    refuse_accounts(work)
    if limit_s < 60:
        raise UsageError(f"a worker that may live {limit_s} s does nothing; allow at least a minute")
    values = {
        "WORK": shlex.quote(str(work)),
        "RUN": run_id,
        "PART": part,
        "BUNDLE": shlex.quote(bundle.name),
        "BUNDLE_SHA256": shlex.quote(bundle.sha256),
        "LIMIT_S": str(limit_s),
        "GPUS": "yes" if gpus else "no",
        "REGION": region,
        "VERSION": str(VERSION),
        "PINS": "\n".join(pins(*BOTO3)),
    }
    text = re.sub(r"@([A-Z0-9_]+)@", lambda match: values[match[1]], _TEMPLATE.read_text(encoding="utf-8"))
    size = len(text.encode())
    if size > MAXIMUM_USER_DATA_BYTES:
        raise UsageError(
            f"user data of {size:,} bytes, EC2 takes {MAXIMUM_USER_DATA_BYTES:,}; shorten the prefix of {work}"
        )
    if _ACCESS_KEY.search(text) or any(value and value in text for value in map(os.environ.get, _SECRET_VARIABLES)):
        raise UsageError("user data would hold an AWS key, which anyone on the machine can read; is it in --work?")
    return text

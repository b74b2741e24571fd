"""Agent in the sibling: fetches harness, checks it, does one part.

Arguments: lock, work place, region, pinned packages, run, part, bundle's object, its sha256.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(os.environ.get("HARNESS_WORKER_ROOT", "/var/lib/harness"))
# The engine kills this container 20 s after its request to stop.
STOP_S = 15


def die_with(lock: Path) -> None:
    """End when the agent is gone: the kernel frees its lock."""
    with lock.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        print("harness: the agent that followed this job is gone, so it ends", flush=True)
        os.kill(os.getpid(), signal.SIGTERM)


def run(*command: str, **more: Any) -> int:
    """Run a command to its end, or to this process' end."""
    child = subprocess.Popen(command, start_new_session=True, **more)
    try:
        return child.wait()
    finally:
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)


def once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Make a folder once on each host, whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            make(partial)
            partial.rename(folder)
    return folder


def environment(*prefixes: str) -> dict[str, str]:
    """Return the variables that a child may see: the usual ones, and those with these prefixes."""
    usual = ("PATH", "HOME", "TZ", "TMPDIR", "LANG", "LC_", "PIP_")
    network = ("SSL_CERT_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
    return {name: value for name, value in os.environ.items() if name.upper().startswith((*usual, *network, *prefixes))}


def install(requirements: str, folder: Path) -> None:
    """Install packages into a folder; each must match its hash."""
    pins = folder / "pins.txt"
    pins.write_text(requirements)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    pip += ["--root-user-action=ignore", "--cache-dir", f"{ROOT}/pip", "--no-deps", "--require-hashes"]
    # Few modules are ever imported: compiling them all would take most of the time.
    pip += ["--only-binary", ":all:", "--no-compile", "--target", str(folder), "-r", str(pins)]
    if run(*pip, env=environment()):
        raise SystemExit("harness: the pinned packages cannot be installed; see above")


def checkout(s3: Any, bucket: str, key: str, sha256: str) -> Path:
    """Fetch the orchestrator's harness, verify its checksum, install its packages into the same folder."""

    def fetch(folder: Path) -> None:
        packed = folder / "bundle.tar.gz"
        s3.download_file(bucket, key, str(packed))
        if hashlib.sha256(packed.read_bytes()).hexdigest() != sha256:
            raise SystemExit("harness: the bundle is not the one that was sent; start the run again")
        shutil.unpack_archive(packed, folder)  # trusted: its checksum fits
        packed.unlink()
        install((folder / "requirements.lock").read_text(), folder)

    return once(ROOT / "bundles" / sha256, fetch)


def main(*given: str) -> int:
    """Do the part; return the worker agent's exit code."""
    lock, work, region, pins, run_id, part, key, sha256 = given
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    threading.Thread(target=die_with, args=(Path(lock),), daemon=True).start()
    bucket, _, prefix = work.removeprefix("s3://").partition("/")
    place = f"{prefix}/" if prefix else ""
    packages = hashlib.sha256(f"{sys.version} {pins}".encode()).hexdigest()[:16]
    sys.path.insert(0, str(once(ROOT / "packages" / packages, lambda folder: install(pins, folder))))
    import boto3

    bundle = checkout(boto3.client("s3", region_name=region), bucket, place + key, sha256)
    own = ROOT / "jobs" / Path(lock).stem
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    # Jobs that share a host must not share CPUs.
    paths = {"PYTHONPATH": bundle, "HARNESS_WORKER_ROOT": own, "HOME": own, "HARNESS_CPU_LEASES": ROOT / "cpus"}
    named = {"AWS_REGION": region, **{name: str(path) for name, path in paths.items()}}
    try:
        variables = {**environment("AWS_", "HARNESS_"), **named}
        return run(sys.executable, "-m", "harness.aws.worker", work, run_id, part, env=variables, cwd=own)
    finally:
        shutil.rmtree(own, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

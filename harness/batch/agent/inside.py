"""Runs in the sibling, beside the host's engine: gets harness from S3, checks it, and does one part of a run.

Arguments: lock, number, work place, region, pinned packages, run, group, bundle's object, its sha256.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HOME = Path(os.environ.get("HARNESS_BOX_HOME", "/var/lib/harness"))
# The engine kills this container 20 s after it was asked to stop.
STOP_S = 15


def die_with(lock: Path) -> None:
    """End when the follower is gone: the kernel hands its lock on."""
    with lock.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        print("harness: whoever followed this job is gone, so it ends", flush=True)
        os.kill(os.getpid(), signal.SIGTERM)


def run(*command: str, **more: Any) -> int:
    """Run a command to its end; whoever ends us ends it first, and lets it stop what it has started."""
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
    """A folder that is made once on each host, whole or not at all; who comes second waits for the first."""
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


def install(requirements: str, folder: Path) -> None:
    """Install packages into a folder; each must be what its hash says."""
    pins = folder / "pins.txt"
    pins.write_text(requirements)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    pip += ["--root-user-action=ignore", "--cache-dir", f"{HOME}/pip", "--no-deps", "--require-hashes"]
    # Only a few modules are ever imported: compiling them all would take most of the time.
    if run(*pip, "--only-binary", ":all:", "--no-compile", "--target", str(folder), "-r", str(pins)):
        raise SystemExit("harness: the pinned packages cannot be installed; see above")


def first(requirements: str) -> str:
    """A folder with what fetches the rest."""
    name = hashlib.sha256(f"{sys.version} {requirements}".encode()).hexdigest()[:16]
    return str(once(HOME / "packages" / name, lambda folder: install(requirements, folder)))


def checkout(s3: Any, bucket: str, key: str, sha256: str) -> Path:
    """harness as its orchestrator has it, checked before anything of it runs, with its packages beside it."""

    def fetch(folder: Path) -> None:
        packed = folder / "bundle.tar.gz"
        s3.download_file(bucket, key, str(packed))
        with packed.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                raise SystemExit("harness: the bundle is not the one that was sent; start the run anew")
        with tarfile.open(packed) as tar:
            # Ours, by its checksum; Python before 3.11.4 has no filters.
            more: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            tar.extractall(folder, **more)  # noqa: S202
        packed.unlink()
        install((folder / "requirements.lock").read_text(), folder)

    return once(HOME / "bundles" / sha256, fetch)


def claimed(s3: Any, bucket: str, key: str, job: str) -> bool:
    """Claim a part for this job; return False if a twin has it.  A job that lost its host keeps its claim."""
    from botocore.exceptions import ClientError

    while True:
        try:
            s3.put_object(Bucket=bucket, Key=key, Body=job.encode(), IfNoneMatch="*")
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code == "ConditionalRequestConflict":  # another writes it right now
                time.sleep(1)
                continue
            if code not in ("PreconditionFailed", "412"):
                raise
            return bool(s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode() == job)
        return True


def main(*given: str) -> int:
    """Do it; returns the box agent's exit code."""
    lock, index, work, region, pins, run_id, group, key, sha256 = given
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    threading.Thread(target=die_with, args=(Path(lock),), daemon=True).start()
    bucket, _, prefix = work.removeprefix("s3://").partition("/")
    place = f"{prefix}/" if prefix else ""
    sys.path.insert(0, first(pins))
    import boto3

    s3 = boto3.client("s3", region_name=region)
    parts = json.load(s3.get_object(Bucket=bucket, Key=f"{place}runs/{run_id}/batch/{group}.json")["Body"])["parts"]
    part = parts[int(index)]
    if not claimed(s3, bucket, f"{place}runs/{run_id}/claims/{part}", os.environ.get("AWS_BATCH_JOB_ID", "")):
        print(f"harness: another job does {part} already, so this one does nothing", flush=True)
        return 0
    home = checkout(s3, bucket, place + key, sha256)
    own = HOME / "jobs" / Path(lock).stem
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    told = {"PYTHONPATH": str(home), "AWS_REGION": region, "HARNESS_BOX_HOME": str(own), "HOME": str(own)}
    # Jobs that share a host must not share CPUs, too.
    told["HARNESS_CPU_LEASES"] = str(HOME / "cpus")
    try:
        return run(
            sys.executable,
            "-m",
            "harness.remote.box",
            work,
            run_id,
            part,
            env={**os.environ, **told},
            cwd=own,
        )
    finally:
        shutil.rmtree(own, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

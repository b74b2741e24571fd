"""moto's server on loopback: the AWS of the tests, spoken to over HTTP."""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.aws import quick_clients

# Nothing that harness writes may hold one of them.
ACCESS_KEY = "AKIAEXAMPLE7KEY7ID7X"
SECRET_KEY = "example/secret/Q7xW9zR2mK4vT8bN1cJ5hL3pF6dG0sYa"
TOKEN = "example-session-token-Zk83JxQ"
# Keys of a worker on EC2, a job of Batch, the runner, the keeper and the reaper: each has other rights.
WORKER_KEY = "AKIAEXAMPLE7KEY7WRKX"
JOB_KEY = "AKIAEXAMPLE7KEY7JOBX"
RUNNER_KEY = "AKIAEXAMPLE7KEY7RUNX"
KEEPER_KEY = "AKIAEXAMPLE7KEY7KEEP"
REAPER_KEY = "AKIAEXAMPLE7KEY7REAP"
ACCOUNT = "123456789012"  # moto's
REGION = "us-east-1"
SECRETS = (ACCESS_KEY, WORKER_KEY, JOB_KEY, RUNNER_KEY, KEEPER_KEY, REAPER_KEY, SECRET_KEY, TOKEN, ACCOUNT)


@contextmanager
def running(log: Path) -> Iterator[str]:
    """Start a server of one's own; gives its endpoint."""
    with log.open("wb") as sink:
        command = [sys.executable, str(Path(__file__).with_name("moto_server.py")), "-H", "127.0.0.1", "-p", "0"]
        server = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT)
    try:
        with quick_clients.shared():
            yield _endpoint(server, log)
    finally:
        server.terminate()
        server.wait(timeout=30)


def _endpoint(server: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = re.search(r"http://127\.0\.0\.1:\d+", log.read_text(errors="replace"))
        if found:
            return found[0]
        if server.poll() is not None:
            raise RuntimeError(f"moto's server ended: {log.read_text(errors='replace')[-500:]}")
        time.sleep(0.05)
    raise RuntimeError("moto's server did not start within a minute")


def reset(endpoint: str) -> None:
    """Forget everything."""
    request = urllib.request.Request(f"{endpoint}/moto-api/reset", method="POST")
    with urllib.request.urlopen(request, timeout=30) as answer:
        json.load(answer)


def made_once(endpoint: str, name: str, make: Callable[[], object]) -> None:
    """Make something in an empty AWS; the next time it is put back as it was, without the requests that it takes."""
    query = urllib.parse.urlencode({"name": name})
    if not _ask(f"{endpoint}/tests/put-back?{query}"):
        make()
        _ask(f"{endpoint}/tests/keep?{query}")


def quicken(endpoint: str, speed: float) -> None:
    """Let AWS' clock run quicker, until all is forgotten; AWS says it in whole seconds, which are then short."""
    _ask(f"{endpoint}/tests/clock?speed={speed}")


def forward(endpoint: str, seconds: float) -> None:
    """Put AWS' clock forward."""
    _ask(f"{endpoint}/tests/clock?forward_s={seconds}")


def everything_stored(endpoint: str) -> str:
    """Names and contents of all objects in S3."""
    return _ask(f"{endpoint}/tests/objects").decode(errors="replace")


def requests(endpoint: str) -> list[dict[str, Any]]:
    """Every signed request that was made, in their order, with the access key that signed it."""
    found: list[dict[str, Any]] = json.loads(_ask(f"{endpoint}/tests/requests"))
    return found


def worker_key(identity: str, key: str = WORKER_KEY) -> str:
    """Return the access key of one worker: it begins with ``key``, and is the same for the same identity."""
    return key + hashlib.sha256(identity.encode()).hexdigest()[:12].upper()


def identify(endpoint: str, key: str, userid: str) -> None:
    """Have STS answer ``userid`` (``<RoleId>:<instance or task id>``) to an access key, until the next reset."""
    query = urllib.parse.urlencode({"key": key, "userid": userid})
    _ask(urllib.request.Request(f"{endpoint}/tests/identity?{query}", method="POST"))


def pend(endpoint: str, region: str, instance_id: str) -> None:
    """Have an instance be pending, as one that EC2 has not started yet."""
    _ask(f"{endpoint}/tests/pend?region={region}&instance={instance_id}")


def put(endpoint: str, bucket: str, objects: Mapping[str, bytes]) -> None:
    """Put many objects at once, as if each had been put."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in objects.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    _ask(urllib.request.Request(f"{endpoint}/tests/objects?bucket={bucket}", packed.getvalue(), method="PUT"))


def _ask(url: str | urllib.request.Request) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        content: bytes = answer.read()
        return content


def environment(endpoint: str, key: str = ACCESS_KEY) -> dict[str, str]:
    """What makes boto3 speak to that server, as whoever has that access key."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_SESSION_TOKEN": TOKEN,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
    }

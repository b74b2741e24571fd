"""Agent in Batch's container: has the engine start a sibling, follows it.

Arguments: image, the sibling's script, and the script's own arguments but for the lock.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import re
import signal
import socket
import struct
import sys
import threading
from pathlib import Path
from typing import IO, Any

SOCKET = "/var/run/docker.sock"
ROOT = Path(os.environ.get("HARNESS_WORKER_ROOT", "/var/lib/harness"))
LABEL = "harness.aws.batch"
# ECS kills this container 30 s after its request to stop.
STOP_S = 20


def send(method: str, path: str, body: Any = None) -> http.client.HTTPConnection:
    """Send a request to the host's engine."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(SOCKET)
    connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
    return connection


def ask(method: str, path: str, body: Any = None) -> http.client.HTTPResponse:
    """Return the engine's answer; end on errors."""
    answer = send(method, path, body).getresponse()
    if answer.status >= 400:
        why = " ".join(answer.read(500).decode("utf-8", "replace").split())
        raise SystemExit(f"harness: the engine refuses {method} {path.partition('?')[0]}: {why}")
    return answer


def held(path: Path) -> IO[bytes] | None:
    """Take a lock for this process' life; None: another has it."""
    lock = path.open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def create(image: str, command: list[str], name: str, lock: Path) -> str:
    """Make the sibling; the engine removes it when it ends."""
    host: dict[str, Any] = {
        # Lets it read of other processes what the host's root may; the engine does the rest.
        "CapAdd": ["SYS_PTRACE"],
        "PidMode": "host",
        "CgroupnsMode": "host",
        "NetworkMode": "host",
        "Binds": [f"{path}:{path}" for path in (SOCKET, ROOT, "/sys/fs/cgroup")],
        "AutoRemove": True,
    }
    if os.environ.get("HARNESS_GPUS", "0") != "0":
        host["DeviceRequests"] = [{"Driver": "nvidia", "Count": -1, "Capabilities": [["gpu", "utility"]]}]
    variables = [f"{name}={value}" for name, value in os.environ.items() if name.startswith(("AWS_", "HARNESS_"))]
    body = {"Image": image, "Cmd": command, "Env": variables, "HostConfig": host, "Labels": {LABEL: str(lock)}}
    return str(json.load(ask("POST", f"/containers/create?name={name}", body))["Id"])


def main(image: str, script: str, *rest: str) -> int:
    """Start the sibling and follow it; return its exit code."""
    job = os.environ.get("AWS_BATCH_JOB_ID", "job")
    name = re.sub("[^A-Za-z0-9]", "-", f"harness-batch-{job}-{os.environ.get('AWS_BATCH_JOB_ATTEMPT', '1')}")
    path = ROOT / "batch" / f"{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = held(path)
    if lock is None:
        raise SystemExit("harness: another agent has this job already")
    sibling = f"/containers/{create(image, ['python3', '-c', script, str(path), *rest], name, path)}"
    stop = ("POST", f"{sibling}/stop?t={STOP_S}")
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=ask, args=stop).start())
    ended = send("POST", f"{sibling}/wait?condition=removed")
    ask("POST", f"{sibling}/start")
    # The sibling's words, frame by frame, are this job's log.
    log = ask("GET", f"{sibling}/logs?follow=1&stdout=1&stderr=1")
    while len(head := log.read(8)) == 8:
        sys.stdout.buffer.write(log.read(struct.unpack(">I", head[4:])[0]))
        sys.stdout.buffer.flush()
    status = int(json.load(ended.getresponse())["StatusCode"])
    path.unlink()
    lock.close()
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

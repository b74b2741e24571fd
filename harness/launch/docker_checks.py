"""Checks of the Docker engine of this machine, for `harness doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import docker
import psutil
import requests

from harness.driver import cgroup
from harness.errors import EngineError
from harness.launch import connection
from harness.launch.checks import Check, Level, warn_if
from harness.launch.connection import reason


def examine() -> Iterator[Check]:
    """Check the engine, the limits that it can enforce, and the cgroups that its jobs are read from."""
    yield from _engine()
    yield _cgroup()


def _engine() -> Iterator[Check]:
    try:
        place = connection.endpoint()
        with closing(connection.connect(10)) as client:
            info = client.info()
    except EngineError as error:
        yield Check(Level.FAIL, "engine", "no Docker engine answers", str(error))
        return
    except (docker.errors.DockerException, requests.RequestException) as error:
        start = "start it (systemctl start docker) or install it (Debian: apt-get install docker.io)"
        if place.context:
            start = "start the engine of that context, or choose another (docker context use)"
        fact = f"no Docker engine answers: {reason(error)}"
        yield Check(Level.FAIL, "engine", fact, f"{start}, or use --launcher process")
        return
    fact = f"Docker {info['ServerVersion']}, {info['Driver']}, {info['OperatingSystem']}, at {place}"
    yield Check(Level.OK, "engine", fact)
    for key, what in (("MemoryLimit", "memory limits"), ("PidsLimit", "pids limits"), ("CPUSet", "CPU sets")):
        if not info.get(key, True):
            yield Check(Level.FAIL, "limits", f"the engine cannot enforce {what}", "enable the cgroup controller")
    if not info.get("SwapLimit", True) and psutil.swap_memory().total:
        remedy = "boot with swapaccount=1, or turn swap off (swapoff -a)"
        yield Check(Level.FAIL, "limits", "the engine cannot limit swap, and the host has some", remedy)


def _cgroup() -> Check:
    version = cgroup.host_version()
    fact = "no memory controller in /sys/fs/cgroup" if version is None else f"version {version}"
    return warn_if(version is None, "cgroup", fact, "mount the cgroup file system, or use --launcher process")

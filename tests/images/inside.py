"""A script run inside an image, under the limits of a job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import docker


def ask(
    client: docker.DockerClient,
    image: str,
    read: dict[str, Path],
    write: dict[str, Path],
    *,
    memory: str,
    scratch_mib: int = 64,
    environment: dict[str, str] | None = None,
) -> list[Any]:
    """Run ``/job/probe.py``; what it ``say``s comes back.

    Args:
        read: places in the container, and the folders that it reads there.
        write: the same for those that it may write to.
    """
    output = client.containers.run(
        image,
        # Out of memory and not killed, it would read its libraries from disk for ever: this ends with 137 too.
        ["-s", "KILL", "1800", "python3", "/job/probe.py"],
        entrypoint=["timeout"],
        remove=True,
        network_mode="none",
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        user="65532:65532",
        cpuset_cpus="0",
        mem_limit=memory,
        memswap_limit=memory,
        pids_limit=512,
        environment=environment or {},
        tmpfs={"/tmp": f"size={scratch_mib}m"},
        volumes={
            str(folder): {"bind": place, "mode": mode}
            for mode, folders in (("ro", read), ("rw", write))
            for place, folder in folders.items()
        },
    )
    said = [line for line in output.decode().splitlines() if line.startswith("said ")]
    return [json.loads(line.removeprefix("said ")) for line in said]

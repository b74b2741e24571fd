"""A script of this folder inside an engine's image: no network, limited memory, files out through one folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import docker
from docker.types import Mount

from harness.errors import ImageError
from harness.filesystem import this_process
from harness.launch.connection import engine_errors
from harness.launch.container import LABEL, job_user
from harness.launch.images.builder import Image

_SCRIPTS = Path(__file__).resolve().parent


def run(
    client: docker.DockerClient,
    image: Image,
    module: str,
    arguments: Sequence[str],
    *,
    given: dict[str, Path],
    out: Path,
    memory_bytes: int,
    heard: Callable[[dict[str, Any]], None],
) -> None:
    """Run ``python3 -m module`` and wait for its end; remove the container afterwards in every case.

    Args:
        given: files and folders that it may read, by their path inside.
        out: a folder of ours that it writes to, as ``/out``.
        heard: is called with each line of JSON that it prints.

    Raises:
        ImageError: it failed; with its last line.
        EngineError: the Docker engine does not answer.
    """
    out.chmod(0o777)  # the container's user is nobody's
    readable = {"/scripts/checkpoints": _SCRIPTS, **given}
    mounts = [Mount(inside, str(path.resolve()), type="bind", read_only=True) for inside, path in readable.items()]
    with engine_errors():
        declared = dict(entry.split("=", 1) for entry in client.images.get(image.digest).attrs["Config"]["Env"])
        container = client.containers.create(
            image.digest,
            ["-m", module, *arguments],
            entrypoint=["python3"],
            labels={LABEL: this_process()},
            user=f"{job_user()}:{job_user()}",
            environment={"PYTHONPATH": f"/scripts:{declared.get('PYTHONPATH', '')}", "OMP_WAIT_POLICY": "PASSIVE"},
            mounts=[*mounts, Mount("/out", str(out.resolve()), type="bind")],
            network_mode="none",
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true"],
            mem_limit=memory_bytes,
            memswap_limit=memory_bytes,
            pids_limit=512,
            tmpfs={"/tmp": "size=64m"},  # noqa: S108
        )
        try:
            container.start()
            last = _listen(container.logs(stream=True, follow=True), heard)
            status = int(container.wait()["StatusCode"])
        finally:
            container.remove(force=True)
    if status != 0:
        raise ImageError(f"{module} {arguments[0]} ended with exit code {status} in {image.reference}: {last}")


def _listen(chunks: Any, heard: Callable[[dict[str, Any]], None]) -> str:
    """Hand on what is JSON; returns the last line that is none."""
    last, rest = "no word on why", ""
    for chunk in chunks:
        *lines, rest = (rest + chunk.decode("utf-8", "replace")).split("\n")
        for line in lines:
            try:
                told = json.loads(line)
            except ValueError:
                last = line.strip() or last
                continue
            if isinstance(told, dict):
                heard(told)
    return last

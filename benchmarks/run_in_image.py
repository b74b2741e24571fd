"""Run a script in a system's image under a job's limits, and return its output."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import docker

from harness.launch.images import builder, catalog
from tests.support.container_output import output_of

CACHE = Path(os.environ.get("HARNESS_CACHE", "~/.cache/ir-harness")).expanduser()
SCIFACT = Path(__file__).resolve().parents[1] / "datasets" / "scifact"


def printed_by(
    system: str,
    script: str,
    *,
    files: dict[str, bytes],
    memory: str = "3g",
    cpuset: str = "0",
    models: Path | None = None,
) -> list[Any]:
    """Return the values that a script prints as JSON behind the word ``said``, one a line.

    Args:
        script: Python; finds the files below ``/job``, the system's parameters in ``/job/params.json``, and a folder
            that it may write to in ``/index``.
        files: by name.
        models: folder of checkpoints that the system's image is made with; else they come from the hub.
    """
    client = docker.from_env(timeout=3600)
    try:
        declared = catalog.system(system)
        image = builder.ImageBuilder(client, CACHE, models).ensure(declared)
        with tempfile.TemporaryDirectory() as folder:
            job, index = Path(folder) / "job", Path(folder) / "index"
            job.mkdir()
            index.mkdir()
            index.chmod(0o777)
            everything = {**files, "run.py": script.encode(), "params.json": json.dumps(declared.params).encode()}
            for name, content in everything.items():
                (job / name).write_bytes(content)
            output = output_of(
                client,
                image.digest,
                ["/job/run.py"],
                entrypoint=["python3"],
                network_mode="none",
                user="65532:65532",
                cpuset_cpus=cpuset,
                mem_limit=memory,
                memswap_limit=memory,
                volumes={str(job): {"bind": "/job", "mode": "ro"}, str(index): {"bind": "/index", "mode": "rw"}},
            )
            # The container's user owns the files in the folder.
            output_of(
                client,
                image.digest,
                ["-c", "rm -rf /index/* /index/.building"],
                entrypoint=["sh"],
                user="0",
                volumes={str(index): {"bind": "/index", "mode": "rw"}},
            )
    finally:
        client.close()
    lines = output.decode("utf-8").splitlines()
    return [json.loads(line.removeprefix("said ")) for line in lines if line.startswith("said ")]

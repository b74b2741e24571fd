"""Time the planning of a suite of 5,000 jobs for EC2 and for Batch, and the writing of its parts.

``python -m benchmarks.cloud_scale [CELLS]`` prints seconds and peak memory; exit code 1 beyond the bounds.  Systems are
fakes, S3 is moto's server; nothing is launched.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from harness.aws.batch.backend import BatchBackend
from harness.aws.clients import Connections
from harness.aws.ec2 import account
from harness.aws.ec2.backend import Ec2Backend
from harness.aws.rental import RentalBackend
from tests.aws import server
from tests.aws.ec2.conftest import TYPES, WORK, Field
from tests.conftest import Bench, make_bench

TRIALS = 5
PLAN_S, MEMORY_MIB = 5.0, 500.0
_DATASETS = 10
_PROFILES = ("cpu1-mem256m", "cpu1-mem1", "cpu1-mem2", "cpu1-mem4")
_PROTOCOL = f'[protocol]\nname = "interleaved"\nwarmup_queries = 2\ntrials = {TRIALS}\nrepeats = 0\nk = 3\n'


def main(cells: int = 1000) -> int:
    """Plan the suite for both services."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_bench(folder)
        for number in range(_DATASETS):
            shutil.copytree(folder / "tiny", folder / f"tiny{number}")
        with server.running(folder / "moto.log") as endpoint:
            os.environ.update(server.environment(endpoint), HARNESS_IMAGES=str(folder / "engines"))
            account.up(Connections(server.REGION), WORK, server.REGION, "bench", TYPES)
            systems = ("planted", *(f"s{number:03}" for number in range(1, cells // len(_PROFILES) // _DATASETS)))
            keys = {"profiles": list(_PROFILES), "datasets": [f"./tiny{number}" for number in range(_DATASETS)]}
            field = Field(Bench(folder), endpoint, systems, {"instance": "m6i.xlarge"}, _PROTOCOL, keys)
            figures = {"ec2": _planned(field, Ec2Backend), "batch": _planned(field, BatchBackend)}
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({**figures, "peak_mib": round(peak_mib)}, indent=2))
    return 0 if all(plan["plan_s"] < PLAN_S for plan in figures.values()) and peak_mib < MEMORY_MIB else 1


def _planned(field: Field, backend: type[RentalBackend]) -> dict[str, float]:
    made = field.suite_run(backend)
    images = made.found_images()
    started = time.perf_counter()
    draft = made.draft(images, None)
    plan_s = time.perf_counter() - started
    jobs = sum(len(part.jobs) for part in draft.parts)
    return {"jobs": jobs, "parts": len(draft.parts), "plan_s": round(plan_s, 2)}


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))

"""A suite of 5,000 jobs over 200 instances, on moto with boxes in threads: what the orchestrator takes.

``python -m benchmarks.ec2_scale [CELLS INSTANCES]`` prints seconds of planning, seconds of orchestrating (which include
waiting for moto, in a process of its own) and the orchestrator's peak memory; exit code 1 beyond the bounds.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness.ec2.conductor import Pace
from harness.ec2.drafting import Drafter
from rich.console import Console

from harness.aws.client import Connections
from harness.aws.objects import Objects
from harness.ec2 import drafting, setup
from harness.launch.fake import FakeLauncher
from harness.progress import Screen
from tests.aws import server
from tests.conftest import Bench, make_bench
from tests.ec2.conftest import WORK, FakeShipper, Field, launched_and_terminated

TRIALS = 5
PLAN_S, RUN_S, MEMORY_MIB = 5.0, 300.0, 500.0
_DATASETS = 10
_PROFILES = ("cpu1-mem256m", "cpu1-mem1", "cpu1-mem2", "cpu1-mem4")
_PROTOCOL = f'[protocol]\nname = "interleaved"\nwarmup_queries = 2\ntrials = {TRIALS}\nrepeats = 0\nk = 3\n'


def field(folder: Path, endpoint: str, cells: int, instances: int) -> Field:
    """The suite."""
    datasets = [f"./tiny{number}" for number in range(_DATASETS)]
    systems = ("planted", *(f"s{number:03}" for number in range(1, cells // len(_PROFILES) // _DATASETS)))
    asked = {"most": instances, "per_type": instances, "instance": "m6i.2xlarge"}
    keys = {"profiles": list(_PROFILES), "datasets": datasets}
    return Field(Bench(folder), endpoint, systems, asked, _PROTOCOL, keys)


def orchestrate(place: Field) -> None:
    """In a process of its own: plan, then run to the end; print what it took."""
    request = place.request()
    side = place.side(screen=Screen(Console(file=sys.stderr, width=200)), pace=Pace(interval_s=3.0))
    connections = Connections(server.REGION)
    shipper = FakeShipper(Objects(connections, WORK))
    drafter = Drafter(request, drafting.market(request, connections), FakeLauncher(), shipper, side.screen)
    started = time.perf_counter()
    draft = drafter.draft(drafter.found(), None)
    planned = time.perf_counter()
    done = place.run(side)
    print(
        json.dumps(
            {
                "jobs": sum(len(group.jobs) for group in draft.groups),
                "boxes": len(draft.groups),
                "plan_s": planned - started,
                "run_s": time.perf_counter() - planned,
                "cpu_s": time.process_time(),
                "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "complaints": len(done.complaints) + len(done.summary.complaints),
            }
        )
    )


def main(cells: int = 1000, instances: int = 200) -> int:
    """Both sides."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_bench(folder)
        for number in range(_DATASETS):
            shutil.copytree(folder / "tiny", folder / f"tiny{number}")
        with server.running(folder / "moto.log") as endpoint:
            os.environ.update(server.environment(endpoint), HARNESS_IMAGES=str(folder / "engines"))
            setup.up(Connections(server.REGION), WORK, server.REGION, lambda _line: None)
            suite = field(folder, endpoint, cells, instances)
            command = [sys.executable, "-m", "benchmarks.ec2_scale", "orchestrate", str(folder), endpoint]
            with suite.boxes(poll_s=3.0):
                answer = subprocess.run(
                    [*command, str(cells), str(instances)], stdout=subprocess.PIPE, text=True, check=True
                )
            launched, terminated = launched_and_terminated()
    took = json.loads(answer.stdout.splitlines()[-1])
    print(json.dumps({**took, "launched": launched, "terminated": terminated}, indent=2))
    good = took["plan_s"] < PLAN_S and took["run_s"] < RUN_S and took["peak_mib"] < MEMORY_MIB
    return 0 if good and launched == terminated and not took["complaints"] else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["orchestrate"]:
        orchestrate(field(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
    else:
        sys.exit(main(*map(int, sys.argv[1:])))

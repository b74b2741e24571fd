"""``python -m tests.aws.ec2.orchestrator FOLDER``: a run in a process of its own, which can be killed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rich.console import Console

from harness.progress import Screen
from tests.aws.ec2.conftest import Field
from tests.conftest import Bench

if __name__ == "__main__":
    place = Field(Bench(Path(sys.argv[1])), os.environ["AWS_ENDPOINT_URL"])
    done = place.run(place.client(screen=Screen(Console(file=sys.stdout, width=200))))
    sys.exit(1 if done.complaints or done.summary.complaints else 0)

"""``python -m tests.aws.ec2.orchestrator FOLDER``: a run in a process of its own, which can be killed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rich.console import Console

from tests.aws.ec2.conftest import Field
from tests.conftest import Bench

if __name__ == "__main__":
    console = Console(file=sys.stdout, width=200)
    done = Field(Bench(Path(sys.argv[1])), os.environ["AWS_ENDPOINT_URL"], console=console).run()
    sys.exit(1 if done.complaints or done.summary.complaints else 0)

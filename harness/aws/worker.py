"""The agent of a worker on EC2 or Batch: ``python -m harness.aws.worker s3://WORK RUN PART``.

Exit code 0: every job is uploaded; 1: some are not, as the end record says; 2: the agent could not begin and has
written nothing.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from harness.aws.clients import Connections, parse_uri
from harness.aws.errors import aws_errors
from harness.aws.objects import Objects
from harness.errors import HarnessError
from harness.remote.worker import Worker

ROOT_VARIABLE = "HARNESS_WORKER_ROOT"
NOT_BEGUN = 2
_ROOT = "/var/lib/harness"


def worker_id(connections: Connections) -> str:
    """Return this worker's ``aws:userid``: IAM lets it write to that folder."""
    with aws_errors("asking AWS for this worker's id"):
        return str(connections.client("sts").get_caller_identity()["UserId"])


def main(arguments: list[str]) -> int:
    """Run the agent with ``WORK RUN PART``; return its exit code."""
    if len(arguments) != 3:
        sys.stderr.write("harness: python -m harness.aws.worker s3://WORK RUN PART\n")
        return NOT_BEGUN
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    root = Path(os.environ.get(ROOT_VARIABLE) or _ROOT).absolute()
    try:
        connections = Connections()
        work = Objects(connections, parse_uri(arguments[0]))
        worker = Worker(work, worker_id(connections), arguments[1], arguments[2], root)
        return 0 if worker.live() else 1
    except HarnessError as error:
        sys.stderr.write(f"harness: {error}\n")
        return NOT_BEGUN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

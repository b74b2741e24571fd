"""Run the command line with a short poll interval for EC2: ``python -m tests.aws.ec2.typed ARGUMENT...``."""

from __future__ import annotations

import sys

from harness.aws.cloud_run.watch import PollInterval
from harness.cli import main

if __name__ == "__main__":
    PollInterval.__init__.__defaults__ = (0.5, *PollInterval.__init__.__defaults__[1:])  # type: ignore[misc,index]
    main(sys.argv[1:])

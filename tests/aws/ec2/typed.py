"""``python -m tests.aws.ec2.typed ARGUMENT...``: the command line, which looks at EC2 more often than users wait for."""

from __future__ import annotations

import sys

from harness.aws.cloud_run.watch import PollInterval
from harness.cli import main

if __name__ == "__main__":
    PollInterval.__init__.__defaults__ = (0.5, *PollInterval.__init__.__defaults__[1:])  # type: ignore[misc,index]
    main(sys.argv[1:])

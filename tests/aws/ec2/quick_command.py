"""Run the command line with a short poll interval for EC2: ``python -m tests.aws.ec2.quick_command ARGUMENT...``."""

from __future__ import annotations

import sys

from harness.cli import main
from harness.remote.watch import Timeouts

if __name__ == "__main__":
    Timeouts.__init__.__defaults__ = (0.5, *Timeouts.__init__.__defaults__[1:])
    main(sys.argv[1:])

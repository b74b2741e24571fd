"""``python -m tests.ec2.typed ARGUMENT...``: the command line, which looks at EC2 more often than users wait for."""

from __future__ import annotations

import sys

from harness.cli import main
from harness.remote.watch import Pace

if __name__ == "__main__":
    Pace.__init__.__defaults__ = (0.5, *Pace.__init__.__defaults__[1:])  # type: ignore[misc,index]
    main(sys.argv[1:])

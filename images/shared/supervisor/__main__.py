"""Run commands side by side: ``python3 -m supervisor '[["server", "--port", "1"], ["other"]]'``."""

import json
import sys

from supervisor import run

sys.exit(run(json.loads(sys.argv[1])))

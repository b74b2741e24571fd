"""Run commands side by side: ``python3 -m supervisor '[["server", "--port", "1"], ["other"]]' ['{"0": 2}']``."""

import json
import sys

from supervisor import run

stops = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
sys.exit(run(json.loads(sys.argv[1]), stops={int(place): number for place, number in stops.items()}))

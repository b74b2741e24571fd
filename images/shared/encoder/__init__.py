"""Transformer encoders for engines: one checkpoint, one head, one of several inference backends.

``encoder.model`` is what an adapter uses, ``encoder.prepare`` what the build of a system's image runs, and
``encoder.shards`` resumable work over a corpus.
"""

import os
import sys

# Both runtimes would report their use to their makers, from threads of their own: not from inside a measurement.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # OpenVINO then takes its own stub

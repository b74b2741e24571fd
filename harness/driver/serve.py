"""The first process of a service's container: ``python3 -m harness.driver.serve``.

It verifies the limits from inside, as the driver does for an engine in its process, and becomes the server: the command
that the engine's ``service.py`` returns.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import NoReturn

from harness.driver import envelope
from harness.driver.adapter import Parameters
from harness.driver.driver import JobPaths
from harness.driver.records import spec_from_json, to_json

EFFECTIVE = "effective.json"
# Exit code where the limits in force differ from the spec's.
MISMATCH = 78


def main() -> NoReturn:
    """Write the limits in force, then run the server in this process; it returns only where the limits are wrong."""
    paths = JobPaths(dict(os.environ))
    spec = spec_from_json((paths.job / "spec.json").read_text(encoding="utf-8"))
    effective = envelope.read()
    _write(paths.job / "out" / EFFECTIVE, to_json(effective))
    if wrong := envelope.mismatches(spec.envelope, effective, spec.enforced, spec.cpuset):
        print("; ".join(wrong), file=sys.stderr)
        sys.exit(MISMATCH)
    service = importlib.import_module("service")
    command = [str(word) for word in service.command(Parameters(spec.params), spec.envelope, paths.index, paths.assets)]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(command[0], command)  # noqa: S606 # the image's own server


def _write(path: Path, text: str) -> None:
    """Write a file that is whole or absent."""
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.rename(path)


if __name__ == "__main__":
    main()

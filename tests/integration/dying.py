"""``python -m tests.integration.dying``: runs harness again and again, and SIGKILLs it at one point.

It runs in forks of one process that has imported all there is.  Each line that it reads is a JSON list: the arguments,
the environment, and the file for what is said; each line that it writes is how a fork ended.

The arguments are WHEN, POINT, and those of harness.  WHEN is ``before`` or ``after``.  POINT is ``rename:<text>`` (the
first rename whose source or target path holds that text), or ``call:<module>:<attribute.path>`` (the first call of that
function).  WHEN may also be ``in``: POINT is seconds, after which it is killed from outside.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.cli import main


def _deadly(real: Callable[..., Any], when: str, matches: Callable[..., bool]) -> Callable[..., Any]:
    def call(*arguments: Any, **keys: Any) -> Any:
        strikes = matches(*arguments)
        answer = real(*arguments, **keys) if when == "after" or not strikes else None
        if strikes:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    return call


def _arm(when: str, point: str) -> None:
    kind, _, rest = point.partition(":")
    if kind == "rename":
        struck = _deadly(Path.rename, when, lambda source, target: rest in f"{source} {target}")
        Path.rename = struck
        return
    module, _, path = rest.partition(":")
    owner: Any = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    setattr(owner, name, _deadly(getattr(owner, name), when, lambda *_: True))


def _serve() -> None:
    for name in (
        "harness.jobs.orchestrator",
        "harness.launch.docker",
        "harness.analysis.results_folder",
        "harness.analysis.rows",
        "harness.report.verify",
        "pyarrow.parquet",
    ):
        importlib.import_module(name)
    for line in sys.stdin:
        arguments, environment, said = json.loads(line)
        child = os.fork()
        if child == 0:
            os.environ.clear()
            os.environ.update(environment)
            file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            for number in (1, 2):
                os.dup2(file, number)
            # As if it had started with that environment.
            tempfile.tempdir = None
            importlib.import_module("tests.integration.elsewhere.sitecustomize")
            if arguments[0] != "in":
                _arm(*arguments[:2])
            main(arguments[2:], prog_name="harness")
        if arguments[0] == "in":
            time.sleep(float(arguments[1]))
            os.kill(child, signal.SIGKILL)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    _serve()

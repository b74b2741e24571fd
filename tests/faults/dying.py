"""``python -m tests.faults.dying WHEN POINT harness-arguments...``: a harness that dies (SIGKILL) at one chosen moment.

WHEN is ``before`` or ``after``.  POINT is ``rename:<text>`` (the first rename whose source or target path holds that
text), or ``call:<module>:<attribute.path>`` (the first call of that function).
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.cli import main


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _deadly(real: Callable[..., Any], when: str, matches: Callable[..., bool]) -> Callable[..., Any]:
    def call(*arguments: Any, **keys: Any) -> Any:
        strikes = matches(*arguments)
        if strikes and when == "before":
            _die()
        answer = real(*arguments, **keys)
        if strikes:
            _die()
        return answer

    return call


def _arm(when: str, point: str) -> None:
    kind, _, rest = point.partition(":")
    if kind == "rename":
        struck = _deadly(Path.rename, when, lambda source, target: rest in f"{source} {target}")
        Path.rename = struck  # type: ignore[method-assign]
        return
    module, _, path = rest.partition(":")
    owner: Any = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    setattr(owner, name, _deadly(getattr(owner, name), when, lambda *_: True))


if __name__ == "__main__":
    _arm(sys.argv[1], sys.argv[2])
    sys.argv[1:] = sys.argv[3:]
    main(prog_name="harness")

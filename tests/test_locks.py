"""Locks that processes share."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from harness import filesystem


def test_one_holds_a_name_and_others_hold_other_names(tmp_path: Path) -> None:
    order: list[str] = []
    started = threading.Event()

    def second() -> None:
        started.set()
        with filesystem.alone(tmp_path, "a"):
            order.append("second")

    waiting = threading.Thread(target=second)
    with filesystem.alone(tmp_path, "a"):
        waiting.start()
        started.wait()
        with filesystem.alone(tmp_path, "b"):
            order.append("another")
        waiting.join(0.2)
        order.append("first")
    waiting.join()
    assert order == ["another", "first", "second"]


def test_what_a_killed_process_held_is_free(tmp_path: Path) -> None:
    lines = "import sys, time; from pathlib import Path; from harness import filesystem\n"
    lines += "with filesystem.alone(Path(sys.argv[1]), 'a'):\n    print('held', flush=True)\n    time.sleep(600)\n"
    with subprocess.Popen([sys.executable, "-c", lines, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        holder.kill()
        with filesystem.alone(tmp_path, "a"):
            pass

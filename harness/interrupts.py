"""Signals that stop a run: all of them end it as Ctrl-C does, and none of them cuts off the cleaning up."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def stop_as_ctrl_c_does() -> None:
    """Let SIGTERM, SIGHUP and SIGQUIT raise KeyboardInterrupt; what is ignored (``nohup``) stays ignored."""
    for number in _STOPPING[1:]:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def ignore_ctrl_c() -> None:
    """Ignore further Ctrl-C: this process is ending already."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def held_back() -> Iterator[None]:
    """Hold these signals back until the block has ended, then stop; other threads than the main one get none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    heard = [number for number in _STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, lambda given, _: came.append(given)) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt

"""Make images side by side: a build waits for disk and network as much as for CPUs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

from harness.errors import ImageError
from harness.launch import host
from harness.progress import Progress, duration, task

log = logging.getLogger(__name__)

Made = TypeVar("Made")
# Makes one image and reports its steps; ends early once the event is set, because the run was stopped.
Maker = Callable[[threading.Event, Progress], Made]

# More would only share the disk.
_MOST = 4
# An image that took less was there already.
_NOTABLE_S = 2.0


def make(makers: Mapping[str, Maker[Made]]) -> Iterator[tuple[str, Made | ImageError]]:
    """Make images, as many at once as there are CPUs; yield each by its name as it ends, or its error.

    If the caller stops, or another error than ImageError occurs, the builds that run are ended.
    """
    stopped = threading.Event()

    def attempt(name: str, maker: Maker[Made]) -> Made | ImageError:
        try:
            with making(name) as progress:
                return maker(stopped, progress)
        except ImageError as error:
            return error

    # The pool waits for its threads when it is left, so they are told to end before.
    with task("images", line=False) as step, ThreadPoolExecutor(min(_MOST, host.cpus())) as pool:
        try:
            running: dict[Future[Made | ImageError], str] = {
                pool.submit(attempt, name, maker): name for name, maker in makers.items()
            }
            for number, ended in enumerate(as_completed(running), 1):
                yield running[ended], ended.result()
                step(number, len(running))
        finally:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def making(name: str) -> Iterator[Progress]:
    """Show that an image is being made; log how long it took, unless it was there already."""
    began = time.monotonic()
    with task(f"{name}: image") as progress:
        yield progress
    if time.monotonic() - began > _NOTABLE_S:
        log.info(f"  {name}: image made in {duration(time.monotonic() - began)}")

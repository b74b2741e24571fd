"""Messages that harness logs."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

# What Python writes for bytes, paths, classes and other objects, and people do not.
PYTHON = re.compile(r"""\bb['"]|\b(Posix|Pure\w*)Path\(|<class '|\bobject at 0x|<[A-Za-z_]+\.[A-Z_]+: """)


class _Kept(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def messages() -> Iterator[list[str]]:
    """Collect messages in a list, in the order in which they are logged."""
    logger, lines = logging.getLogger("harness"), list[str]()
    handler, level = _Kept(lines), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)

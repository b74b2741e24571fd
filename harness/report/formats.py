"""What writes each format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from harness.errors import UnknownName

Writer = TypeVar("Writer")


def writer(writers: Mapping[str, Writer], format: str) -> Writer:
    """The one of that format.

    Raises:
        UnknownName: there is none.
    """
    if format not in writers:
        raise UnknownName("format", format, tuple(writers))
    return writers[format]

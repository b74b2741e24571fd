"""Heads that score a whole document from the hidden states of its windows, by name.

A head that scores each window by itself needs no module here: see ``window_scores`` in :mod:`parameters`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from encoder.errors import BadCheckpoint

if TYPE_CHECKING:
    from heads.windows_batch import DocumentHead  # imports PyTorch, which windows scored by themselves may not need

# name -> module of this package that defines it in its table HEADS.
MODULES: dict[str, str] = {
    "cedr-knrm": "cedr",
    "cedr-drmm": "cedr",
    "cedr-pacrr": "cedr",
    "parade-avg": "parade",
    "parade-max": "parade",
    "parade-attn": "parade",
    "parade-transformer": "parade",
    "lateir": "lateir",
}


def find(name: str) -> type[DocumentHead]:
    """Return the head of a name.

    Raises:
        BadCheckpoint: there is none.
    """
    if name not in MODULES:
        raise BadCheckpoint(f"no aggregation {name!r}; there are {', '.join(sorted(MODULES))}")
    found: type[DocumentHead] = import_module(f"heads.{MODULES[name]}").HEADS[name]
    return found

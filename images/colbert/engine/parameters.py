"""The parameters of a ColBERT system: those that each method reads, and their values."""

from __future__ import annotations

from types import ModuleType

from engine import dessert, muvera, plaid, uncompressed
from harness.driver.records import Scalar

# A method is a module: READ, SHAPING and OPTIONAL, check, build, load.
METHODS: dict[str, ModuleType] = {
    "plaid": plaid,
    "uncompressed": uncompressed,
    "dessert": dessert,
    "muvera": muvera,
}

_ALL = ("method", "checkpoint", "document_tokens", "batch_size", "chunk_documents", "query_tokens")
_SHAPING = ("method", "checkpoint", "document_tokens")


def check(params: dict[str, Scalar]) -> None:
    """Take a method's parameters, no others, and all but the optional ones.

    Raises:
        ValueError: one is unknown, missing or wrong; one that nothing reads would rank as if it were not there.
    """
    method = str(params.get("method"))
    if method not in METHODS:
        raise ValueError(f"method is {params.get('method')!r}, must be one of {', '.join(METHODS)}")
    names, optional = (*_ALL, *METHODS[method].READ), METHODS[method].OPTIONAL
    known = sorted((*names, *optional))
    for name in params:
        if name not in known:
            raise ValueError(f"unknown parameter {name!r}; the method {method} reads {', '.join(known)}")
    for name in names:
        if name not in params:
            raise ValueError(f"the parameter {name!r} is missing; the method {method} reads it")
    METHODS[method].check(params)


def shaping(method: str) -> tuple[str, ...]:
    """Name the parameters that an index depends on: under others it answers nonsense."""
    return (*_SHAPING, *METHODS[method].SHAPING)

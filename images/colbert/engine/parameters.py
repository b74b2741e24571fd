"""The parameters of a ColBERT system: what each method reads, and what they must be."""

from __future__ import annotations

from engine import uncompressed
from harness.records import Scalar

_BOTH = ("method", "checkpoint", "document_tokens", "batch_size", "chunk_documents", "query_tokens")
_READ = {
    "plaid": (*_BOTH, "nbits", "kmeans_niters", "k", "ncells", "centroid_score_threshold", "ndocs"),
    "uncompressed": (*_BOTH, "candidates", "nprobe", "faiss_depth"),
}

# Those that an index depends on: under others it answers nonsense.
SHAPING = {
    "plaid": ("method", "checkpoint", "document_tokens", "nbits", "kmeans_niters"),
    "uncompressed": ("method", "checkpoint", "document_tokens", "candidates"),
}


def check(params: dict[str, Scalar]) -> None:
    """Take a method's parameters, all of them and no others.

    Raises:
        ValueError: one is unknown, missing or wrong; one that nothing reads would rank as if it were not there.
    """
    method = params.get("method")
    if method not in _READ:
        raise ValueError(f"method is {method!r}, must be one of {', '.join(_READ)}")
    names = _READ[str(method)]
    for name in params:
        if name not in names:
            raise ValueError(f"unknown parameter {name!r}; the method {method} reads {', '.join(sorted(names))}")
    for name in names:
        if name not in params:
            raise ValueError(f"the parameter {name!r} is missing; the method {method} reads it")
    if method == "plaid" and params["nbits"] not in (1, 2, 4):
        raise ValueError(f"nbits is {params['nbits']!r}, must be 1, 2 or 4")
    if method == "uncompressed" and params["candidates"] not in uncompressed.CANDIDATES:
        raise ValueError(f"candidates is {params['candidates']!r}, must be 'faiss' or 'all'")

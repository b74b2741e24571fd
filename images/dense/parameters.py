"""The parameters of a dense system: their defaults, and what they must be."""

from __future__ import annotations

from typing import Any

import faiss_index

from harness.driver.records import Scalar

# Those without a default must be given, except the names of folders and heads, which have two spellings each.
BUILD: dict[str, Scalar | None] = {
    "model": None,
    "document_model": None,
    "head": None,
    "pooling": None,
    "document_head": None,
    "normalise": False,
    "similarity": "ip",
    "document_tokens": None,
    "document_prefix": "",
    "document_segment": 0,
    "document_backend": "torch",
    "title": "join",
    "title_separator": " ",
    "segments": False,
    "original_positions": 0,
    "batch_size": 16,
    "shard_documents": 1024,
    "index": "flat",
    "hnsw_m": 32,
    "hnsw_ef_construction": 200,
    "ivf_nlist": 1024,
    "pq_m": 32,
    "pq_nbits": 8,
    "train_documents": 65536,
    "seed": 1234,
    "keep_vectors": False,
}
SEARCH: dict[str, Scalar | None] = {
    "query_model": None,
    "query_head": None,
    "query_tokens": None,
    "query_prefix": "",
    "query_segment": 0,
    "backend": "torch",
    "hnsw_ef_search": 128,
    "ivf_nprobe": 32,
    "rescore": 0,
    "faiss_threads": 0,
}

# What the vectors in an index depend on; and, by kind of index, what else its content depends on.
_VECTORS = (
    "normalise",
    "similarity",
    "document_tokens",
    "document_prefix",
    "document_segment",
    "document_backend",
    "title",
    "title_separator",
    "segments",
    "index",
)
_BY_KIND = {
    "flat": (),
    "hnsw": ("hnsw_m", "hnsw_ef_construction"),
    "ivfpq": ("ivf_nlist", "pq_m", "pq_nbits", "train_documents", "seed"),
    "sq8": ("train_documents", "seed"),
    "binary": (),
}

_ONE_OF = {"similarity": faiss_index.SIMILARITIES, "index": faiss_index.KINDS, "title": ("join", "pair", "drop")}
_AT_LEAST_ONE = (
    "document_tokens",
    "query_tokens",
    "batch_size",
    "shard_documents",
    "hnsw_m",
    "hnsw_ef_construction",
    "hnsw_ef_search",
    "ivf_nlist",
    "ivf_nprobe",
    "pq_m",
    "pq_nbits",
    "train_documents",
)


def complete(given: dict[str, Scalar]) -> dict[str, Any]:
    """Add the defaults to the given parameters.

    Raises:
        ValueError: one is unknown or wrong.
    """
    known = {**BUILD, **SEARCH}
    for name in given:
        if name not in known:
            raise ValueError(f"unknown parameter {name!r}; this engine reads {', '.join(sorted(known))}")
    params: dict[str, Any] = {**{name: value for name, value in known.items() if value is not None}, **given}
    for name, choices in _ONE_OF.items():
        if params[name] not in choices:
            raise ValueError(f"{name} is {params[name]!r}, must be one of {', '.join(choices)}")
    for name in ("document_tokens", "query_tokens"):
        if name not in params:
            raise ValueError(f"the parameter {name} is missing: the longest text in tokens")
    for name in _AT_LEAST_ONE:
        if isinstance(params[name], bool) or not isinstance(params[name], int) or params[name] < 1:
            raise ValueError(f"{name} is {params[name]!r}, must be a whole number, at least 1")
    for name, without in (("original_positions", "positions as they are"), ("rescore", "the scores of the codes")):
        value = params[name]
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"{name} is {value!r}, must be a whole number, 0 for {without}")
    _check_codes(params)
    return params


def _check_codes(params: dict[str, Any]) -> None:
    """Raise ValueError if vectors are kept of an index that has them, or rescore what is not kept."""
    if params["keep_vectors"] and params["index"] not in faiss_index.CODED:
        coded = ", ".join(faiss_index.CODED)
        raise ValueError(f"keep_vectors: an index {params['index']!r} has its vectors already; it is for {coded}")
    if params["rescore"] and not params["keep_vectors"]:
        raise ValueError(f"rescore is {params['rescore']}, but the index has no vectors beside codes; add keep_vectors")


def shaping(params: dict[str, Any]) -> dict[str, Scalar]:
    """Select the parameters that shape an index."""
    wanted = [name for name in ("original_positions", "keep_vectors") if params[name]]
    return {name: params[name] for name in (*_VECTORS, *wanted, *_BY_KIND[str(params["index"])])}


def settings(params: dict[str, Any]) -> faiss_index.Settings:
    """Return the settings of the index and its search."""
    names = [name for name in faiss_index.Settings.__dataclass_fields__ if name != "kind"]
    return faiss_index.Settings(kind=params["index"], **{name: params[name] for name in names})

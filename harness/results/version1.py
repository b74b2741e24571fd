"""Read results of version 1: one flat record, lifted into the nested records of version 2."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# The keys of version 1 that each nested record of version 2 took over.
_MEASURED = (
    *("effective", "phases", "load_s", "libraries", "device", "warmup_steady", "probes", "rate_qps", "compiled_s"),
)
_INDEX_OBSERVED = ("throttled_periods", "canary", "counters", "gpu", "placement", "shared_host")
_INDEX_MEMORY = ("peak_anon_bytes", "peak_cgroup_bytes")
_OBSERVED = ("exit_code", "oom_kills", "memory", *_INDEX_OBSERVED)
_ANSWERS = ("first_query_s", "warmup_done", "trials_finished", "ranking_disagreements")
_PROVENANCE = (
    *("image_bytes", "stand_in", "pinned_at_first_use", "sweep"),
    *("corpus_documents", "data_faults", "nominal_memory_bytes"),
)


def lift(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a result of version 1 as version 2 writes it; values are not checked.

    Version 1 does not say what the driver thought of the outcome: the host's verdict stands for it.
    """
    flat = dict(raw)
    measured = _taken(flat, _MEASURED)
    nested = {
        "observed": _taken(flat, _OBSERVED),
        "answers": _taken(flat, _ANSWERS),
        "provenance": _taken(flat, _PROVENANCE),
        "index": lift_index(flat.get("index")),
        "schema_version": 2,
    }
    if any(measured.values()):
        nested["measured"] = {"outcome": flat.get("outcome"), "detail": None, "effective": None, **measured}
    return flat | nested


def lift_index(raw: Any) -> Any:
    """Return the facts of an index as version 2 writes them; those of version 2 as they are."""
    if not isinstance(raw, dict) or "observed" in raw:
        return raw
    flat = dict(raw)
    observed = {"memory": _taken(flat, _INDEX_MEMORY), **_taken(flat, _INDEX_OBSERVED)}
    parts = flat.get("components")
    if isinstance(parts, dict):
        flat["components"] = {name: lift_index(part) for name, part in parts.items()}
    return flat | {"observed": observed}


def _taken(flat: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Take these keys out of a record, as far as it has them."""
    return {name: flat.pop(name) for name in names if name in flat}

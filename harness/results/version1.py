"""Read results of version 1: one flat record, lifted into the nested records of version 2."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from harness.driver.records import Measurement
from harness.results.schema import AnswerCounts, JobProvenance, Memory, Observed

# The digest of a job without an image.
_NO_IMAGE = "none"
# Version 1 has the fields of these records at its top.  The driver's own verdict is not among them.
_MEASURED = {each.name for each in fields(Measurement)} - {"outcome", "detail", "protocol_version"}
_OBSERVED, _ANSWERS, _PROVENANCE = (
    {each.name for each in fields(record)} for record in (Observed, AnswerCounts, JobProvenance)
)
_MEMORY = {each.name for each in fields(Memory)}


def lift(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a result of version 1 as version 2 writes it; values are not checked.

    Its spec names the image by its digest alone.  The digest stands for the recipe, so that attempts with different
    images stay apart, and it equals no recipe of today.  Version 1 lacks the driver's own outcome: the host's
    verdict takes its place.  Key and seal stay as in the file.
    """
    flat = dict(raw)
    spec = flat.get("spec")
    if isinstance(spec, dict) and "image_digest" in spec:
        digest = spec["image_digest"]
        flat["spec"] = {name: value for name, value in spec.items() if name != "image_digest"} | {"recipe": digest}
        flat["image_digest"] = None if digest == _NO_IMAGE else digest
    nested = {
        "observed": _taken(flat, _OBSERVED),  # before the measurement, which has counters of the same names
        "answers": _taken(flat, _ANSWERS),
        "provenance": _taken(flat, _PROVENANCE),
        "index": _lift_index(flat.get("index")),
        "schema_version": 2,
    }
    measured = _taken(flat, _MEASURED)
    if any(measured.values()):
        told = {"outcome": flat.get("outcome"), "detail": None, "effective": None, "protocol_version": 1}
        nested["measured"] = told | measured
    return flat | nested


def _lift_index(raw: Any) -> Any:
    if not isinstance(raw, dict):
        return raw  # the reader names the key that is wrong
    flat = dict(raw)
    observed = {"memory": _taken(flat, _MEMORY), **_taken(flat, _OBSERVED)}
    parts = flat.get("components")
    if isinstance(parts, dict):
        flat["components"] = {name: _lift_index(part) for name, part in parts.items()}
    return flat | {"observed": observed}


def _taken(flat: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Take these keys out of a record, as far as it has them."""
    return {name: flat.pop(name) for name in names if name in flat}

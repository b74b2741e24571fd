"""Results of version 1, read as those of today."""

from __future__ import annotations

from typing import Any

# What a job without an image had as its image's digest.
_NO_IMAGE = "none"


def lifted(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a record of version 1 with the fields of today; its key and its seal stay those of its file.

    Its spec names the image by its digest alone.  The digest stands for the recipe, so that attempts with different
    images stay apart, and it equals no recipe of today.

    Raises:
        ValueError: it has no digest.
    """
    spec = raw.get("spec")
    if not isinstance(spec, dict) or "image_digest" not in spec:
        return raw  # the reader names the key that is missing
    image_digest = spec["image_digest"]
    rest = {name: value for name, value in spec.items() if name != "image_digest"}
    made = None if image_digest == _NO_IMAGE else image_digest
    return {**raw, "spec": {**rest, "recipe": image_digest}, "image_digest": made}

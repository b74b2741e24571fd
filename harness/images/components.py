"""What a system that joins others is told of each: ``components.json`` in its image, or beside its adapter."""

from __future__ import annotations

import json

from harness.catalog import System
from harness.images.recipe import sha256


def told(system: System, environments: list[dict[str, str]]) -> str:
    """The file's text.

    Args:
        environments: of each component in turn, the variables that its own image gives its processes.
    """
    components = [
        {
            "name": each.name,
            "engine": each.engine,
            # Two engines that put theirs into one place would else be one, unnoticed.
            "adapter_sha256": sha256(each.engine_dir / "adapter.py"),
            "resumable_builds": each.resumable_builds,
            "environment": environment,
        }
        for each, environment in zip(system.components, environments, strict=True)
    ]
    return json.dumps(components, indent=2, sort_keys=True)

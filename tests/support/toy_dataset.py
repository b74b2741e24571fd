"""An engine without packages and assets, whose image is made in a second."""

from __future__ import annotations

from pathlib import Path

from harness.launch.images.asset import Asset
from harness.launch.images.systems import System
from tests.support import job_fixtures

_DOCKERFILE = """\
ARG BASE
FROM ${BASE}
COPY adapter.py /opt/adapter/adapter.py
COPY driver /opt/harness
"""


def make(folder: Path) -> System:
    """Write the engine, named for its folder so that concurrent tests share no image."""
    name = folder.name.replace("_", "-").lower()
    engine = folder / f"toys-{name}"
    engine.mkdir()
    (engine / "Dockerfile").write_text(_DOCKERFILE)
    (engine / "adapter.py").write_text("ENGINE = None\n")
    (engine / "requirements.lock").write_text("")
    (engine / "engine.toml").write_text('description = "toys"\n')
    return job_fixtures.system(f"toy-{name}", engine=engine.name, engine_dir=engine)


def with_asset(system: System, sha: str, folder: str = "model") -> System:
    """Add an asset of one file to a system."""
    asset = Asset.model_validate({"folder": folder, "licence": "MIT", "sha256": {"file": sha}})
    return system.model_copy(update={"assets": (asset,)})

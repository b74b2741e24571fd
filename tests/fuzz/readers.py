"""All readers of foreign files, by name."""

from __future__ import annotations

from tests.fuzz import (
    asset_readers,
    cloud_readers,
    dataset_readers,
    image_readers,
    result_readers,
    run_readers,
    toml_readers,
)
from tests.fuzz.child import Reader

_GROUPS = (
    toml_readers,
    result_readers,
    run_readers,
    dataset_readers,
    image_readers,
    asset_readers,
    cloud_readers,
)
READERS: dict[str, Reader] = {reader.name: reader for group in _GROUPS for reader in group.READERS}

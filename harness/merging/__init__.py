"""Results of several people or machines in one folder, each under the name of its origin.

``OUT/<origin>/<suite>/...`` and ``OUT/<origin>/origin.toml``.  Job keys say what was measured and not where, so the
origins stay apart on disk, and in every table (:mod:`harness.rows`).
"""

from __future__ import annotations

from harness.merging.joining import Merged, merge
from harness.merging.sources import Source, named

__all__ = ["Merged", "Source", "merge", "named"]

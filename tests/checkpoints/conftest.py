"""The cache and the texts that tests of checkpoints share."""

from __future__ import annotations

import os
from pathlib import Path

from harness.experiments import conformance

# The same place as the command line's: what it has fetched already is not fetched again.
CACHE = Path(os.environ.get("HARNESS_CACHE") or Path.home() / ".cache" / "ir-harness")

# All that the contract's check says: a vocabulary has whole words of what it has seen.
TEXTS = [
    *(f"{document['title']} {document['text']}" for document in conformance.documents()),
    *(query.text for query in (*conformance.warmup(), *conformance.queries())),
]

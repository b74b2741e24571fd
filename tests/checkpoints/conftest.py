"""The cache and the texts that tests of checkpoints share."""

from __future__ import annotations

import os
from pathlib import Path

# The same place as the command line's: what it has fetched already is not fetched again.
CACHE = Path(os.environ.get("HARNESS_CACHE") or Path.home() / ".cache" / "ir-harness")

TOPICS = ["river", "glacier", "volcano", "desert", "forest", "harbour", "bridge", "castle", "market", "orchestra"]
# As the documents and queries of the contract's check are worded: a vocabulary has whole words of what it has seen.
TEXTS = [
    text
    for topic in TOPICS
    for text in (
        f"{topic.capitalize()} This one is about the {topic} of the north . A {topic} is {topic}.",
        f"Letters Home again from far north we wrote that somebody saw one {topic} there.",
        f"old the {topic} of the north",
    )
]

"""What readers import at their first read: the server of all children has it, so that a new child is ready at once."""

from __future__ import annotations

import ir_measures  # noqa: F401
import nltk  # noqa: F401
import pandas  # noqa: F401
import pytest  # noqa: F401 # multiprocessing imports the parent's main module in each child

from harness.cli import explain, export, leaderboard, report  # noqa: F401
from tests.fuzz.changes import compress_bombs

compress_bombs()

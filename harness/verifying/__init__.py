"""Stored results against themselves: what does not follow from what is stored, place by place."""

from __future__ import annotations

from harness.verifying.mismatch import Mismatch
from harness.verifying.run import Verified, verify

__all__ = ["Mismatch", "Verified", "verify"]

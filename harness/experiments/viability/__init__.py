"""The least memory with which a system still does its work: search, reverse question, curve.  See docs/method/viability.md."""

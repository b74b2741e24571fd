"""Find the least memory with which a system still does its work; see docs/method/viability.md."""

"""Planted truths: a system that does what its parameters say, measured the whole real way, held against the report."""

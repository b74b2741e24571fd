"""Calibration: measure a system that does what its parameters say, and compare the report with the injected values."""

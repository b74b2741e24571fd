"""Experiments of many jobs: the smallest hardware, calibration by known values, conformance."""

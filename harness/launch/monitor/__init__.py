"""Samplers and counters of a running job."""

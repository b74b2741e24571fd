"""Scripts of a Batch job's containers: Python alone, sent in its command."""

"""AWS Batch runs the parts of a suite: it queues, scales, retries.

A container that Batch starts has no CPUs of its own, no limit on swap or processes, and a network for its results: its
numbers would not compare with those of ``--launcher docker``.  So a job's container is an agent (``agent/host.py``)
that has the host's engine start another (``agent/container.py``), which works as a worker of EC2 does.
"""

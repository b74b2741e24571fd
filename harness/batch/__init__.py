"""AWS Batch runs the parts of a suite: it queues, scales, retries and bills.

A container that Batch starts has no CPUs of its own, no limit on swap or processes, and needs a network for its results.
Its numbers would not compare with those of ``--launcher docker``.  So a job's container is an agent (``agent/host.py``)
that has the host's engine start a second one beside it (``agent/container.py``): that does its part as a box of EC2
does, and launches the system's image under its enforced envelope.
"""

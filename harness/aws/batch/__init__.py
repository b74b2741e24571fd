"""AWS Batch runs the parts of a suite: it queues, scales, retries.

A container that Batch starts shares its CPUs, has no limit on swap or processes, and needs a network for its results.
Its numbers would not compare with the numbers of ``--launcher docker``.  So a job's container is an agent
(``agent/host.py``) that has the host's engine start another (``agent/container.py``), which works as a worker of EC2
does.
"""

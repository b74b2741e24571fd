"""AWS Batch: past a handful of machines, an existing engine queues, scales, retries and bills.  No scheduler here.

What Batch runs is not a system's image but an *agent*.  A container that Batch starts has no CPUs of its own (ECS
gives shares, no cpuset), swap and the number of processes are not held as ours are, an untrusted image would need the
network to hand its results over, and nobody would sample it from outside.  A number measured so would not be
comparable with one of ``--launcher docker``.  So the job's container is the plain Python image with the socket of the
host's engine: it has that start a sibling, with the host's pids, cgroups and network, which does exactly what a box of
EC2 does (:mod:`harness.remote`), and launches the system's image under its enforced envelope, without network,
followed from outside.  The driver in that image verifies its real envelope as everywhere else, and refuses a mismatch.

Batch's own limits (vCPU, memory, GPU) decide how many jobs share a host: one, unless ``--shared``.
"""

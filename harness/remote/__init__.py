"""What machines elsewhere (EC2, Batch) share: their part of a plan, what is shipped to them, and what comes home.

The orchestrator and its boxes speak through objects below one *work place* in S3 (:mod:`harness.remote.layout`).
"""

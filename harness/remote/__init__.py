"""Runs on rented machines (EC2, AWS Batch): ship inputs, launch workers, fetch their jobs.

The orchestrator and its workers exchange objects below one *work place* in S3
(:mod:`harness.remote.records`).
"""

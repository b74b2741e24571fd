"""Machines elsewhere (EC2, AWS Batch): what is shipped to them, what they run, and how their jobs come home.

The orchestrator and its boxes speak through objects below one *work place* in S3 (:mod:`harness.aws.cloud_run.records`).
"""

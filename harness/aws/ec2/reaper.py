"""The deadline on AWS's side: a Lambda function that EventBridge calls.

Its file is its code; nothing imports it.  It ends each worker whose time is over, or whose expiry cannot be read;
hosts of Batch have none, and Batch ends them.
"""

from __future__ import annotations

import datetime

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError


def handler(event: dict[str, str], _context: object) -> None:
    """End late workers; a worker that cannot be ended spares no other."""
    now = datetime.datetime.fromisoformat(event["time"])
    # A request that hangs must not take the time of all others, which is two minutes.
    quick = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 2})
    ec2, late, failed = boto3.client("ec2", config=quick), list[str](), list[str]()
    states = ["pending", "running", "stopping", "stopped"]
    filters = [{"Name": "tag-key", "Values": ["harness:owner"]}, {"Name": "instance-state-name", "Values": states}]
    try:
        for page in ec2.get_paginator("describe_instances").paginate(Filters=filters):
            for instance in (member for reservation in page["Reservations"] for member in reservation["Instances"]):
                expiry = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}.get("harness:expiry")
                try:
                    if expiry is not None and datetime.datetime.fromisoformat(expiry) <= now:
                        late.append(instance["InstanceId"])
                except (TypeError, ValueError):
                    late.append(instance["InstanceId"])
    finally:  # those of the pages that came
        for name in late:
            try:
                ec2.terminate_instances(InstanceIds=[name])
                print("ended", name)  # into its log
            except (BotoCoreError, ClientError) as error:
                failed.append(str(error))
        if failed:
            raise RuntimeError("; ".join(failed))

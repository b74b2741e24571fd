"""What everything of a suite is called in AWS: always the same, so that it is found again without notes."""

from __future__ import annotations

import hashlib
import re

from harness.ec2 import tags

PREFIX = "harness"
# Batch takes 128 characters; IAM 64, which must hold a region and a role's kind too.
_MOST = 128
_MOST_IAM = 64
# The tag that says whose a thing is, and the one that says what it was made of.
SUITE_TAG = tags.SUITE
OWNER_TAG = tags.OWNER
# What Batch's instances have beside: boxes of EC2 are of a suite too.
LAUNCHER_TAG = "harness:launcher"
LAUNCHER = "batch"
DIGEST_TAG = "harness:digest"


def definition(suite: str, image: str, profile: str) -> str:
    """The job definition of a system image and a hardware profile."""
    return _safe(f"{PREFIX}-{suite}-{image}-{profile}", _MOST)


def queue(suite: str, instance_type: str) -> str:
    """The queue, and the compute environment, of an instance type."""
    return _safe(f"{PREFIX}-{suite}-{instance_type}", _MOST)


def shared(suite: str) -> str:
    """What a suite has one of in each region: launch template, security group."""
    return _safe(f"{PREFIX}-batch-{suite}", _MOST)


def role(suite: str, region: str, kind: str) -> str:
    """A role; IAM knows no regions, so its name holds it."""
    return _safe(f"{PREFIX}-batch-{suite}-{region}-{kind}", _MOST_IAM)


def job(run_id: str, group: str) -> str:
    """A submitted job: one name for one group of parts of one run, whoever asks, so that none is submitted twice."""
    return _safe(f"{run_id}-{group}", _MOST)


def logical(*words: str) -> str:
    """A name inside a CloudFormation template: letters and digits; distinct words stay distinct."""
    text = "-".join(words)
    camel = "".join(word[:1].upper() + word[1:] for word in re.split("[^A-Za-z0-9]+", text) if word)
    return f"{camel[:200]}{_hash(text)}"


def _safe(text: str, most: int) -> str:
    """Batch and IAM take letters, digits, ``-`` and ``_``; what had to be changed or cut stays distinct by a hash."""
    plain = re.sub("[^A-Za-z0-9_-]", "-", text)
    if len(plain) <= most and _plainly_distinct(text):
        return plain
    return f"{plain[: most - 9]}-{_hash(text)}"


def _plainly_distinct(text: str) -> bool:
    """Instance types have one dot (``c7g.large``), and no type has a dash in its place."""
    return re.fullmatch(r"[A-Za-z0-9_-]*(\.[a-z0-9]+)?", text) is not None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]

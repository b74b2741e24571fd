"""Names of a suite's things in AWS Batch, fixed for all commands."""

from __future__ import annotations

import hashlib
import re

# Batch and CloudFormation take 128 characters.
_MAXIMUM = 128


def stack(suite: str) -> str:
    """Return the name of a suite's CloudFormation stack."""
    return _safe(f"harness-batch-{suite}", "[^A-Za-z0-9-]")


def definition(suite: str, profile: str) -> str:
    """Return the job definition of a hardware profile."""
    return _safe(f"harness-{suite}-{profile}")


def queue(suite: str, instance_type: str) -> str:
    """Return the queue, and the compute environment, of an instance type."""
    return _safe(f"harness-{suite}-{instance_type}")


def job(run_id: str, submission: str) -> str:
    """Return the name by which later commands find a submission's job."""
    return _safe(f"{run_id}-{submission}")


def logical(*words: str) -> str:
    """Return a name for a template; distinct words stay distinct."""
    text = "-".join(words)
    return re.sub("[^A-Za-z0-9]", "", text.title())[:200] + _hash(text)


def _safe(text: str, forbidden: str = "[^A-Za-z0-9_-]") -> str:
    """Replace forbidden characters; a hash keeps changed and cut names distinct."""
    plain = re.sub(forbidden, "-", text)
    # An instance type has one dot (``c7g.large``), and no type has a dash in its place.
    distinct = plain == text or re.fullmatch(r"[A-Za-z0-9_-]*\.[a-z0-9]+", text)
    return plain if distinct and len(plain) <= _MAXIMUM else f"{plain[: _MAXIMUM - 9]}-{_hash(text)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]

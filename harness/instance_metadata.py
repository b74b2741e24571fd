"""Ask the instance metadata service, version 2, what EC2 tells its own machines.

It is asked only where the firmware says that this is a machine of EC2, or where ``AWS_EC2_METADATA_SERVICE_ENDPOINT``
names it; elsewhere its address may be anybody's.
"""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from pathlib import Path

from harness.result import Ec2Instance

_ENDPOINT = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
_USUAL = "http://169.254.169.254"
_DMI = Path("/sys/class/dmi/id")
_TIMEOUT_S = 2.0
_TRIES = 3
_LIVES_S = "300"
_MOST_BYTES = 4096
_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._:/-]{0,127}")


def instance() -> Ec2Instance | None:
    """This machine, if it is one of EC2; nothing that names its owner is asked for."""
    if not is_ec2():
        return None
    token = _token()
    if token is None:
        return None
    names = {
        "instance_id": "instance-id",
        "instance_type": "instance-type",
        "availability_zone": "placement/availability-zone",
        "ami_id": "ami-id",
        "lifecycle": "instance-life-cycle",
        "placement_group": "placement/group-name",
        "host_id": "placement/host-id",
    }
    found = {name: _value(_get(f"meta-data/{path}", token)) for name, path in names.items()}
    instance_id, instance_type = found.pop("instance_id"), found.pop("instance_type")
    if instance_id is None or instance_type is None:
        return None
    return Ec2Instance(instance_id, instance_type, **found)


def spot_notice() -> str | None:
    """Return what EC2 has announced for this spot instance (``terminate at 2023-...``)."""
    token = _token() if is_ec2() else None
    content = _get("meta-data/spot/instance-action", token) if token else None
    if content is None:
        return None
    try:
        said = json.loads(content)
        return f"{said['action']} at {said['time']}"[:100]
    except (ValueError, KeyError, TypeError):
        return "an interruption"


def is_ec2() -> bool:
    """Return whether there may be somebody to ask."""
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return False
    if os.environ.get(_ENDPOINT):
        return True
    return any("amazon" in _firmware(name).lower() for name in ("sys_vendor", "bios_vendor", "bios_version"))


def _firmware(name: str) -> str:
    try:
        return (_DMI / name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _value(text: str | None) -> str | None:
    return text if text is not None and _VALUE.fullmatch(text) else None


def _token() -> str | None:
    for _ in range(_TRIES):
        found = _ask("api/token", {"X-aws-ec2-metadata-token-ttl-seconds": _LIVES_S}, "PUT")
        if found:
            return found
    return None


def _get(path: str, token: str) -> str | None:
    return _ask(path, {"X-aws-ec2-metadata-token": token}, "GET")


def _ask(path: str, headers: dict[str, str], method: str) -> str | None:
    """The answer; ``None``: there is none such."""
    endpoint = (os.environ.get(_ENDPOINT) or _USUAL).rstrip("/")
    if not endpoint.startswith(("http://", "https://")):
        return None
    request = urllib.request.Request(f"{endpoint}/latest/{path}", headers=headers, method=method)  # noqa: S310
    # No proxy may come between: who asks is the answer.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            return str(answer.read(_MOST_BYTES).decode("ascii")).strip()
    except (OSError, ValueError, urllib.error.URLError):
        return None

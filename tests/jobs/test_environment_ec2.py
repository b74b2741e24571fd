"""Tests of the facts that an EC2 instance reports about itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.jobs import environment
from harness.results.schema import RentedMachine
from tests.aws import server
from tests.aws.ec2 import imds

ENDPOINT = "AWS_EC2_METADATA_SERVICE_ENDPOINT"


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[imds.Metadata]:
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED", raising=False)
    # Must not be used: the answer is for this machine alone.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with imds.running(imds.of()) as running:
        monkeypatch.setenv(ENDPOINT, running.endpoint)
        yield running


@pytest.mark.slow
def test_instance_is_described_without_its_account(service: imds.Metadata) -> None:
    expected = RentedMachine(
        "i-0123456789abcdef0", "c7g.large", f"{server.REGION}a", "ami-0123456789abcdef0", "on-demand"
    )
    assert environment.machine() == replace(expected, cpu_platform=environment.cpu_model())
    service.paths |= {"placement/group-name": "together", "placement/host-id": "h-1"}
    instance = environment.machine()
    assert instance and (instance.placement_group, instance.host_id) == ("together", "h-1")
    assert environment.read(None).instance_type == "c7g.large"
    assert not [path for path in service.requests if "iam" in path or "identity" in path]


@pytest.mark.slow
def test_metadata_is_requested_on_ec2_only(
    service: imds.Metadata, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(ENDPOINT)
    monkeypatch.setattr(environment, "_DMI", tmp_path)
    monkeypatch.setattr(environment, "_DEFAULT_ENDPOINT", service.endpoint)
    (tmp_path / "sys_vendor").write_text("QEMU\n")
    assert environment.machine() is None and environment.spot_notice() is None and service.tokens == set()
    (tmp_path / "sys_vendor").write_text("Amazon EC2\n")
    assert environment.machine() is not None
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert environment.machine() is None


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "file:///etc", "nonsense"])
def test_environment_is_none_if_the_metadata_service_does_not_answer(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED", raising=False)
    monkeypatch.setenv(ENDPOINT, endpoint)
    assert environment.machine() is None and environment.spot_notice() is None


@pytest.mark.slow
def test_malformed_metadata_is_ignored(service: imds.Metadata) -> None:
    service.paths["ami-id"] = "<html>\x1b[2J"
    instance = environment.machine()
    assert instance and instance.ami_id is None
    service.paths["instance-type"] = "x" * 200
    assert environment.machine() is None


@pytest.mark.slow
def test_spot_interruption_notice_is_read(service: imds.Metadata) -> None:
    assert environment.spot_notice() is None
    service.announce(time="2026-05-05T10:00:00Z")
    assert environment.spot_notice() == "terminate at 2026-05-05T10:00:00Z"
    for damaged in ("[]", "[" * 4096):
        service.paths["spot/instance-action"] = damaged
        assert environment.spot_notice() == "an interruption"

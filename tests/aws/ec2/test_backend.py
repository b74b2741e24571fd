"""Launches of one instance: safe, once, and only where everything fits."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse

from harness.aws import clients
from harness.aws.clients import Connections
from harness.aws.ec2 import backend
from harness.aws.ec2 import instances as ec2_instances
from harness.aws.ec2.backend import Ec2Backend
from harness.aws.ec2.instances import Ami
from harness.aws.objects import Objects
from harness.errors import RemoteError, UsageError
from harness.pricing import instances
from harness.remote.backend import ENDED, RUNNING, UNKNOWN, WAITING, LaunchRefused
from harness.remote.records import Launch, PlannedPart, RemoteRun, ShippedInput
from tests.aws import server
from tests.aws.ec2.conftest import WORK, Field, launched_and_terminated, rented
from tests.aws.ec2.faults import Injected
from tests.aws.server import REGION

KNOWN = instances.read_instances("aws")
PART = PlannedPart("cpu1-mem1", "m6i.large", 0.1, 42)
BUNDLE = ShippedInput("inputs/bundles/b.tar.gz", "0" * 64, 1)


@dataclass
class Launched:
    """A backend with a run of one part."""

    field: Field
    connections: Connections
    backend: Ec2Backend
    part: PlannedPart = PART
    at: float = 0.0
    run_id: str = "s-20261122T000000-abcdef"

    def begin(self, **changes: Any) -> Launched:
        """Begin the run, on a part with these changes."""
        terms = {"region": REGION, "market": "spot" if changes.pop("spot", False) else "on-demand"}
        self.part = replace(PART, **changes)
        self.backend.check([self.part])
        self.backend.begin(RemoteRun(self.run_id, "ec2", "s", "r", "0123456789ab", (self.part,), terms), BUNDLE)
        return self

    @property
    def launch(self) -> Launch:
        return Launch(self.part.name, 3600, 1, self.at, self.part.usd_per_hour)

    def __call__(self, launch: Launch | None = None) -> list[Launch]:
        """Launch; return what was noted, in its order."""
        noted: list[Launch] = []
        self.backend.launch(launch or self.launch, self.part, noted.append)
        return noted

    def state(self, launch: Launch) -> Any:
        return self.backend.look([launch])[self.part.name]


@pytest.fixture
def launched(plain: Field) -> Iterator[Launched]:
    """After every test all that was launched is ended, and nothing is left."""
    connections = Connections(REGION)
    Objects(connections, WORK).ask_time()
    backend = rented(plain.request(connections))
    yield Launched(plain, connections, backend, at=round(connections.clock.now))
    ids = [each.instance_id for each in ec2_instances.find(connections, REGION) if each.alive]
    ec2_instances.end(connections, REGION, ids)


def described(instance_id: str | None) -> dict[str, Any]:
    assert instance_id is not None
    answer = boto3.client("ec2", region_name=REGION).describe_instances(InstanceIds=[instance_id])
    found: dict[str, Any] = answer["Reservations"][0]["Instances"][0]
    return found


def requested(launched: Launched) -> dict[str, Any]:
    """Return the request that EC2 gets."""
    seen: list[dict[str, Any]] = []

    def look(_number: int, params: dict[str, Any]) -> None:
        seen.append(params["body"])

    Injected(launched.connections, "ec2.RunInstances", look)
    launched()
    return seen[-1]


def test_launched_instance_is_closed_and_terminates_itself(launched: Launched) -> None:
    made = launched.begin()()[-1].machine
    shown, client = described(made), boto3.client("ec2", region_name=REGION)
    assert shown["MetadataOptions"]["HttpTokens"] == "required"
    assert shown["MetadataOptions"]["HttpPutResponseHopLimit"] == 1
    assert "KeyName" not in shown
    behaviour = client.describe_instance_attribute(InstanceId=made, Attribute="instanceInitiatedShutdownBehavior")
    assert behaviour["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate"
    (volume,) = client.describe_volumes()["Volumes"]
    assert (volume["Encrypted"], volume["VolumeType"], volume["Size"]) == (True, "gp3", 42)
    (interface,) = shown["NetworkInterfaces"]
    (group,) = interface["Groups"]
    (rules,) = client.describe_security_groups(GroupIds=[group["GroupId"]])["SecurityGroups"]
    assert rules["IpPermissions"] == []
    for of in (shown, volume):
        marked = clients.as_dict(of["Tags"])
        assert {clients.SUITE, clients.RUN, clients.PART, clients.OWNER, clients.EXPIRY} <= marked.keys()
        assert not [value for value in marked.values() if "123456789012" in value]
    expiry = datetime.datetime.fromisoformat(marked[clients.EXPIRY])
    assert expiry.timestamp() == launched.at + 3600 + 60


def test_a_network_interface_goes_with_its_instance(launched: Launched) -> None:
    client = boto3.client("ec2", region_name=REGION)
    made = launched.begin()()[-1].machine
    assert made and len(client.describe_network_interfaces()["NetworkInterfaces"]) == 1
    ec2_instances.end(launched.connections, REGION, [made])
    ec2_instances.end(launched.connections, REGION, [made])
    assert client.describe_network_interfaces()["NetworkInterfaces"] == []


def test_an_instance_has_an_address_where_the_subnet_gives_none(launched: Launched) -> None:
    client = boto3.client("ec2", region_name=REGION)
    for subnet in ec2_instances.subnets(launched.connections):
        client.modify_subnet_attribute(SubnetId=subnet.subnet_id, MapPublicIpOnLaunch={"Value": False})
    assert described(launched.begin()()[-1].machine)["PublicIpAddress"]


def test_no_instance_recovers(launched: Launched) -> None:
    """Automatic recovery boots it without the time limit, which died with the first boot."""
    assert requested(launched.begin())["MaintenanceOptions.AutoRecovery"] == "disabled"


def test_spot_request_is_one_time(launched: Launched) -> None:
    assert described(launched.begin(spot=True)()[-1].machine)["InstanceLifecycle"] == "spot"


def test_the_same_launch_has_one_token_and_another_launch_another(launched: Launched) -> None:
    first, again = (requested(launched.begin())["ClientToken"] for _ in range(2))
    assert first == again
    launched.at += 5
    assert requested(launched)["ClientToken"] != first


def test_zone_is_noted_before_the_request(launched: Launched) -> None:
    launched.begin()
    noted: list[str | None] = []
    seen: list[list[str | None]] = []

    def refuse(number: int, _what: dict[str, object]) -> str | None:
        seen.append(list(noted))
        return "InsufficientInstanceCapacity" if number < 2 else None

    Injected(launched.connections, "ec2.RunInstances", refuse)
    launched.backend.launch(launched.launch, launched.part, lambda launch: noted.append(launch.notes.get("zone")))
    zones = ["us-east-1a", "us-east-1b", "us-east-1c"]
    assert noted == [*zones, zones[-1]]
    assert seen == [zones[:1], zones[:2], zones[:3]]


def test_resumed_launch_tries_the_noted_zone_first(launched: Launched) -> None:
    noted = launched.begin()(replace(launched.launch, notes={"zone": "us-east-1c"}))
    assert [launch.notes["zone"] for launch in noted] == ["us-east-1c"]


def test_request_without_capacity_is_repeated_once_at_most(launched: Launched) -> None:
    """EC2 says it with HTTP status 500, which boto3 tries again."""
    sent: list[str] = []

    def answer(request: Any, **_: object) -> AWSResponse:
        sent.append(request.url)
        output = (
            b"<Response><Errors><Error><Code>InsufficientInstanceCapacity</Code><Message>none</Message></Error></Errors>"
            b"<RequestID>x</RequestID></Response>"
        )
        raw = BytesIO(output)
        raw.stream = lambda *_, **__: iter([output])
        return AWSResponse(request.url, 500, {}, raw)

    client = launched.connections.client("ec2", REGION, attempts=backend.ATTEMPTS)
    client.meta.events.register("before-send.ec2.RunInstances", answer)
    launched.begin()
    with pytest.raises(LaunchRefused, match="InsufficientInstanceCapacity"):
        launched()
    assert len(sent) <= 2 * len(ec2_instances.subnets(launched.connections))


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        ("IdempotentParameterMismatch", RemoteError, "Mismatch"),
        (
            "InvalidParameterValue Value (ir-harness) for parameter iamInstanceProfile.name is invalid",
            RemoteError,
            "up",
        ),
        ("ExpiredToken", RemoteError, "log in again"),
        ("Unavailable", RemoteError, "busy"),
        ("InvalidParameterValue something else", LaunchRefused, "something else"),
        ("VcpuLimitExceeded", LaunchRefused, "Service Quotas"),
        ("Unsupported", LaunchRefused, "choose another type or region"),
        ("UnauthorizedOperation", LaunchRefused, "harness ec2 up"),
    ],
)
def test_refusal_of_ec2_is_retried_raised_or_gives_up_the_part(
    launched: Launched, code: str, kind: type[Exception], says: str
) -> None:
    Injected(launched.connections, "ec2.RunInstances", lambda *_: code)
    launched.begin()
    with pytest.raises(kind, match=says):
        launched()


def test_launch_that_s3_does_not_note_raises_the_error_of_s3(launched: Launched) -> None:
    """The instance lives: a refusal would forget it, and what it costs."""

    def note(launch: Launch) -> None:
        if launch.machine is not None:
            raise RemoteError("S3 denies it", "AccessDenied")

    launched.begin()
    with pytest.raises(RemoteError, match="S3 denies it"):
        launched.backend.launch(launched.launch, launched.part, note)
    assert launched_and_terminated() == (1, 0)


@pytest.mark.parametrize("zones", [(), ("us-west-2a",)])
def test_type_that_no_zone_offers_is_refused(
    launched: Launched, zones: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ec2_instances, "zones", lambda *_: {"m6i.large": zones})
    with pytest.raises(UsageError, match="choose another --instance, --region or --subnet"):
        launched.begin()


def test_a_disk_is_at_least_as_large_as_the_image(launched: Launched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ec2_instances, "ami", lambda *_: Ami("ami-1", "/dev/xvda", 75))
    assert requested(launched.begin())["BlockDeviceMapping.1.Ebs.VolumeSize"] == 75


def test_launched_instance_runs_until_it_is_terminated(launched: Launched) -> None:
    noted = launched.begin()()[-1]
    state = launched.state(noted)
    assert state.phase == RUNNING and state.workers[0].endswith(f":{noted.machine}")
    assert state.launched is not None and not state.reason
    launched.backend.end(launched.part.name, state, "it is done")
    state = launched.state(noted)
    assert state.phase == ENDED and "its instance went away" in state.reason and state.seconds is not None


def test_instance_past_its_limit_has_a_reason_to_end(launched: Launched) -> None:
    noted = launched.begin()()[-1]
    server.forward(launched.field.endpoint, 3600 + 421)
    launched.backend._instances()
    boto3.client("s3", region_name=REGION).list_buckets()
    made = launched.field.suite_run()
    made.work.ask_time()
    launched.backend._clock = made.work.clock
    state = launched.state(noted)
    assert state.phase == RUNNING and "time limit of 1.0 h has passed" in state.reason


@pytest.mark.parametrize(("after_s", "phase"), [(0.0, WAITING), (400.0, ENDED)])
def test_hidden_instance_is_waiting_for_a_while(
    launched: Launched, monkeypatch: pytest.MonkeyPatch, after_s: float, phase: str
) -> None:
    noted = launched.begin()()[-1]
    now = launched.backend._clock.now + after_s
    monkeypatch.setattr(launched.backend, "_clock", SimpleNamespace(now=now))
    monkeypatch.setattr(launched.backend, "_instances", list)
    assert launched.state(noted).phase == phase
    assert launched.state(noted).workers[0].endswith(f":{noted.machine}")


def test_launch_past_its_deadline_has_ended(launched: Launched, monkeypatch: pytest.MonkeyPatch) -> None:
    launched.begin()
    monkeypatch.setattr(launched.backend, "_clock", SimpleNamespace(now=launched.at + 3600 + 421))
    assert launched.state(replace(launched.launch, notes={"zone": "us-east-1a"})).phase == ENDED


def test_old_launch_without_a_request_gets_its_whole_time(launched: Launched) -> None:
    """Killed between the note and the request; an hour later nothing must be launched that is due to end."""
    launched.begin()
    launched(replace(launched.launch, at=launched.at - 3500))
    [instance] = ec2_instances.find(launched.connections, REGION)
    left_s = datetime.datetime.fromisoformat(instance.tags[clients.EXPIRY]).timestamp() - instance.launched
    assert left_s > 1800, f"the rule ends it {left_s:.0f} s after its launch"


def test_launch_without_a_request_costs_nothing(launched: Launched, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is sent now, however old its note is."""
    launched.begin()
    monkeypatch.setattr(launched.backend, "_clock", SimpleNamespace(now=launched.at + 3600 + 421))
    state = launched.state(launched.launch)
    assert (state.phase, state.seconds) == (UNKNOWN, 0.0)


def test_request_with_a_lost_answer_is_repeated_in_a_full_subnet(launched: Launched) -> None:
    """The worker whose answer was lost may have its last address."""
    first = launched.begin()()[0]
    assert first.machine is None
    zone = first.notes["zone"]
    launched.backend._subnets = [
        replace(each, free_addresses=0) if each.zone == zone else each for each in launched.backend._subnets
    ]
    noted = launched(first)
    assert [launch.notes for launch in noted] == [first.notes]


def test_request_with_a_lost_answer_is_repeated_in_no_other_subnet(launched: Launched) -> None:
    first = replace(launched.begin().launch, notes={"zone": "us-east-1z"})
    with pytest.raises(UsageError, match=r"us-east-1z.*--subnet"):
        launched(first)
    assert launched_and_terminated() == (0, 0)


def test_worker_id_begins_with_the_role_of_its_launch(launched: Launched) -> None:
    """An account stack that is made again has a role of another id."""
    noted = launched.begin()()[-1]
    launched.backend._account = replace(launched.backend._account, worker_role_id="AROAANOTHER")
    assert launched.state(noted).workers == (f"{noted.notes['role']}:{noted.machine}",)

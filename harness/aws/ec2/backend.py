"""EC2 as a backend: one instance for each hardware profile."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import Any

from harness.aws import clients
from harness.aws.clients import answered_at
from harness.aws.ec2 import account, instances, user_data
from harness.aws.ec2.instances import OwnedInstance, Subnet
from harness.aws.errors import aws_errors
from harness.aws.machines import RentalOptions
from harness.aws.objects import Objects
from harness.aws.rental import RentalBackend
from harness.commands import quoted
from harness.errors import RemoteError, UsageError
from harness.jobs.plan import Planned
from harness.jobs.suite import Suite
from harness.remote import partition
from harness.remote.backend import ENDED, RUNNING, UNKNOWN, WAITING, LaunchRefused, PartState
from harness.remote.failures import OURS_TO_MEND, PASSING
from harness.remote.partition import Grouping
from harness.remote.records import Launch, PlannedPart, RemoteRun, ShippedInput
from harness.results.schema import RentedMachine

# Until EC2 shows an instance that it has launched.
SHOWN_S = 300.0
# The deadline that the rule on AWS's side keeps, beyond the worker's own limit.
_GRACE_S = 60.0
# A launch that was noted longer ago, and not requested, gets its whole time again.
_FRESH_S = 60.0
# No machine of that type there just now ("InsufficientInstanceCapacity"): another zone may have one.
_NO_ROOM, _NOT_HERE = "Insufficient", ("SpotMaxPriceTooLow", "Unsupported")
_QUOTAS = ("InstanceLimitExceeded", "VcpuLimitExceeded", "MaxSpotInstanceCountExceeded", "VolumeLimitExceeded")
# Of refusals, by EC2's code.
_REMEDIES = {
    **dict.fromkeys(_QUOTAS, "; ask for more (Service Quotas, EC2), or lower --max-instances"),
    "AccessDenied": "; `harness ec2 up` with this SUITE allows its instance types",
}
# A refusal for want of machines has HTTP status 500: boto3 would try it again for minutes.
ATTEMPTS = 2


class Ec2Backend(RentalBackend):
    """EC2, for one command."""

    name = "ec2"
    attempts = 1

    def __init__(self, suite: Suite, work: Objects, how: RentalOptions) -> None:
        super().__init__(suite, work, how)
        self._gone: set[str] = set()  # parts whose instance EC2 says has ended
        self._answered: dict[str, float] = {}  # part -> time of the last request
        self.ending = quoted("ec2 reap", region=self.region)

    @staticmethod
    def parts(todo: list[Planned], how: Grouping) -> tuple[PlannedPart, ...]:
        """Group jobs by hardware profile, and all builds into one part."""
        parts = partition.parts(todo, how, lambda job: job.cell.profile, lambda _build: "builds")
        return tuple(replace(part, name=part.jobs[0].cell.profile if part.jobs else "builds") for part in parts)

    def check(self, parts: Sequence[PlannedPart]) -> list[str]:
        """Find images, subnets and zones; return lines for the quote."""
        user_data.refuse_accounts(self._work)
        self._look_around(parts)
        here = {subnet.zone for subnet in self._subnets}
        for name, offered in sorted(self._zones.items()):
            if here.isdisjoint(offered):
                raise UsageError(
                    f"{self.region} offers {name} in {', '.join(offered) or 'no zone'}, and the subnets are in"
                    f" {', '.join(sorted(here))}; choose another --instance, --region or --subnet"
                )
        if stack := account.find(self._connections, self._work):
            account.check_reaper(self._connections, stack)
            return []
        up = quoted("ec2 up", self._work, subnet=self._how.subnet or None)
        line = f"not there yet: the account stack; {up} makes it"
        if not self._how.dry_run:
            raise UsageError(line)
        return [line]

    def _look_around(self, parts: Sequence[PlannedPart]) -> None:
        """Find images, subnets and zones."""
        self._subnets = instances.subnets(self._connections, [self._how.subnet])
        self._zones = instances.zones(self._connections, {part.instance_type for part in parts})
        kinds, system = sorted({self._kind(part) for part in parts}), self._suite.ec2.ami
        self._amis = {kind: instances.ami(self._connections, system, *kind) for kind in kinds}

    def _kind(self, part: PlannedPart) -> tuple[str, bool]:
        return self._known[part.instance_type].architecture, bool(part.gpus)

    def begin(self, run: RemoteRun, bundle: ShippedInput) -> None:
        """Remember the run; find images, subnets and zones of all its parts."""
        self._run, self._bundle = run, bundle
        self._account = account.require(self._connections, self._work)
        self._look_around(run.parts)

    def launch(self, launch: Launch, part: PlannedPart, note: Callable[[Launch], None]) -> None:
        """Ask zone after zone for an instance.

        A resumed command asks first in the zone of the last request: with the same token EC2 then answers with the
        instance that it made, though it may not show it yet.
        """
        offered, zone = self._zones[part.instance_type], launch.notes.get("zone")
        first = [subnet for subnet in self._subnets if subnet.zone == zone]
        if zone is not None and not first:
            raise UsageError(f"{part.name} was requested in {zone}; give a --subnet there, as before")
        free = [subnet for subnet in self._subnets if subnet.zone in offered and subnet.free_addresses]
        others = [subnet for subnet in free if subnet not in first]
        if not first + others:
            raise LaunchRefused(f"no subnet with free addresses is in a zone that offers {part.instance_type}")
        if zone is None:
            account.check_reaper(self._connections, self._account)
            if self._clock.now - launch.at > _FRESH_S:  # the command that noted it died before its request
                launch = replace(launch, at=round(self._clock.now))
        refusals: list[RemoteError] = []
        for subnet in first + others:  # a lost worker may have taken the first subnet's last address
            if launch.notes.get("zone") != subnet.zone:
                launch = replace(launch, notes={"zone": subnet.zone, "role": self._account.worker_role_id})
                note(launch)
            try:
                machine = self._run_instance(launch, part, subnet)
            except RemoteError as error:
                if error.code.startswith(_NO_ROOM) or error.code in _NOT_HERE:
                    refusals.append(error)
                    continue
                if error.code != "IdempotentInstanceTerminated":
                    raise _named(error) from error
                self._gone.add(part.name)
                return
            note(replace(launch, machine=machine))
            return
        if all(error.code == "Unsupported" for error in refusals):
            raise LaunchRefused(f"{refusals[0]}; no zone offers this type; choose another type or region")
        raise LaunchRefused(
            f"no zone has a {part.instance_type} now ({refusals[-1].code}); --launcher batch waits for one"
        )

    def _run_instance(self, launch: Launch, part: PlannedPart, subnet: Subnet) -> str:
        request = self._instance(launch, part, subnet)
        self._answered[part.name] = self._clock.now
        client = self._connections.client("ec2", self.region, attempts=ATTEMPTS)
        with aws_errors(f"launching {part.instance_type} for part {part.name}"):
            answer = client.run_instances(**request)
        at = answered_at(answer)
        self._answered[part.name] = max(self._clock.now, at.timestamp() if at else 0.0)
        return str(answer["Instances"][0]["InstanceId"])

    def _instance(self, launch: Launch, part: PlannedPart, subnet: Subnet) -> dict[str, Any]:
        """Return the request for an instance."""
        run, ami = self._run, self._amis[self._kind(part)]
        token = hashlib.sha256(f"{run.run_id} {part.name} {launch.at:.0f}".encode()).hexdigest()[:32]
        deadline = datetime.fromtimestamp(launch.at + launch.limit_s + _GRACE_S, UTC)
        marks = {
            "Name": f"harness {run.run_id} {part.name}",
            clients.SUITE: run.suite,
            clients.RUN: run.run_id,
            clients.PART: part.name,
            clients.OWNER: self.owner,
            clients.EXPIRY: deadline.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        script = user_data.render_user_data(
            self._work, run.run_id, part.name, self._bundle, self.region, launch.limit_s, gpus=bool(part.gpus)
        )
        interface = {
            "DeviceIndex": 0,
            "SubnetId": subnet.subnet_id,
            "Groups": [self._account.security_group],
            # Whatever the subnet gives: without an address a worker reaches neither S3 nor packages.
            "AssociatePublicIpAddress": True,
            "DeleteOnTermination": True,
        }
        request: dict[str, Any] = {
            "ImageId": ami.image_id,
            "InstanceType": part.instance_type,
            "MinCount": 1,
            "MaxCount": 1,
            # Another subnet is another request: under one token that would be a mismatch, not another try.
            "ClientToken": f"{token}-{subnet.zone}"[:64],
            "NetworkInterfaces": [interface],
            "IamInstanceProfile": {"Name": self._account.worker_profile},
            "UserData": script,
            "InstanceInitiatedShutdownBehavior": "terminate",
            # Recovered it would be booted again, without its time limit.
            "MaintenanceOptions": {"AutoRecovery": "disabled"},
            "MetadataOptions": instances.METADATA,
            "BlockDeviceMappings": instances.root_disk(ami.root_device, max(part.disk_gib, ami.least_gib)),
            "TagSpecifications": [
                {"ResourceType": kind, "Tags": clients.as_list(marks)} for kind in ("instance", "volume")
            ],
        }
        if run.terms["market"] == "spot":
            once = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
            request["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": once}
        return request

    def _instances(self) -> list[OwnedInstance]:
        return instances.find(self._connections, self.region, {clients.RUN: self._run.run_id})

    def look(self, launches: Sequence[Launch]) -> dict[str, PartState]:
        """Return the state of each launched part."""
        # A living one goes before one that has ended, should there ever be two.
        shown = {
            instance.tags.get(clients.PART): instance for instance in sorted(self._instances(), key=attrgetter("alive"))
        }
        return {
            launch.name: self._running(launch, shown[launch.name]) if launch.name in shown else self._not_shown(launch)
            for launch in launches
        }

    def _running(self, launch: Launch, instance: OwnedInstance) -> PartState:
        lived, most = self._clock.now - instance.launched, launch.limit_s + partition.BEYOND_LIMIT_S
        reason = ""
        if not instance.alive:
            reason = f"its instance went away{f' ({instance.reason})' if instance.reason else ''}"
        elif instance.state in ("stopping", "stopped"):
            reason = f"it is {instance.state}"
        elif lived > most:
            reason = f"its time limit of {launch.limit_s / 3600:.1f} h has passed and it is still there"
        market = "spot" if instance.spot else "on-demand"
        return PartState(
            RUNNING if instance.alive else ENDED,
            "booting" if instance.state in ("pending", "running") else instance.state,
            workers=(self._worker_id(launch, instance.instance_id),),
            attempts=1,
            reason=reason,
            seconds=min(lived, most),
            launched=instance.launched,
            machine=RentedMachine(instance.instance_id, instance.instance_type, instance.zone, instance.ami_id, market),
        )

    def _not_shown(self, launch: Launch) -> PartState:
        if not launch.notes:
            return PartState(UNKNOWN, "launching", seconds=0.0)  # never requested
        now = self._clock.now
        workers: tuple[str, ...] = ()
        instance: RentedMachine | None = None
        if launch.machine is not None:
            [type_] = [part.instance_type for part in self._run.parts if part.name == launch.name]
            workers, instance = (self._worker_id(launch, launch.machine),), RentedMachine(launch.machine, type_)
        late = now > launch.at + launch.limit_s + partition.BEYOND_LIMIT_S
        unseen = now - max(launch.at, self._answered.get(launch.name, 0.0)) > SHOWN_S
        if launch.name in self._gone or late or (instance and unseen):
            return PartState(ENDED, "gone", workers, 1, "EC2 does not show its instance any more", machine=instance)
        return PartState(WAITING if instance else UNKNOWN, "launching", workers, len(workers), machine=instance)

    def _worker_id(self, launch: Launch, machine: str) -> str:
        return f"{launch.notes['role']}:{machine}"

    def last_words(self, state: PartState) -> str:
        """Return the last line of an instance's console."""
        if state.machine is None:
            return ""
        line = instances.last_line(self._connections, state.machine.instance_id)
        return f"its console ends with: {line[:200]}" if line else ""

    def end(self, part: str, state: PartState, why: str) -> None:
        """Terminate a part's instance."""
        del part, why
        if state.machine is not None:
            instances.end(self._connections, self.region, [state.machine.instance_id])

    def alive(self) -> list[str]:
        """End what is alive; return a line for each that stays."""
        alive = partial(instances.alive, self._connections, self.region, {clients.RUN: self._run.run_id})
        instances.end(self._connections, self.region, [instance.instance_id for instance in alive()])
        return [f"{instance.instance_id} ({instance.state}, {instance.region})" for instance in instances.wait(alive)]


def _named(error: RemoteError) -> Exception:
    """Return an error to try again, for the user, or a refusal."""
    if error.code in PASSING | OURS_TO_MEND:
        return error
    if error.code == "IdempotentParameterMismatch":  # another request had this token: EC2 will show its instance
        return RemoteError(str(error), "Busy")
    if error.code == "InvalidParameterValue" and "iaminstanceprofile" in str(error).lower():
        # What IAM has made, EC2 knows some minutes later.
        return RemoteError(f"{error}; `harness ec2 up` makes the role again", "Busy")
    return LaunchRefused(f"{error}{_REMEDIES.get(error.code, '')}")

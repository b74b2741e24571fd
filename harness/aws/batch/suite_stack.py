"""A suite in AWS Batch: its CloudFormation stack (machines, queues, job definitions), its jobs and instances."""

from __future__ import annotations

import ast
import base64
import hashlib
import logging
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from harness.aws import clients, cloudformation, machines, templates
from harness.aws.clients import Connections, S3Uri
from harness.aws.cloudformation import Stack
from harness.aws.ec2 import instances, user_data
from harness.aws.ec2.account import Account
from harness.aws.errors import aws_errors
from harness.aws.machines import MachineOptions
from harness.aws.objects import Objects
from harness.commands import quoted
from harness.config import read_toml, validate
from harness.driver import records
from harness.driver.records import Envelope
from harness.errors import UsageError
from harness.jobs.suite import Suite
from harness.launch.images import catalog
from harness.launch.images.base_image import BaseFile
from harness.pricing import offers
from harness.pricing.instances import Instance
from harness.pricing.prices import Snapshot
from harness.remote.bundle import pins

log = logging.getLogger(__name__)

# Instances of Batch have this tag; the suite's tag is on workers of EC2 too.
LAUNCHER_TAG, LAUNCHER = "harness:launcher", "batch"
# The output of a suite's stack that names its queues.
QUEUES = "Queues"
ENDED = ("SUCCEEDED", "FAILED")
_UNFINISHED = ("SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING")
_DESCRIBED_AT_ONCE = 100
# A job whose machine is lost starts again on another, so often in all.
ATTEMPTS = 3
_CANCELLED = "cancelled by harness batch cancel"
MIB = 1 << 20
# Batch takes no time-out below this.
LEAST_TIMEOUT_S = 60
# On a shared host an agent needs this in addition to the envelope: harness itself, and what the engine starts for it.
_AGENT_VCPUS, _AGENT_MIB = 1, 1024
# Alone on its host a job asks for little: the sibling that it starts is not in its container.
_ALONE_MIB = 512
# AWS' mirror of Docker Hub, which has no rate limit; images/base/base.toml pins the image.
_AGENT_REGISTRY = "public.ecr.aws/docker/library"
# Each submission fills these in.
PARAMETERS = ("run", "part", "bundle", "sha256")
# ECS takes 8192 characters of overrides: the command with its parameters, and variables that Batch adds.
_MAXIMUM_COMMAND, _LONGEST_PARAMETERS = 7000, 512
# Unpacks both scripts and the pins, and becomes the first script.
_LOADER = (
    "import base64,sys,zlib;a=sys.argv;"
    "h,c,p=zlib.decompress(base64.b64decode(a[1])).decode().split(chr(0));"
    "sys.argv=[a[0],a[2],c,a[3],a[4],p,*a[5:]];exec(compile(h,'host.py','exec'))"
)
# Batch and CloudFormation take 128 characters.
_MAXIMUM = 128
WORK, MACHINES = "WorkPlace", "Machines"
_WORKER_ROLE = "WorkerRoleArn"
# A user gives these with each deployment; harness fills in the others.
_PARAMETERS = (_WORKER_ROLE, "HostProfileArn", "SecurityGroup", "Subnets", "Owner")


def stack_name(suite: str) -> str:
    """Return the name of a suite's CloudFormation stack."""
    return _safe(f"harness-batch-{suite}", "[^A-Za-z0-9-]")


def definition_name(suite: str, profile: str) -> str:
    """Return the job definition of a hardware profile."""
    return _safe(f"harness-{suite}-{profile}")


def queue_name(suite: str, instance_type: str) -> str:
    """Return the queue, and the compute environment, of an instance type."""
    return _safe(f"harness-{suite}-{instance_type}")


def job_name(run_id: str, part: str) -> str:
    """Return the name by which later commands find a part's job."""
    return _safe(f"{run_id}-{part}")


def logical_name(*words: str) -> str:
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


def template(wanted: StackRequirements) -> str:
    """Return the stack's template (YAML); it names no account."""
    file, suite, options = templates.load("suite"), wanted.suite, wanted.options
    parts = file["Resources"]
    of_suite = {"Suite": suite, "StackName": stack_name(suite), "DiskGib": options.disk_gib}
    machines = {"LaunchTemplate": templates.filled(parts["LaunchTemplate"], of_suite)}
    others: dict[str, Any] = {}
    types = {instance.instance_type: instance for _, instance in wanted.machines}
    for name, instance in types.items():
        values = _machine_values(suite, instance, options)
        machines[logical_name("Machines", name)] = templates.filled(parts["Machines"], values)
        others[logical_name("Queue", name)] = templates.filled(parts["Queue"], values)
    outputs = {
        WORK: str(options.work),
        MACHINES: records.digest(machines)[:16],
        QUEUES: ",".join(queue_name(suite, name) for name in types),
    }
    for envelope, instance in wanted.machines:
        logical = logical_name("Jobs", envelope.name)
        named = {"JobsName": definition_name(suite, envelope.name)}
        others[logical] = templates.filled(parts["Jobs"], named | _job_values(envelope, instance, options))
        outputs[logical] = definition_digest(envelope, instance, options)
    document = {
        "AWSTemplateFormatVersion": file["AWSTemplateFormatVersion"],
        "Description": f"ir-harness: the suite {suite} in AWS Batch; costs nothing while no job runs",
        "Parameters": {name: file["Parameters"][name] for name in _PARAMETERS},
        "Resources": {**machines, **others},
        "Outputs": {name: {"Value": value} for name, value in outputs.items()},
    }
    return templates.write(document)


def _machine_values(suite: str, instance: Instance, options: BatchOptions) -> dict[str, Any]:
    return {
        "InstanceType": instance.instance_type,
        "MachinesName": queue_name(suite, instance.instance_type),
        "Machines": {"Ref": logical_name("Machines", instance.instance_type)},
        "MaxVcpus": instance.vcpus * options.max_instances,
        "Market": "SPOT" if options.spot else "EC2",
        "HostHasGpus": instance.gpus > 0,
    }


def _job_values(envelope: Envelope, instance: Instance, options: BatchOptions) -> dict[str, Any]:
    vcpus, memory_mib = needs(envelope, instance, options.shared)
    return {
        "Command": command(options.agent_image, options.work, options.region),
        "AgentImage": options.agent_image,
        "JobVcpus": str(vcpus),
        "JobMib": str(memory_mib),
        "JobGpus": str(envelope.gpus),
        "JobHasGpus": envelope.gpus > 0,
        "HostGpus": str(instance.gpus),
        "SharedHost": str(int(options.shared)),
    }


def up(
    connections: Connections, wanted: StackRequirements, account: Account, owner: str, subnets: Sequence[str]
) -> None:
    """Deploy the stack and wait; refuse to change machines under unfinished jobs."""
    name, text = stack_name(wanted.suite), template(wanted)
    deployed = cloudformation.find(connections, name)
    places = instances.subnets(connections, subnets)
    if any(subnet.vpc != account.vpc for subnet in places):
        raise UsageError(f"name --subnet of {account.vpc}, the VPC of `harness ec2 up`, with a way to the internet")
    parameters = {
        _WORKER_ROLE: account.worker_role_arn,
        "HostProfileArn": account.host_profile_arn,
        "SecurityGroup": account.security_group,
        "Subnets": ",".join(sorted(subnet.subnet_id for subnet in places)),
        # Stays: CloudFormation would replace the queues, which have the stack's tags.
        "Owner": deployed.parameters.get("Owner", owner) if deployed else owner,
    }
    if deployed and _changes_machines(deployed, text, parameters) and (jobs := unfinished_jobs(connections, deployed)):
        raise UsageError(
            f"{len(jobs)} jobs of {wanted.suite} are not finished, and their machines would change; wait, or end them:"
            f" {quoted('batch cancel', wanted.suite)}"
        )
    own = {clients.SUITE: wanted.suite, clients.OWNER: parameters["Owner"]}
    store = Objects(connections, wanted.options.work)
    cloudformation.deploy(connections, name, text, parameters, own, store=store)


def _changes_machines(deployed: cloudformation.Stack, text: str, parameters: Mapping[str, str]) -> bool:
    same = deployed.outputs.get(MACHINES) == templates.parsed(text)["Outputs"][MACHINES]["Value"]
    return not same or any(deployed.parameters.get(key) != parameters[key] for key in parameters if key != _WORKER_ROLE)


def down(connections: Connections, suite: str) -> list[str]:
    """Delete the stack; return a line for each instance still alive."""
    name = stack_name(suite)
    deployed = cloudformation.find(connections, name)
    if deployed and (jobs := unfinished_jobs(connections, deployed)):
        raise UsageError(f"{len(jobs)} jobs of {suite} are not finished; end them: {quoted('batch cancel', suite)}")
    if not cloudformation.delete(connections, name):
        log.info(f"not there: stack {name}")
    return alive_machines(connections, suite)


@dataclass(frozen=True, kw_only=True)
class BatchOptions(MachineOptions):
    """The machines that the command line asks for; ``max_instances`` of each type."""

    region: str
    work: S3Uri
    max_instances: int = 4
    disk_gib: int = 100
    spot: bool = False
    shared: bool = False
    agent_image: str = ""


@dataclass(frozen=True)
class StackRequirements:
    """A suite's machines in Batch: the instance type of each envelope."""

    suite: str
    options: BatchOptions
    machines: tuple[tuple[Envelope, Instance], ...]


def requirements(suite: Suite, options: BatchOptions, snapshot: Snapshot) -> StackRequirements:
    """Choose the instance type of each profile of a suite."""
    chosen = machines.of_suite(suite, snapshot, options).items()
    envelopes = suite.envelopes()
    pairs = tuple((envelopes[name], machine.instance) for name, machine in chosen)
    for envelope, instance in pairs:
        check_fit(envelope, instance, options.shared)
    path = catalog.images_dir() / "base" / "base.toml"
    base = validate(BaseFile, read_toml(path), path)
    image = options.agent_image or f"{_AGENT_REGISTRY}/{base.image}@{base.digest}"
    return StackRequirements(suite.name, replace(options, agent_image=image), pairs)


def check_fit(envelope: Envelope, instance: Instance, shared: bool) -> None:
    """Refuse jobs that would wait for ever, or share a GPU."""
    if shared and envelope.gpus:
        raise UsageError(f"profile {envelope.name}: jobs cannot share a GPU; leave out --shared, or the profile")
    (vcpus, memory_mib), room = needs(envelope, instance, shared), container_mib(instance)
    if vcpus > instance.vcpus or memory_mib > room or envelope.gpus > instance.gpus:
        raise UsageError(
            f"profile {envelope.name} needs {vcpus} vCPU, {memory_mib} MiB and {envelope.gpus} GPU;"
            f" {instance.instance_type} leaves a job {instance.vcpus} vCPU, {room} MiB and {instance.gpus} GPU;"
            " choose a larger --instance"
        )


def needs(envelope: Envelope, instance: Instance, shared: bool) -> tuple[int, int]:
    """Return a job's vCPUs and MiB: all vCPUs, unless hosts are shared."""
    if not shared:
        return instance.vcpus, _ALONE_MIB
    return envelope.cpus + _AGENT_VCPUS, -(-envelope.memory_bytes // MIB) + _AGENT_MIB


def container_mib(instance: Instance) -> int:
    """Return MiB that a host surely registers."""
    return offers.host_reserve().left(instance.memory_bytes) // MIB


def definition_digest(envelope: Envelope, instance: Instance, options: BatchOptions) -> str:
    """Return a hash of a job's definition without its image."""
    return records.digest(_job_values(envelope, instance, replace(options, agent_image="")))[:16]


def command(image: str, work: S3Uri, region: str) -> list[str]:
    """Return the agent's command: both scripts, packed, and their arguments."""
    packages = "\n".join(pins(*user_data.BOTO3))
    scripts = "\0".join((_script("host.py"), _script("container.py"), packages)).encode()
    packed = base64.b64encode(zlib.compress(scripts, 9)).decode()
    words = ["python3", "-c", _LOADER, packed, image, str(work), region, *(f"Ref::{name}" for name in PARAMETERS)]
    size = sum(len(word) + 4 for word in words) + _LONGEST_PARAMETERS
    if size > _MAXIMUM_COMMAND:
        raise UsageError(
            f"the agents' command has {size:,} characters, AWS Batch takes {_MAXIMUM_COMMAND:,}; shorten the prefix of"
            f" {work} or the name of --agent-image"
        )
    return words


def _script(name: str) -> str:
    """Return a script without comments and docstrings."""
    tree = ast.parse((resources.files("harness.aws.batch") / "agent" / name).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)) and ast.get_docstring(node, clean=False):
            del node.body[0]
    return ast.unparse(tree)


@dataclass(frozen=True)
class BatchJob:
    """A submitted job."""

    job_id: str
    name: str
    status: str
    created: int = 0


def alive_machines(connections: Connections, suite: str) -> list[str]:
    """Return a line for each living instance of a suite."""
    living = instances.alive(connections, None, {LAUNCHER_TAG: LAUNCHER, clients.SUITE: suite})
    return [f"{instance.instance_id} ({instance.instance_type} {instance.state})" for instance in living]


def queues(stack: Stack) -> list[str]:
    """Return the names of a suite's queues."""
    return list(filter(None, stack.outputs.get(QUEUES, "").split(",")))


def unfinished_jobs(connections: Connections, stack: Stack) -> list[BatchJob]:
    """Return the jobs in a suite's queues that wait or run."""
    if not (named := queues(stack)):
        return []
    # After a deletion that failed halfway the outputs name queues that are gone.
    with aws_errors(f"looking for the queues of {stack.name}"):
        there = connections.client("batch").describe_job_queues(jobQueues=named)["jobQueues"]
    names = [queue["jobQueueName"] for queue in there if queue["status"] != "DELETED"]
    pairs = ((queue, status) for queue in names for status in _UNFINISHED)
    # A job that begins meanwhile is listed twice.
    jobs = {job.job_id: job for queue, status in pairs for job in listed(connections, queue, jobStatus=status)}
    return list(jobs.values())


def listed(connections: Connections, queue: str, **filters: Any) -> list[BatchJob]:
    """Return the jobs of one queue."""
    with aws_errors(f"listing the jobs of {queue}"):
        pages = connections.client("batch").get_paginator("list_jobs").paginate(jobQueue=queue, **filters)
        return [
            BatchJob(shown["jobId"], shown["jobName"], shown["status"], shown.get("createdAt", 0))
            for page in pages
            for shown in page["jobSummaryList"]
        ]


def described(connections: Connections, ids: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield jobs as Batch describes them, without those it has forgotten."""
    for start in range(0, len(ids), _DESCRIBED_AT_ONCE):
        with aws_errors("asking AWS Batch for the state of its jobs"):
            some = list(ids[start : start + _DESCRIBED_AT_ONCE])
            yield from connections.client("batch").describe_jobs(jobs=some)["jobs"]


def terminate(connections: Connections, job_id: str, reason: str) -> None:
    """End a job."""
    with aws_errors("ending a job"):
        connections.client("batch").terminate_job(jobId=job_id, reason=reason)


def cancel(connections: Connections, stack: Stack) -> tuple[int, int]:
    """End a suite's jobs and wait; return the numbers of ended and of remaining jobs."""
    jobs = unfinished_jobs(connections, stack)
    for job in jobs:
        terminate(connections, job.job_id, _CANCELLED)
        log.info(f"ending  {job.name}")
    return len(jobs), len(instances.wait(lambda: unfinished_jobs(connections, stack)))

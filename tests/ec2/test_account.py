"""What stands in the account: made, made again, shown, ended, removed; and what boxes may do there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import pytest
from click.testing import CliRunner, Result
from harness.ec2.book import Book
from harness.ec2.records import Run

from harness.aws.connections import Connections
from harness.aws.objects import Objects
from harness.aws.uri import S3Uri
from harness.cli import main
from harness.ec2 import amis, fleet, network, policy, preflight, removal, setup, tags
from harness.errors import AwsError
from tests.aws.rights import Asked, allows, may
from tests.aws.server import REGION, SECRETS
from tests.ec2.conftest import launched_and_terminated
from tests.ec2.faults import Injected

WORK = S3Uri("harness-work", "some/prefix")


@pytest.fixture(autouse=True)
def _few_regions(aws: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """moto makes each region with all of its machine images when it is first asked about it, which takes seconds.

    After every test as many instances were terminated as were launched.
    """
    known = fleet.regions(Connections(REGION))
    assert {REGION, "eu-west-1"} < set(known)
    monkeypatch.setattr(fleet, "regions", lambda _connections: ["eu-west-1", REGION])
    yield
    launched, terminated = launched_and_terminated("eu-west-1", REGION)
    assert launched == terminated


def harness(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["ec2", *arguments])
    assert result.exit_code == code, result.output
    assert not [secret for secret in SECRETS if secret in result.output]
    return result


def start(region: str = REGION, owner: str | None = None, profile: str | None = None) -> str:
    owner = owner or tags.owner(Connections(region))
    client = boto3.client("ec2", region_name=region)
    marks = [{"Key": tags.OWNER, "Value": owner}, {"Key": tags.RUN, "Value": "r"}]
    image = amis.find(Connections(region), region, "al2023", "x86_64", 0).image_id
    answer = client.run_instances(
        ImageId=image,
        InstanceType="m6i.large",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": marks}],
        **({"IamInstanceProfile": {"Name": profile}} if profile else {}),
    )
    return str(answer["Instances"][0]["InstanceId"])


def test_up_makes_all_of_it_and_twice_is_as_good_as_once(aws: str) -> None:
    first = harness("up", str(WORK), "--region", REGION)
    assert first.output.count("made: ") == 4
    second = harness("up", str(WORK), "--region", REGION)
    assert second.output.count("there: ") == 4 and "made: " not in second.output
    s3, iam = boto3.client("s3"), boto3.client("iam")
    blocked = s3.get_public_access_block(Bucket=WORK.bucket)["PublicAccessBlockConfiguration"]
    assert all(blocked.values()) and len(blocked) == 4
    rules = s3.get_bucket_lifecycle_configuration(Bucket=WORK.bucket)["Rules"]
    assert {rule["Filter"]["Prefix"]: rule["Expiration"]["Days"] for rule in rules} == {
        "some/prefix/runs/": 90,
        "some/prefix/inputs/": 90,
    }
    encryption = s3.get_bucket_encryption(Bucket=WORK.bucket)["ServerSideEncryptionConfiguration"]
    assert encryption["Rules"][0]["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    tls = json.loads(s3.get_bucket_policy(Bucket=WORK.bucket)["Policy"])
    allowed = {"Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}, *tls["Statement"]]}
    for name in (WORK.bucket, f"{WORK.bucket}/some/prefix/runs/r/run.json"):
        plainly = Asked("", "s3:GetObject", f"arn:aws:s3:::{name}", {"aws:securetransport": "false"})
        assert not allows([allowed], plainly)
        assert allows([allowed], replace(plainly, context={"aws:securetransport": "true"}))
    name = preflight.role(WORK)
    (role,) = iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]["Roles"]
    assert role["RoleName"] == name
    given = iam.get_role_policy(RoleName=name, PolicyName="work-place")["PolicyDocument"]
    assert given == policy.box(WORK)
    assert iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"] == []


def test_down_removes_all_of_it_and_twice_is_no_error(aws: str) -> None:
    harness("up", str(WORK))
    kept = Objects(Connections(REGION), WORK)
    kept.put("runs/r/run.json", b"{}")
    assert "kept: 1 objects" in harness("down", str(WORK)).output
    assert kept.size("runs/r/run.json") == 2
    harness("up", str(WORK))
    done = harness("down", str(WORK), "--results-too").output
    assert f"removed: bucket {WORK.bucket}" in done
    assert "removed" not in harness("down", str(WORK), "--results-too").output
    assert boto3.client("s3").list_buckets()["Buckets"] == []
    iam = boto3.client("iam")
    assert iam.list_roles()["Roles"] == [] and iam.list_instance_profiles()["InstanceProfiles"] == []
    assert network.groups(Connections(REGION), REGION) == []


def test_up_for_a_subnet_of_another_vpc(aws: str) -> None:
    client = boto3.client("ec2", region_name=REGION)
    vpc = client.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnet = client.create_subnet(VpcId=vpc, CidrBlock="10.9.1.0/24")["Subnet"]["SubnetId"]
    said = harness("up", str(WORK), "--region", REGION, "--subnet", subnet).output
    assert f"--work {WORK} --subnet {subnet} --dry-run" in said
    assert network.security_group(Connections(REGION), REGION, vpc)
    assert network.groups(Connections(REGION), REGION) == [network.security_group(Connections(REGION), REGION, vpc)]
    assert "no subnet subnet-0" in harness("up", str(WORK), "--region", REGION, "--subnet", "subnet-0", code=2).output


def test_a_work_place_that_names_an_account_is_refused(aws: str) -> None:
    for place in ("s3://data-999988887777-use1/x", "s3://x999988887777", "s3://data/999988887777"):
        refused = harness("up", place, code=2).output
        assert "twelve digits" in refused and "999988887777" not in refused
    assert boto3.client("s3").list_buckets()["Buckets"] == []


def test_rules_of_others_in_the_bucket_stay(aws: str) -> None:
    """Two work places share a bucket, and somebody has a rule of his own there."""
    other = S3Uri(WORK.bucket, "other")
    harness("up", str(WORK))
    client = boto3.client("s3")
    rules = client.get_bucket_lifecycle_configuration(Bucket=WORK.bucket)["Rules"]
    rules.append({"ID": "mine", "Status": "Enabled", "Filter": {"Prefix": "mine/"}, "Expiration": {"Days": 7}})
    client.put_bucket_lifecycle_configuration(Bucket=WORK.bucket, LifecycleConfiguration={"Rules": rules})
    harness("up", str(other))
    harness("up", str(WORK))
    found = client.get_bucket_lifecycle_configuration(Bucket=WORK.bucket)["Rules"]
    assert sorted(rule["Filter"]["Prefix"] for rule in found) == [
        *("mine/", "other/inputs/", "other/runs/", "some/prefix/inputs/", "some/prefix/runs/")
    ]


def test_a_bucket_that_cannot_be_marked_is_not_left(aws: str) -> None:
    """It would be taken for somebody else's, and never be guarded or removed."""
    connections = Connections(REGION)
    once = Injected(connections, "s3.PutBucketTagging", lambda number, _: "OperationDenied" if number == 0 else None)
    with pytest.raises(AwsError, match="marking the bucket"):
        setup.up(connections, WORK, REGION, lambda _line: None)
    assert once.raised == 1 and boto3.client("s3").list_buckets()["Buckets"] == []
    said: list[str] = []
    setup.up(connections, WORK, REGION, said.append)
    assert f"made: bucket {WORK.bucket}" in said


def test_down_leaves_what_is_somebody_elses(aws: str) -> None:
    boto3.client("s3").create_bucket(Bucket=WORK.bucket)
    other = Objects(Connections(REGION), S3Uri(WORK.bucket))
    other.put("theirs", b"x")
    assert "left as it is" in harness("up", str(WORK)).output
    harness("down", str(WORK), "--results-too")
    assert other.size("theirs") == 1


def test_down_refuses_while_something_lives(aws: str) -> None:
    harness("up", str(WORK))
    start()
    refused = harness("down", str(WORK), code=2)
    assert "1 instances are alive" in refused.output and "harness ec2 reap" in refused.output
    harness("reap", "--region", REGION, "--yes")
    harness("down", str(WORK))


def test_down_refuses_while_something_lives_in_any_region(aws: str) -> None:
    """The role that it removes is that of all regions."""
    harness("up", str(WORK), "--region", REGION)
    start("eu-west-1")
    refused = harness("down", str(WORK), "--region", REGION, code=2).output
    assert "1 instances are alive in eu-west-1" in refused
    name = preflight.role(WORK)
    assert boto3.client("iam").get_role(RoleName=name)
    harness("reap", "--yes")
    theirs = start(owner="ffffffffffff", profile=name)
    assert "reap --all-owners" in harness("down", str(WORK), "--region", REGION, code=2).output
    harness("reap", "--yes", "--all-owners")
    start(owner="ffffffffffff")  # elsewhere, with another work place
    assert theirs and f"removed: role {name}" in harness("down", str(WORK), "--region", REGION).output
    harness("reap", "--yes", "--all-owners")


def test_down_leaves_other_owners_security_groups(aws: str) -> None:
    harness("up", str(WORK))
    connections = Connections(REGION)
    vpc = boto3.client("ec2", region_name=REGION).create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    theirs = network.make_security_group(connections, REGION, vpc, "ffffffffffff")
    harness("down", str(WORK))
    assert network.groups(connections, REGION) == [theirs]


def test_a_group_that_is_held_for_a_while_is_tried_again(aws: str) -> None:
    harness("up", str(WORK))
    connections, waited = Connections(REGION), list[float]()
    Injected(connections, "ec2.DeleteSecurityGroup", lambda number, _: "DependencyViolation" if number < 2 else None)
    removal.down(connections, WORK, REGION, lambda _line: None, results_too=True, sleep=waited.append)
    assert waited == [5.0, 10.0] and network.groups(connections, REGION) == []


def test_a_group_that_is_held_for_long_is_told(aws: str) -> None:
    harness("up", str(WORK))
    connections, waited = Connections(REGION), list[float]()
    Injected(connections, "ec2.DeleteSecurityGroup", lambda *_: "DependencyViolation")
    with pytest.raises(AwsError, match="removing the security group sg-"):
        removal.down(connections, WORK, REGION, lambda _line: None, results_too=True, sleep=waited.append)
    assert sum(waited) > 120


def test_reap_ends_what_is_ours_in_all_regions_and_leaves_others(aws: str) -> None:
    mine = {start(), start("eu-west-1")}
    theirs = start(owner="ffffffffffff")
    volume = boto3.client("ec2", region_name="eu-west-1").create_volume(
        AvailabilityZone="eu-west-1a",
        Size=5,
        TagSpecifications=[
            {
                "ResourceType": "volume",
                "Tags": [{"Key": tags.OWNER, "Value": tags.owner(Connections(REGION))}],
            }
        ],
    )["VolumeId"]
    listed = harness("ls").output
    assert all(each in listed for each in (*mine, volume)) and theirs not in listed
    assert "1 instances of other owners are alive; --all-owners" in listed
    everybody = harness("ls", "--all-owners").output
    assert theirs in everybody and "another's" in everybody
    done = harness("reap", "--yes").output
    assert "nothing of ours is alive" in done and volume in done and "1 instances of other owners" in done
    assert "no instance and no left-over disk" in harness("ls").output
    assert theirs in harness("ls", "--all-owners").output
    harness("reap", "--yes", "--all-owners")
    assert "no instance" in harness("ls", "--all-owners").output


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("sts::1:assumed-role/Admin/botocore-session-1", "sts::1:assumed-role/Admin/botocore-session-2", True),
        ("sts::1:assumed-role/Admin/x", "sts::1:assumed-role/Other/x", False),
        ("sts::1:assumed-role/Admin/x", "sts::2:assumed-role/Admin/x", False),
        # A person's name.
        ("sts::1:assumed-role/AWSReservedSSO_Admin_0a/me", "sts::1:assumed-role/AWSReservedSSO_Admin_0a/you", False),
        ("iam::1:user/me", "iam::1:user/you", False),
    ],
)
def test_who_logs_in_again_is_the_same_owner(aws: str, one: str, other: str, same: bool) -> None:
    def owner(arn: str) -> str:
        connections = Connections(REGION)

        def answer(parsed: dict[str, object], **_: object) -> None:
            parsed["Arn"] = f"arn:aws:{arn}"

        connections.client("sts").meta.events.register("after-call.sts.GetCallerIdentity", answer)
        return tags.owner(connections)

    assert (owner(one) == owner(other)) == same


def test_reap_asks_and_without_anybody_to_ask_does_nothing(aws: str) -> None:
    made = start()
    assert "--yes" in harness("reap", "--region", REGION, code=2).output
    assert made in harness("ls", "--region", REGION).output
    harness("reap", "--region", REGION, "--yes")


def test_what_does_not_go_is_said_loudly(aws: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.ec2 import reaping

    start()
    with monkeypatch.context() as patch:
        patch.setattr(fleet, "terminate", lambda *_: None)
        patch.setattr(reaping.end, "__kwdefaults__", {**reaping.end.__kwdefaults__, "most_s": 0.0})
        left = harness("reap", "--region", REGION, "--yes", code=1).output
    assert "NOT GONE: i-" in left and "nothing of ours" not in left
    harness("reap", "--region", REGION, "--yes")


def test_a_region_that_cannot_be_looked_at_is_told(aws: str, monkeypatch: pytest.MonkeyPatch) -> None:
    really = fleet.instances

    def look(connections: Connections, region: str, **keys: str) -> list[fleet.Seen]:
        if region == "eu-west-1":
            raise AwsError("listing instances: not permitted", "AccessDenied")
        return really(connections, region, **keys)

    monkeypatch.setattr(fleet, "instances", look)
    assert "not looked at: eu-west-1" in harness("ls", code=1).output
    assert "NOT GONE: eu-west-1" in harness("reap", "--yes", code=1).output


def test_a_region_that_a_policy_closes_is_a_note_unless_something_of_ours_is_known_there(
    aws: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, closed = fleet.instances, ["eu-west-1"]

    def look(connections: Connections, region: str, **keys: str) -> list[fleet.Seen]:
        if region in closed:
            said = "listing instances: not permitted (User: x is not authorized to perform: ec2:DescribeInstances"
            raise AwsError(f"{said} with an explicit deny in a service control policy)", "AccessDenied")
        return really(connections, region, **keys)

    monkeypatch.setattr(fleet, "instances", look)
    harness("up", str(WORK), "--region", REGION)
    note = "closed to you by a policy, and not looked at: eu-west-1"
    assert note in harness("ls").output
    done = harness("reap", "--yes").output
    assert note in done and "nothing of ours is alive" in done
    assert "not looked at: eu-west-1: " in harness("ls", "--region", "eu-west-1", code=1).output
    work = Objects(Connections(REGION), WORK)
    Book(work, Run("r-1", "r", "x", "y", "eu-west-1", ())).begin()
    assert "not looked at: eu-west-1: " in harness("ls", "--work", str(WORK), code=1).output
    assert "NOT GONE: eu-west-1: " in harness("reap", "--yes", "--work", str(WORK), code=1).output
    assert note in harness("reap", "--yes", "--work", "s3://gone").output
    harness("down", str(WORK))
    closed.append(REGION)
    assert f"not looked at: {REGION}: " in harness("ls", code=1).output
    assert "nothing was removed" in harness("down", str(WORK), code=1).output


def test_ls_shows_open_runs(aws: str) -> None:
    harness("up", str(WORK))
    Book(Objects(Connections(REGION), WORK), Run("r-1", "r", "x", "y", REGION, ())).begin()
    shown = harness("ls", "--region", REGION, "--work", str(WORK)).output
    assert "open run r-1: 0 jobs" in shown and "security group sg-" in shown


def test_after_down_there_is_nothing_to_show_and_nothing_fails(aws: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``HARNESS_WORK`` still names the bucket that ``down`` removed."""
    harness("up", str(WORK))
    harness("down", str(WORK), "--results-too")
    monkeypatch.setenv("HARNESS_WORK", str(WORK))
    for words in (("ls",), ("reap", "--yes")):
        assert "there is no such bucket, so no run is open there" in harness(*words).output


def test_boxes_may_do_what_they_must_and_nothing_else() -> None:
    """Every right is one of three actions on S3, below the work place."""
    given = policy.box(WORK)
    actions = {action for statement in given["Statement"] for action in statement["Action"]}
    assert actions == {"s3:GetObject", "s3:PutObject", "s3:ListBucket"}
    place = "arn:aws:s3:::harness-work/some/prefix"
    for statement in given["Statement"]:
        if statement["Action"] != ["s3:ListBucket"]:
            assert all(name.startswith(f"{place}/") for name in statement["Resource"])

    def writes(name: str, **context: str) -> bool:
        return may(given, "s3:PutObject", f"{place}/{name}", **context)

    once = {"s3_if_none_match": "*"}
    for name in ("runs/r/jobs/k.tar", "runs/r/ends/001-1.json", "inputs/indexes/k.tar.gz.json"):
        assert writes(name, **once) and not writes(name), f"{name} could be overwritten"
    for name in ("runs/r/beats/001-1.json", "runs/r/logs/001-1.txt", "inputs/indexes/k.0123.tar.gz"):
        assert writes(name)
    for name in ("runs/r/run.json", "runs/r/parts/001-1.json", "runs/r/launches/001-1.json", "runs/r/closed.json"):
        assert not writes(name) and not writes(name, **once)
    for name in ("inputs/images/x.tar.gz", "inputs/bundles/x.tar.gz.json", "x", "../other/runs/r/beats/x"):
        assert not writes(name) and not writes(name, **once)
    (listing,) = [each for each in given["Statement"] if each["Action"] == ["s3:ListBucket"]]
    assert listing["Condition"] == {"StringLikeIfExists": {"s3:prefix": ["some/prefix/inputs/*", "some/prefix/runs/*"]}}


def test_who_runs_cannot_make_himself_more() -> None:
    """Of IAM: to give EC2 the boxes' role, as it is."""
    given = policy.runner(WORK, "ir-harness-x")
    iam = {action for each in given["Statement"] for action in each["Action"] if action.startswith("iam:")}
    assert iam == {"iam:GetInstanceProfile", "iam:PassRole", "iam:CreateServiceLinkedRole"}
    role = "arn:aws:iam::1:role/ir-harness-x"
    assert may(given, "iam:PassRole", role, iam_PassedToService="ec2.amazonaws.com")
    assert not may(given, "iam:PassRole", role, iam_PassedToService="lambda.amazonaws.com")
    assert not may(given, "iam:PassRole", "arn:aws:iam::1:role/admin", iam_PassedToService="ec2.amazonaws.com")


@pytest.mark.parametrize("kind", ["instance", "volume"])
def test_who_runs_launches_only_what_says_whose_it_is(kind: str) -> None:
    given, arn = policy.runner(WORK, "r"), f"arn:aws:ec2:us-east-1:1:{kind}/*"
    tagged = Asked("", "ec2:RunInstances", arn, {"aws:requesttag/harness:owner": "0123"})
    assert allows([given], tagged) and not allows([given], replace(tagged, context={}))
    assert may(given, "ec2:RunInstances", "arn:aws:ec2:us-east-1::image/ami-1")
    assert not may(given, "ec2:RunInstances", "arn:aws:ec2:us-east-1:1:key-pair/mine"), "boxes have no key"


@pytest.mark.parametrize("given", [policy.runner(WORK, "r"), policy.keeper(WORK, "r")])
def test_what_is_there_cannot_be_marked_as_ours(given: policy.Policy) -> None:
    """A right to tag any instance would be a right to end it."""
    actions = {action for each in given["Statement"] for action in each["Action"]}
    made = [each for each in ("RunInstances", "CreateSecurityGroup") if f"ec2:{each}" in actions]
    assert len(made) == 1
    assert may(given, "ec2:CreateTags", "x", ec2_CreateAction=made[0])
    assert not may(given, "ec2:CreateTags", "x")
    assert not may(given, "ec2:CreateTags", "x", ec2_CreateAction="CreateVolume")


def test_the_users_policies_name_every_call_that_is_made() -> None:
    """Each call of a client in harness/ec2 has its right: those of up and down in theirs, all others in who runs'."""

    def allowed(given: policy.Policy) -> set[str]:
        return {action.partition(":")[2].lower() for each in given["Statement"] for action in each["Action"]}

    names = {
        "headbucket": "listbucket",
        "putpublicaccessblock": "putbucketpublicaccessblock",
        "putbucketencryption": "putencryptionconfiguration",
        "putbucketlifecycleconfiguration": "putlifecycleconfiguration",
        "getbucketlifecycleconfiguration": "getlifecycleconfiguration",
    }

    def called(paths: list[Path]) -> set[str]:
        text = "".join(path.read_text() for path in paths)
        found = {match.replace("_", "") for match in re.findall(r"(?:client|\))\.([a-z]+(?:_[a-z]+)+)\(", text)}
        return {names.get(call, call) for call in found} - {"getpaginator"}

    folder = Path(policy.__file__).parent
    keeping = [folder / "setup.py", folder / "removal.py"]
    # network.py has one call of `up`'s beside those of runs.
    running = called([path for path in folder.glob("*.py") if path not in keeping]) - {"createsecuritygroup"}
    assert {"runinstances", "terminateinstances"} <= running
    assert running - allowed(policy.runner(WORK, "r")) == set()
    assert {"createrole", "createbucket", "deletesecuritygroup"} <= called(keeping)
    assert (called(keeping) | {"createsecuritygroup"}) - allowed(policy.keeper(WORK, "r")) == set()

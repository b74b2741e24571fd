"""``up`` and ``down`` against moto: what is made is what the template says, and as often as asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from harness.aws.failures import aws_errors
from harness.batch import inventory, making, names
from harness.batch.engine import as_api
from harness.batch.kinds import Place
from harness.batch.making import Touched
from harness.batch.resources import resources
from harness.batch.wanted import Stack
from harness.ec2 import tags as ec2_tags
from harness.errors import AwsError, UsageError
from tests.aws import server

Make = Callable[..., Stack]


def up(place: Place, stack: Stack) -> list[Touched]:
    said: list[Touched] = []
    making.up(place, stack.suite, resources(stack), said.append)
    return said


def down(place: Place, suite: str) -> list[Touched]:
    said: list[Touched] = []
    making.down(place, suite, inventory.things(place, suite), said.append)
    return said


def became(said: list[Touched]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for each in said:
        found.setdefault(each.became, set()).add(each.name)
    return found


def everything(place: Place) -> dict[str, Any]:
    """All that an account has of ours, as AWS lists it."""
    batch, ec2, iam = (place.client(each) for each in ("batch", "ec2", "iam"))
    return {
        "environments": batch.describe_compute_environments()["computeEnvironments"],
        "queues": batch.describe_job_queues()["jobQueues"],
        "definitions": batch.describe_job_definitions(status="ACTIVE")["jobDefinitions"],
        "templates": ec2.describe_launch_templates()["LaunchTemplates"],
        "groups": [each for each in ec2.describe_security_groups()["SecurityGroups"] if each["GroupName"] != "default"],
        "roles": [each for each in iam.list_roles()["Roles"] if not each["Path"].startswith("/aws-service-role/")],
        "profiles": iam.list_instance_profiles()["InstanceProfiles"],
        "instances": ec2.describe_instances()["Reservations"],
    }


def test_made_once_left_alone_then_gone(place: Place, stack: Make) -> None:
    first, second = up(place, stack()), up(place, stack())
    assert set(became(first)) == {"made"}
    assert set(became(second)) == {"as it was"}
    assert [each.name for each in first] == [each.name for each in resources(stack())]
    there = everything(place)
    assert {kind: len(each) for kind, each in there.items()} == {
        "environments": 2,
        "queues": 2,
        "definitions": 3,
        "templates": 1,
        "groups": 1,
        "roles": 2,
        "profiles": 1,
        "instances": 0,
    }
    assert set(became(down(place, "quick"))) == {"removed"}
    assert not any(everything(place).values())
    assert set(became(down(place, "quick"))) == {"not there"}


def test_what_is_made_is_what_the_template_says(place: Place, stack: Make) -> None:
    up(place, stack())
    there = everything(place)
    for each in resources(stack()):
        wanted = each.properties
        if each.kind == "AWS::Batch::JobDefinition":
            found = one(there["definitions"], "jobDefinitionName", each.name)
            container = as_api(wanted["ContainerProperties"])
            # A reference to the role; moto puts the actions in small letters, which AWS reads as the same.
            assert found["containerProperties"].pop("jobRoleArn").endswith(names.role("quick", server.REGION, "job"))
            container.pop("jobRoleArn")
            assert {key: found["containerProperties"][key] for key in container} == container
            assert found["timeout"] == as_api(wanted["Timeout"])
            assert json.dumps(found["retryStrategy"]).lower() == json.dumps(as_api(wanted["RetryStrategy"])).lower()
        elif each.kind == "AWS::Batch::ComputeEnvironment":
            found = one(there["environments"], "computeEnvironmentName", each.name)
            told = {key: value for key, value in wanted["ComputeResources"].items() if not refers(value)}
            plain = as_api(told)
            assert {key: found["computeResources"][key] for key in plain} == plain
            assert len(found["computeResources"]["subnets"]) == 6
            assert found["computeResources"]["securityGroupIds"] == [there["groups"][0]["GroupId"]]
            assert found["computeResources"]["launchTemplate"]["version"] == "1"
        elif each.kind == "AWS::Batch::JobQueue":
            found = one(there["queues"], "jobQueueName", each.name)
            [order] = found["computeEnvironmentOrder"]
            assert order["computeEnvironment"].endswith(f"/{each.name}")
        elif each.kind == "AWS::EC2::LaunchTemplate":
            versions = place.client("ec2").describe_launch_template_versions(LaunchTemplateName=each.name)
            data = versions["LaunchTemplateVersions"][0]["LaunchTemplateData"]
            # moto adds the template's own tags to those of what it starts.
            data["TagSpecifications"] = [
                each for each in data["TagSpecifications"] if each["ResourceType"] != "launch-template"
            ]
            known = {"Owner": {"Ref": ec2_tags.owner(place.connections)}}
            told = making.resolved(wanted["LaunchTemplateData"], known)
            assert {key: data[key] for key in told} == told
        elif each.kind == "AWS::EC2::SecurityGroup":
            [group] = there["groups"]
            assert group["IpPermissions"] == []
            assert [each["IpProtocol"] for each in group["IpPermissionsEgress"]] == ["-1"]
            assert "harness:owner" in {each["Key"] for each in group["Tags"]}, "else it may not be removed"


def refers(value: Any) -> bool:
    return any(word in json.dumps(value) for word in ('"Ref"', "Fn::"))


def one(found: list[dict[str, Any]], key: str, name: str) -> dict[str, Any]:
    [each] = [each for each in found if each[key] == name]
    return each


def test_the_roles_may_do_what_the_template_says_and_no_more(place: Place, stack: Make) -> None:
    up(place, stack())
    iam = place.client("iam")
    for each in resources(stack()):
        if each.kind == "AWS::IAM::Role":
            assert iam.list_role_policies(RoleName=each.name)["PolicyNames"] == ["harness"]
            found = iam.get_role_policy(RoleName=each.name, PolicyName="harness")["PolicyDocument"]
            [wanted] = [policy["PolicyDocument"] for policy in each.properties["Policies"]]
            assert [each["Action"] for each in found["Statement"]] == [each["Action"] for each in wanted["Statement"]]
    job = iam.get_role_policy(RoleName=names.role("quick", server.REGION, "job"), PolicyName="harness")
    for statement in job["PolicyDocument"]["Statement"]:
        resources_ = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
        assert all(resource.startswith("arn:aws:s3:::bucket") for resource in resources_)
        assert "Delete" not in json.dumps(statement)


def test_a_change_changes_what_it_must(place: Place, stack: Make) -> None:
    up(place, stack())
    said = became(up(place, stack(disk_gib=300)))
    # Environments refer to the template's version.
    assert said["changed"] == {"harness-batch-quick", "harness-quick-m6gd-medium", "harness-quick-c7g-xlarge"}
    said = became(up(place, stack(disk_gib=300, shared=True, wanted=stack().wanted[1:])))
    assert said["changed"] == {"harness-quick-bm25-cpu2-mem4", "harness-quick-null-cpu2-mem4"}
    found = everything(place)["definitions"]
    assert [each["revision"] for each in found if each["jobDefinitionName"] == "harness-quick-null-cpu2-mem4"] == [2]
    assert set(became(up(place, stack(disk_gib=300, shared=True, wanted=stack().wanted[1:])))) == {"as it was"}


def test_machines_do_not_change_under_jobs(place: Place, stack: Make) -> None:
    up(place, stack())
    with pytest.raises(UsageError, match="2 jobs of quick are not finished, and harness-batch-quick would change"):
        making.up(place, "quick", resources(stack(disk_gib=300)), lambda _: None, busy=lambda: 2)
    making.up(place, "quick", resources(stack()), lambda _: None, busy=lambda: 2)  # nothing changes
    assert set(became(up(place, stack()))) == {"as it was"}


def test_what_the_suite_no_longer_names_goes_too(place: Place, stack: Make) -> None:
    up(place, stack())
    up(place, stack(wanted=stack().wanted[1:]))
    assert len(everything(place)["definitions"]) == 3
    down(place, "quick")
    assert not any(everything(place).values())


@pytest.mark.parametrize("steps", range(0, 12, 3))
def test_interrupted_anywhere_it_is_made_whole_and_removed_whole(place: Place, stack: Make, steps: int) -> None:
    """One step a time: killed after each, then given again."""
    made = resources(stack())
    with pytest.raises(KeyboardInterrupt):
        making.up(place, "quick", made, _dies_after(steps))
    up(place, stack())
    assert set(became(up(place, stack()))) == {"as it was"}
    with pytest.raises(KeyboardInterrupt):
        making.down(place, "quick", inventory.things(place, "quick"), _dies_after(min(steps, len(made) - 1)))
    down(place, "quick")
    assert not any(everything(place).values())


def _dies_after(steps: int) -> Callable[[Touched], None]:
    left = [steps]

    def say(_: Touched) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1

    return say


def test_what_is_not_ours_is_left(place: Place, stack: Make) -> None:
    up(place, stack())
    queue = names.queue("quick", "c7g.xlarge")
    [found] = place.client("batch").describe_job_queues(jobQueues=[queue])["jobQueues"]
    place.client("batch").tag_resource(resourceArn=found["jobQueueArn"], tags={names.SUITE_TAG: "another"})
    with pytest.raises(UsageError, match="was not made for this suite"):
        up(place, stack())
    with aws_errors("test"):
        place.client("batch").tag_resource(
            resourceArn=found["jobQueueArn"],
            tags={names.SUITE_TAG: "quick", "aws:cloudformation:stack-name": "x", names.DIGEST_TAG: ""},
        )
    with pytest.raises(UsageError, match="CloudFormation stack"):
        up(place, stack())


def test_two_suites_keep_apart(place: Place, stack: Make) -> None:
    up(place, stack())
    up(place, stack(suite="other"))
    down(place, "quick")
    assert inventory.suites(place) == ["other"]
    assert set(became(up(place, stack(suite="other")))) == {"as it was"}


def test_an_invalid_environment_is_one_line(place: Place, stack: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    client = place.client("batch")
    described = client.describe_compute_environments

    def invalid(**asked: Any) -> dict[str, Any]:
        found: dict[str, Any] = described(**asked)
        for each in found["computeEnvironments"]:
            each |= {"status": "INVALID", "statusReason": "CLIENT_ERROR - not authorized"}
        return found

    monkeypatch.setattr(client, "describe_compute_environments", invalid)
    with pytest.raises(AwsError, match=r"is invalid: CLIENT_ERROR - not authorized"):
        up(place, stack())


class Shown:
    """Changes what Batch shows of one environment or queue, for so many looks."""

    def __init__(self, place: Place, patch: pytest.MonkeyPatch) -> None:
        self._client, self._patch = place.client("batch"), patch

    def show(self, what: str, name: str, looks: int, **changes: str) -> None:
        operation, left = f"describe_{what}s", [looks]
        described = getattr(self._client, operation)
        words = what.split("_")
        word = words[0] + "".join(each.title() for each in words[1:])

        def changed(**asked: Any) -> dict[str, Any]:
            found: dict[str, Any] = described(**asked)
            for each in found[f"{word}s"]:
                if each[f"{word}Name"] == name and left[0] > 0:
                    left[0] -= 1
                    each.update(changes)
            return found

        self._patch.setattr(self._client, operation, changed)


ENVIRONMENT = names.queue("quick", "c7g.xlarge")


@pytest.mark.parametrize("what", ["compute_environment", "job_queue"])
@pytest.mark.parametrize("changes", [{"state": "DISABLED"}, {"status": "INVALID"}])
def test_what_is_ill_is_repaired(
    place: Place, stack: Make, monkeypatch: pytest.MonkeyPatch, what: str, changes: dict[str, str]
) -> None:
    up(place, stack())
    Shown(place, monkeypatch).show(what, ENVIRONMENT, 1, **changes)
    assert became(up(place, stack()))["repaired"] == {ENVIRONMENT}
    assert set(became(up(place, stack()))) == {"as it was"}


def test_a_queue_that_somebody_disabled_is_enabled(place: Place, stack: Make) -> None:
    up(place, stack())
    client = place.client("batch")
    client.update_job_queue(jobQueue=ENVIRONMENT, state="DISABLED")
    assert became(up(place, stack()))["repaired"] == {ENVIRONMENT}
    assert client.describe_job_queues(jobQueues=[ENVIRONMENT])["jobQueues"][0]["state"] == "ENABLED"


@pytest.mark.parametrize("what", ["compute_environment", "job_queue"])
def test_what_is_being_deleted_is_only_waited_for(
    place: Place, stack: Make, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """AWS refuses to disable it, and to delete it again."""
    up(place, stack())
    client = place.client("batch")
    described = getattr(client, f"describe_{what}s")
    delete = getattr(client, f"delete_{what}")
    looks = [0]
    words = what.split("_")
    word = words[0] + words[1].title()

    def deleting(**asked: Any) -> dict[str, Any]:
        found: dict[str, Any] = described(**asked)
        for each in found[f"{word}s"]:
            if each[f"{word}Name"] == ENVIRONMENT:
                each["status"] = "DELETING"
                looks[0] += 1
        if looks[0] == 5:
            looks[0] += 1
            monkeypatch.setattr(client, f"describe_{what}s", described)
            delete(**{word: ENVIRONMENT})
        return found

    def refused(**asked: Any) -> Any:
        assert asked[word] != ENVIRONMENT, "it is being deleted"
        return delete(**asked)

    if what == "compute_environment":
        client.update_job_queue(jobQueue=ENVIRONMENT, state="DISABLED")
        client.delete_job_queue(jobQueue=ENVIRONMENT)
    getattr(client, f"update_{what}")(**{word: ENVIRONMENT, "state": "DISABLED"})
    monkeypatch.setattr(client, f"describe_{what}s", deleting)
    monkeypatch.setattr(client, f"delete_{what}", refused)
    down(place, "quick")
    monkeypatch.undo()
    assert not any(everything(place).values())


def test_an_environment_that_turns_invalid_at_first_is_made_again(
    place: Place, stack: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance profile that IAM has just made is not known everywhere at once."""
    made: list[str] = []
    create = place.client("batch").create_compute_environment

    def counted(**asked: Any) -> Any:
        made.append(asked["computeEnvironmentName"])
        return create(**asked)

    monkeypatch.setattr(place.client("batch"), "create_compute_environment", counted)
    # Two looks of the first making, in which it is invalid.
    Shown(place, monkeypatch).show("compute_environment", ENVIRONMENT, 2, status="INVALID")
    up(place, stack())
    assert made.count(ENVIRONMENT) == 2
    assert set(became(up(place, stack()))) == {"as it was"}


def test_nothing_says_who_the_account_is(place: Place, stack: Make) -> None:
    said = "\n".join(map(str, up(place, stack()) + down(place, "quick")))
    assert not [secret for secret in server.SECRETS if secret in said]

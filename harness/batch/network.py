"""What EC2 has of it: the launch template, the security group, and the network that is there already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.aws.failures import aws_errors
from harness.batch import names
from harness.batch.kinds import Found, Place, as_list, as_map
from harness.errors import AwsError, UsageError


class SecurityGroup:
    """A group that lets nothing in."""

    word = "security group"

    def __init__(self, place: Place) -> None:
        self._place, self._client = place, place.client("ec2")

    def find(self, name: str) -> Found | None:
        """The one of that name."""
        with aws_errors(f"looking for the security group {name}"):
            groups = self._client.describe_security_groups(Filters=[{"Name": "group-name", "Values": [name]}])
        for group in groups["SecurityGroups"]:
            identity = group["GroupId"]
            return Found(name, as_map(group.get("Tags", [])), {"Ref": identity, "GroupId": identity})
        return None

    def make(self, name: str, properties: dict[str, Any], tags: dict[str, str]) -> None:
        """Make it; one that is new lets all out and nothing in, as wanted."""
        with aws_errors(f"making the security group {name}"):
            self._client.create_security_group(
                GroupName=name,
                Description=properties["GroupDescription"],
                VpcId=properties["VpcId"],
                TagSpecifications=[{"ResourceType": "security-group", "Tags": as_list(tags)}],
            )

    def change(self, name: str, properties: dict[str, Any], tags: dict[str, str]) -> None:
        """A group cannot move to another network."""
        del properties, tags
        raise UsageError(
            f"the security group {name} is of another network; `harness batch down` first, or name its --subnet"
        )

    def remove(self, name: str) -> None:
        """Remove it, once the last machine's interface has let go of it."""
        found = self.find(name)
        identity = found.attributes["GroupId"] if found else ""

        def gone() -> bool:
            try:
                with aws_errors(f"removing the security group {name}"):
                    self._client.delete_security_group(GroupId=identity)
            except AwsError as error:
                if error.code != "DependencyViolation":
                    raise
                return False
            return True

        self._place.wait(f"removing the security group {name}", gone)


class LaunchTemplate:
    """How an instance is started; what it was made of is said with each version."""

    word = "launch template"

    def __init__(self, place: Place) -> None:
        self._client = place.client("ec2")

    def find(self, name: str) -> Found | None:
        """The one of that name."""
        filters = [{"Name": "launch-template-name", "Values": [name]}]
        with aws_errors(f"looking for the launch template {name}"):
            templates = self._client.describe_launch_templates(Filters=filters)["LaunchTemplates"]
            if not templates:
                return None
            versions = self._client.describe_launch_template_versions(LaunchTemplateName=name, Versions=["$Latest"])
        [latest] = versions["LaunchTemplateVersions"]
        attributes = {"Ref": templates[0]["LaunchTemplateId"], "LatestVersionNumber": str(latest["VersionNumber"])}
        tags = {**as_map(templates[0].get("Tags", [])), names.DIGEST_TAG: latest.get("VersionDescription", "")}
        return Found(name, tags, attributes)

    def make(self, name: str, properties: dict[str, Any], tags: dict[str, str]) -> None:
        """Make it."""
        with aws_errors(f"making the launch template {name}"):
            self._client.create_launch_template(
                LaunchTemplateName=name,
                VersionDescription=tags[names.DIGEST_TAG],
                LaunchTemplateData=properties["LaunchTemplateData"],
                TagSpecifications=[{"ResourceType": "launch-template", "Tags": as_list(tags)}],
            )

    def change(self, name: str, properties: dict[str, Any], tags: dict[str, str]) -> None:
        """A new version; whoever refers to the template names its version."""
        with aws_errors(f"changing the launch template {name}"):
            self._client.create_launch_template_version(
                LaunchTemplateName=name,
                VersionDescription=tags[names.DIGEST_TAG],
                LaunchTemplateData=properties["LaunchTemplateData"],
            )

    def remove(self, name: str) -> None:
        """Remove it."""
        with aws_errors(f"removing the launch template {name}"):
            self._client.delete_launch_template(LaunchTemplateName=name)


def network(place: Place, subnets: Sequence[str] = ()) -> tuple[str, list[str]]:
    """The VPC and its subnets: those that are named, else the default ones.

    Raises:
        UsageError: there are none, or the named ones are of several VPCs.
    """
    asked: dict[str, Any] = {"SubnetIds": list(subnets)}
    if not subnets:
        asked = {"Filters": [{"Name": "default-for-az", "Values": ["true"]}]}
    with aws_errors("looking for subnets"):
        found = place.client("ec2").describe_subnets(**asked)["Subnets"]
    networks = sorted({each["VpcId"] for each in found})
    if not networks:
        raise UsageError("this region has no default VPC; name --subnet (one or more, with a way to the internet)")
    if len(networks) > 1:
        raise UsageError(f"the subnets are of {len(networks)} VPCs; name those of one")
    return networks[0], sorted(each["SubnetId"] for each in found)

"""Roles, and the profile that gives one to an instance."""

from __future__ import annotations

import json
from typing import Any

from harness.aws.failures import aws_errors
from harness.batch.kinds import Found, Place, as_list, as_map
from harness.errors import AwsError

_GONE = ("NoSuchEntity",)


class Role:
    """A role with inline policies."""

    word = "role"

    def __init__(self, place: Place) -> None:
        self._client = place.client("iam")

    def find(self, name: str) -> Found | None:
        """The one of that name."""
        try:
            with aws_errors(f"looking for the role {name}"):
                role = self._client.get_role(RoleName=name)["Role"]
        except AwsError as error:
            if error.code in _GONE:
                return None
            raise
        return Found(name, as_map(role.get("Tags", [])), {"Ref": name, "Arn": role["Arn"]})

    def make(self, name: str, properties: dict[str, Any], tags: dict[str, str]) -> None:
        """Make it."""
        trusted = json.dumps(properties["AssumeRolePolicyDocument"])
        with aws_errors(f"making the role {name}"):
            self._client.create_role(RoleName=name, AssumeRolePolicyDocument=trusted)
        self._policies(name, properties, tags)

    def change(self, name: str, properties: dict[str, Any], tags: dict[str, str]) -> None:
        """Write its policies again."""
        trusted = json.dumps(properties["AssumeRolePolicyDocument"])
        with aws_errors(f"changing the role {name}"):
            self._client.update_assume_role_policy(RoleName=name, PolicyDocument=trusted)
        self._policies(name, properties, tags)

    def _policies(self, name: str, properties: dict[str, Any], tags: dict[str, str]) -> None:
        with aws_errors(f"giving the role {name} its policy"):
            for policy in properties["Policies"]:
                self._client.put_role_policy(
                    RoleName=name,
                    PolicyName=policy["PolicyName"],
                    PolicyDocument=json.dumps(policy["PolicyDocument"]),
                )
            # Last: a role that was half made has no digest yet, and is made whole by the next `up`.
            self._client.tag_role(RoleName=name, Tags=as_list(tags))

    def remove(self, name: str) -> None:
        """Remove it and its policies."""
        with aws_errors(f"removing the role {name}"):
            for policy in self._client.list_role_policies(RoleName=name)["PolicyNames"]:
                self._client.delete_role_policy(RoleName=name, PolicyName=policy)
            self._client.delete_role(RoleName=name)


class InstanceProfile:
    """A role as EC2 takes it."""

    word = "instance profile"

    def __init__(self, place: Place) -> None:
        self._client = place.client("iam")

    def find(self, name: str) -> Found | None:
        """The one of that name."""
        try:
            with aws_errors(f"looking for the instance profile {name}"):
                found = self._client.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
        except AwsError as error:
            if error.code in _GONE:
                return None
            raise
        return Found(name, as_map(found.get("Tags", [])), {"Ref": name, "Arn": found["Arn"]})

    def make(self, name: str, properties: dict[str, Any], tags: dict[str, str]) -> None:
        """Make it, and wait until IAM shows it."""
        with aws_errors(f"making the instance profile {name}"):
            self._client.create_instance_profile(InstanceProfileName=name)
            self._client.get_waiter("instance_profile_exists").wait(InstanceProfileName=name)
        self.change(name, properties, tags)

    def change(self, name: str, properties: dict[str, Any], tags: dict[str, str]) -> None:
        """Give it its role."""
        with aws_errors(f"giving the instance profile {name} its role"):
            found = self._client.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
            present = [role["RoleName"] for role in found["Roles"]]
            for role in properties["Roles"]:
                if role not in present:
                    self._client.add_role_to_instance_profile(InstanceProfileName=name, RoleName=role)
            self._client.tag_instance_profile(InstanceProfileName=name, Tags=as_list(tags))

    def remove(self, name: str) -> None:
        """Take its role from it, and remove it."""
        with aws_errors(f"removing the instance profile {name}"):
            found = self._client.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
            for role in found["Roles"]:
                self._client.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=role["RoleName"])
            self._client.delete_instance_profile(InstanceProfileName=name)

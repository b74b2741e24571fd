"""What Batch has of it: compute environments, queues, job definitions."""

from __future__ import annotations

from typing import Any

from harness.aws.failures import aws_errors, concealed
from harness.batch.kinds import Found, Place
from harness.errors import AwsError

# What Batch's API takes as it is: these hold names of ours, not of Batch.
_AS_IS = ("Tags", "Parameters")
_SERVICE = "batch.amazonaws.com"
# What IAM has just made is not known everywhere at once: Batch refuses an environment of it, or takes it and finds it
# invalid, for some ten seconds.
_TRIES = 6
_PAUSE_S = 10.0
_BUSY = ("CREATING", "UPDATING")


def as_api(value: Any) -> Any:
    """CloudFormation's form -> the API's: the same keys, each with a small first letter."""
    if isinstance(value, dict):
        return {key[0].lower() + key[1:]: inner if key in _AS_IS else as_api(inner) for key, inner in value.items()}
    return [as_api(each) for each in value] if isinstance(value, list) else value


def _found(name: str, found: dict[str, Any], arn: str) -> Found:
    reason = concealed(found.get("statusReason", ""))
    return Found(name, found.get("tags", {}), {"Ref": found[arn]}, found["status"], found["state"], reason)


class ComputeEnvironment:
    """The machines of one instance type; none while no job waits."""

    word = "compute environment"
    # What may be changed while it is there; the rest decides its identity, which is in its name.
    _CHANGEABLE = ("maxvCpus", "launchTemplate", "securityGroupIds", "subnets", "instanceRole", "type")

    def __init__(self, place: Place) -> None:
        self._place, self._client = place, place.client("batch")

    def find(self, name: str) -> Found | None:
        """The one of that name."""
        found = self._describe(name)
        if found is None:
            return None
        return _found(name, found, "computeEnvironmentArn")

    def make(self, name: str, properties: dict[str, Any], tags: dict[str, str]) -> None:
        """Make it, and wait until it is valid; what is not is made again, for about a minute."""
        asked = as_api({**properties, "Tags": tags})
        asked["serviceRole"] = self._service_role()
        for left in reversed(range(_TRIES)):
            try:
                with aws_errors(f"making the compute environment {name}"):
                    self._client.create_compute_environment(**asked)
                self._valid(name)
            except AwsError as error:
                if error.code not in ("ClientException", "Invalid") or not left:
                    raise
                if error.code == "Invalid":
                    self.remove(name)
            else:
                return
            self._place.sleep(_PAUSE_S)

    def change(self, name: str, properties: dict[str, Any], tags: dict[str, str]) -> None:
        """Change what may be changed."""
        asked = as_api(properties["ComputeResources"])
        wanted = {key: value for key, value in asked.items() if key in self._CHANGEABLE}
        with aws_errors(f"changing the compute environment {name}"):
            self._client.update_compute_environment(computeEnvironment=name, state="ENABLED", computeResources=wanted)
        self._valid(name)
        found = self.find(name)
        if found:
            with aws_errors(f"changing the compute environment {name}"):
                self._client.tag_resource(resourceArn=found.attributes["Ref"], tags=tags)

    def remove(self, name: str) -> None:
        """Disable it, remove it, and wait until its machines are gone too."""
        self._place.wait(f"changing {name}", lambda: not self._busy(name))
        found = self._describe(name)
        if found is not None and found["status"] != "DELETING":
            with aws_errors(f"disabling the compute environment {name}"):
                self._client.update_compute_environment(computeEnvironment=name, state="DISABLED")
            self._place.wait(f"disabling {name}", lambda: not self._busy(name))
            with aws_errors(f"removing the compute environment {name}"):
                self._client.delete_compute_environment(computeEnvironment=name)
        self._place.wait(f"removing the compute environment {name}", lambda: self._describe(name) is None)

    def spot(self, name: str) -> bool:
        """Whether its machines are spot instances."""
        found = self._describe(name)
        return found is not None and found.get("computeResources", {}).get("type") == "SPOT"

    def _valid(self, name: str) -> None:
        self._place.wait(f"making {name}", lambda: not self._busy(name))
        found = self._describe(name)
        if found and found["status"] == "INVALID":
            why = concealed(found.get("statusReason", ""))
            raise AwsError(
                f"the compute environment {name} is invalid: {why}; see to that, `harness batch down`, then `up`",
                "Invalid",
            )

    def _busy(self, name: str) -> bool:
        found = self._describe(name)
        return found is not None and found["status"] in _BUSY

    def _describe(self, name: str) -> dict[str, Any] | None:
        with aws_errors(f"looking for the compute environment {name}"):
            found = self._client.describe_compute_environments(computeEnvironments=[name])["computeEnvironments"]
        return next((each for each in found if each["status"] != "DELETED"), None)

    def _service_role(self) -> str:
        """Batch's own role in this account: with another one, environments cannot be changed in place."""
        iam = self._place.client("iam")
        try:
            with aws_errors("making AWS Batch's service role"):
                return str(iam.create_service_linked_role(AWSServiceName=_SERVICE)["Role"]["Arn"])
        except AwsError as error:
            if error.code not in ("InvalidInput", "EntityAlreadyExists"):
                raise
        with aws_errors("looking for AWS Batch's service role"):
            roles = iam.list_roles(PathPrefix=f"/aws-service-role/{_SERVICE}/")["Roles"]
        return str(roles[0]["Arn"])


class JobQueue:
    """Where jobs of one instance type wait."""

    word = "queue"

    def __init__(self, place: Place) -> None:
        self._place, self._client = place, place.client("batch")

    def find(self, name: str) -> Found | None:
        """The one of that name."""
        found = self._describe(name)
        return _found(name, found, "jobQueueArn") if found else None

    def make(self, name: str, properties: dict[str, Any], tags: dict[str, str]) -> None:
        """Make it, and wait until it is valid."""
        with aws_errors(f"making the queue {name}"):
            self._client.create_job_queue(**as_api({**properties, "Tags": tags}))
        self._settled(name)

    def change(self, name: str, properties: dict[str, Any], tags: dict[str, str]) -> None:
        """Enable it, on its environment."""
        asked = as_api({key: value for key, value in properties.items() if key not in ("JobQueueName", "Tags")})
        with aws_errors(f"changing the queue {name}"):
            self._client.update_job_queue(jobQueue=name, **asked)
        self._settled(name)
        found = self.find(name)
        if found:
            with aws_errors(f"changing the queue {name}"):
                self._client.tag_resource(resourceArn=found.attributes["Ref"], tags=tags)

    def remove(self, name: str) -> None:
        """Disable it, remove it, and wait until it is gone."""
        self._settled(name)
        found = self._describe(name)
        if found is not None and found["status"] != "DELETING":
            with aws_errors(f"disabling the queue {name}"):
                self._client.update_job_queue(jobQueue=name, state="DISABLED")
            self._settled(name)
            with aws_errors(f"removing the queue {name}"):
                self._client.delete_job_queue(jobQueue=name)
        self._place.wait(f"removing the queue {name}", lambda: self._describe(name) is None)

    def _settled(self, name: str) -> None:
        def settled() -> bool:
            found = self._describe(name)
            return found is None or found["status"] not in _BUSY

        self._place.wait(f"changing the queue {name}", settled)

    def _describe(self, name: str) -> dict[str, Any] | None:
        with aws_errors(f"looking for the queue {name}"):
            found = self._client.describe_job_queues(jobQueues=[name])["jobQueues"]
        return next((each for each in found if each["status"] != "DELETED"), None)


class JobDefinition:
    """How a system image is run under an envelope; a change is a new revision."""

    word = "job definition"

    def __init__(self, place: Place) -> None:
        self._client = place.client("batch")

    def find(self, name: str) -> Found | None:
        """The newest of that name."""
        found = self.newest(name)
        return Found(name, found.get("tags", {}), {"Ref": found["jobDefinitionArn"]}) if found else None

    def make(self, name: str, properties: dict[str, Any], tags: dict[str, str]) -> None:
        """Register it."""
        with aws_errors(f"registering the job definition {name}"):
            self._client.register_job_definition(**as_api({**properties, "Tags": tags}))

    def change(self, name: str, properties: dict[str, Any], tags: dict[str, str]) -> None:
        """Register the new revision, then take the old ones back."""
        old = self._active(name)
        self.make(name, properties, tags)
        self._deregister(name, old)

    def remove(self, name: str) -> None:
        """Deregister every revision."""
        self._deregister(name, self._active(name))

    def newest(self, name: str) -> dict[str, Any] | None:
        """The newest of that name, as Batch shows it."""
        return max(self._active(name), key=lambda each: int(each["revision"]), default=None)

    def _active(self, name: str) -> list[dict[str, Any]]:
        with aws_errors(f"looking for the job definition {name}"):
            pages = self._client.get_paginator("describe_job_definitions").paginate(
                jobDefinitionName=name, status="ACTIVE"
            )
            return [each for page in pages for each in page["jobDefinitions"]]

    def _deregister(self, name: str, revisions: list[dict[str, Any]]) -> None:
        with aws_errors(f"deregistering the job definition {name}"):
            for each in revisions:
                self._client.deregister_job_definition(jobDefinition=each["jobDefinitionArn"])

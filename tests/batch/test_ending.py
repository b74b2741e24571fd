"""After the last job: until Batch has ended its instances, and what is said if it does not."""

from __future__ import annotations

from dataclasses import replace

from harness.batch import ending
from harness.batch.kinds import Place


def start(place: Place, **tags: str) -> str:
    listed = [{"Key": f"harness:{key}", "Value": value} for key, value in {"owner": "o", **tags}.items()]
    made = place.client("ec2").run_instances(
        ImageId="ami-1", MinCount=1, MaxCount=1, TagSpecifications=[{"ResourceType": "instance", "Tags": listed}]
    )
    return str(made["Instances"][0]["InstanceId"])


def test_ending_waits_for_batchs_own_instances_alone(place: Place) -> None:
    mine = start(place, suite="quick", launcher="batch")
    start(place, suite="quick")
    start(place, suite="other", launcher="batch")
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        place.client("ec2").terminate_instances(InstanceIds=[mine])

    said: list[str] = []
    assert ending.alive(replace(place, sleep=sleep), "quick", said.append, 900) == ()
    assert len(waited) == 1
    assert "ended 1 instances" in said[0]


def test_what_does_not_end_is_returned(place: Place) -> None:
    mine = start(place, suite="quick", launcher="batch")
    ticks = iter(range(0, 10_000, 300))
    left = ending.alive(replace(place, clock=lambda: float(next(ticks))), "quick", lambda _: None, 900)
    assert [each.instance_id for each in left] == [mine]

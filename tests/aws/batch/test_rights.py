"""What the commands of Batch ask of AWS, held against the policy of who runs; moto's CloudFormation asks as they do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from harness.aws.batch import suite_stack
from harness.aws.clients import Connections, parse_uri
from harness.aws.ec2 import account
from harness.cli import main
from tests.aws import rights, server
from tests.aws.batch.test_backend import backend_of, configure, launch, look, part
from tests.conftest import Bench

WORK = parse_uri("s3://bucket/work")
TYPES = ("m6gd.medium", "c7g.xlarge")


@pytest.fixture
def as_runner(aws: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An administrator has set up the account; from now on a user asks."""
    configure(aws, use_docker=False)
    account.up(Connections(server.REGION), WORK, "owner", TYPES)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.RUNNER_KEY)
    yield aws
    configure(aws, use_docker=True)


def harness(*words: str) -> str:
    done = CliRunner(env={"HARNESS_WORK": str(WORK)}).invoke(main, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_runner_policy_permits_exactly_the_requests(as_runner: str, bench: Bench) -> None:
    suite = str(bench.suite().rename(bench.folder / "quick.toml"))
    up = ("batch", "up", suite, "--architecture", "arm64", "--instance", "c7g.xlarge")
    harness(*up)
    harness(*up, "--disk", "300")
    wanted = part("001", profile="cpu1-mem1")
    backend = backend_of(Connections(server.REGION), wanted)
    backend.check([wanted])
    launch(backend, wanted)
    look(backend, wanted)
    suite_stack.terminate(backend._connections, str(backend._jobs["001"].job_id), "the cap is reached")
    backend.alive()
    harness("batch", "ls")
    harness("batch", "cancel", suite)
    harness("batch", "down", suite)
    printed = account.policy("runner", WORK, server.REGION, list(TYPES), server.ACCOUNT)
    denied, unused = rights.differing(server.requests(as_runner), server.RUNNER_KEY, [printed])
    assert denied == []
    statements = (
        "LookAtBatch",
        "SuiteStacks",
        "Batch ",
        "TagJobs",
        "EndJobs",
        "MakeLaunchTemplates",
        "LaunchTemplates",
    )
    # Used where a deployment fails, and by CloudFormation where a tag goes.
    rare = ["SuiteStacks cloudformation:DescribeStackEvents", "Batch batch:UntagResource"]
    assert [each for each in unused if each.startswith(statements)] == rare

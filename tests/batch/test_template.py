"""The template, as CloudFormation's own linter sees it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import hardware, instances
from harness.batch.resources import resources
from harness.batch.template import template
from harness.batch.wanted import Stack, Wanted
from tests.aws import server

LINT = Path(sys.executable).with_name("cfn-lint")


def lint(*paths: Path) -> str:
    done = subprocess.run(
        [LINT, "--regions", server.REGION, "--include-checks", "I", "--", *paths],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 2, 4, 6, 8), done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_template_is_clean_and_the_linter_would_find_a_mistake(stack: Callable[..., Stack], tmp_path: Path) -> None:
    """All in one call: it takes seconds to start."""
    gpu = Wanted("bm25", hardware.profile("gpu1-cpu1-mem4"), instances.read("aws")["g4dn.xlarge"], 600)
    paths = []
    for changes in ({}, {"spot": True, "most_instances": 9}, {"suite": "a.b_c-d"}):
        made = stack(**changes)
        made = stack(**{**changes, "wanted": (*made.wanted, gpu)})
        paths.append(tmp_path / f"clean-{len(paths)}.json")
        paths[-1].write_text(template(made.suite, resources(made)))
    document = json.loads(template("quick", resources(stack())))
    document["Resources"]["JobRole"]["Properties"]["Polices"] = []
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps(document))
    said = lint(*paths, wrong)
    assert "Polices" in said and str(wrong) in said
    assert not [path for path in paths if str(path) in said], said


def test_the_template_names_no_account_and_no_role(stack: Callable[..., Stack]) -> None:
    text = template("quick", resources(stack()))
    assert not [secret for secret in server.SECRETS if secret in text]
    assert "RoleName" not in text  # CAPABILITY_IAM is enough
    assert "arn:aws:" not in text


def test_a_stack_can_be_updated(stack: Callable[..., Stack]) -> None:
    """CloudFormation would make a second environment of the same name, and remove one that a queue needs."""
    for each in json.loads(template("quick", resources(stack())))["Resources"].values():
        if each["Type"] == "AWS::Batch::ComputeEnvironment":
            assert each["Properties"]["ReplaceComputeEnvironment"] is False
            assert "DesiredvCpus" not in each["Properties"]["ComputeResources"]

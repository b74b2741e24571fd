"""Instance types are emulated; verdicts name what was not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.driver.records import Outcome
from harness.errors import UsageError
from harness.experiments.viability import render, validation
from harness.experiments.viability.probe import MIB
from harness.experiments.viability.search import CONFIRMATIONS
from harness.experiments.viability.session import Session
from harness.experiments.viability.smallest import smallest
from harness.pricing import instances
from harness.report import writers
from tests.experiments.viability.conftest import Life, Questions, needs

pytestmark = pytest.mark.slow

GIB = 1 << 30
SMALL = replace(instances.read_instances("aws")["m6g.medium"], architecture="x86_64")
LEFT = int(4 * 1024 * 0.95) - 512  # MiB: the reserve's 5 % and 512 MiB


@pytest.fixture(autouse=True)
def _x86(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.experiments.viability.judge.Reference.architecture", "x86_64")


def test_true_claim_is_confirmed_in_fresh_containers(questions: Questions) -> None:
    question, launcher = questions(needs(LEFT))
    verdict = validation.validate(question, SMALL)
    assert verdict.holds and verdict.limit_bytes == LEFT * MIB and verdict.causes == ()
    assert launcher.limits == [None] * 3 + [LEFT] * CONFIRMATIONS
    document = render.validation_document(verdict)
    assert "m6g.medium is enough for planted on tiny (fake)." in writers.write(document, "md")
    assert '"holds": true' in writers.write(document, "json")
    question, launcher = questions(needs(1))
    assert validation.validate(question, SMALL) == verdict and launcher.limits == []


def test_false_claim_has_a_reason(questions: Questions) -> None:
    question, launcher = questions(needs(LEFT + 1))
    verdict = validation.validate(question, SMALL)
    assert not verdict.holds and verdict.causes == ("oom",)
    assert launcher.limits[3:] == [LEFT], "one killed container is enough"
    text = writers.write(render.validation_document(verdict), "md")
    assert text.startswith("m6g.medium is not enough for planted on tiny (fake) (oom: ")
    slow, _ = questions(lambda limit, _: Life(ms=18) if limit else Life(), fresh=True)
    assert validation.validate(slow, SMALL).causes == ("latency",)


def test_validation_names_what_it_does_not_emulate(questions: Questions) -> None:
    question, _ = questions(needs(1))
    arm = replace(SMALL, architecture="arm64", burstable=True, gpus=1)
    (first, burst, gpus) = validation.validate(question, arm).not_shown
    assert "arm64, this host x86_64: only memory was validated" in first
    assert "credits" in burst and "not emulated" in gpus
    (same,) = validation.validate(question, SMALL).not_shown
    assert "faster or slower" in same


@pytest.mark.parametrize(
    ("changes", "gpus", "message"),
    [
        ({"memory_bytes": 512 * GIB}, 0, "leaves 497,561 MiB to a job, this host 15,872: this host is too small"),
        ({}, 1, "has 0 NVIDIA GPUs, --gpus asks for 1"),
        ({"memory_bytes": 512 * MIB}, 0, "its host needs all of that for itself"),
    ],
)
def test_type_that_this_host_cannot_emulate_is_one_line(
    questions: Questions, changes: dict[str, int], gpus: int, message: str
) -> None:
    question, launcher = questions(needs(1))
    with pytest.raises(UsageError, match=message):
        validation.validate(replace(question, gpus=gpus), replace(SMALL, **changes))
    assert launcher.limits == [] and question.jobs.measured == 0


def test_jobs_are_shared_with_the_search(questions: Questions) -> None:
    question, _ = questions(needs(129))
    smallest(question, 1)
    question, launcher = questions(lambda *_: Life(Outcome.CRASH))
    base = Session(question, 1).base
    assert base.summary.peak_anon_bytes == 100 * MIB and launcher.limits == []

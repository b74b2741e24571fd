"""What the user has agreed to is what is done, and no more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from harness.aws.ec2.backend import Ec2Backend
from harness.remote import run
from harness.remote.records import PlannedPart
from harness.remote.watch import RunWatch
from tests.aws.ec2.conftest import Field


def dearer(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """With the images made, all takes longer than was thought."""
    really: Callable[..., tuple[PlannedPart, ...]] = Ec2Backend.parts
    drafts = []

    def parts(*arguments: Any) -> tuple[PlannedPart, ...]:
        drafts.append(1)
        found = really(*arguments)
        return tuple(replace(each, expected_s=factor * each.expected_s) for each in found) if drafts[1:] else found

    monkeypatch.setattr(Ec2Backend, "parts", staticmethod(parts))


def test_larger_cost_is_shown_and_agreed_again(plain: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[str] = []
    dearer(monkeypatch, 3)
    with plain.workers():
        plain.run(plain.client(agree=questions.append))
    assert len(questions) == 2 and "now that the images are built, the estimate is higher" in plain.output
    assert plain.output.count("about US$ ") == 2


@pytest.mark.parametrize(("again", "holds"), [(None, 1.5), (2.5, 2.5)])
def test_resumed_run_without_a_cap_keeps_its_first_cap(
    plain: Field, monkeypatch: pytest.MonkeyPatch, again: float | None, holds: float
) -> None:
    caps: list[float | None] = []

    def noted(*given: Any) -> RunWatch:
        made = RunWatch(*given)
        caps.append(made.cap_usd)
        return made

    monkeypatch.setattr(run, "RunWatch", noted)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(RunWatch, "run", _interrupted)
        plain.run(cap_usd=1.5)
    with plain.workers():
        plain.run(cap_usd=again)
    assert caps == [1.5, holds]


def _interrupted(_watch: object) -> None:
    raise KeyboardInterrupt

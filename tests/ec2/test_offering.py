"""What the user has agreed to is what is done, and no more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from harness.aws.connections import Connections
from harness.ec2 import drafting, planning
from harness.ec2.records import Group
from harness.ec2.standing import Terms
from harness.errors import UsageError
from tests.aws.server import REGION
from tests.ec2.conftest import Field, launched_and_terminated


def dearer(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """With the images made, all takes longer than was thought."""
    really: Callable[..., tuple[Group, ...]] = planning.grouped
    drafts = []

    def grouped(*arguments: Any, **keys: Any) -> tuple[Group, ...]:
        drafts.append(1)
        found = really(*arguments, **keys)
        return tuple(replace(each, expected_s=factor * each.expected_s) for each in found) if drafts[1:] else found

    monkeypatch.setattr(planning, "grouped", grouped)


def test_what_has_grown_is_shown_and_asked_again(plain: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    dearer(monkeypatch, 3)
    with plain.boxes():
        plain.run(plain.side(agree=asked.append))
    assert len(asked) == 2 and "now that the images are made, it is more" in plain.said
    assert plain.said.count("about US$ ") == 2


def test_what_has_not_grown_is_asked_once(plain: Field) -> None:
    asked: list[str] = []
    with plain.boxes():
        plain.run(plain.side(agree=asked.append))
    assert len(asked) == 1


def test_what_has_grown_beyond_the_cap_is_refused(plain: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    dearer(monkeypatch, 100)
    with pytest.raises(UsageError, match="more than --max-usd"):
        plain.run(cap_usd=1.0)
    assert launched_and_terminated() == (0, 0)


def test_a_no_to_the_second_question_launches_nothing(plain: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def agree(question: str) -> None:
        asked.append(question)
        if len(asked) == 2:
            raise UsageError("no")

    dearer(monkeypatch, 3)
    with pytest.raises(UsageError, match="no"):
        plain.run(plain.side(agree=agree))
    assert launched_and_terminated() == (0, 0)


@pytest.mark.parametrize(("again", "holds"), [(None, 1.5), (2.5, 2.5)])
def test_who_goes_on_without_a_cap_keeps_that_of_the_beginning(
    plain: Field, monkeypatch: pytest.MonkeyPatch, again: float | None, holds: float
) -> None:
    caps: list[float | None] = []
    made = Terms.__init__

    def noted(terms: Terms, most: int, cap_usd: float | None = None, *others: Any) -> None:
        caps.append(cap_usd)
        made(terms, most, cap_usd, *others)

    monkeypatch.setattr(Terms, "__init__", noted)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("harness.ec2.conductor.Conductor.run", _interrupted)
        plain.run(cap_usd=1.5)
    with plain.boxes():
        plain.run(cap_usd=again)
    assert caps == [1.5, holds]


def _interrupted(_conductor: object) -> None:
    raise KeyboardInterrupt


def test_who_goes_on_without_saying_otherwise_keeps_to_the_caps_of_the_run(plain: Field) -> None:
    run = drafting.begun(plain.request(cap_usd=3.0), drafting.market(plain.request(), Connections(REGION)), "me", (), 0)
    assert drafting.cap_usd(plain.request(), run) == 3.0
    assert drafting.cap_usd(plain.request(cap_usd=4.0), run) == 4.0
    assert drafting.cap_usd(plain.request(), None) is None

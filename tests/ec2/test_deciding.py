"""The decision, for whatever can be the case."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.ec2 import money
from harness.ec2.deciding import (
    LIVE,
    Box,
    Bring,
    Finish,
    GiveUp,
    Leave,
    Part,
    Patience,
    Retry,
    Start,
    Terminate,
    World,
    decide,
    gone,
)
from harness.ec2.money import Ask, limits
from harness.ec2.records import Launch
from harness.remote.records import Beat, End

NOW = 1_000_000.0
ASK = Ask(usd_per_hour=1.0, need_s=600.0, usual_s=3600.0)
PART = Part("001-1", 1, "m6i.large", ASK, frozenset({"a", "b"}))
LAUNCH = Launch("001-1", "m6i.large", 1.0, 3600.0, NOW - 700)
BOX = Box("i-1", "001-1", "running", NOW - 690)
BEAT = Beat("001-1", "i-1", "measuring", current="a")
RUNS = replace(PART, launch=LAUNCH, asked=True, box=BOX, beat=BEAT, beat_at=NOW - 10)
GONE = replace(RUNS, box=replace(BOX, state="terminated"))


def world(*parts: Part, **changes: object) -> World:
    return replace(World(NOW, tuple(parts)), **changes)  # type: ignore[arg-type]


def test_a_part_that_waits_is_launched_with_its_usual_limit() -> None:
    assert decide(world(PART)) == [Start("001-1", 3600.0)]


def test_a_living_box_is_left_alone() -> None:
    assert decide(world(RUNS)) == []


def test_what_arrived_is_brought_home_first() -> None:
    assert decide(world(GONE, arrived=frozenset({"a"}))) == [Bring(("a",))]


def test_gone_and_all_home_is_done() -> None:
    assert decide(world(GONE, home=frozenset("ab"))) == [Finish("001-1")]


def test_gone_with_something_missing_is_tried_twice_more() -> None:
    assert decide(world(GONE, home=frozenset("a"))) == [Retry("001-1", "its instance went away")]
    (last,) = decide(world(replace(GONE, attempt=3), home=frozenset("a")))
    assert isinstance(last, GiveUp) and "3 instances" in last.why


def test_a_silent_box_is_terminated() -> None:
    (action,) = decide(world(replace(RUNS, beat_at=NOW - 301)))
    assert isinstance(action, Terminate) and "no sign of life for 5 min" in (action.why or "")


def test_before_the_first_sign_of_life_there_is_more_patience() -> None:
    silent = replace(RUNS, beat=None, beat_at=None)
    assert decide(world(silent)) == []
    (action,) = decide(world(silent, now=NOW + 600))
    assert isinstance(action, Terminate)


def test_while_harness_is_installed_there_is_more_patience_too() -> None:
    installs = replace(RUNS, beat=replace(BEAT, phase="installing", current=None), beat_at=NOW - 600)
    assert decide(world(installs)) == []
    (action,) = decide(world(installs, now=NOW + 601))
    assert isinstance(action, Terminate) and "no sign of life for 20 min" in (action.why or "")


def test_a_sign_of_life_older_than_the_instance_is_another_ones() -> None:
    assert decide(world(replace(RUNS, beat_at=NOW - 5000))) == []


def test_a_notice_means_the_end() -> None:
    (action,) = decide(world(replace(RUNS, beat=replace(BEAT, notice="terminate at 10:00"))))
    assert isinstance(action, Terminate) and "terminate at 10:00" in (action.why or "")


def test_a_limit_that_did_not_hold_is_enforced() -> None:
    (action,) = decide(world(replace(RUNS, box=replace(BOX, launched=NOW - 3600 - 301))))
    assert isinstance(action, Terminate) and "time limit" in (action.why or "")


def test_an_end_is_taken_at_its_word_once_the_instance_is_gone() -> None:
    ended = replace(RUNS, end=End("001-1", "i-1", True))
    assert decide(world(ended, home=frozenset("ab"))) == [Terminate("001-1", "i-1", None)]
    over = replace(ended, box=replace(BOX, state="terminated"))
    assert decide(world(over, home=frozenset("ab"))) == [Finish("001-1")]


def test_an_instance_that_is_not_shown_yet_is_waited_for() -> None:
    asked = replace(PART, launch=replace(LAUNCH, at=NOW - 10), asked=True)
    assert decide(world(asked)) == []
    assert decide(world(asked, now=NOW + 300)) == [Retry("001-1", "its instance went away")]


def test_an_instance_is_waited_for_from_when_ec2_answered() -> None:
    """Asking took ten minutes, or a run was gone on with: the launch was written down long before."""
    late = replace(PART, launch=replace(LAUNCH, at=NOW - 900), asked=True, answered=NOW - 100)
    assert decide(world(late)) == []
    assert decide(world(late, now=NOW + 201)) == [Retry("001-1", "its instance went away")]
    # Nor is one left behind that was asked for just now, in vain or not.
    assert decide(world(replace(late, asked=False), stopping=True)) == []
    beats = replace(late, answered=None, beat=BEAT, beat_at=NOW - 100)
    assert decide(world(beats)) == []


def test_one_that_ec2_says_has_ended_is_gone_at_once() -> None:
    ended = replace(PART, launch=replace(LAUNCH, at=NOW - 10), ended=True)
    assert decide(world(ended)) == [Retry("001-1", "its instance went away")]
    assert decide(world(ended, home=frozenset("ab"))) == [Finish("001-1")]


def test_a_retry_gives_the_reason_of_ec2() -> None:
    (action,) = decide(world(replace(GONE, box=replace(BOX, state="terminated", reason="Client.InternalError: x"))))
    assert action == Retry("001-1", "its instance went away (Client.InternalError: x)")


def test_a_type_that_no_zone_has_for_long_is_given_up() -> None:
    short = {"m6i.large": NOW - 7201}
    (action,) = decide(world(PART, short=short))
    assert action == GiveUp("001-1", "no zone has had a m6i.large for 2.0 h")
    assert decide(world(PART, short={"m6i.large": NOW - 7199})) == [Start("001-1", 3600.0)]
    assert decide(world(PART, short={"c6i.large": NOW - 7201})) == [Start("001-1", 3600.0)]
    # One that lives will leave its machine.
    assert decide(world(RUNS, replace(PART, name="002-1"), most=5, short=short)) == [Start("002-1", 3600.0)]


def test_a_launch_that_a_dead_orchestrator_wrote_down_is_asked_for_again() -> None:
    assert decide(world(replace(PART, launch=LAUNCH))) == [Start("001-1", 3600.0)]
    # Not after its box would have ended by itself.
    late = replace(PART, launch=replace(LAUNCH, at=NOW - 3600 - 301))
    assert decide(world(late)) == [Retry("001-1", "its instance went away")]


def test_stopping_terminates_boxes_and_leaves_their_parts() -> None:
    (action,) = decide(world(RUNS, stopping=True))
    assert isinstance(action, Terminate)
    assert decide(world(GONE, PART, stopping=True)) == [Leave("001-1"), Leave("001-1")]


def test_who_needs_an_index_waits_for_its_builder() -> None:
    builder = replace(RUNS, name="000-1", wants=frozenset(), builds=frozenset({"x"}))
    needs = replace(PART, needs=frozenset({"x"}))
    assert decide(world(builder, needs, most=5)) == []
    assert decide(world(builder, needs, most=5, indexes=frozenset({"x"}))) == [Start("001-1", 3600.0)]
    # Nobody builds it any more: whoever needs it will see for itself.
    assert decide(world(needs, most=5)) == [Start("001-1", 3600.0)]


def test_no_more_at_once_than_allowed() -> None:
    waiting = [replace(PART, name=f"{number:03}-1") for number in range(5)]
    assert len(decide(world(*waiting, most=3))) == 3
    assert len(decide(world(RUNS, *waiting[2:], most=3))) == 2


def test_the_cap_holds_some_back_and_in_the_end_gives_up() -> None:
    waiting = [replace(PART, name=f"{number:03}-1") for number in range(3)]
    each = money.committed_usd(1.0, 600.0)
    started = decide(world(*waiting, most=9, cap_usd=2.5 * each))
    assert [type(action) for action in started] == [Start, Start]
    held = world(RUNS, replace(PART, name="009-1"), most=9, cap_usd=1.0, committed_usd=0.9)
    assert decide(held) == []
    (action,) = decide(world(PART, cap_usd=1.0, committed_usd=0.9))
    assert isinstance(action, GiveUp) and "--max-usd" in action.why


asks = st.lists(
    st.builds(
        lambda usd, need, more: Ask(usd, need, need + more),
        st.floats(0.01, 40),
        st.floats(60, 1e5),
        st.floats(0, 1e6),
    ),
    max_size=8,
)


@given(asks, st.floats(0, 1000))
def test_limits_never_promise_more_than_there_is(wanted: list[Ask], available: float) -> None:
    granted = limits(wanted, available)
    promised = sum(
        money.committed_usd(ask.usd_per_hour, limit)
        for ask, limit in zip(wanted, granted, strict=True)
        if limit is not None
    )
    assert promised <= available * (1 + 1e-9) + 1e-6
    for ask, limit in zip(wanted, granted, strict=True):
        assert limit is None or ask.need_s - 1 <= limit <= ask.usual_s * (1 + 1e-9)


STATES = [None, *sorted(LIVE), "terminated"]
ENDS = [None, End("001-1", "i-1", True), End("001-1", "i-1", False, "no room")]
BEATS = [(None, None), (BEAT, NOW - 5), (BEAT, NOW - 4000), (replace(BEAT, notice="spot"), NOW - 5)]
HOMES = [frozenset[str](), frozenset("a"), frozenset("ab")]


def test_decisions_are_safe_in_every_case() -> None:
    """Nothing is launched beside a living box, given up with a result on its way, or forgotten."""
    cases = itertools.product(
        (None, LAUNCH),
        (False, True),
        STATES,
        BEATS,
        ENDS,
        HOMES,
        (frozenset[str](), frozenset("b")),
        (1, 3),
        (False, True),
        (NOW, NOW + 10_000),
    )
    count = 0
    for launch, asked, state, (beat, beat_at), end, home, arrived, attempt, stopping, now in cases:
        if launch is None and (asked or state or beat or end):
            continue
        box = None if state is None else replace(BOX, state=state)
        part = replace(PART, launch=launch, asked=asked, box=box, beat=beat, beat_at=beat_at, end=end, attempt=attempt)
        there = world(part, home=home, arrived=arrived - home, stopping=stopping, now=now)
        actions = decide(there)
        kinds = {type(action) for action in actions}
        count += 1
        if state in LIVE:
            assert not kinds & {Start, Finish, Retry, GiveUp, Leave}, (part, actions)
        if arrived - home and launch is not None:
            assert not kinds & {Finish, Retry, GiveUp, Leave}, (part, actions)
        if stopping:
            assert not kinds & {Start, Retry, GiveUp}
        if Finish in kinds:
            assert part.wants <= home
        if kinds & {Finish, Retry, GiveUp}:
            assert gone(part, there)
        if Terminate in kinds:
            assert state in LIVE
        # What waits for nothing and nobody is not forgotten for ever: without patience left, something is done.
        impatient = replace(there, patience=Patience(0, 0, 0))
        if not decide(impatient):
            assert state == "shutting-down" or (stopping and state is None), (part, stopping)
    assert count > 3000


@settings(max_examples=200)
@given(st.data())
def test_any_mix_of_parts_keeps_to_the_number_and_the_cap(data: st.DataObject) -> None:
    shapes = st.sampled_from([PART, RUNS, GONE, replace(PART, launch=LAUNCH, asked=True)])
    parts = [
        replace(shape, name=f"{number:03}-1") for number, shape in enumerate(data.draw(st.lists(shapes, max_size=9)))
    ]
    most, cap = data.draw(st.integers(1, 6)), data.draw(st.none() | st.floats(0, 10))
    committed = data.draw(st.floats(0, 5))
    there = world(*parts, most=most, cap_usd=cap, committed_usd=committed)
    actions = decide(there)
    starts = [action for action in actions if isinstance(action, Start)]
    living = [part for part in parts if part.launch is not None and not gone(part, there)]
    assert len(starts) + len(living) <= max(most, len(living))
    if cap is not None:
        promised = sum(money.committed_usd(ASK.usd_per_hour, action.limit_s) for action in starts)
        assert not starts or committed + promised <= cap + 1e-6
    assert len({getattr(action, "part", None) for action in actions}) == len(actions)

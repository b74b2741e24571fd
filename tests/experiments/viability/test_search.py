"""The search finds any limit in at most eight probes; noise and flaky edges move the limit by a step or two."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from harness.experiments.viability import search
from harness.experiments.viability.search import (
    CONFIRMATIONS,
    MOVES,
    PROBES,
    TRIES,
    Bounds,
    LimitSearch,
    ProbeFinding,
    ProbeRequest,
    Purpose,
    Search,
    SearchResult,
    wrong_side,
)

PASS, FAIL, DOUBT = ProbeFinding.PASS, ProbeFinding.FAIL, ProbeFinding.DOUBT
# The finding at a limit, by the number of earlier requests for it.
Answers = Callable[[int, int], ProbeFinding]


@dataclass
class Driven:
    settled: SearchResult
    requests: list[ProbeRequest] = field(default_factory=list)
    findings: list[ProbeFinding] = field(default_factory=list)

    @property
    def against(self) -> list[int]:
        """Return the requested limits that contradict a sharp edge."""
        pairs = zip(self.requests, self.findings, strict=True)
        return [
            request.limit
            for request, finding in pairs
            if wrong_side(request.limit, finding, self.settled.limit, self.settled.below)
        ]

    def of(self, purpose: Purpose) -> list[int]:
        return [request.limit for request in self.requests if request.purpose is purpose]


def drive(bounds: Bounds, answers: Answers) -> Driven:
    return drive_on(LimitSearch(bounds).run(), answers)


def drive_on(probes: Search, answers: Answers) -> Driven:
    requests: list[ProbeRequest] = []
    findings: list[ProbeFinding] = []
    request = next(probes)
    while True:
        requests.append(request)
        try:
            findings.append(answers(request.limit, sum(earlier.limit == request.limit for earlier in requests) - 1))
            request = probes.send(findings[-1])
        except StopIteration as end:
            return Driven(end.value, requests, findings)


def needs(least: int) -> Answers:
    return lambda limit, _: PASS if limit >= least else FAIL


def test_search_finds_every_need_between_the_peaks_to_the_step() -> None:
    """127 steps between them are what seven probes after the first can tell apart."""
    for hint in (10, 11, 12, 13, 14, 17, 26, 42, 73, 106, 137):
        for need in range(10, hint + 1):
            driven = drive(Bounds(1, 10, hint, 1, 1000), needs(need))
            assert driven.settled == SearchResult(need, need - 1, len(driven.of(Purpose.PROBE))), (hint, need)
            assert driven.settled.probes <= PROBES
            assert driven.of(Purpose.CONFIRMATION) == [need] * CONFIRMATIONS
            assert driven.of(Purpose.BELOW) == [need - 1]


@pytest.mark.parametrize("most", [1, 2, 5, 40, 333, 4000])
def test_need_lies_between_the_limit_and_the_next_smaller_one(most: int) -> None:
    """Also where the peaks mislead: what is believed passes, what is below fails, and no more probes are spent."""
    chance = random.Random(most)
    for _ in range(400):
        least = chance.randint(1, most)
        first = chance.randint(least, most)
        hint = chance.randint(first, most)
        need = chance.randint(1, most)
        driven = drive(Bounds(1, first, hint, least, most), needs(need))
        settled, where = driven.settled, (first, hint, least, need)
        assert settled.probes <= PROBES, where
        assert all(least <= request.limit <= most for request in driven.requests), where
        if settled.limit is None:  # nothing up to there passed, and so often it may not move
            assert settled.below is not None and settled.below < need, where
            continue
        assert settled.limit >= need, where
        assert driven.against == [], where
        if settled.below is None:
            assert settled.lowest == (settled.limit == least) and (settled.lowest or settled.probes == PROBES), where
        else:
            assert settled.below < need, where


def test_search_finds_a_need_far_above_the_hint_with_growing_strides() -> None:
    driven = drive(Bounds(1, 10, 10, 1, 1000), needs(19))
    assert driven.of(Purpose.PROBE) == [10, 11, 12, 14, 18, 26, 22, 20]
    assert driven.settled == SearchResult(20, 18, PROBES), "used up: two steps are left between them"


def test_search_continues_below_the_anonymous_peak_while_probes_pass() -> None:
    driven = drive(Bounds(1, 100, 120, 1, 1000), needs(93))
    assert driven.of(Purpose.PROBE) == [100, 99, 98, 96, 92, 94, 93]
    assert driven.settled.limit == 93


def test_search_tries_nothing_below_the_minimum() -> None:
    driven = drive(Bounds(1, 3, 9, 2, 100), needs(0))
    assert driven.settled == SearchResult(2, None, 2, lowest=True)
    assert driven.of(Purpose.BELOW) == []


def test_wide_bracket_is_settled_coarsely_with_a_note() -> None:
    driven = drive(Bounds(1, 10, 10_010, 1, 20_000), needs(3_333))
    settled = driven.settled
    assert settled.probes == PROBES and settled.limit is not None and settled.below is not None
    assert settled.below < 3_333 <= settled.limit
    assert settled.limit - settled.below == pytest.approx(10_000 / 2**7, abs=2)
    assert driven.of(Purpose.BELOW) == [settled.below], "a step below would be between the two, and prove nothing"


def test_doubtful_probe_is_repeated_and_counts() -> None:
    doubted = drive(Bounds(1, 10, 14, 1, 100), lambda limit, before: DOUBT if limit == 10 and before < 2 else PASS)
    assert doubted.of(Purpose.PROBE)[:3] == [10, 10, 10]
    assert doubted.requests[2] == ProbeRequest(10, Purpose.PROBE, 3, PROBES)


def test_probe_that_stays_doubtful_fails() -> None:
    driven = drive(Bounds(1, 10, 12, 1, 100), lambda limit, _: PASS if limit >= 11 else DOUBT)
    assert driven.of(Purpose.PROBE) == [10] * TRIES + [11]
    assert driven.settled == SearchResult(11, 10, 4)
    assert driven.of(Purpose.BELOW) == [10], "in doubt before and in doubt again: settled"


def test_doubtful_probes_never_exceed_the_probe_budget() -> None:
    for doubtful in range(10, 43):
        driven = drive(Bounds(1, 10, 42, 1, 100), lambda limit, _, most=doubtful: DOUBT if limit <= most else PASS)
        assert driven.settled.probes <= PROBES
        assert driven.settled.limit is not None and driven.settled.limit > doubtful


def test_failed_confirmation_raises_the_limit_a_step_and_confirms_it() -> None:
    # 11 passes when probed, and fails the second confirmation.
    driven = drive(
        Bounds(1, 10, 12, 1, 100), lambda limit, before: FAIL if limit < 11 or (limit == 11 and before == 2) else PASS
    )
    assert driven.of(Purpose.CONFIRMATION) == [11, 11, 12, 12, 12]
    assert driven.of(Purpose.BELOW) == [11]
    assert driven.settled == SearchResult(12, 11, 2) and driven.against == [11, 11, 11], "11 passes at times"


def test_doubtful_confirmations_are_repeated_and_too_many_raise_the_limit() -> None:
    once = drive(
        Bounds(1, 10, 10, 1, 100), lambda limit, before: FAIL if limit < 10 else DOUBT if before == 1 else PASS
    )
    assert once.of(Purpose.CONFIRMATION) == [10] * (CONFIRMATIONS + 1)
    assert once.settled.limit == 10 and once.against == [10], "a target was missed there, by however little"
    often = drive(
        Bounds(1, 10, 10, 1, 100),
        lambda limit, before: FAIL if limit < 10 else DOUBT if limit == 10 and before else PASS,
    )
    assert often.of(Purpose.CONFIRMATION) == [10] * TRIES + [11] * CONFIRMATIONS
    assert often.settled == SearchResult(11, 10, 2) and often.against == [10]


def test_limit_failed_once_by_noise_is_found_from_the_step_above() -> None:
    # 10 is good enough, but each probe of it met a slow machine.
    driven = drive(
        Bounds(1, 10, 12, 1, 100), lambda limit, before: FAIL if limit < 10 or (limit == 10 and before < 1) else PASS
    )
    assert driven.of(Purpose.BELOW) == [10, 9]
    assert driven.settled.limit == 10 and driven.settled.below == 9
    assert driven.against == [10], "it did fail once"


def test_smaller_step_that_passes_only_once_keeps_the_limit() -> None:
    lucky = drive(
        Bounds(1, 10, 10, 1, 100), lambda limit, before: PASS if limit >= 10 or (limit == 9 and before == 1) else FAIL
    )
    assert lucky.of(Purpose.BELOW) == [9]
    assert lucky.of(Purpose.CONFIRMATION) == [10] * CONFIRMATIONS + [9]
    assert lucky.settled == SearchResult(10, 9, 2) and lucky.against == [9]


def test_unstable_limit_gives_no_verdict() -> None:
    coin = random.Random(1)
    driven = drive(Bounds(1, 10, 12, 1, 100), lambda limit, before: PASS if before == 0 else FAIL)
    assert driven.settled.limit is None
    assert len(set(driven.of(Purpose.CONFIRMATION))) == MOVES + 1
    for _ in range(500):
        driven = drive(Bounds(1, 10, 30, 1, 100), lambda *_: coin.choice((PASS, FAIL, DOUBT)))
        assert driven.settled.probes <= PROBES
        assert len(driven.requests) <= PROBES + (MOVES + 1) * (CONFIRMATIONS + 2 * TRIES), "it always ends"
        if driven.settled.limit is not None:
            last = [
                request
                for request in driven.requests
                if request.limit == driven.settled.limit and request.purpose is Purpose.CONFIRMATION
            ]
            assert len(last) >= CONFIRMATIONS


def test_same_answers_give_the_same_probes() -> None:
    """An interrupted search relies on this to resume from its stored jobs."""
    chance = random.Random(7)
    pairs = {(limit, number): chance.choice((PASS, FAIL, DOUBT)) for limit in range(1, 101) for number in range(60)}
    one, other = (drive(Bounds(1, 10, 30, 1, 100), lambda limit, before: pairs[limit, before]) for _ in range(2))
    assert one == other


def test_bounds_are_multiples_of_the_step() -> None:
    assert search.bounds(100, 300, 1000, 16, 20, 8) == Bounds(16, 112, 304, 32, 992)
    assert search.bounds(104, 100, 1000, 16, 20, 8) == Bounds(16, 112, 112, 32, 992), "a peak below the other"
    assert search.bounds(4, 5, 1000, 16, 20, 8).first == 32, "not below the least"
    assert search.bounds(990, 2000, 1000, 16, 20, 8) == Bounds(16, 992, 992, 32, 992), "not above what was seen to pass"
    assert search.bounds(20, 30, 1000, 700, 20, 8) == Bounds(700, 700, 700, 700, 700), "the host has one step"


def test_passes_far_below_and_failures_at_the_limit_contradict_it() -> None:
    """A wide bracket settled above limits that had passed; and a least limit that failed once."""
    chance = random.Random(16)
    driven = drive(Bounds(1, 10, 30, 1, 100), lambda *_: chance.choice((PASS, FAIL, DOUBT)))
    assert driven.settled.limit == 33 and {30, 31} <= set(driven.against), driven
    flaky = drive(Bounds(1, 2, 3, 2, 100), lambda limit, before: FAIL if limit == 2 and not before else PASS)
    assert flaky.settled == SearchResult(2, None, 2, lowest=True) and flaky.against == [2]


def test_search_above_a_failed_limit_tries_nothing_smaller() -> None:
    at = Bounds(16, 96, 112, 16, 192)
    assert drive_on(LimitSearch(at).above(116), needs(0)).requests == [
        ProbeRequest(128, Purpose.CONFIRMATION, number, CONFIRMATIONS) for number in (1, 2, 3)
    ]
    climbed = drive_on(LimitSearch(at).above(128), needs(160))
    assert climbed.settled == SearchResult(160, 144, 0)
    assert drive_on(LimitSearch(at).above(128), needs(999)).settled == SearchResult(None, 192, 0), "not beyond the host"
    with pytest.raises(StopIteration) as end:
        next(LimitSearch(at).above(199))
    assert end.value.value == SearchResult(None, 199, 0)


def test_largest_limit_that_failed_once_keeps_its_lower_bound() -> None:
    driven = drive(Bounds(1, 10, 10, 1, 10), lambda limit, before: PASS if limit == 10 and before else FAIL)
    assert driven.settled == SearchResult(10, 9, 1) and driven.against == [10]

"""The stored job of a cell that is shown, and the notes about the others."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from harness.driver.records import Envelope, Outcome
from harness.errors import FileError
from harness.results import attempts
from tests.support import sample_records

tried = sample_records.job


def test_single_attempt_is_shown_without_a_note() -> None:
    only = tried(0, Outcome.OOM)
    assert attempts.choose([only]) == ((only,), ())


def test_input_order_does_not_matter() -> None:
    tries = [
        tried(0),
        tried(1, Outcome.CRASH, repetition=1),
        tried(2, trials=2),
        tried(3, repetition=2),
    ]
    chosen = {attempts.choose(order)[0][0].result.key for order in itertools.permutations(tries)}
    assert chosen == {tries[3].result.key}


def test_newest_ok_of_a_spec_is_shown_and_newer_failures_are_noted() -> None:
    first, good, bad = (
        tried(0),
        tried(1, repetition=1),
        tried(2, Outcome.TIMEOUT, detail="after 60 s", repetition=2),
    )
    (shown,), notes = attempts.choose([first, good, bad])
    assert shown is good
    assert notes == (
        "newer attempt ended timeout on 2026-11-20T10:02:00+00:00 (after 60 s); the last ok is shown",
        "the newest of 2 ok results of this cell; not pooled",
    )


def test_newest_failure_is_shown_without_an_ok() -> None:
    crash, oom = tried(0, Outcome.CRASH), tried(1, Outcome.OOM, repetition=1)
    assert attempts.choose([crash, oom]) == ((oom,), ())


def test_last_repetition_of_a_spec_is_the_newest_at_any_clock() -> None:
    before, after = tried(3, Outcome.CRASH), tried(1, Outcome.OOM, repetition=1)
    shown, _ = attempts.choose([before, after])
    assert shown == (after,)


def test_the_newest_attempt_decides_the_spec() -> None:
    old, repeated, changed = tried(0), tried(1, repetition=1), tried(2, trials=2)
    (shown,), notes = attempts.choose([old, repeated, changed])
    assert shown is changed
    assert notes == ("2 results of other specs (protocol) are stored beside; not pooled",)


def test_crash_of_a_new_image_is_shown_despite_an_old_images_ok() -> None:
    old, crash = tried(0), tried(1, Outcome.CRASH, recipe="sha256:2", index_key="j")
    (shown,), notes = attempts.choose([old, crash])
    assert shown is crash
    assert notes == ("1 result of another spec (image, index) is stored beside; not pooled",)


def test_restored_spec_is_shown_after_a_new_measurement() -> None:
    first, between, again = (
        tried(0),
        tried(1, trials=2),
        tried(2, Outcome.CRASH, repetition=1),
    )
    (shown,), notes = attempts.choose([first, between, again])
    assert shown is first
    assert notes[0].startswith("newer attempt ended crash on 2026-11-20T10:02:00+00:00; the last ok is shown")
    assert notes[1] == "1 result of another spec (protocol) is stored beside; not pooled"


def test_keys_choose_attempts_at_any_time() -> None:
    five, two = tried(0), tried(1, trials=2)
    assert attempts.choose([five, two])[0] == (two,)
    (shown,), notes = attempts.choose([five, two], {five.result.key, "of another cell"})
    assert shown is five
    assert notes == ("1 result of another spec (protocol) is stored beside; not pooled",)


@pytest.mark.parametrize("keys", [None, (), ("of another cell",)])
def test_attempts_without_a_matching_key_are_chosen_by_time(keys: tuple[str, ...] | None) -> None:
    five, two = tried(0), tried(1, trials=2)
    assert attempts.choose([five, two], keys)[0] == (two,)


def test_requested_failure_is_shown_and_later_attempts_are_noted() -> None:
    oom, good = tried(0, Outcome.OOM), tried(1, repetition=1)
    (shown,), notes = attempts.choose([oom, good], [oom.result.key])
    assert shown is oom
    assert notes == ("newer attempt ended ok on 2026-11-20T10:01:00+00:00; the last oom is shown",)


def test_requested_failure_notes_the_earlier_ok() -> None:
    good, crash = tried(0), tried(1, Outcome.CRASH, repetition=1)
    assert attempts.choose([good, crash], [crash.result.key]) == (
        (crash,),
        ("earlier attempt ended ok on 2026-11-20T10:00:00+00:00; the newer crash is shown",),
    )


def test_newer_of_two_requested_attempts_is_shown() -> None:
    first, second, third = (
        tried(0),
        tried(1, repetition=1),
        tried(2, repetition=2),
    )
    (shown,), notes = attempts.choose([first, second, third], [first.result.key, second.result.key])
    assert shown is second
    assert notes == ("one of 3 ok results of this cell; not pooled",)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"k": 5}, "hits asked for"),
        ({"seed": 2, "sample_sha256": "t", "warmup_sha256": "v"}, "query sample, seed, warm-up queries"),
        ({"envelope": Envelope("cpu1-mem1", 1, 2**29)}, "envelope"),
        ({"params": {"k1": 1.2}}, "parameters"),
        ({"qrels_sha256": "other"}, "judgements"),
    ],
)
def test_footnote_names_the_differences_of_other_specs(changed: dict[str, Any], words: str) -> None:
    _, notes = attempts.choose([tried(0, **changed), tried(1)])
    assert notes == (f"1 result of another spec ({words}) is stored beside; not pooled",)


def test_malformed_time_is_named() -> None:
    broken = replace(tried(0), result=replace(tried(0).result, started_at="yesterday"))
    with pytest.raises(FileError, match=r"/results/job: started_at 'yesterday' is not an ISO time; correct it"):
        attempts.choose([broken, tried(1)])


def five(**spec: Any) -> list[sample_records.FakeJob]:
    return [tried(number, job=number, jobs=5, trials=1, **spec) for number in range(5)]


def test_each_job_of_a_cell_is_shown_in_its_order() -> None:
    jobs = five()
    assert attempts.choose(reversed(jobs)) == (tuple(jobs), ())


def test_each_job_number_has_its_own_attempts() -> None:
    jobs = five()
    crash = tried(7, Outcome.CRASH, detail="raised", job=2, jobs=5, trials=1, repetition=1)
    better = tried(8, job=4, jobs=5, trials=1, repetition=1)
    shown, notes = attempts.choose([*jobs, crash, better])
    assert shown == (*jobs[:4], better)
    assert notes == (
        "trial 3 of 5: newer attempt ended crash on 2026-11-20T10:07:00+00:00 (raised); the last ok is shown",
        "2 ok results for 1 of 5 trials: the newest of each is shown",
    )


def test_keys_choose_among_the_attempts_of_each_job() -> None:
    old = five()
    new = [tried(10 + number, job=number, jobs=5, trials=1, repetition=1) for number in range(5)]
    assert attempts.choose([*old, *new])[0] == tuple(new)
    keys = {job.result.key for job in (*old[:2], *new[2:])}
    shown, notes = attempts.choose([*old, *new], keys)
    assert shown == (*old[:2], *new[2:])
    assert notes == ("10 ok results for 5 of 5 trials: one of each is shown",)


def test_another_protocol_is_another_spec_at_any_job_number() -> None:
    once = tried(30, jobs=1)
    shown, notes = attempts.choose([*five(), once])
    assert shown == (once,)
    assert notes == ("5 results of other specs (protocol) are stored beside; not pooled",)

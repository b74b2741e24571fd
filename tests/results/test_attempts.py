"""The stored job of a cell that is shown, and the notes about the others."""

from __future__ import annotations

from typing import Any

import pytest

from harness.driver.records import Envelope, Outcome
from harness.results import attempts
from tests.support import sample_records

tried = sample_records.job


def five(**spec: Any) -> list[sample_records.FakeJob]:
    return [tried(number, job=number, jobs=5, trials=1, **spec) for number in range(5)]


OOM, CRASH = Outcome.OOM, Outcome.CRASH
BESIDE = "1 result of another spec ({}) is stored beside; not pooled"
# Attempts, the places of those that are requested and of those that are shown, and the notes.
CHOICES: dict[str, tuple[list[sample_records.FakeJob], list[int], list[int], tuple[str, ...]]] = {
    "a single attempt": ([tried(0, OOM)], [], [0], ()),
    "the newest ok, with newer failures noted": (
        [tried(0), tried(1, repetition=1), tried(2, Outcome.TIMEOUT, detail="after 60 s", repetition=2)],
        [],
        [1],
        (
            "newer attempt ended timeout on 2026-11-20T10:02:00+00:00 (after 60 s); the last ok is shown",
            "the newest of 2 ok results of this cell; not pooled",
        ),
    ),
    "the newest failure without an ok": ([tried(0, CRASH), tried(1, OOM, repetition=1)], [], [1], ()),
    "the last repetition at any clock": ([tried(3, CRASH), tried(1, OOM, repetition=1)], [], [1], ()),
    "the spec of the newest": (
        [tried(0), tried(1, repetition=1), tried(2, trials=2)],
        [],
        [2],
        ("2 results of other specs (protocol) are stored beside; not pooled",),
    ),
    "a crash of a new image despite an old image's ok": (
        [tried(0), tried(1, CRASH, recipe="sha256:2", index_key="j")],
        [],
        [1],
        (BESIDE.format("image, index"),),
    ),
    "a restored spec": (
        [tried(0), tried(1, trials=2), tried(2, CRASH, repetition=1)],
        [],
        [0],
        (
            "newer attempt ended crash on 2026-11-20T10:02:00+00:00; the last ok is shown",
            BESIDE.format("protocol"),
        ),
    ),
    "a requested spec at any time": ([tried(0), tried(1, trials=2)], [0], [0], (BESIDE.format("protocol"),)),
    "a requested failure": (
        [tried(0, OOM), tried(1, repetition=1)],
        [0],
        [0],
        ("newer attempt ended ok on 2026-11-20T10:01:00+00:00; the last oom is shown",),
    ),
    "a requested failure after an ok": (
        [tried(0), tried(1, CRASH, repetition=1)],
        [1],
        [1],
        ("earlier attempt ended ok on 2026-11-20T10:00:00+00:00; the newer crash is shown",),
    ),
    "the newer of two requested": (
        [tried(0), tried(1, repetition=1), tried(2, repetition=2)],
        [0, 1],
        [1],
        ("one of 3 ok results of this cell; not pooled",),
    ),
    "each job of a cell": (five(), [], [*range(5)], ()),
    "another protocol at any job number": (
        [*five(), tried(30, jobs=1)],
        [],
        [5],
        ("5 results of other specs (protocol) are stored beside; not pooled",),
    ),
    **{
        words: ([tried(0, **changed), tried(1)], [], [1], (BESIDE.format(words),))
        for words, changed in {
            "hits asked for": {"k": 5},
            "query sample, seed, warm-up queries": {"seed": 2, "sample_sha256": "t", "warmup_sha256": "v"},
            "envelope": {"envelope": Envelope("cpu1-mem1", 1, 2**29)},
            "parameters": {"params": {"k1": 1.2}},
            "judgements": {"qrels_sha256": "other"},
        }.items()
    },
}


@pytest.mark.parametrize("name", CHOICES)
def test_attempt_is_chosen_and_the_others_are_noted(name: str) -> None:
    jobs, asked, expected, noted = CHOICES[name]
    keys = [*(jobs[place].result.key for place in asked), "of another cell"] if asked else None
    shown, notes = attempts.choose(reversed(jobs), keys)
    assert [jobs.index(job) for job in shown] == expected and notes == noted


@pytest.mark.parametrize("keys", [None, (), ("of another cell",)])
def test_attempts_without_a_matching_key_are_chosen_by_time(keys: tuple[str, ...] | None) -> None:
    five, two = tried(0), tried(1, trials=2)
    assert attempts.choose([five, two], keys)[0] == (two,)


def test_jobs_measured_again_in_part_do_not_replace_a_whole_measurement() -> None:
    """Two jobs of a retry are stored, one of which failed."""
    jobs = five()
    crash = tried(7, Outcome.CRASH, detail="raised", job=2, jobs=5, trials=1, repetition=1)
    better = tried(8, job=4, jobs=5, trials=1, repetition=1)
    shown, notes = attempts.choose([*jobs, crash, better])
    assert shown == tuple(jobs) and attempts.measured_again(shown, [*jobs, crash, better]) == 1
    assert notes == (
        "1 of 5 trials was measured again, the others not yet: the last whole measurement is shown",
        "trial 3 of 5: newer attempt ended crash on 2026-11-20T10:07:00+00:00 (raised); the last ok is shown",
        "2 ok results for 1 of 5 trials: one of each is shown",
    )
    rest = [tried(10 + number, job=number, jobs=5, trials=1, repetition=1) for number in (0, 1, 3)]
    rest.append(tried(15, job=2, jobs=5, trials=1, repetition=2))
    shown, _ = attempts.choose([*jobs, crash, better, *rest])
    assert set(map(id, shown)) == {id(job) for job in (better, *rest)}
    assert attempts.measured_again(shown, [*jobs, crash, better, *rest]) == 0


def test_first_measurement_that_was_stopped_is_completed_by_later_jobs() -> None:
    begun, *others = five()
    again = tried(5, job=0, jobs=5, trials=1, repetition=1)
    later = [tried(5 + number, job=number, jobs=5, trials=1) for number in range(1, 5)]
    assert attempts.choose([begun, *others])[0] == (begun, *others)
    assert attempts.choose([begun, again, *later])[0] == (again, *later), "the second measurement is whole"
    assert attempts.choose([begun, again])[0] == (again,)


def test_last_repetition_of_each_job_is_shown_where_clocks_went_back() -> None:
    jobs = five()
    jobs[1] = tried(20, job=1, jobs=5, trials=1)
    again = [tried(number, job=number, jobs=5, trials=1, repetition=1) for number in range(5)]
    assert attempts.choose([*jobs, *again])[0] == tuple(again)


def test_keys_choose_among_the_attempts_of_each_job() -> None:
    old = five()
    new = [tried(10 + number, job=number, jobs=5, trials=1, repetition=1) for number in range(5)]
    assert attempts.choose([*old, *new])[0] == tuple(new)
    keys = {job.result.key for job in (*old[:2], *new[2:])}
    shown, notes = attempts.choose([*old, *new], keys)
    assert shown == (*old[:2], *new[2:])
    assert notes == ("10 ok results for 5 of 5 trials: one of each is shown",)

"""Which of a cell's stored jobs is shown, and what is said of those that are not."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from harness import attempts
from harness.errors import FileError
from harness.records import Cell, Envelope, Environment, Isolation, Outcome, Result, ResultSpec, job_key

SPEC = ResultSpec(
    cell=Cell("s", "bm25", "scifact", "single_stream", "cpu1-mem1"),
    protocol="santhanam2023",
    envelope=Envelope("cpu1-mem1", 1, 2**30),
    isolation=Isolation.CONTAINER,
    params={},
    image_digest="sha256:1",
    index_key="i",
    corpus_sha256="c",
    qrels_sha256="q",
    sample_sha256="s",
    warmup_sha256="w",
    sample_size=300,
    warmup_queries=10,
    trials=5,
    k=10,
    seed=1,
)


@dataclass(frozen=True)
class FakeJob:
    result: Result
    folder: Path = Path("/results/job")
    run_path: Path | None = None

    def samples(self) -> Any:
        raise AssertionError("choosing reads no samples")

    def qrels_path(self) -> Path:
        raise AssertionError("choosing reads no judgements")

    def sample_ids(self) -> tuple[str, ...]:
        raise AssertionError("choosing reads no sample")


def job(minute: int, outcome: Outcome = Outcome.OK, *, detail: str | None = None, **spec: Any) -> FakeJob:
    """An attempt that started ``minute`` minutes past ten."""
    made = replace(SPEC, **spec)
    environment = Environment("CPU", "x86_64", 2, 2**34, "6.1", 1, "20.10", "0.1", None)
    started = f"2026-11-20T10:{minute:02}:00+00:00"
    return FakeJob(Result(job_key(made), made, outcome, detail, started, 1.0, environment))


def test_a_single_attempt_is_shown_without_a_word() -> None:
    only = job(0, Outcome.OOM)
    assert attempts.choose([only]) == (only, ())


def test_order_plays_no_part() -> None:
    tries = [job(0), job(1, Outcome.CRASH, repetition=1), job(2, trials=2), job(3, repetition=2)]
    chosen = {attempts.choose(order)[0].result.key for order in itertools.permutations(tries)}
    assert chosen == {tries[3].result.key}


def test_of_one_spec_the_newest_ok_is_shown_and_newer_failures_are_told() -> None:
    first, good, bad = job(0), job(1, repetition=1), job(2, Outcome.TIMEOUT, detail="after 60 s", repetition=2)
    shown, notes = attempts.choose([first, good, bad])
    assert shown is good
    assert notes == (
        "newer attempt ended timeout on 2026-11-20T10:02:00+00:00 (after 60 s); the last ok is shown",
        "the newest of 2 ok results of this cell; not pooled",
    )


def test_without_an_ok_the_newest_failure_is_shown() -> None:
    crash, oom = job(0, Outcome.CRASH), job(1, Outcome.OOM, repetition=1)
    assert attempts.choose([crash, oom]) == (oom, ())


def test_the_newest_attempt_decides_the_spec() -> None:
    old, repeated, changed = job(0), job(1, repetition=1), job(2, trials=2)
    shown, notes = attempts.choose([old, repeated, changed])
    assert shown is changed
    assert notes == ("2 results of other specs (protocol) are stored beside; not pooled",)


def test_an_old_images_ok_does_not_hide_a_new_images_crash() -> None:
    old, crash = job(0), job(1, Outcome.CRASH, image_digest="sha256:2", index_key="j")
    shown, notes = attempts.choose([old, crash])
    assert shown is crash
    assert notes == ("1 result of another spec (image, index) is stored beside; not pooled",)


def test_a_spec_that_came_back_is_shown_again_once_it_was_measured_again() -> None:
    first, between, again = job(0), job(1, trials=2), job(2, Outcome.CRASH, repetition=1)
    shown, notes = attempts.choose([first, between, again])
    assert shown is first
    assert notes[0].startswith("newer attempt ended crash on 2026-11-20T10:02:00+00:00; the last ok is shown")
    assert notes[1] == "1 result of another spec (protocol) is stored beside; not pooled"


def test_keys_choose_whatever_the_times_are() -> None:
    five, two = job(0), job(1, trials=2)
    assert attempts.choose([five, two])[0] is two
    shown, notes = attempts.choose([five, two], {five.result.key, "of another cell"})
    assert shown is five
    assert notes == ("1 result of another spec (protocol) is stored beside; not pooled",)


@pytest.mark.parametrize("keys", [None, (), ("of another cell",)])
def test_without_a_key_of_theirs_attempts_are_chosen_by_time(keys: tuple[str, ...] | None) -> None:
    five, two = job(0), job(1, trials=2)
    assert attempts.choose([five, two], keys)[0] is two


def test_a_failure_that_is_asked_for_is_shown_and_what_came_later_is_told() -> None:
    oom, good = job(0, Outcome.OOM), job(1, repetition=1)
    shown, notes = attempts.choose([oom, good], [oom.result.key])
    assert shown is oom
    assert notes == ("newer attempt ended ok on 2026-11-20T10:01:00+00:00; the last oom is shown",)


def test_a_failure_that_is_asked_for_tells_of_the_ok_before_it() -> None:
    good, crash = job(0), job(1, Outcome.CRASH, repetition=1)
    assert attempts.choose([good, crash], [crash.result.key]) == (
        crash,
        ("earlier attempt ended ok on 2026-11-20T10:00:00+00:00; the newer crash is shown",),
    )


def test_of_two_that_are_asked_for_the_newer_is_shown() -> None:
    first, second, third = job(0), job(1, repetition=1), job(2, repetition=2)
    shown, notes = attempts.choose([first, second, third], [first.result.key, second.result.key])
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
def test_the_footnote_says_in_what_other_specs_differ(changed: dict[str, Any], words: str) -> None:
    _, notes = attempts.choose([job(0, **changed), job(1)])
    assert notes == (f"1 result of another spec ({words}) is stored beside; not pooled",)


def test_a_time_that_cannot_be_read_is_named() -> None:
    broken = replace(job(0), result=replace(job(0).result, started_at="yesterday"))
    with pytest.raises(FileError, match=r"/results/job: started_at 'yesterday' is no ISO time; mend result\.json"):
        attempts.choose([broken, job(1)])

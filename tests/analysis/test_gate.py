"""The gate: worse, not worse, or cannot tell; with few false alarms, and enough trials where it asks for more."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.analysis import gate
from harness.analysis.evaluate_job import JobEvaluator
from harness.analysis.gate import Answer, ChangeLimit, Checked, Pair
from harness.analysis.paired_differences import LATENCY, Latencies, welch
from harness.analysis.rows import build_rows, by_process
from harness.analysis.table import Cause, Finding, Validity
from harness.driver.records import Outcome
from harness.errors import UsageError
from harness.estimate import Estimate, Varies
from harness.evaluation.per_query import PerQuery
from tests.support import sample_records
from tests.support.stored_jobs import Maker, samples

FIVE = (10.0, 10.2, 9.8, 10.1, 9.9)


def condition(change: float = 0.05, varies: Varies = Varies.CPU, **changes: Any) -> ChangeLimit:
    """Return the condition that peak memory, which stands for any figure here, rises by more than 5 %."""
    made = ChangeLimit("figure", "ms", change, True, True, lambda row: row.resources.peak_anon_bytes, varies)
    return replace(made, **changes)


def pair(a: Sequence[float] = FIVE, b: Sequence[float] = FIVE, **of_b: Any) -> Pair:
    """Return two rows whose processes have these values of the figure."""
    rows = [[sample_records.row(peak_anon_bytes=value) for value in values] for values in (a, b)]
    whole = [sample_records.row(peak_anon_bytes=float(np.mean(values)), jobs=len(values)) for values in (a, b)]
    return Pair(whole[0], sample_records.row_with(whole[1], **of_b), (rows[0], rows[1]))


def answer(made: Pair, wanted: ChangeLimit, family: int = 1) -> Checked:
    """Return the answer to the first of some conditions that are answered together."""
    return gate.check([made], [wanted] * family)[0]


def times(factor: float, values: Sequence[float] = FIVE) -> tuple[float, ...]:
    return tuple(factor * value for value in values)


def test_a_change_beyond_the_limit_is_worse_and_none_is_not() -> None:
    worse = answer(pair(b=times(1.2)), condition())
    # Fieller's by hand: both sides have a standard error of 0.7071 % of their means, and Welch 7.75 degrees of freedom.
    assert (worse.answer, worse.change.value) == (Answer.WORSE, pytest.approx(0.2))
    assert worse.change.low == pytest.approx(0.172, abs=2e-3) and worse.change.high == pytest.approx(0.228, abs=2e-3)
    assert answer(pair(), condition()).answer is Answer.NOT_WORSE
    assert answer(pair(b=times(0.8)), condition()).answer is Answer.NOT_WORSE
    assert answer(pair(b=times(0.8)), condition(-0.05, more=False)).answer is Answer.WORSE
    assert answer(pair(b=times(1.2)), condition(1.0, relative=False)).answer is Answer.WORSE
    assert answer(pair(b=times(1.2)), condition(3.0, relative=False)).answer is Answer.NOT_WORSE


def test_what_cannot_be_told_says_what_would_tell() -> None:
    close = answer(pair(b=times(1.06)), condition())
    assert close.answer is Answer.CANNOT_TELL and close.processes is not None and close.processes > 5
    assert "more than 100 times as many trials" in str(answer(pair(b=times(1.0501)), condition()).reason)
    few = answer(pair(FIVE[:2], FIVE[:2]), condition())
    assert (few.answer, few.reason) == (Answer.CANNOT_TELL, "an interval needs 3 whole processes, there are 2")


@pytest.mark.slow
def test_the_trials_asked_for_decide_in_four_of_five_measurements() -> None:
    rng = np.random.default_rng(11)

    def drawn(count: int) -> Pair:
        return pair(rng.normal(100, 3, count), rng.normal(109, 3, count))

    asked = [found.processes for found in (answer(drawn(6), condition()) for _ in range(100)) if found.processes]
    count = int(np.median(asked))
    told = [answer(drawn(count), condition()).answer for _ in range(300)]
    # Ten would do; changes that seem close to the limit ask for more.
    assert 7 <= count <= 25 and told.count(Answer.WORSE) / 300 > 0.75


@pytest.mark.slow
@pytest.mark.parametrize("figure", ["cpu", LATENCY, "nDCG@10"])
def test_of_no_change_one_in_twenty_is_called_worse_at_most(figure: str) -> None:
    rng, wrong, wanted = np.random.default_rng(5), 0, condition(0.0)
    samples = 120 if figure == "nDCG@10" else 400  # its test draws random signs
    for _ in range(samples):
        slow = rng.lognormal(0, 0.03, (2, 5))
        if figure == LATENCY:
            a, b = rng.lognormal(0, 1, 60) * slow[..., None] * rng.lognormal(0, 0.05, (2, 5, 60))
            evidence = gate.of_latencies(
                Latencies(a.mean(axis=0), b.mean(axis=0), functools.partial(welch, a.mean(axis=1), b.mean(axis=1))), 5
            )
        elif figure == "cpu":
            evidence = gate.over_processes(*slow)
        else:  # few queries differ, by much
            moved = np.where(rng.uniform(size=50) < 0.04, rng.choice([-0.5, 0.5], 50), 0.0)
            evidence = gate.of_measure(np.full(50, 0.5), 0.5 + moved)
        found = gate.decide(Checked("", "", wanted, Answer.CANNOT_TELL, 1.0, 1.0), evidence, 1)
        wrong += found.answer is Answer.WORSE
    assert wrong <= 0.05 * samples


@pytest.mark.slow
def test_many_conditions_together_need_more_to_call_one_worse() -> None:
    made = pair(b=times(1.075))
    assert answer(made, condition()).answer is Answer.WORSE
    among = answer(made, condition(), family=1000)
    assert among.answer is Answer.CANNOT_TELL and "if tested alone, not among 1000 conditions" in str(among.reason)


def test_a_figure_that_never_varies_is_compared_as_it_is() -> None:
    same, more = pair(), pair(b=times(1.0001))
    exact = condition(0.0, Varies.NOTHING)
    assert answer(same, exact).answer is Answer.NOT_WORSE and answer(more, exact).answer is Answer.WORSE
    assert "built once" in str(answer(more, condition(0.0, Varies.BUILD)).reason)


def test_a_measure_is_paired_by_query() -> None:
    rng = np.random.default_rng(3)
    before = rng.uniform(0, 1, 100)
    queries = tuple(f"q{n:03}" for n in range(100))

    def found(change: float, limit: ChangeLimit) -> Answer:
        after = before + change + rng.normal(0, 0.01, 100)
        measured = tuple(PerQuery("key", queries, np.ones(100), {"nDCG@10": values}) for values in (before, after))
        return answer(replace(pair(), values=measured), limit).answer

    limit = condition(-0.01, Varies.QUERY, relative=False, more=False, by_query="nDCG@10")
    assert found(-0.02, limit) is Answer.WORSE and found(0.0, limit) is Answer.NOT_WORSE
    assert found(-0.05, replace(limit, relative=True)) is Answer.WORSE


def test_a_failed_or_missing_row_has_an_answer() -> None:
    dead, gone = {"outcome": Outcome.OOM, "detail": "48 MiB"}, {"outcome": Outcome.INTERRUPTED, "detail": "spot"}
    assert answer(pair(**dead), condition()).answer is Answer.WORSE
    assert answer(pair(**gone), condition()).answer is Answer.CANNOT_TELL, "the system is not at fault"
    before = replace(pair(), a=sample_records.row(**dead))
    assert answer(before, condition()).reason == "A ended oom: 48 MiB"
    both = answer(replace(pair(**dead), a=sample_records.row(**dead)), condition())
    assert (both.answer, both.reason) == (Answer.NOT_WORSE, "both ended oom: 48 MiB")
    assert answer(replace(pair(), b=None), condition()).reason == "B has no such row"
    assert answer(pair(sample_sha256="other"), condition()).answer is Answer.CANNOT_TELL


def test_times_of_two_kinds_of_cpus_are_not_compared() -> None:
    other = pair(b=times(1.2), machine=replace(sample_records.MACHINE, cpu_model="Intel Xeon"))
    found = answer(other, condition())
    assert found.answer is Answer.CANNOT_TELL and found.reason == "A was measured on AMD EPYC 9B14, B on Intel Xeon"
    assert answer(other, condition(varies=Varies.PROCESS)).answer is Answer.WORSE


def test_other_work_spoils_a_latency_and_not_a_cpu_time() -> None:
    noisy = pair(b=times(1.2), findings=(Finding(Cause.DRIFT, Validity.NOISY, "other work took 20 %"),))
    found = answer(noisy, condition(varies=Varies.CLOCK))
    assert found.answer is Answer.CANNOT_TELL and found.reason == "B is noisy: other work took 20 %"
    assert answer(noisy, condition()).answer is Answer.WORSE


def test_a_constant_that_is_not_the_system_s_own_adds_no_certainty() -> None:
    """Harness's part of a CPU time is measured once: it is left in what is tested, and out of what the limit is of."""
    raw = times(2.0)  # half of it is harness's
    made = pair(raw, tuple(value + 0.6 for value in raw))
    row = sample_records.row(peak_anon_bytes=10.0)
    tested = condition(read=lambda row: 10.0, with_constant=lambda row: row.resources.peak_anon_bytes)
    found = answer(replace(made, a=row), tested)
    assert (found.answer, found.change.value) == (Answer.CANNOT_TELL, pytest.approx(0.06))
    assert found.change.high - found.change.low == pytest.approx(2 * (0.06 - found.change.low))
    assert answer(pair((5.0, 5.0, 5.0), (5.1, 5.1, 5.1)), condition()).answer is Answer.CANNOT_TELL


def test_a_share_of_nothing_decides_nothing() -> None:
    none = (0.0, 0.0, 0.0)
    exact = condition(varies=Varies.NOTHING)
    assert "A is 0" in str(answer(pair(none, (0.5, 0.5, 0.5)), exact).reason)
    assert answer(pair(none, none), exact).answer is Answer.NOT_WORSE


def test_other_judgements_are_another_measure() -> None:
    made = replace(pair(qrels_sha256="other"), values=(None, None))
    found = answer(made, condition(-0.01, Varies.QUERY, relative=False, more=False, by_query="nDCG@10"))
    assert found.answer is Answer.CANNOT_TELL and "other judgements" in str(found.reason)


def test_more_conditions_ask_for_more_trials() -> None:
    made = pair(b=times(1.06))
    one, many = (answer(made, condition(), family).processes for family in (1, 30))
    assert one is not None and many is not None and many > 1.5 * one


def test_rows_of_one_cell_pair() -> None:
    one, two = sample_records.row(), sample_records.row(system="tantivy")
    of_suites = [sample_records.row(suite="a"), sample_records.row(suite="quickstart", key="its")]
    assert gate.same_cells([one], of_suites)[0][1] is of_suites[1]
    assert gate.same_cells([one, two], [sample_records.row(suite="another")])[1] == (two, None)
    with pytest.raises(UsageError, match="no system, dataset, scenario and profile in common"):
        gate.same_cells([one], [two])


def test_the_exit_code_is_that_of_the_worst_answer() -> None:
    found = [replace(Checked("", "", condition(), each), change=Estimate(None)) for each in Answer]
    assert gate.exit_code(found) == 1 and gate.exit_code(found[1:]) == 3 and gate.exit_code(found[2:]) == 0


def test_a_pooled_row_has_its_processes_alone(make: Maker) -> None:
    jobs = [
        make(table=samples(2.0 + number, trials=1), job=number, jobs=3, trials=1, changes={"trials_finished": 1})
        for number in range(3)
    ]
    (row,) = build_rows(jobs, JobEvaluator(())).table.rows
    alone = by_process(jobs, [row], lambda table: table)
    means = [each.latency.mean_s.value for each in alone[row.per_query_key]]
    assert means == [pytest.approx((2.0 + number + 0.695) / 1e3) for number in range(3)]

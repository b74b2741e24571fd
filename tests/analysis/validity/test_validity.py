from dataclasses import replace
from typing import Any

import pytest

from harness.analysis import validity
from harness.analysis.table import Cause, Finding, Validity
from harness.analysis.validity.findings import Doubt
from harness.analysis.validity.sample_checks import (
    ColdStart,
    Drift,
    RepeatSpeedup,
    SampleFacts,
)
from harness.driver.records import Outcome, Phase, ScenarioParams
from harness.results.isolation import FAKE, PROCESS
from harness.results.schema import Result
from tests.support import sample_records
from tests.support.job_fixtures import SEEN
from tests.support.sample_records import result

FRESH = "run `harness run SUITE --fresh --only bm25/scifact/single_stream/cpu1-mem1`"
RETRY = FRESH.replace("--fresh", "--retry-noisy 3")


def assess(*results: Result, **more: Any) -> validity.Assessment:
    return validity.assess(results, **more)


def five(**changes: Any) -> list[Result]:
    """The five jobs of an interleaved cell."""
    same = {"protocol": "interleaved", "trials": 1, "jobs": 5, "warmup_queries": 20, **changes}
    return [result(job=number, **same) for number in range(5)]


def test_a_good_result_is_clean() -> None:
    facts = SampleFacts(300, (0.010, 0.011, 0.0124))
    assert assess(result(), facts=facts, disagreements=0) == validity.Assessment(Validity.CLEAN, ())
    assert assess(*five(), facts=facts, disagreements=0) == validity.Assessment(Validity.CLEAN, ())


def test_missing_readings_raise_no_finding() -> None:
    unread = result(throttled_periods=None, ranking_disagreements=None, placement=None)
    assert assess(unread) == validity.Assessment(Validity.CLEAN, ())


FINDINGS = (
    (Cause.THROTTLING, {"throttled_periods": 1234}, {}, "throttled the job in 1,234 periods"),
    (Cause.INCOMPLETE, {"trials_finished": 3}, {}, "only 3 of 5 trials finished"),
    (Cause.INCOMPLETE, {}, {"queries": 290}, "290 of 300 sample queries were timed"),
    (Cause.RANKINGS, {"ranking_disagreements": 7}, {}, "7 of 300 queries were ranked differently"),
    (
        Cause.WARMUP,
        {},
        {"drift": Drift(1.3, 0.013, 0.010, True), "trial_means_s": (0.013, 0.010, 0.010)},
        "the first trial is the slowest (trial means 13, 10, 10 ms)",
    ),
    (Cause.DRIFT, {}, {"drift": Drift(1.3, 0.013, 0.010, False)}, "1.30 times the fastest's (steady: up to 1.25)"),
    (Cause.FEW_SAMPLES, {}, {"doubts": (Doubt(Cause.FEW_SAMPLES, "few carry the mean"),)}, "few carry the mean; "),
    (Cause.WARMUP, {"warmup_steady": False, "warmup_done": 90}, {}, "at its cap after 90 queries without"),
    (Cause.WARMUP, {"warmup_done": 10}, {"start": ColdStart(40, 1.5)}, "first 40 queries of a trial took 1.50 times"),
    (Cause.RESULT_CACHE, {}, {"repeat": RepeatSpeedup(20, 0.05, 0.005)}, "took 0.05 of its first time (median of 20"),
)


@pytest.mark.parametrize(("cause", "changes", "facts", "text"), FINDINGS)
def test_findings_state_the_fact_the_figure_and_the_command(
    cause: Cause, changes: dict[str, Any], facts: dict[str, Any], text: str
) -> None:
    verdict = assess(result(**changes), facts=SampleFacts(**{"queries": 300, **facts}))
    (finding,) = verdict.findings
    assert verdict.validity is (Validity.INVALID if cause is Cause.THROTTLING else Validity.NOISY)
    assert finding.cause is cause and text in finding.text
    assert verdict.transient is (cause in (Cause.DRIFT, Cause.FEW_SAMPLES))
    assert (RETRY if verdict.transient else FRESH) in finding.text


@pytest.mark.parametrize("falling", [False, True])
def test_result_cache_is_named_although_warm_up_was_unsteady_unless_latency_still_falls(falling: bool) -> None:
    facts = SampleFacts(300, repeat=RepeatSpeedup(20, 0.05, 0.005, falling))
    for unsteady in (
        assess(result(warmup_steady=False, warmup_done=50_000), facts=facts),
        assess(result(), facts=replace(facts, start=ColdStart(40, 1.5))),
    ):
        assert [finding.cause for finding in unsteady.findings].count(Cause.RESULT_CACHE) == (not falling)
    steady = assess(result(), facts=facts)
    assert [finding.cause for finding in steady.findings] == [Cause.RESULT_CACHE]


def test_declared_result_cache_raises_no_finding() -> None:
    facts = SampleFacts(300, repeat=RepeatSpeedup(20, 0.05, 0.005))
    assert "declare result_cache = true in the system's TOML" in assess(result(), facts=facts).reasons[0]
    assert assess(result(result_cache=True), facts=facts).validity is Validity.CLEAN


def test_worst_finding_decides_the_verdict_and_all_are_reported() -> None:
    bad = result(throttled_periods=2, trials_finished=1, ranking_disagreements=3)
    verdict = assess(bad, facts=SampleFacts(299, (1.0, 2.0), Drift(2.0, 2.0, 1.0, False)))
    assert verdict.validity is Validity.INVALID
    assert verdict.transient
    assert len(verdict.reasons) == 5


def test_missing_jobs_are_reported_with_the_command_to_continue() -> None:
    verdict = assess(*five()[:3], missing=2)
    assert verdict.validity is Validity.NOISY
    assert verdict.reasons == (f"only 3 of 5 trials are in these numbers; {FRESH.replace('--fresh ', '')}",)
    assert not verdict.transient


def test_jobs_that_rank_differently_are_reported_once() -> None:
    verdict = assess(*five(), disagreements=12)
    assert verdict.reasons[0].startswith("12 of 300 queries were ranked differently in different trials")
    within = [sample_records.nested(each, {"ranking_disagreements": 20}) for each in five()]
    assert "20 of 300 queries" in assess(*within, disagreements=12).reasons[0]


def test_one_unsteady_warm_up_of_five_is_reported() -> None:
    jobs = five()
    jobs[2] = sample_records.nested(jobs[2], {"warmup_steady": False, "warmup_done": 1000})
    verdict = assess(*jobs)
    assert "after 1,000 queries in 1 of 5 jobs without a steady level" in verdict.reasons[0]


def test_compiler_running_beside_the_queries_is_named() -> None:
    phases = (Phase("trial-0", 0, 10_000_000_000),)
    warm, cold = result(phases=phases, compiled_s=0.1), result(phases=phases, compiled_s=4.9)
    assert assess(warm).validity is Validity.CLEAN
    verdict = assess(warm, cold)
    assert verdict.validity is Validity.NOISY
    assert "just-in-time compiler threads took 25% of the trials' time (warm: up to 5%)" in verdict.reasons[0]
    capped = result(phases=phases, compiled_s=4.9, warmup_cap=20_000, protocol="mine", warmup_steady=True)
    (reason,) = [reason for reason in assess(capped).reasons if "compiler" in reason]
    assert "raise protocol.warmup_queries" in reason, "warm-up was steady: more of the same changes nothing"
    unsteady = sample_records.nested(capped, {"warmup_steady": False, "warmup_done": 20_000})
    (reason,) = [reason for reason in assess(unsteady).reasons if "compiler" in reason]
    assert "raise protocol.warmup_cap" in reason
    once = result(phases=phases, compiled_s=0.8)
    assert assess(warm, warm, once).validity is Validity.CLEAN, "3 % of all trials cannot move their mean by more"
    assert assess(result(phases=phases)).validity is Validity.CLEAN, "an engine without such threads"


def test_a_cold_first_trial_and_an_unsteady_warm_up_are_one_reason() -> None:
    cold = result(warmup_steady=False, warmup_done=90)
    assert len(assess(cold, facts=SampleFacts(300, (2.0, 1.0), Drift(2.0, 2.0, 1.0, True))).reasons) == 1


def test_server_without_a_rate_names_the_missed_target() -> None:
    cell = replace(sample_records.SPEC.cell, scenario="server")
    params = ScenarioParams(latency_target_s=0.05, latency_percentile=95.0)
    jobs = five(cell=cell, scenario_params=params)
    jobs = [
        sample_records.nested(each, {"rate_qps": None if number < 2 else 100.0}) for number, each in enumerate(jobs)
    ]
    (reason,) = assess(*jobs).reasons
    assert reason.startswith("no rate met p95 <= 50 ms twice in 2 of 5 jobs; raise server.latency_target_s")


def test_short_warm_up_and_unreported_libraries_are_doubts() -> None:
    cold = result(warmup_queries=9, protocol="mine")
    assert assess(cold).validity is Validity.NOISY
    assert "9 warm-up queries ran, the minimum is 10; set protocol.warmup_cap" in assess(cold).reasons[0]
    again = result(warmup_queries=4, warmup_cap=20_000, protocol="mine")
    assert assess(sample_records.nested(again, {"warmup_done": 400})).validity is Validity.CLEAN, "there are no more"
    assert "4 warm-up queries ran, the minimum is 10; raise protocol.warmup_cap" in assess(again).reasons[0]
    assert "reports no thread counts" in assess(result(effective=SEEN)).reasons[0]
    assert assess(result(effective=replace(SEEN, threads={"faiss_omp": 1}))).validity is Validity.CLEAN


def test_remedy_for_a_cold_start_fits_the_suite() -> None:
    """A sample that is judged whole lends a fifth of itself, however many warm-up queries are asked for."""
    cold = SampleFacts(None, start=ColdStart(10, 2.0))

    def message(**changes: Any) -> str:
        return assess(result(protocol="mine", **changes), facts=cold).reasons[0]

    assert "set protocol.warmup_cap" in message()
    assert "raise protocol.warmup_queries in the suite, then" in message(warmup_cap=20_000)
    assert "beyond a fifth of the sample, add queries" in message(warmup_cap=20_000, held_out=10)


def test_process_isolation_is_marked_but_not_doubted() -> None:
    verdict = assess(result(isolation=PROCESS.name))
    assert verdict.validity is Validity.CLEAN
    assert "nothing enforced the memory limit or the network ban; not comparable" in verdict.reasons[0]
    assert verdict.reasons[0].endswith(FRESH.replace("--fresh", "--launcher docker"))


def test_fake_launcher_is_never_valid() -> None:
    verdict = assess(result(isolation=FAKE.name))
    assert verdict.validity is Validity.INVALID
    assert "nothing was measured" in verdict.reasons[0]


def test_failed_job_raises_no_doubts_about_numbers() -> None:
    failed = result(Outcome.OOM, throttled_periods=9, trials_finished=0)
    assert assess(failed) == validity.Assessment(Validity.CLEAN, ())
    process = result(Outcome.OOM, isolation=PROCESS.name)
    assert len(assess(process).reasons) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trials": 1}, "protocol santhanam2023 with trials 1 (the paper: 5)"),
        ({"warmup_queries": 1500}, "protocol santhanam2023 with warmup_queries 1,500 (the paper: 10)"),
        ({"trials": 2, "k": 3}, "protocol santhanam2023 with trials 2 (the paper: 5), k 3 (the paper: 10)"),
        ({"sample_size": 1001}, "protocol santhanam2023 with sample_size 1,001 (the paper: 1,000)"),
    ],
)
def test_changed_protocol_is_a_remark(changes: dict[str, int], message: str) -> None:
    changed = result(**changes)
    assert assess(changed) == validity.Assessment(Validity.CLEAN, (Finding(Cause.PROTOCOL, Validity.CLEAN, message),))
    assert assess(replace(changed, outcome=Outcome.OOM)).reasons == ()


def test_options_outside_a_protocol_are_not_a_change() -> None:
    assert assess(result(sample_size=50)).reasons == ()
    assert assess(result(protocol="mine", trials=1)).reasons == ()

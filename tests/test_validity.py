from dataclasses import replace
from typing import Any

import pytest

from harness import validity
from harness.records import Cell, EffectiveEnvelope, Envelope, Environment, Isolation, Outcome, Result, ResultSpec
from harness.table import Validity

AGAIN = "run its suite again with --fresh --only 'bm25/scifact/single_stream/cpu1-mem1'"


def result(isolation: Isolation = Isolation.CONTAINER, **changes: Any) -> Result:
    spec = ResultSpec(
        cell=Cell("s", "bm25", "scifact", "single_stream", "cpu1-mem1"),
        protocol="santhanam2023",
        envelope=Envelope("cpu1-mem1", 1, 2**30),
        isolation=isolation,
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
    environment = Environment("CPU", "x86_64", 2, 2**34, "6.1", 1, "20.10", "0.1", None)
    whole = Result(
        key="k",
        spec=spec,
        outcome=Outcome.OK,
        detail=None,
        started_at="2026-01-01T00:00:00+00:00",
        wall_s=1.0,
        environment=environment,
        throttled_periods=0,
        ranking_disagreements=0,
        trials_finished=5,
    )
    return replace(whole, **changes)


def test_a_good_result_is_clean() -> None:
    verdict = validity.assess(result(), trial_means_s=[0.010, 0.011, 0.0124], queries_timed=300)
    assert verdict == validity.Verdict(Validity.CLEAN, ())


def test_what_was_not_read_is_no_reproach() -> None:
    unread = result(throttled_periods=None, ranking_disagreements=None)
    assert validity.assess(unread).validity is Validity.CLEAN


@pytest.mark.parametrize(
    ("changes", "means", "queries", "expected", "fact"),
    [
        ({"throttled_periods": 1234}, (), 300, Validity.INVALID, "throttled the job in 1,234 periods"),
        ({"trials_finished": 3}, (), 300, Validity.NOISY, "only 3 of 5 trials finished"),
        ({}, (), 290, Validity.NOISY, "290 of 300 sample queries were timed"),
        ({"ranking_disagreements": 7}, (), 300, Validity.NOISY, "7 of 300 queries were ranked differently"),
        ({}, (0.013, 0.010, 0.010), 300, Validity.NOISY, "the first trial is the slowest (trial means 13, 10, 10 ms)"),
        (
            {"warmup_steady": False, "warmup_done": 90},
            (0.010, 0.010),
            300,
            Validity.NOISY,
            "warm-up ended at its cap after 90 queries without a steady level",
        ),
        ({}, (0.010, 0.013), 300, Validity.NOISY, "1.30 times the fastest's (steady: up to 1.25), 13 against 10 ms"),
    ],
)
def test_each_doubt_states_fact_figure_and_command(
    changes: dict[str, Any], means: tuple[float, ...], queries: int, expected: Validity, fact: str
) -> None:
    verdict = validity.assess(result(**changes), trial_means_s=means, queries_timed=queries)
    assert verdict.validity is expected
    assert len(verdict.reasons) == 1
    assert fact in verdict.reasons[0]
    assert AGAIN in verdict.reasons[0]


def test_the_worst_decides_and_all_are_told() -> None:
    bad = result(throttled_periods=2, trials_finished=1, ranking_disagreements=3)
    verdict = validity.assess(bad, trial_means_s=[1.0, 2.0], queries_timed=299)
    assert verdict.validity is Validity.INVALID
    assert len(verdict.reasons) == 5


def test_the_spread_limit_itself_is_steady() -> None:
    assert validity.assess(result(), trial_means_s=[0.8, 1.0]).validity is Validity.CLEAN
    assert validity.assess(result(), trial_means_s=[0.79, 1.0]).validity is Validity.NOISY


def test_too_little_warm_up_and_silent_libraries_are_doubts() -> None:
    cold = result()
    cold = replace(cold, spec=replace(cold.spec, warmup_queries=9))
    assert validity.assess(cold).validity is Validity.NOISY
    assert "9 warm-up queries, the least is 10" in validity.assess(cold).reasons[0]
    seen = EffectiveEnvelope((1,), 1, 2**30, 0, -1.0, 512, 0, ("lo",), True, 0, True, 65532)
    assert "says no library's thread count" in validity.assess(result(effective=seen)).reasons[0]
    assert validity.assess(result(effective=replace(seen, threads={"faiss_omp": 1}))).validity is Validity.CLEAN


def test_process_is_marked_but_not_doubted() -> None:
    verdict = validity.assess(result(Isolation.PROCESS))
    assert verdict.validity is Validity.CLEAN
    assert "the memory limit of 1,024 MiB and the network were not enforced" in verdict.reasons[0]
    assert verdict.reasons[0].endswith(AGAIN.replace("--fresh", "--launcher docker"))


def test_fake_is_never_valid() -> None:
    verdict = validity.assess(result(Isolation.FAKE))
    assert verdict.validity is Validity.INVALID
    assert "nothing was measured" in verdict.reasons[0]


def test_a_failed_job_has_no_numbers_to_doubt() -> None:
    failed = result(outcome=Outcome.OOM, throttled_periods=9, trials_finished=0)
    assert validity.assess(failed) == validity.Verdict(Validity.CLEAN, ())
    process = result(Isolation.PROCESS, outcome=Outcome.OOM)
    assert len(validity.assess(process).reasons) == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"trials": 1}, "protocol santhanam2023 with trials 1 (the paper: 5)"),
        ({"warmup_queries": 1500}, "protocol santhanam2023 with warmup_queries 1,500 (the paper: 10)"),
        ({"trials": 2, "k": 3}, "protocol santhanam2023 with trials 2 (the paper: 5), k 3 (the paper: 10)"),
        ({"sample_size": 1001}, "protocol santhanam2023 with sample_size 1,001 (the paper: 1,000)"),
    ],
)
def test_a_changed_protocol_is_said_but_not_doubted(changes: dict[str, int], said: str) -> None:
    changed = result(spec=replace(result().spec, **changes), trials_finished=changes.get("trials", 5))
    assert validity.assess(changed) == validity.Verdict(Validity.CLEAN, (said,))
    assert validity.assess(replace(changed, outcome=Outcome.OOM)).reasons == ()


def test_what_a_protocol_leaves_open_is_no_change() -> None:
    small = replace(result().spec, sample_size=50)
    assert validity.assess(result(spec=small)).reasons == ()
    another = replace(result().spec, protocol="mine", trials=1)
    assert validity.assess(result(spec=another)).reasons == ()

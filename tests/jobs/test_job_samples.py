"""Samples are checked against the job's spec, for each scenario."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.driver.output import REPEAT_TRIAL, WARMUP_TRIAL
from harness.driver.records import MAX_PROBES, JobSpec, Measurement, Outcome, Probe
from harness.driver.scenarios import repeat_queries
from harness.jobs import job_samples
from harness.jobs.job_samples import Sample
from harness.launch.base import LaunchRequest
from tests.jobs.test_collect import SPEC, line
from tests.support.job_fixtures import PREPARED

OK = Measurement(Outcome.OK, None, None)


def read(folder: Path, spec: JobSpec, *lines: dict[str, Any]) -> tuple[list[Sample], set[str], str | None]:
    job = LaunchRequest(spec, PREPARED, folder, folder, folder)
    job.out.mkdir(exist_ok=True)
    (job.out / "samples.jsonl").write_text("".join(json.dumps(fields) + "\n" for fields in lines), encoding="utf-8")
    return job_samples.read_samples(job)


def sample(trial: int, query_id: str, **change: Any) -> Sample:
    return replace(Sample(trial, query_id, 1_000_000_000, {}, b"", []), **change)


def missing(spec: JobSpec, *samples: Sample, measurement: Measurement = OK) -> str | None:
    return job_samples.incomplete(spec, measurement, list(samples))


def honest(spec: JobSpec, trials: int) -> list[Sample]:
    timed = [sample(spec.first_trial + n, query.query_id) for n in range(trials) for query in spec.sample]
    twice = [sample(REPEAT_TRIAL, query.query_id) for query in repeat_queries(spec) for _ in range(2)]
    return [*(sample(WARMUP_TRIAL, query.query_id) for query in spec.warmup), *timed, *twice]


def test_job_may_use_only_its_own_trial_numbers(tmp_path: Path) -> None:
    third = replace(SPEC, first_trial=3, trials=1)
    samples, doc_ids, wrong = read(tmp_path, third, line(-1, "w0"), line(3, "q0"), line(3, "q1"))
    assert wrong is None and doc_ids == {(): {"d1", "d2"}}
    assert [len(one.hits) for one in samples] == [2, 2, 2], "of warm-up and the first trial"
    for trial in (0, 2, 4):
        assert read(tmp_path, third, line(trial, "q0"))[2] == f"samples.jsonl: line 1: trial {trial}, asked for 3 to 3"


def test_hits_are_held_for_one_trial_only(tmp_path: Path) -> None:
    samples, _, _ = read(tmp_path, SPEC, line(0, "q0"), line(1, "q0"), line(-2, "q0"))
    assert [bool(one.hits) for one in samples] == [True, False, False]
    assert len({one.ranking for one in samples}) == 1


def test_number_of_tried_rates_is_limited(tmp_path: Path) -> None:
    server = replace(SPEC, scenario="server")
    assert read(tmp_path, server, line(MAX_PROBES - 1, "q0"))[2] is None
    assert read(tmp_path, server, line(MAX_PROBES, "q0"))[2] == (
        f"samples.jsonl: line 1: trial {MAX_PROBES}, asked for 0 to {MAX_PROBES - 1}"
    )


def test_scenario_columns_are_read_and_checked(tmp_path: Path) -> None:
    samples, _, _ = read(tmp_path, SPEC, line(0, "q0", scheduled_ns=7, service_ns=3), line(0, "q1", batch=0))
    assert [(one.scheduled_ns, one.service_ns, one.batch) for one in samples] == [
        (7, 3, None),
        (None, None, 0),
    ]


@pytest.mark.parametrize("value", [-1, 1 << 62, 0.5, True, "1", None, [1]])
@pytest.mark.parametrize("name", ["scheduled_ns", "service_ns", "batch"])
def test_invalid_scenario_value_is_named(tmp_path: Path, name: str, value: object) -> None:
    wrong = read(tmp_path, SPEC, line(0, "q0", **{name: value}))[2]
    assert wrong is not None and wrong.startswith(f"samples.jsonl: line 1: {name} ")
    assert wrong.endswith("is not a whole number of 0 or more")


def test_endless_lines_are_read_up_to_a_limit(tmp_path: Path) -> None:
    samples, _, wrong = read(tmp_path, SPEC, *[line(0, "q0")] * 1000)
    assert wrong == "samples.jsonl: line 11: more than 10 samples" and len(samples) == 10


def test_endless_stages_are_refused(tmp_path: Path) -> None:
    many = [line(0, "q0", stages_ns={f"s{n}": 1}) for n in range(5)]
    wide = line(0, "q0", stages_ns={f"t{n}": 1 for n in range(17)})
    assert read(tmp_path, SPEC, *many)[2] is None
    assert read(tmp_path, SPEC, *many, wide)[2] == "samples.jsonl: line 6: more than 16 stages"


def test_samples_of_every_trial_and_repeat_are_required() -> None:
    spec = replace(SPEC, first_trial=3, trials=1, repeats=1)
    samples = honest(spec, 1)
    assert missing(spec, *samples) is None
    assert missing(spec, *samples[:-1]) == "1 of 5 samples are missing"
    assert missing(spec, *samples, samples[-1]) == "1 samples come twice"
    (other,) = {query.query_id for query in spec.sample} - {query.query_id for query in repeat_queries(spec)}
    assert missing(spec, *samples, sample(REPEAT_TRIAL, other)) == f"query {other!r} was not asked for in trial -2"


def test_warm_up_may_repeat_its_queries_up_to_the_cap() -> None:
    spec = replace(SPEC, warmup_cap=3)
    more = [sample(WARMUP_TRIAL, "w0")] * 2
    assert missing(spec, *honest(spec, 2), *more) is None
    assert missing(spec, *honest(spec, 2), *more, *more) == "2 samples come twice"


def test_each_tried_rate_needs_all_its_queries() -> None:
    spec = replace(SPEC, scenario="server")
    probes = tuple(Probe(trial, 10.0, 2, 0.01, 0, True, False) for trial in range(3))
    measured = replace(OK, probes=probes)
    assert missing(spec, *honest(spec, 3), measurement=measured) is None
    assert missing(spec, *honest(spec, 2), measurement=measured) == "2 of 7 samples are missing"


def test_busy_time_counts_a_batch_once_and_excludes_queueing() -> None:
    assert job_samples.worked_s(SPEC, [sample(0, "q0"), sample(0, "q1")]) == 2.0
    batches = [sample(0, "q0", batch=0), sample(0, "q1", batch=0), sample(1, "q0", batch=0)]
    assert job_samples.worked_s(SPEC, batches) == 2.0
    waited = [sample(0, "q0", service_ns=250_000_000), sample(0, "q1", service_ns=250_000_000)]
    assert job_samples.worked_s(replace(SPEC, scenario="server"), waited) == 0.5


def test_busy_time_counts_concurrent_streams_once() -> None:
    """Three streams: two queries side by side, one a little later, one after a rest; and the same in another trial."""
    spec = replace(SPEC, scenario="server")

    def served(trial: int, scheduled_ms: int, latency_ms: int, service_ms: int) -> Sample:
        times = {"latency_ns": latency_ms, "scheduled_ns": scheduled_ms, "service_ns": service_ms}
        return sample(trial, "q0", **{name: value * 1_000_000 for name, value in times.items()})

    # In milliseconds: twice 0 to 100, then 50 to 150, 120 to 140 (inside), and 300 to 400 after 200 in a queue.
    one = [served(0, 0, 100, 100), served(0, 0, 100, 100), served(0, 50, 100, 100), served(0, 110, 30, 20)]
    one.append(served(0, 100, 300, 100))
    assert job_samples.worked_s(spec, one) == pytest.approx(0.25)
    again = [replace(query, trial=1) for query in one]
    assert job_samples.worked_s(spec, [*one, *again]) == pytest.approx(0.5), "trials run one after another"
    assert job_samples.worked_s(spec, [sample(WARMUP_TRIAL, "w0"), sample(WARMUP_TRIAL, "w0"), *one]) == pytest.approx(
        2.25
    )

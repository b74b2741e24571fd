"""The search fed with stored jobs: verdicts, resume, noise, refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.driver.records import Outcome
from harness.errors import EngineError, FileError, HarnessError, JobError, UsageError
from harness.experiments.viability import curve
from harness.experiments.viability.acceptance import Criteria
from harness.experiments.viability.minimum import Minimum
from harness.experiments.viability.probe import MIB, SUITE
from harness.experiments.viability.render_minimum import minima_document
from harness.experiments.viability.search import CONFIRMATIONS, PROBES
from harness.experiments.viability.session import Session
from harness.experiments.viability.smallest import ViabilityVerdict, smallest
from harness.launch.base import LaunchEnd, LaunchRequest
from harness.pricing import prices
from harness.report import writers
from harness.report.verify import verify_results
from harness.results.reader import StoredJob, read_jobs
from tests.experiments.viability.conftest import STIRRED, Life, Questions, Scripted, needs
from tests.support import sample_records

pytestmark = pytest.mark.slow


def limits(verdict: ViabilityVerdict, purpose: str) -> list[int]:
    return [job.limit_bytes // MIB for job in verdict.evidence if job.purpose == purpose]


def test_smallest_limit_is_confirmed_and_names_its_evidence(questions: Questions) -> None:
    question, launcher = questions(needs(129))
    verdict = smallest(question, 1)
    assert (verdict.limit_bytes, verdict.below_bytes) == (144 * MIB, 128 * MIB)
    assert verdict.binding == ("oom",) and verdict.sharp
    assert limits(verdict, "probe") == [112, 144, 128]
    assert limits(verdict, "confirmation") == [144] * CONFIRMATIONS
    assert limits(verdict, "next step below") == [128]
    assert launcher.limits == [None] * 3 + [112, 144, 128, 144, 144, 144, 128]
    assert verdict.margin_bytes == 44 * MIB
    assert verdict.jobs == 10 == len(launcher.limits)
    assert verdict.unconstrained.containers == 3 and verdict.unconstrained.peak_anon_bytes == 100 * MIB
    for job in verdict.evidence:
        stored = json.loads((questions.bench.results / job.job / "result.json").read_text())
        assert stored["spec"]["envelope"]["memory_bytes"] == job.limit_bytes
        assert stored["outcome"] == job.outcome


# In the unconstrained containers, after them, in the probes, in the confirmations, and at the end.
@pytest.mark.parametrize(
    "after", [1, 3, 5, 8, 10, *(pytest.param(job, marks=pytest.mark.soak) for job in (0, 2, 4, 6, 7, 9))]
)
def test_search_interrupted_after_any_job_resumes_without_repeating_one(questions: Questions, after: int) -> None:
    whole = 10

    def cut(limit: int | None, before: int) -> Life:
        if len(launcher.limits) == after:
            raise KeyboardInterrupt
        return needs(129)(limit, before)

    question, launcher = questions(cut)
    if after < whole:
        with pytest.raises(KeyboardInterrupt):
            smallest(question, 1)
    else:
        smallest(question, 1)
    assert len(read_jobs(questions.bench.results)) == min(after, whole) if after else True
    question, second = questions(needs(129))
    verdict = smallest(question, 1)
    assert len(second.limits) == whole - min(after, whole), "each probe once, also those that failed"
    assert verdict.limit_bytes == 144 * MIB
    assert len({job.job for job in verdict.evidence}) == len(verdict.evidence) == 7


def test_fresh_search_starts_over_and_resumes(questions: Questions) -> None:
    assert smallest(questions(needs(129))[0], 1).limit_bytes == 144 * MIB

    def cut(limit: int | None, before: int) -> Life:
        if len(launcher.limits) == 5:
            raise KeyboardInterrupt
        return needs(145)(limit, before)

    question, launcher = questions(cut, fresh=True)
    with pytest.raises(KeyboardInterrupt):
        smallest(question, 1)
    question, launcher = questions(needs(145))
    assert smallest(question, 1).limit_bytes == 160 * MIB
    assert launcher.limits[0] is not None, "the three unconstrained ones were there"
    assert len(read_jobs(questions.bench.results)) == 20, "earlier jobs stay"


def test_fresh_search_that_never_began_keeps_earlier_jobs(questions: Questions) -> None:
    first = smallest(questions(needs(129))[0], 1)

    def never(*_: object) -> Life:
        raise KeyboardInterrupt

    question, _ = questions(never, fresh=True)
    with pytest.raises(KeyboardInterrupt):
        smallest(question, 1)
    question, launcher = questions(needs(1))
    assert smallest(question, 1) == first and launcher.limits == []


def test_queries_unstable_without_a_limit_do_not_fail_a_limit(questions: Questions) -> None:
    question, _ = questions(
        lambda limit, before: Life(first=f"d{before}") if limit is None else needs(129)(limit, before)
    )
    verdict = smallest(question, 1)
    assert verdict.limit_bytes == 144 * MIB
    assert verdict.unconstrained.unstable_queries == 4


def test_marginal_latency_is_compared_with_a_control_of_that_moment(questions: Questions) -> None:
    """The probe of 112 MiB and the unconstrained job after it are both slow: neither counts."""

    def busy(limit: int | None, before: int) -> Life:
        slow = (limit == 112 and before == 0) or (limit is None and before == 3)
        return Life(ms=18) if slow else Life()

    question, launcher = questions(busy)
    verdict = smallest(question, 1)
    assert [job.purpose for job in verdict.evidence[:3]] == ["discarded", "control", "probe"]
    assert len(limits(verdict, "probe")) == verdict.probes, "each probe is one job"
    assert launcher.limits[3:6] == [112, None, 112]
    assert verdict.limit_bytes is not None and verdict.limit_bytes < 112 * MIB, "it was the machine"
    assert "discarded" in questions.messages.getvalue()
    again, second = questions(needs(1))
    assert smallest(again, 1) == verdict and second.limits == []


def test_doubtful_job_without_a_control_is_ignored(questions: Questions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut off between the two: what the machine was like then, nobody knows later."""

    def cut(limit: int | None, before: int) -> Life:
        if len(launcher.limits) == 4:
            raise KeyboardInterrupt
        return Life(ms=18) if limit == 112 else Life()

    monkeypatch.setattr(
        "harness.experiments.viability.session.RIGHT_AFTER_S", -60.0
    )  # no fake job lasts the minute that it claims
    question, launcher = questions(cut)
    with pytest.raises(KeyboardInterrupt):
        smallest(question, 1)
    question, launcher = questions(needs(129))
    verdict = smallest(question, 1)
    assert launcher.limits[:2] == [112, 144], "measured again, and no control was run for what is past"
    assert verdict.evidence[0].purpose == "discarded" and verdict.limit_bytes == 144 * MIB


def test_marginal_latency_on_a_quiet_machine_fails_after_its_retries(questions: Questions) -> None:
    question, launcher = questions(lambda limit, _: Life(ms=18) if limit is not None and limit < 140 else Life())
    verdict = smallest(question, 1)
    assert verdict.limit_bytes == 144 * MIB and verdict.binding == ("latency",)
    assert launcher.limits[3:9] == [112, None, 112, None, 112, None]
    assert verdict.probes <= PROBES


def test_busy_machine_ends_the_search_in_one_line_and_it_resumes_later(questions: Questions) -> None:
    def busy(limit: int | None, before: int) -> Life:
        return Life(ms=18) if len(launcher.limits) >= 3 else Life()

    question, launcher = questions(busy)
    with pytest.raises(HarnessError, match=r"too busy to judge a latency.*18 ms, 10 ms before.*goes on from here"):
        smallest(question, 1)
    assert launcher.limits[3:] == [112, None] * 3
    question, launcher = questions(needs(129))
    assert smallest(question, 1).limit_bytes == 144 * MIB


def test_disturbed_unconstrained_job_is_repeated_and_left_out(questions: Questions) -> None:
    question, launcher = questions(
        lambda limit, before: (
            Life(ms=30, canary=STIRRED) if limit is None and before == 0 else needs(129)(limit, before)
        )
    )
    verdict = smallest(question, 1)
    assert launcher.limits.count(None) == 4
    assert verdict.unconstrained.containers == 3 and verdict.unconstrained.disturbed == 0
    assert verdict.targets == {"mean": pytest.approx(0.0125)}
    assert len(verdict.unconstrained.jobs) == 3 and len(verdict.unconstrained.left_out) == 1
    assert verdict.jobs == len(launcher.limits)
    for job in (*verdict.unconstrained.jobs, *verdict.unconstrained.left_out):
        assert (questions.bench.results / job / "result.json").is_file()


def test_target_missed_without_a_limit_is_one_line_and_jobs_are_kept(questions: Questions) -> None:
    question, _ = questions(needs(1), Criteria({"mean": 0.005}))
    with pytest.raises(UsageError, match=r"planted on 1 CPU: mean is 10 ms with all the memory.*target is 5 ms"):
        smallest(question, 1)
    assert len(read_jobs(questions.bench.results / SUITE)) == 3
    question, launcher = questions(needs(1), Criteria(least={"RR@10": 0.9}))
    with pytest.raises(UsageError, match=r"RR@10 is 0\.\d+ with all the memory.*at least 0\.9 is asked"):
        smallest(question, 1)
    assert launcher.limits == [], "the same jobs"


def test_uninformative_outcome_is_not_evidence(questions: Questions) -> None:
    question, _ = questions(lambda limit, _: Life(Outcome.ENVELOPE_MISMATCH) if limit == 112 else Life())
    with pytest.raises(JobError, match=r"112 MiB ended envelope_mismatch .* says nothing of its limit"):
        smallest(question, 1)
    question, launcher = questions(needs(129))
    assert smallest(question, 1).limit_bytes == 144 * MIB
    assert launcher.limits[0] == 112, "measured again"


def test_lost_engine_leaves_no_evidence(questions: Questions, monkeypatch: pytest.MonkeyPatch) -> None:
    question, _ = questions(needs(129))
    launch = Scripted.launch

    def gone(self: Scripted, job: LaunchRequest, progress: object) -> LaunchEnd:
        if job.spec.envelope.memory_bytes == 112 * MIB:
            raise EngineError("the Docker engine went away")
        return launch(self, job, progress)

    monkeypatch.setattr(Scripted, "launch", gone)
    with pytest.raises(EngineError):
        smallest(question, 1)
    monkeypatch.undo()
    assert len(read_jobs(questions.bench.results)) == 3


def test_stored_verdict_holds_no_prices(questions: Questions) -> None:
    verdict = smallest(questions(needs(129))[0], 1)
    (path,) = (questions.bench.results / SUITE / "planted" / "tiny" / "verdicts").iterdir()
    kept = json.loads(path.read_text())
    assert kept["limit_bytes"] == verdict.limit_bytes and len(kept["evidence"]) == 7
    assert "usd" not in path.read_text()
    folder = path.parent
    smallest(questions(needs(129))[0], 1)
    assert len(list(folder.iterdir())) == 1
    for at_most in (0.1, 0.2):
        smallest(questions(needs(129), Criteria({"mean": at_most}))[0], 1)
    assert len(list(folder.iterdir())) == 3, "each question has its own"


def test_verdict_that_cannot_be_written_is_one_line_and_jobs_are_kept(questions: Questions) -> None:
    question, _ = questions(needs(129))
    question.jobs.folder.mkdir(parents=True)
    (question.jobs.folder / "verdicts").write_text("no folder")
    with pytest.raises(FileError, match=r"cpu1-[0-9a-f]{12}\.json: cannot be written"):
        smallest(question, 1)
    assert len(read_jobs(questions.bench.results)) == 10


VERDICT_EDITS = {
    "limit": ("seal", lambda raw: raw.update(limit_bytes=raw["limit_bytes"] // 2)),
    "target": ("seal", lambda raw: raw["targets"].update(mean=9.0)),
    "sharpness": ("seal", lambda raw: raw.update(sharp=not raw["sharp"])),
    "margin": ("seal", lambda raw: raw.update(margin_bytes=1)),
    "count": ("jobs", lambda raw: raw.update(jobs=99)),
    "outcome": ("evidence 1: outcome", lambda raw: raw["evidence"][0].update(outcome="ok")),
    "faults": ("evidence 1: major_faults", lambda raw: raw["evidence"][0].update(major_faults=12345)),
    "job": ("evidence 2", lambda raw: raw["evidence"][1].update(job="viable/none")),
    "long name": ("evidence 2", lambda raw: raw["evidence"][1].update(job="x" * 5000)),
    "unconstrained": ("unconstrained", lambda raw: raw["unconstrained"].update(jobs=["none"])),
    "no seal": ("seal", lambda raw: raw.pop("seal")),
    "no evidence": ("", lambda raw: raw.pop("evidence")),
}


def test_verify_names_each_edit_of_a_verdict(questions: Questions) -> None:
    smallest(questions(needs(129))[0], 1)
    results = questions.bench.results
    (path,) = (results / SUITE / "planted" / "tiny" / "verdicts").iterdir()
    whole = path.read_text()
    for name, (place, edit) in VERDICT_EDITS.items():
        raw = json.loads(whole)
        edit(raw)
        path.write_text(json.dumps(raw))
        verdict = verify_results(results).mismatches
        below = [job.place.removeprefix(str(path.relative_to(results))).removeprefix(": ") for job in verdict]
        assert place in below, (name, list(map(str, verdict)))
    path.write_text(json.dumps(json.loads(whole)))
    assert verify_results(results).mismatches == ()


def test_stored_kill_above_the_limit_raises_the_limit(questions: Questions) -> None:
    """A curve's job was killed where the search's own jobs pass: a heap that grows by luck."""
    question, _ = questions(
        lambda limit, before: Life(Outcome.OOM) if limit == 148 and not before else needs(129)(limit, before)
    )
    curve.measure_curve(question, 1, (132 * MIB, 148 * MIB, 200 * MIB))
    verdict = smallest(question, 1)
    assert (verdict.limit_bytes, verdict.below_bytes) == (160 * MIB, 148 * MIB)
    assert limits(verdict, "other job") == [132, 148]
    assert limits(verdict, "confirmation") == [144] * 3 + [160] * 3
    assert limits(verdict, "next step below") == [128]
    assert not verdict.sharp, "144 passed, and was too small"
    assert verdict.binding == ("oom",) and verdict.probes == 3
    assert "killed with 148 MiB in another job: moves up" in questions.messages.getvalue()
    again, launcher = questions(needs(1))
    assert smallest(again, 1) == verdict and launcher.limits == []
    question, _ = questions(
        lambda limit, before: Life(Outcome.OOM) if limit == 164 else needs(145)(limit, before), fresh=True
    )
    curve.measure_curve(question, 1, (164 * MIB,))
    question, _ = questions(lambda limit, before: Life(Outcome.OOM) if limit == 164 else needs(145)(limit, before))
    verdict = smallest(question, 1)
    assert (verdict.limit_bytes, verdict.below_bytes, verdict.sharp) == (176 * MIB, 164 * MIB, False)
    assert smallest(questions(needs(1))[0], 1) == verdict


def test_slow_job_above_the_limit_is_noted_and_keeps_the_limit(questions: Questions) -> None:
    question, _ = questions(lambda limit, before: Life(ms=90) if limit == 148 else needs(129)(limit, before))
    curve.measure_curve(question, 1, (148 * MIB,))
    verdict = smallest(question, 1)
    assert verdict.limit_bytes == 144 * MIB and not verdict.sharp
    assert limits(verdict, "other job") == [148]


def test_flaky_limit_is_noted_with_its_counts(questions: Questions) -> None:
    question, _ = questions(
        lambda limit, before: Life(Outcome.OOM) if limit == 144 and before == 2 else needs(129)(limit, before)
    )
    verdict = smallest(question, 1)
    assert (verdict.limit_bytes, verdict.below_bytes, verdict.sharp) == (160 * MIB, 144 * MIB, False)
    minimum = Minimum("planted", "tiny", 0, (verdict,), {}, None)
    text = writers.write(minima_document([minimum], Criteria(), prices.snapshot()), "md")
    assert "3 of 4 jobs with 144 MiB passed; the others: oom." in text


def test_jobs_of_another_machine_are_not_evidence(questions: Questions, monkeypatch: pytest.MonkeyPatch) -> None:
    smallest(questions(needs(129))[0], 1)
    monkeypatch.setattr("harness.jobs.environment.cpu_model", lambda: "another")
    question, launcher = questions(needs(145))
    assert smallest(question, 1).limit_bytes == 160 * MIB
    assert launcher.limits[:3] == [None] * 3
    monkeypatch.setattr("harness.jobs.environment.commit", lambda: "0123")
    question, launcher = questions(needs(1))
    smallest(question, 1)
    assert launcher.limits == [], "another commit of harness is no other machine"


def test_control_is_found_after_a_job_whose_time_is_beyond_the_calendar(tmp_path: Path) -> None:
    first = StoredJob(tmp_path, replace(sample_records.result(Outcome.OK), wall_s=9e18))
    session: Any = object.__new__(Session)
    session.question = SimpleNamespace(jobs=SimpleNamespace(next_after=lambda _: first))
    session._whole = first.result.spec.envelope
    assert session._right_after(SimpleNamespace(job=first, result=first.result)) is first

"""A search ends on any machine, and its stored jobs give the same verdict again."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from harness.driver.records import Outcome
from harness.errors import HarnessError
from harness.experiments.viability import curve, session
from harness.experiments.viability.probe import MIB, SUITE
from harness.experiments.viability.search import PROBES
from harness.experiments.viability.session import MAXIMUM_JOBS
from harness.experiments.viability.smallest import ViabilityVerdict, smallest
from harness.untrusted import to_json
from tests.experiments.viability.conftest import Life, Questions, Script, needs
from tests.support import chance

pytestmark = pytest.mark.slow

# Each is a search of some twenty jobs, cut off at times; ``None``: of another seed each time.
SEEDS = [None, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(8))]


def run_search(questions: Questions, script: Script) -> tuple[str, int]:
    """Return a search's verdict, as stored or as its one line, and how many jobs it ran."""
    question, launcher = questions(script)
    try:
        return to_json(smallest(question, 1)), len(launcher.limits)
    except HarnessError as error:
        return str(error), len(launcher.limits)


def test_kill_while_raising_the_limit_gives_the_same_verdict_again(questions: Questions) -> None:
    """Killed at 116 in a curve, and at 128 in the search's own third confirmation."""

    def script(limit: int | None, before: int) -> Life:
        killed = limit is not None and (limit < 100 or limit == 116 or (limit == 128 and before == 2))
        return Life(Outcome.OOM) if killed else Life()

    curve.measure_curve(questions(script)[0], 1, (116 * MIB,))
    verdict = smallest(questions(script)[0], 1)
    assert (verdict.limit_bytes, verdict.below_bytes, verdict.sharp) == (144 * MIB, 128 * MIB, False)
    again, jobs = run_search(questions, needs(1))
    assert again == to_json(verdict) and jobs == 0


def chaos(seed: int) -> Script:
    """Script a need with a flaky edge and noise; each job's end depends on its number alone."""
    chance = random.Random(seed)
    need, width = chance.randint(60, 300), chance.choice((0, 20, 60))
    noise, killed = chance.choice((0.0, 0.1, 0.4)), chance.choice((0.0, 0.02, 0.1))

    def script(limit: int | None, before: int) -> Life:
        luck = random.Random(f"{seed} {limit} {before}")
        if limit is None:
            if before < 5:
                return Life()
            return Life(Outcome.CRASH) if luck.random() < 0.1 else Life(ms=18 if luck.random() < noise else 10)
        if limit < need - luck.random() * width or luck.random() < killed:
            return Life(Outcome.OOM)
        return Life(ms=luck.choice((18, 60)) if luck.random() < noise else 10)

    return script


def contract(verdict: ViabilityVerdict) -> None:
    """Check a verdict's promises against its evidence."""
    assert verdict.probes <= PROBES and verdict.jobs <= MAXIMUM_JOBS + 50
    assert sum(job.purpose == "probe" for job in verdict.evidence) == verdict.probes
    counted = [job for job in verdict.evidence if job.purpose not in ("control", "discarded")]
    limit, below = verdict.limit_bytes, verdict.below_bytes
    if limit is None:
        assert not verdict.sharp
        return
    here = [job for job in counted if job.limit_bytes == limit and job.purpose == "confirmation"]
    assert sum(job.finding == "passes" for job in here) >= 3
    killed = [job.limit_bytes for job in counted if job.causes == ("oom",)]
    assert not killed or max(killed) < limit
    clean = all(job.finding == "passes" for job in counted if job.limit_bytes >= limit)
    if below is not None:
        clean = clean and not any(job.finding == "passes" for job in counted if job.limit_bytes <= below)
    assert verdict.sharp == (clean and (verdict.lowest or below is not None))


@pytest.mark.parametrize("seed", SEEDS)
def test_any_search_ends_and_repeats_its_verdict_even_if_interrupted(questions: Questions, seed: int | None) -> None:
    seed = chance.chance("search").randrange(10**6) if seed is None else seed
    print(f"seed {seed}")
    luck, script = random.Random(seed), chaos(seed)
    if seed % 3 == 0:
        curve.measure_curve(questions(script)[0], 1, tuple(luck.sample(range(100 * MIB, 300 * MIB, 4 * MIB), 4)))
    count = [0]

    def cut(limit: int | None, before: int) -> Life:
        if count[0] and luck.random() < 0.15:
            raise KeyboardInterrupt
        count[0] += 1
        return script(limit, before)

    for _ in range(200):
        try:
            text, jobs = run_search(questions, numbered(questions, cut))
        except KeyboardInterrupt:
            continue
        if jobs == 0:
            break
    else:
        pytest.fail("it never ended")
    assert count[0] <= 3 * MAXIMUM_JOBS
    again, jobs = run_search(questions, needs(1))
    assert again == text and jobs == 0
    if text.startswith("{"):
        contract(smallest(questions(needs(1))[0], 1))
    else:
        assert "start again with --fresh" in text


def numbered(questions: Questions, script: Script) -> Script:
    """Count on from the stored jobs, as a launcher that was never stopped would."""
    kept = questions.bench.results / SUITE
    stored_mib = [int(path.parent.parent.name.rpartition("mem")[2][:-1]) for path in kept.rglob("result.json")]
    return lambda limit, before: script(
        limit, before + sum(mib == limit if limit is not None else mib > 8000 for mib in stored_mib)
    )


def test_busy_machine_takes_a_bounded_number_of_jobs(questions: Questions, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound holds over any number of repeated commands."""
    monkeypatch.setattr(session, "MAXIMUM_DISCARDED", 12)  # fewer commands until all jobs are used up

    def busy(limit: int | None, before: int) -> Life:
        return Life(ms=18) if limit is not None or before >= 3 else Life()

    ran = []
    for _ in range(4):
        text, jobs = run_search(questions, numbered(questions, busy))
        ran.append(jobs)
    assert sum(ran) <= 3 + MAXIMUM_JOBS and ran[-1] == 0
    assert f"{MAXIMUM_JOBS} jobs gave no verdict" in text and "--fresh" in text


def test_crashed_control_is_ignored_with_its_job(questions: Questions) -> None:
    def script(limit: int | None, before: int) -> Life:
        if limit is None and before == 3:
            return Life(Outcome.CRASH)
        return Life(ms=18) if limit == 112 and before == 0 else needs(129)(limit, before)

    verdict = smallest(questions(script)[0], 1)
    assert verdict.limit_bytes == 144 * MIB
    assert [(job.purpose, job.outcome) for job in verdict.evidence[:2]] == [("discarded", "ok"), ("control", "crash")]
    again, jobs = run_search(questions, needs(1))
    assert again == to_json(verdict) and jobs == 0


def test_a_control_belongs_to_the_job_right_before_it(questions: Questions) -> None:
    """Cut off before its control and gone on with at once: the next job's control is not taken for it later."""

    def cut(limit: int | None, before: int) -> Life:
        if len(launcher.limits) == 4:
            raise KeyboardInterrupt
        return Life(ms=18) if limit == 112 else Life()

    question, launcher = questions(cut)
    with pytest.raises(KeyboardInterrupt):
        smallest(question, 1)
    verdict = smallest(questions(lambda limit, _: Life(ms=18) if limit == 112 else needs(129)(limit, 0))[0], 1)
    assert [job.purpose for job in verdict.evidence[:3]] == ["discarded", "probe", "control"]
    again, jobs = run_search(questions, needs(1))
    assert again == to_json(verdict) and jobs == 0


def test_other_sample_has_its_own_verdict(questions: Questions) -> None:
    """Its verdict is kept beside the first one's."""
    first = smallest(questions(needs(129))[0], 1)
    question, _ = questions(needs(145))
    queries = question.jobs.subject.queries
    question.jobs.subject = replace(question.jobs.subject, queries=replace(queries, sample=queries.sample[:2]))
    other = smallest(question, 1)
    assert (first.sample_size, other.sample_size) == (4, 2) and first.sample_sha256 != other.sample_sha256
    assert first.machine == other.machine and first.corpus_sha256 == other.corpus_sha256
    assert len(list((question.jobs.folder / "verdicts").iterdir())) == 2

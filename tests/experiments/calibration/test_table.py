"""What is off, tried again or excused is said, never hidden."""

from __future__ import annotations

from harness.experiments.calibration import table
from harness.experiments.calibration.table import Line
from harness.experiments.calibration.truths import Verdict

RIGHT = Verdict("mean", "5 ms", "5.01 ms", "+10.0 us (+0.20%)", "50 us", True, 0.2)
NEARLY = Verdict("mean", "5 ms", "5.04 ms", "+40.0 us (+0.80%)", "50 us", True, 0.8)
WRONG = Verdict("mean", "5 ms", "6 ms", "+1,000.0 us (+20.00%)", "50 us", False, 20)
BUSY = "other processes had 52.0% of the job's CPUs (steady: up to 5%); quieten the machine"


def line(*verdicts: Verdict, tries: tuple[int, ...] = (), why: tuple[str | None, ...] = ()) -> Line:
    count = len(verdicts)
    return Line("spin-5ms", verdicts, tries or (1,) * count, why or (None,) * count)


def test_the_worst_of_many_repeats_is_shown() -> None:
    assert line(RIGHT, NEARLY, RIGHT).worst == NEARLY
    assert line(RIGHT, WRONG, NEARLY).worst == WRONG
    assert not line(RIGHT, WRONG, NEARLY).ok


def test_tries_and_repeats_are_counted() -> None:
    assert line(RIGHT).verdict == "ok"
    assert line(WRONG).verdict == "OFF"
    assert line(RIGHT, tries=(2,)).verdict == "ok, 2nd try"
    assert line(WRONG, tries=(3,)).verdict == "OFF, 3rd try"
    assert line(RIGHT, RIGHT, WRONG, tries=(1, 2, 2)).verdict == "OFF, 2 of 3, 2 at a later try"


def test_a_disturbance_excuses_only_what_it_disturbed() -> None:
    assert line(RIGHT, WRONG, why=(None, BUSY)).disturbance == BUSY
    assert line(WRONG, WRONG, why=(None, BUSY)).disturbance is None
    assert line(RIGHT, why=(BUSY,)).disturbance is None, "nothing to excuse"


def test_the_summary_counts_names_and_says_what_to_do() -> None:
    assert table.summary([line(RIGHT)], 61.4) == "1 of 1 figures as planted, in 61 s"
    text = table.summary([line(RIGHT), line(WRONG)], 3)
    assert text == "1 of 2 figures as planted, in 3 s; off: spin-5ms"
    told = table.summary([line(WRONG, why=(BUSY,))], 3)
    assert "disturbed during spin-5ms: other processes had 52.0% of the job's CPUs (steady: up to 5%); quieten" in told


def test_both_forms_hold_every_cell() -> None:
    for form in ("terminal", "md"):
        text = table.render([line(WRONG)], "the remark", form)
        for part in ("spin-5ms", "mean", "5 ms", "6 ms", "+20.00%", "50 us", "OFF", "the remark"):
            assert part in text
    rows = table.markdown([line(RIGHT)], "").splitlines()
    assert {row.count("|") for row in rows[:3]} == {8}

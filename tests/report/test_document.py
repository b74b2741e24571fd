"""Numbers as cells of a report, and how many notes people see first."""

import pytest

from harness.report import document
from harness.report.document import Section, brief, few_lines


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0"),
        (0.000646, "0.000646"),
        (0.0116, "0.0116"),
        (1.634, "1.63"),
        (9.999, "10.0"),
        (12.34, "12.3"),
        (99.96, "100"),
        (146.4, "146"),
        (1024.0, "1024"),
        (123456.7, "123457"),
    ],
)
def test_numbers_have_three_digits(value: float, written: str) -> None:
    assert document.number(value) == written


def test_more_lines_than_fit_are_counted() -> None:
    assert few_lines(("a", "b"), most=2) == ("a", "b")
    assert few_lines(("a", "b", "c"), most=2) == ("a", "2 more notes: --wide")
    assert few_lines(("a", "b"), most=0) == ("2 more notes: --wide",)
    assert few_lines(("a", "b"), "c", most=1, rest="click a number") == ("2 more notes: click a number", "c")


@pytest.mark.parametrize(("count", "last"), [(4, "n3"), (1, "n0"), (6, "2 more notes: --wide")])
def test_brief_sections_keep_the_first_notes(count: int, last: str) -> None:
    shown = brief([Section(title="a", notes=tuple(f"n{number}" for number in range(count)))])
    assert shown[-1].notes[-1] == last and len(shown[-1].notes) <= document.MOST_LINES


def test_one_hidden_note_is_singular() -> None:
    assert brief([Section(title="a", footnotes=("f",))])[-1].notes == ("1 more note: --wide",)
